"""A picture of a terminal, from what a command wrote to one.

    python benchmarks/silences.py --record DIR
    python docs/terminal_screenshot.py DIR/search.txt --at 0.7

`--at` is how much of it was written at the moment that is shown. Needs Selenium and Chromium.
"""

from __future__ import annotations

import argparse
import html
import re
import tempfile
from pathlib import Path

from report_screenshots import browser, shot, smaller

PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>
body {{ margin: 0; background: #14171b; }}
pre {{ margin: 0; padding: 14px 18px; color: #e7eaee; font: 14px/1.4 monospace; }}
</style><pre>{text}</pre>"""
PARTS = re.compile(r"\x1b\[(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def screen(text: str, columns: int = 100) -> list[str]:
    """The lines that a terminal shows of a text with the few codes that are used."""
    lines, row, column = [""], 0, 0
    for number, code, move, said in PARTS.findall(text):
        if code == "A":
            row = max(0, row - int(number or 1))
        elif code == "J":
            lines[row] = lines[row][:column]
            del lines[row + 1 :]
        elif code == "K":
            lines[row] = lines[row][:column]
        elif move == "\r":
            column = 0
        elif move == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        else:
            for sign in said:
                if column == columns:
                    row, column = row + 1, 0
                    lines += [""] * (row + 1 - len(lines))
                lines[row] = lines[row].ljust(column)[:column] + sign + lines[row][column + 1 :]
                column += 1
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("--at", type=float, default=1.0)
    parser.add_argument("--lines", type=int, default=34)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures/terminal.png")
    given = parser.parse_args()
    heard = given.recording.read_bytes()
    end = heard.rfind(b"\r\x1b[", 0, int(given.at * len(heard)))  # a block is whole before it goes
    text = heard[: end if end > 0 else len(heard)].decode(errors="ignore")
    shown = [line.rstrip() for line in screen(text)][-given.lines :]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "terminal.html"
        page.write_text(PAGE.format(text=html.escape("\n".join(shown))), encoding="utf-8")
        driver = browser(900, 180 + 20 * len(shown))
        try:
            driver.get(page.as_uri())
            print(smaller(shot(driver, given.out)))
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
