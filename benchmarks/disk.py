"""What a search writes and what it keeps, against keeping every checkpoint.

    python benchmarks/disk.py [--encoder minilm] [--trials 8]

A small real search, with early stopping and the shipped --keep. Every checkpoint is weighed where
and when it is written; what is left is weighed at the end, each file once however often it is
linked. The ledger says what was removed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tuner.ray_backend.trainable

EXAMPLES = 96
SMALL = {"batch.sizes": [4, 4, 4], "budget.eval_rows": 32, "smart.weight": 0}
NOTES = "weighed.jsonl"


def estimate_size(*folders: Path) -> int:
    """Bytes in these folders, each file once."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return sum({stat.st_ino: stat.st_size for stat in map(os.stat, files)}.values())


class Weighed(tuner.ray_backend.trainable.SearchTrial):
    """The search's own trial, which notes how heavy each checkpoint is."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        record = json.loads(result.get(tuner.ray_backend.trainable.RECORD, "{}"))
        if "checkpoint" in record:
            out = Path(self.job.out)
            place = out / "checkpoints" / record["checkpoint"]
            line = {"model": estimate_size(place / "model"), "all": estimate_size(place)}
            with open(out.parents[3] / NOTES, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--trials", type=int, default=8)
    arguments = parser.parse_args()

    from tuner import run_search
    from tuner.runs.ledger import read_events

    tuner.ray_backend.trainable.SearchTrial = Weighed  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="stockpot-disk-") as name:
        folder = Path(name)
        result = run_search(
            storage_path=folder / "runs",
            encoder=arguments.encoder,
            num_samples=arguments.trials,
            cpus_per_trial=1,
            max_examples=EXAMPLES,
            set=SMALL,
            quiet=True,
        )
        notes = (folder / NOTES).read_text(encoding="utf-8").splitlines()
        events = read_events(result.folder / "ledger.jsonl")
        left = estimate_size(result.folder)
        checkpoints = list(result.folder.glob("trials/*/checkpoints/*"))
        kept = estimate_size(*checkpoints)
    lines = [json.loads(line) for line in notes]
    written, models = sum(line["all"] for line in lines), sum(line["model"] for line in lines)
    gone = sum(len(event["checkpoints"]) for event in events if event["event"] == "removed")
    one = max(line["model"] for line in lines)
    count = arguments.trials
    print(f"{count} trials, {len(lines)} evaluations, {arguments.encoder}: a model {size(one)}")
    print(f"written            {size(written / count)} a trial, with what resuming needs")
    print(f"every checkpoint   {size(written)} in all if kept, {size(models)} without that")
    print(f"kept               {size(kept)} in {len(checkpoints)} checkpoints; {size(left)} in all")
    print(f"removed            {gone} when trials closed; a trial drops its own as it goes")
    print(f"ratio              {written / left:.1f} less, {models / left:.1f} of models alone")


def size(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


if __name__ == "__main__":
    # Under its own name, so that Ray's workers import the trial rather than get a copy of it.
    import disk

    disk.main()
