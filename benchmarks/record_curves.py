"""Learning curves of random configurations, for the replays of efficiency.py.

The space is curves_space.yaml, the default one as it was then.

    python benchmarks/record_curves.py [--count 226] [--processes 2] [--at-most N]

Each configuration is trained on the sample corpus as a trial of a search is, with the search's
seed, and scored at several points of its budget. So that hundreds take minutes, the encoder is
small: a layer of width 96, fresh but for its words, which are the embedded encoder's in their 96
main directions, and pairs are encoded apart. It bears a higher learning rate, so the space's rates
are multiplied by 25 for it; at that the default's own rate suits it about best.

Configuration -1 is the default. It goes on where it was interrupted: what is done stands in a file
of lines beside `--out`. A file that is there is left as it is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

WIDTH, LAYERS = 96, 1
EXAMPLES = 2400  # as the default space had them, before it had pair encodings
ROWS = 200  # of each task's dev set, as there
FASTER = 25  # than the embedded encoder's rates
POINTS = (1 / 9, 1 / 6, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1)  # of the budget
SEED = 20_261_117
HERE = Path(__file__).parent


def small_encoder(folder: Path) -> Path:
    """A fresh layer on the embedded encoder's words, of which it has those that the corpus uses."""
    import torch
    from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

    from model.data.sources import load_split
    from model.modules.encoder import minilm_folder, quiet_transformers
    from model.tasks.task_set import load_task_set

    source = minilm_folder()
    tokenizer = AutoTokenizer.from_pretrained(source)
    used = set(range(104))  # [PAD], [UNK], [CLS], [SEP], [MASK] keep their numbers
    for task in load_task_set("sample"):
        for split in ("train", "dev"):
            table = load_split(task, split, None).table
            texts = [t for c in ("sentence1", "sentence2") for t in table[c].to_pylist() if t]
            used.update(*tokenizer(texts, padding=False)["input_ids"])
    kept = sorted(used)

    described = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    by_number = {number: piece for piece, number in described["model"]["vocab"].items()}
    described["model"]["vocab"] = {by_number[old]: new for new, old in enumerate(kept)}
    with quiet_transformers():
        words = AutoModel.from_pretrained(source).get_input_embeddings().weight.detach()[kept]
    words = words - words.mean(0)
    directions = torch.linalg.svd(words, full_matrices=False).Vh[:WIDTH]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(kept),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=WIDTH // 32,
        intermediate_size=2 * WIDTH,
    )
    model = BertModel(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(words @ directions.T)
    with quiet_transformers():
        model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    return folder


def small_space(encoder: Path) -> Any:
    """The curves' space with the small encoder."""
    from tuner.space.space import load_space

    held = {
        "encoder.name": str(encoder),
        "encoder.pooling": "mean",
        "pair.encoding": "bi_difference",
    }
    return load_space(str(HERE / "curves_space.yaml"), None, held)


class Recorder:
    """What a process needs to record one curve after the other."""

    def __init__(self, encoder: Path) -> None:
        import torch

        from model.training.prepare import ProcessCache

        torch.set_num_threads(1)
        self.space, self.cache = small_space(encoder), ProcessCache()

    def record(self, number: int, folder: Path) -> dict[str, Any]:
        """The curve of configuration `number`."""
        from model.training.prepare import prepare
        from model.training.progress import Heartbeat
        from model.training.run import TrainingRun
        from model.training.saving import SavePoint, Writer
        from model.training.step import TrainingDiverged

        points = [round(EXAMPLES * share) for share in POINTS]

        class Curve(TrainingRun):
            """A run that saves nothing, and is scored only where a curve has a point."""

            def evaluate(self) -> None:
                last = self.progress.step == self.prepared.steps
                if last or self.progress.examples >= points[len(self.progress.history)]:
                    super().evaluate()

        class Nowhere(Writer):
            def write(self, point: SavePoint) -> None:
                pass

        began = time.monotonic()
        settings = self.settings(number)
        budget = {
            "budget.examples": EXAMPLES,
            "budget.epochs": None,
            "budget.eval_every": 1,
            "budget.eval_rows": ROWS,
            "optim.learning_rate": FASTER * settings.get("optim.learning_rate", 2e-4),
        }
        config = self.space.config(settings, None, budget)
        prepared = prepare(config, self.space.task_set, cache=self.cache)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            run = Curve(prepared, Path(place), None, print)
            run.writer = Nowhere(background=False)
            run.start_fresh()
            run.begin()
            try:
                found = list(run.fine_tune(lambda: False, lambda *_: None, Heartbeat(None)))
            except TrainingDiverged:
                found = []
        curve = [
            {
                "examples": point,
                "score": each["score"],
                "noise": (each["interval"][1] - each["interval"][0]) / 2,
                **{name: task["value"] for name, task in each["tasks"].items()},
            }
            for point, each in zip(points, found, strict=False)
        ]
        seconds = round(time.monotonic() - began, 1)
        return {"number": number, "settings": settings, "curve": curve, "seconds": seconds}

    def settings(self, number: int) -> dict[str, Any]:
        return {} if number < 0 else self.space.draw(np.random.default_rng([SEED, number]))


recorder: Recorder


def get_ready(encoder: Path) -> None:
    global recorder
    recorder = Recorder(encoder)


def record(number: int, folder: Path) -> dict[str, Any]:
    return recorder.record(number, folder)


def record_all(numbers: Iterable[int], processes: int, folder: Path) -> Iterable[dict[str, Any]]:
    """The curves in the order in which they are done."""
    encoder = small_encoder(folder / "encoder")
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, fresh, get_ready, (encoder,)) as pool:
        for done in as_completed([pool.submit(record, number, folder) for number in numbers]):
            yield done.result()


def to_parquet(lines: list[dict[str, Any]], path: Path) -> None:
    """A row per point of a curve, the settings as they are, lists by their text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tuner.space.domains import label_of

    rows = [
        {
            "number": line["number"],
            **{key: label_of(value) for key, value in line["settings"].items()},
            **point,
        }
        for line in sorted(lines, key=lambda line: line["number"])
        for point in line["curve"]
    ]
    names = dict.fromkeys(name for row in rows for name in row)  # the default has no settings
    columns = {name: [row.get(name) for row in rows] for name in names}
    pq.write_table(pa.table(columns), path, compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=226)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--at-most", type=int, help="now; the next call goes on from there")
    parser.add_argument("--out", type=Path, default=HERE / "curves.parquet")
    arguments = parser.parse_args()
    if arguments.out.exists():
        print(f"{arguments.out} is there; remove it to record anew")
        return
    notes = arguments.out.with_suffix(".lines")
    done = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    missing = sorted(set(range(-1, arguments.count)) - {line["number"] for line in done})
    now = missing[: arguments.at_most]
    with tempfile.TemporaryDirectory(prefix="stockpot-curves-") as folder:
        for line in record_all(now, arguments.processes, Path(folder)):
            with open(notes, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            done.append(line)
            curve = " ".join(f"{point['score']:.3f}" for point in line["curve"])
            print(f"{line['number']:4} {line['seconds']:5.1f} s  {curve}", flush=True)
    if len(now) < len(missing):
        return
    to_parquet(done, arguments.out)
    print(f"{len(done) - 1} configurations in {arguments.out}")
    notes.unlink()


if __name__ == "__main__":
    main()
