"""Pictures of a report as a browser shows it: light, dark, on a phone, and printed.

    python docs/report_screenshots.py runs/default/report.html --out docs/pictures

Needs Selenium, Chromium and its driver (Debian: chromium, chromium-driver).
"""

from __future__ import annotations

import argparse
import base64
import shutil
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # offline
)
PATIENCE = 600  # seconds until every picture is drawn


def browser(width: int = 1280, height: int = 900) -> Any:
    """Headless Chromium without a network, keeping its console and its requests."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    path = shutil.which("chromedriver")
    return webdriver.Chrome(options=options, service=Service(path) if path else None)


def open_page(driver: Any, page: Path) -> None:
    """Open it and wait until every picture is drawn."""
    driver.get(page.absolute().as_uri())
    wait_until_drawn(driver)


def wait_until_drawn(driver: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, PATIENCE).until(
        lambda d: d.execute_script("return window.stockpotReady === true")
    )


def colours(driver: Any, scheme: str) -> None:
    """light or dark, as the reader's system would ask for it."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def phone(driver: Any, width: int = 375, height: int = 812) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def shot(driver: Any, path: Path, section: str | None = None, height: int | None = None) -> Path:
    """The window, from the top of a section on if one is named."""
    if section is not None:
        driver.execute_script(
            "document.documentElement.style.scrollBehavior = 'auto';"
            "document.getElementById(arguments[0]).scrollIntoView()",
            section,
        )
        time.sleep(0.3)
    if height is not None:
        width = driver.execute_script("return window.innerWidth")
        driver.set_window_size(width, height)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(driver.get_screenshot_as_png())
    return path


def on_paper(driver: Any) -> None:
    """The page as a printer is given it, to be looked at: an A4 sheet without its margins."""
    size = {"width": 717, "height": 1060, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    time.sleep(3)


def printed(driver: Any, path: Path) -> Path:
    """The page as it comes out of a printer."""
    made = driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    path.write_bytes(base64.b64decode(made["data"]))
    return path


def smaller(path: Path, colours: int = 128) -> Path:
    """A PNG with a palette, for a README."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(colours).save(path, optimize=True)
    return path


def report_screenshots(page: Path, out: Path) -> list[Path]:
    """The answer, light; what went wrong, dark; the answer on a phone."""
    driver = browser(1180, 980)
    try:
        open_page(driver, page)
        first = smaller(shot(driver, out / "report.png"))
        colours(driver, "dark")
        time.sleep(1.0)
        section = driver.find_element("css selector", "section[id$=wrong]").get_attribute("id")
        second = smaller(shot(driver, out / "report-dark.png", section))
        colours(driver, "light")
        phone(driver)
        open_page(driver, page)
        return [first, second, smaller(shot(driver, out / "report-phone.png"))]
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python docs/report_screenshots.py")
    parser.add_argument("page", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures")
    arguments = parser.parse_args()
    for path in report_screenshots(arguments.page, arguments.out):
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
