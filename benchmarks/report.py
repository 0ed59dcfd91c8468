"""How long the report of a large search takes to build, how big it is, and when it is ready.

    python benchmarks/report.py [--trials 200] [--rows 400]

The search is made up (benchmarks/made_up_search.py): the page's cost is that of a real one but
for the sentences and the embeddings, which need a model.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.made_up_search import make_search
from tuner.report.write import write_report

LIMIT = 12e6  # bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rows", type=int, default=400, help="dev rows of each task")
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_search(Path(place) / "made-up", arguments.trials, rows=arguments.rows)
        began = time.perf_counter()
        page = write_report([folder])
        found = {
            "trials": arguments.trials,
            "build_seconds": round(time.perf_counter() - began, 2),
            "megabytes": round(page.stat().st_size / 1e6, 2),
            "under_limit": page.stat().st_size < LIMIT,
        }
        if not arguments.no_browser:
            found |= in_browser(page)
    print(json.dumps(found, indent=1))


def in_browser(page: Path) -> dict[str, float | str]:
    """Seconds until the text can be read, and until every picture is drawn."""
    from docs.report_screenshots import browser, open_page

    try:
        driver = browser()
    except Exception as error:  # no browser, no driver, or one that does not start
        return {"browser": f"left out: {type(error).__name__}"}
    try:
        began = time.perf_counter()
        open_page(driver, page)
        ready = time.perf_counter() - began
        loaded = driver.execute_script(
            "return performance.getEntriesByType('paint').map(e => e.startTime)[0] / 1000"
        )
        return {
            "first_paint_seconds": round(loaded or 0, 2),
            "all_drawn_seconds": round(ready, 2),
        }
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
