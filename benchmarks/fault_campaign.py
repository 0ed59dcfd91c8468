"""Twenty SIGKILLs over twenty trials: the search undisturbed, the search killed, stock Ray Tune.

    python benchmarks/fault_campaign.py [--quick] [--seed 7] [--only search|stock]
    python benchmarks/fault_campaign.py --frozen [--quick]

All three train the same configurations of the tiny encoder, two at a time. Half of the kills
strike the driver, half a worker; when, follows from the seed and from the steps that were trained,
so it is the same for all. What was killed is started again at once, as it is meant to be: the
search with --resume, stock with `Tuner.restore`. The figures are in docs/reliability.md.

`--frozen`: a search with `--promotion continue`, whose trials rest at their rungs and go on from
there, undisturbed and killed. One trial at a time, so that who is promoted does not depend on
which of two was faster.
"""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from killed_programs import EXAMPLES, INTERVAL, POINTS, SEED, from_text, param_space
from killing import Kill, Program, draw_kills

from model.common.files import sha256_of
from tuner.runs.ledger import read_events
from tuner.runs.state import CLOSING, RunState

NAME = "default"
TENSORS = ("model.safetensors", "heads.safetensors")


@dataclass(frozen=True)
class Found:
    """What came of a run."""

    kills: str
    seconds: float
    lost: int
    duplicated: int
    running: int
    trained: int
    again: int
    longest: int
    intervals: float
    weights: dict[str, str]  # configuration -> sha256 of its final checkpoint
    ingredients: Any = None
    soup: str | None = None
    thawed: int = 0  # times a trial that rested went on
    tried: frozenset[str] | None = None  # the configurations it was given, if not all


# --- the search ---------------------------------------------------------------------------------


IN_FULL = ("--no-early-stopping", "--max-concurrent-trials", "2")
FROZEN = ("--promotion", "continue", "--max-concurrent-trials", "1")


def run_search(
    folder: Path, trials: int, kills: list[Kill], seconds: float, way: Sequence[str] = IN_FULL
) -> Found:
    run = folder / "runs" / NAME

    def flags() -> list[str]:
        begun = (run / "ledger.jsonl").exists()
        fixed = ["--sampler", "random", "--keep", str(trials), *way]
        return [
            *("--storage-path", str(folder / "runs"), "--encoder", "tiny", "--seed", str(SEED)),
            *("--num-samples", str(trials)),
            *("--max-examples", str(EXAMPLES), "--grace-examples", str(INTERVAL)),
            *("--set", "budget.eval_rows=40", "--no-soup", *fixed),
            *(["--resume"] if begun else []),
        ]

    program = Program("search", folder, flags)
    took = program.run(kills, seconds)
    events = read_events(run / "ledger.jsonl", lambda line: None)
    state = RunState.from_events(events, lambda line: None)
    closings = Counter(e["trial"] for e in events if e["event"] in CLOSING)
    settings = Counter(settings_of(t.settings) for t in state.trials.values())
    saved = {t.id: [e["examples"] for e in t.evaluations] for t in state.trials.values()}
    redone = program.redone(saved)
    ingredients, soup = predictor(run)
    return Found(
        kills=said(program),
        seconds=took,
        lost=trials - sum(t.status in ("finished", "stopped") for t in state.trials.values()),
        duplicated=sum(n - 1 for n in [*closings.values(), *settings.values()]),
        running=len(state.open_trials),
        trained=redone.examples,
        again=redone.again,
        longest=redone.longest,
        intervals=redone.intervals,
        weights=weights_of(run, state),
        ingredients=ingredients,
        soup=soup,
        thawed=sum(e["event"] == "promoted" for e in events),
    )


def weights_of(run: Path, state: RunState) -> dict[str, str]:
    found = {}
    for trial in state.trials.values():
        if best := trial.best():
            place = run / "trials" / trial.id / "checkpoints" / best["checkpoint"] / "model"
            found[settings_of(trial.settings)] = sums(place)
    return found


def sums(place: Path) -> str:
    return " ".join(
        sha256_of(place / name) if (place / name).is_file() else "-" for name in TENSORS
    )


def predictor(run: Path) -> tuple[Any, str | None]:
    """The soup's ingredients and the sha256 of its weights."""
    from tuner.soup.make import make_soup

    make_soup(run, methods=["greedy soup"], log=lambda line: None, warn=lambda line: None)
    made = json.loads((run / "soup" / "soup.json").read_text())
    return made["ingredients"], sums(run / "soup")


# --- stock --------------------------------------------------------------------------------------


def run_stock(folder: Path, points: list[dict[str, Any]], kills: list[Kill], limit: float) -> Found:
    program = Program("stock", folder, list)
    (folder / POINTS).write_text(json.dumps(points))
    took = program.run(kills, limit)
    redone = program.redone()
    file = folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else []
    through = [r for r in results if r["examples"] >= EXAMPLES and not r["error"]]
    tried = Counter(settings_of(result["config"]) for result in results)
    wanted = [settings_of(point) for point in points]
    reached = {settings_of(result["config"]) for result in through}
    weights = {}
    for result in through:
        if result["checkpoint"]:
            weights[settings_of(result["config"])] = best_of(Path(result["checkpoint"]))
    return Found(
        kills=said(program),
        seconds=took,
        lost=sum(point not in reached for point in wanted),
        duplicated=sum(count - 1 for count in tried.values()),
        running=left_running(folder / "tune" / "stock"),
        trained=redone.examples,
        again=redone.again,
        longest=redone.longest,
        intervals=redone.intervals,
        weights=weights,
        tried=frozenset(wanted),
    )


def settings_of(config: dict[str, Any]) -> str:
    """The same text for the same settings: lists from their text, all numbers alike."""
    return json.dumps({k: alike(from_text(v)) for k, v in config.items()}, sort_keys=True)


def alike(value: Any) -> Any:
    if isinstance(value, list):
        return [alike(part) for part in value]
    return value if isinstance(value, str) else float(value)


def as_point(text: str) -> dict[str, Any]:
    """Settings as stock's space offers them."""
    offered = param_space()
    point = json.loads(text)
    for key, value in point.items():
        if isinstance(value, list):
            choices = offered[key].categories
            point[key] = next(choice for choice in choices if from_text(choice) == value)
    return point


def best_of(run: Path) -> str:
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        best = max((json.loads(line) for line in lines), key=lambda r: r["score"])
        return sums(run / "checkpoints" / best["checkpoint"] / "model")
    except (OSError, ValueError, KeyError):
        return "-"


def left_running(experiment: Path) -> int:
    """Trials that Optuna believes to be running, in the state that Ray saved last (a pickle)."""
    states = sorted(experiment.glob("searcher-state-*.pkl"), key=lambda f: f.stat().st_mtime_ns)
    if not states:
        return -1
    saved = pickle.loads(states[-1].read_bytes())
    study = saved["_ot_study"] if isinstance(saved, dict) else saved[-1]
    return sum(trial.state.name == "RUNNING" for trial in study.trials)


# --- the table ----------------------------------------------------------------------------------


def said(program: Program) -> str:
    kinds = Counter(program.struck)
    crashed = [code for code in program.codes if code not in (0, -9)]
    text = f"{len(program.struck)} ({kinds['driver']} driver, {kinds['worker']} worker)"
    return text + (f", exit {crashed}" if crashed else "")


def table(columns: dict[str, Found], whole: Found) -> str:
    def same(found: Found) -> str:
        if found is whole:
            return "-"
        wanted = found.tried or whole.weights.keys()
        hits = sum(found.weights.get(key) == whole.weights[key] for key in wanted)
        return f"{hits} of {len(wanted)}"

    def equal(found: Found, part: str) -> str:
        mine = getattr(found, part)
        if found is whole or mine is None:
            return "-"
        return "yes" if mine == getattr(whole, part) else "NO"

    rows = [("", *columns)]
    found = columns.values()
    rows += [
        ("kills that struck", *(f.kills for f in found)),
        ("seconds", *(f"{f.seconds:.0f}" for f in found)),
        ("trials lost", *(str(f.lost) for f in found)),
        ("trials duplicated", *(str(f.duplicated) for f in found)),
        ("RUNNING at the end", *(str(f.running) if f.running >= 0 else "?" for f in found)),
        ("examples trained", *(f"{f.trained:,}" for f in found)),
        ("examples re-done", *(f"{f.again:,}" for f in found)),
        ("longest stretch re-done", *(f"{f.longest:,}" for f in found)),
        ("the same in checkpoint intervals", *(f"{f.intervals:.2f}" for f in found)),
        ("final checkpoints identical", *(same(f) for f in found)),
        ("ingredient list identical", *(equal(f, "ingredients") for f in found)),
        ("soup identical", *(equal(f, "soup") for f in found)),
        ("trials that rested and went on", *(str(f.thawed) for f in found)),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="6 trials, 5 kills")
    parser.add_argument("--seed", type=int, default=7, help="of the kills")
    parser.add_argument("--only", choices=("search", "stock"))
    parser.add_argument("--frozen", action="store_true", help="trials that rest and go on")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for each run")
    parser.add_argument("--keep", action="store_true", help="leave the folders there")
    arguments = parser.parse_args()
    trials, count = (6, 5) if arguments.quick else (20, 20)
    kills = draw_kills(count, arguments.seed)
    place = Path(tempfile.mkdtemp(prefix="c", dir="/tmp"))  # short, for Ray's sockets
    try:
        way = FROZEN if arguments.frozen else IN_FULL
        whole = run_search(place / "u", trials, [], arguments.limit, way)
        columns = {"undisturbed": whole}
        print(table(columns, whole), flush=True)
        if arguments.only != "stock":
            killed = run_search(place / "k", trials, kills, arguments.limit, way)
            columns["search, killed"] = killed
            print(table(columns, whole), flush=True)
        if arguments.only != "search" and not arguments.frozen:
            # The default's settings are those of no point, so stock has one trial less.
            points = [as_point(text) for text in whole.weights if text != "{}"]
            columns["stock, killed"] = run_stock(place / "s", points, kills, arguments.limit)
            print(table(columns, whole), flush=True)
        print(f"stock's checkpoints are {INTERVAL} examples apart; {count} kills, {trials} trials")
    finally:
        if arguments.keep:
            print(place)
        else:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
