"""The report in a real browser with the network off. Every text in it is markup."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tuner.report_runs import EVIL, add_failure, add_soup, make_run
from tuner.report.write import write_report

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)",
    ),
    # Selenium leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def eyes() -> ModuleType:
    """docs/report_screenshots.py, which is no package."""
    spec = importlib.util.spec_from_file_location("eyes", ROOT / "docs" / "report_screenshots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(tmp_path_factory.mktemp("browser"))
    add_failure(run)
    add_soup(run)
    return write_report([run])


@pytest.fixture
def driver(eyes: ModuleType, page: Path) -> Iterator[Any]:
    driver = eyes.browser()
    try:
        eyes.open_page(driver, page)
        yield driver
    finally:
        driver.quit()


def until(look: Callable[[], Any]) -> Any:
    """What a look gives as soon as it gives something, however busy the machine."""
    deadline = time.monotonic() + 120
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def faults(driver: Any) -> list[str]:
    return [e["message"] for e in driver.get_log("browser") if e["level"] == "SEVERE"]


def requests(driver: Any) -> list[str]:
    messages = [json.loads(e["message"])["message"] for e in driver.get_log("performance")]
    sent = [m for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [m["params"]["request"]["url"] for m in sent]


def overflowing(driver: Any) -> list[str]:
    """What reaches beyond the window, but for what scrolls inside its own box."""
    return list(
        driver.execute_script(
            """
            const wide = document.documentElement.clientWidth;
            return Array.from(document.querySelectorAll("body *"))
              .filter((e) => e.getBoundingClientRect().right > wide + 1)
              .filter((e) => !e.closest(".scroll, pre, .skip, svg, details:not([open])"))
              .map((e) => e.tagName + "." + e.className);
            """
        )
    )


def test_it_opens_offline_without_an_error_and_complete(driver: Any, page: Path) -> None:
    assert faults(driver) == []
    assert [url for url in requests(driver) if url.startswith(("http", "ws", "ftp"))] == []
    ids = [e.get_attribute("id") for e in driver.find_elements("css selector", "section")]
    assert ids == ["answer", "mattered", "history", "soup", "wrong", "repeat"]
    plots = driver.find_elements("css selector", ".plot")
    assert len(plots) >= 14
    assert all(plot.find_elements("css selector", "svg, canvas") for plot in plots)


def test_the_console_and_the_network_are_really_watched(driver: Any) -> None:
    requests(driver)  # those until now
    driver.execute_script(
        "const i = new Image(); i.src = 'http://nowhere.invalid/x.png';"
        "setTimeout(() => { throw new Error('heard'); });"
    )
    told: list[str] = []
    sent: list[str] = []

    def heard(*words: str) -> bool:
        told.extend(faults(driver))  # each is given once
        sent.extend(requests(driver))
        return all(any(word in fault for fault in told) for word in words)

    # The policy is what stops the picture.
    assert until(lambda: heard("heard", "Content Security Policy")), told
    assert until(lambda: heard() and "http://nowhere.invalid/x.png" in sent), sent


def test_the_answer_fits_a_desktop(driver: Any) -> None:
    driver.set_window_size(1180, 900)
    assert until(lambda: driver.execute_script("return window.innerWidth") == 1180)
    wide, room = driver.execute_script(
        "const box = document.querySelector('#answer .scroll');"
        "return [box.scrollWidth, box.clientWidth]"
    )
    assert wide <= room


def test_script_in_the_data_does_nothing(driver: Any) -> None:
    assert EVIL in driver.find_element("css selector", "#wrong").text
    for plot in driver.find_elements("css selector", ".plot")[:3]:
        driver.execute_script("arguments[0].scrollIntoView()", plot)
    assert driver.execute_script("return window.harmed") is None


def test_a_table_can_be_searched_and_sorted(driver: Any) -> None:
    box = driver.find_element("css selector", "#wrong .searchable")

    def shown() -> list[str]:
        rows = box.find_elements("css selector", "tbody tr")
        return [row.find_elements("css selector", "td")[0].text for row in rows
                if row.is_displayed()]  # fmt: skip

    every = shown()
    field = box.find_element("css selector", "input")
    field.send_keys("near error")
    assert set(shown()) == {"near"} and len(shown()) < len(every)
    assert box.find_element("css selector", "output").text.startswith(f"{len(shown())} of ")
    field.clear()
    field.send_keys("zzz nothing has this")
    assert shown() == []
    field.clear()
    field.send_keys(" ")
    head = box.find_elements("css selector", "th button")[0]
    # By script: pictures that are drawn meanwhile may move what a mouse aims at.
    driver.execute_script("arguments[0].click()", head)
    assert shown() == sorted(every)
    driver.execute_script("arguments[0].click()", head)
    assert shown() == sorted(every, reverse=True)


def test_nothing_overflows_on_a_phone(driver: Any, eyes: ModuleType, page: Path) -> None:
    eyes.phone(driver)
    eyes.open_page(driver, page)
    size = "document.documentElement.{}"
    wide, room = (driver.execute_script(f"return {size.format(n)}")
                  for n in ("scrollWidth", "clientWidth"))  # fmt: skip
    assert room == 375 and wide <= room
    assert overflowing(driver) == []
    assert faults(driver) == []


FROZEN = """
const cells = (row) => [row.cells[0], row.cells[row.cells.length - 1]];
const left = (cell) => Math.round(cell.getBoundingClientRect().left);
return Array.from(document.querySelectorAll(".scroll"))
  .filter((box) => box.querySelector("table") && box.scrollWidth > box.clientWidth + 50)
  .map((box) => {
    const row = cells(box.querySelector("tbody tr"));
    const before = row.map(left);
    box.scrollLeft = 40;
    return row.map(left).map((now, n) => now - before[n]);
  });
"""
LABELS = """
const found = [];
const aslant = (e) => /rotate\\((?!0|-?90)/.test(e.getAttribute("transform"));
for (const plot of document.querySelectorAll(".plot")) {
  for (const axis of ["x", "y"]) {
    const texts = Array.from(plot.querySelectorAll(`.${axis}tick text, .g-${axis}title text`))
      .filter((e) => e.textContent.trim() && !aslant(e));
    const boxes = texts.map((e) => e.getBoundingClientRect());
    for (let n = 0; n < boxes.length; n++) for (let m = 0; m < n; m++) {
      const [a, b] = [boxes[n], boxes[m]];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 2) found.push([plot.id, texts[m].textContent, texts[n].textContent]);
    }
  }
}
return found;
"""


def test_the_first_column_stays_and_no_label_lies_over_another_on_a_phone(
    driver: Any, eyes: ModuleType, page: Path
) -> None:
    eyes.phone(driver)
    eyes.open_page(driver, page)
    moved = driver.execute_script(FROZEN)
    assert moved and all(last == -40 for _, last in moved), moved
    assert [first for first, _ in moved if abs(first) > 1] == []
    assert (over := driver.execute_script(LABELS)) == [], over
    # One that is pushed over its neighbour is seen.
    driver.execute_script(
        "const ticks = document.querySelectorAll('#curves .xtick text');"
        "const [first, second] = ticks;"
        "first.setAttribute('x', second.getAttribute('x'));"
        "for (const each of [first, second]) each.setAttribute('transform', '');"
    )
    assert driver.execute_script(LABELS) != []


def test_it_is_dark_where_the_reader_wants_it_dark(driver: Any, eyes: ModuleType) -> None:
    look = (
        "return [getComputedStyle(document.body).backgroundColor,"
        " document.querySelector('#curves')._fullLayout.paper_bgcolor]"
    )
    light = driver.execute_script(look)
    eyes.colours(driver, "dark")
    until(lambda: driver.execute_script(look)[1] != light[1])  # the pictures are drawn anew
    dark = driver.execute_script(look)
    assert light[0] == "rgb(255, 255, 255)" and dark[0] == "rgb(20, 23, 27)"
    assert light[1] == "#ffffff" and dark[1] == "#14171b"
    assert faults(driver) == []


def test_colouring_by_prediction_shows_the_other_points(driver: Any) -> None:
    view = (
        "return [...new Set(document.querySelector('#pca-mood').data"
        ".filter((t) => t.visible).map((t) => t.meta))]"
    )
    assert driver.execute_script(view) == ["true label"]
    button = driver.find_element("css selector", "button[data-view=prediction]")
    driver.execute_script("arguments[0].click()", button)
    assert until(lambda: driver.execute_script(view) == ["prediction"])


PRINTED = """
const shown = (e) => e.getClientRects().length > 0;
const all = (what) => Array.from(document.querySelectorAll(what)).filter(shown);
const width = (e) => e.getBoundingClientRect().width;
const lines = (e) => {
  const words = document.createRange();
  words.selectNodeContents(e);
  return new Set(Array.from(words.getClientRects(), (r) => Math.round(r.top / 4))).size;
};
return {
  paper: getComputedStyle(document.body).backgroundColor,
  pictures: [...new Set(all(".plot").map((e) => e._fullLayout.paper_bgcolor))],
  undrawn: all(".plot").filter((e) => !e.querySelector("svg")).map((e) => e.id),
  narrow: all("figure").filter((e) => width(e.querySelector(".main-svg")) < 0.8 * width(e))
    .map((e) => e.querySelector(".plot").id),
  halves: new Set(all("figure.half").map((e) => Math.round(e.getBoundingClientRect().left))).size,
  broken: all("td.right, td .ends").filter((e) => lines(e) > 1).map((e) => e.textContent),
  settings: all(".setting").length,
  sections: all("section").length,
};
"""


def test_it_prints_light_and_whole(driver: Any, eyes: ModuleType, tmp_path: Path) -> None:
    eyes.colours(driver, "dark")
    eyes.on_paper(driver)
    found = driver.execute_script(PRINTED)
    assert found["paper"] == "rgb(255, 255, 255)" and found["pictures"] == ["#ffffff"]
    assert found["sections"] == 6 and found["undrawn"] == []
    assert found["halves"] == 2 and found["narrow"] == []  # each as wide as its box
    assert found["broken"] == [] and found["settings"] == 0
    assert overflowing(driver) == []
    made = eyes.printed(driver, tmp_path / "page.pdf").read_bytes()
    assert made.startswith(b"%PDF") and made.count(b"/Type /Page\n") > 3
    assert faults(driver) == []
