"""The pictures of the README: TensorBoard on a run, as a browser shows it.

    python docs/screenshots.py RUN [--out docs/pictures] [--only hparams-table ...]

Needs Debian's packages chromium and chromium-driver (or a Chrome that Selenium finds). The browser
is headless, has an empty profile and cannot reach any other machine.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the tests' own way to start TensorBoard

from tests.tuner.boards import Server, tensorboard_on  # noqa: E402

WIDTH, HEIGHT = 1400, 900
COLOURS = 128  # enough for a page of text and lines; a third of the bytes
PATIENCE = 300.0
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars "
    f"--window-size={WIDTH},{HEIGHT}"
).split()

# TensorBoard's pages are nested shadow trees, which no selector crosses.
FIND = """
const [wanted, tag] = arguments;
const all = function* (root) {
  for (const node of root.querySelectorAll('*')) {
    yield node;
    if (node.shadowRoot) yield* all(node.shadowRoot);
  }
};
for (const node of all(document)) {
  if (tag && node.tagName.toLowerCase() !== tag) continue;
  const box = node.getBoundingClientRect();
  if (node.textContent.trim() === wanted && box.width && box.height) return node;
}
return null;
"""
HAS = """
const [tag] = arguments;
const count = (root) => {
  let found = root.querySelectorAll(tag).length;
  for (const node of root.querySelectorAll('*'))
    if (node.shadowRoot) found += count(node.shadowRoot);
  return found;
};
return count(document);
"""


@contextmanager
def browser() -> Iterator[Any]:
    options = Options()
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    if own := shutil.which("chromium"):
        options.binary_location = own
    driver = shutil.which("chromedriver")
    page = webdriver.Chrome(options=options, service=Service(driver) if driver else None)
    try:
        yield page
    finally:
        page.quit()


def wait_for(find: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := find()):
        if time.monotonic() > deadline:
            raise SystemExit("the page never showed it")
        time.sleep(0.2)
    return found


def click(page: Any, text: str, tag: str = "") -> None:
    page.execute_script(
        "arguments[0].click()", wait_for(lambda: page.execute_script(FIND, text, tag))
    )


def hparams_table(page: Any, board: Server) -> None:
    page.get(f"{board.address}/#hparams")
    wait_for(lambda: page.execute_script(FIND, "TABLE VIEW", ""))
    first = min(board.trials())  # as the rows come by name
    wait_for(lambda: page.execute_script(FIND, first, ""))


def hparams_parallel(page: Any, board: Server) -> None:
    hparams_table(page, board)
    ticked = [each["displayName"] for each in board.experiment()["hparamInfos"][1:4]]  # the tasks'
    for name in (*ticked, "dropout", "layer_decay", "smart.weight"):  # settings in their place
        click(page, name, "paper-checkbox")
    click(page, "PARALLEL COORDINATES VIEW")
    wait_for(lambda: page.execute_script(HAS, "path") > 5)


def images(page: Any, board: Server) -> None:
    page.get(f"{board.address}/#images")
    wait_for(lambda: page.execute_script(HAS, "img") > 2)


def curves(page: Any, board: Server) -> None:
    page.get(f"{board.address}/?smoothing=0#timeseries")
    wait_for(lambda: page.execute_script(HAS, "line-chart") > 2)


def projector(page: Any, board: Server) -> None:
    page.get(f"{board.address}/#projector")
    time.sleep(10)  # it computes its axes as long as that


PAGES: dict[str, Callable[[Any, Server], None]] = {
    "hparams-table": hparams_table,
    "hparams-parallel": hparams_parallel,
    "images": images,
    "curves": curves,
    "projector": projector,
}
README = ("hparams-table", "hparams-parallel")


def save(page: Any, path: Path) -> None:
    time.sleep(2)  # lines fade in
    shot = Image.open(io.BytesIO(page.get_screenshot_as_png())).convert("RGB")
    few = shot.quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(f"{path}: {shot.width} x {shot.height}, {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--only", nargs="+", choices=PAGES, default=README)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    flags = ("--samples_per_plugin", "scalars=2000,images=100")
    with tensorboard_on(given.run, *flags) as board, browser() as page:
        wait_for(board.trials)
        for name in given.only:
            PAGES[name](page, board)
            save(page, given.out / f"tensorboard-{name}.png")


if __name__ == "__main__":
    main()
