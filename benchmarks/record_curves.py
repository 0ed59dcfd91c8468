"""Learning curves of random configurations of the default space, for the replays of efficiency.py.

    python benchmarks/record_curves.py [--count 219] [--out benchmarks/curves.parquet]

Each configuration is trained on the sample corpus as a trial of a search is, with the search's
seed, and scored at 1/8, 1/4, 1/2 and the whole of its budget. So that hundreds take minutes, the
encoder is small: a layer of width 96, fresh but for its words, which are the embedded encoder's
in their 96 main directions, and pairs are encoded apart. It bears a higher learning rate, so the
space's rates are multiplied by 25 for it; at that the default's own rate suits it about best.

It goes on where it was interrupted: what is done stands in a file of lines beside `--out`.
On one core it takes about ten minutes. A file that is there is left as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

WIDTH, LAYERS = 96, 1
EXAMPLES = 1800
ROWS = 200  # of each task's dev set
RATES = (3.0e-5, 1.0e-3)  # whatever the space has by now
FASTER = 25  # than the embedded encoder's rates
POINTS = (1, 2, 4, 8)  # eighths of the budget
SEED = 20_261_116
HERE = Path(__file__).parent


def small_encoder(folder: Path) -> Path:
    """A fresh layer on the embedded encoder's words, of which it has those that the corpus uses."""
    import torch
    from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

    from model.data.sources import load_split
    from model.encoder import minilm_folder, quiet_transformers
    from model.tasks import load_task_set

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


def wide_space(encoder: Path) -> Any:
    """The default space with a range of learning rates that stays as it is."""
    from tuner.domains import Number
    from tuner.space import load_space

    held = {
        "encoder.name": str(encoder),
        "encoder.pooling": "mean",
        "pair.encoding": "bi_difference",
    }
    space = load_space("default", None, held)
    wide = Number(*RATES, log=True)
    parameters = [
        replace(p, domain=wide) if p.key == "optim.learning_rate" else p for p in space.parameters
    ]
    return replace(space, parameters=tuple(parameters))


def record(space: Any, number: int, warm: Any, folder: Path) -> dict[str, Any]:
    """The curve of configuration `number`; number -1 is the default one."""
    from model.prepare import prepare
    from model.run import Heart, Run
    from model.step import TrainingDiverged

    points = [EXAMPLES * eighth // 8 for eighth in POINTS]

    class Curve(Run):
        """A run that saves nothing, and is scored only where a curve has a point."""

        def save(self) -> str:
            return self._name()

        def evaluate(self) -> Any:
            last = self.progress.step == self.prepared.steps
            if not last and self.progress.examples < points[len(self.progress.history)]:
                return {}
            return super().evaluate()

    settings = {} if number < 0 else space.draw(np.random.default_rng([SEED, number]))
    budget = {
        "budget.examples": EXAMPLES,
        "budget.epochs": None,
        "budget.eval_every": EXAMPLES // 8,
        "budget.eval_rows": ROWS,
        "optim.learning_rate": FASTER * settings.get("optim.learning_rate", 2e-4),
    }
    prepared = prepare(space.config(settings, None, budget), space.task_set, warm=warm)
    folder.mkdir()
    run = Curve(prepared, folder, None, print)
    run.start_fresh()
    run.begin()
    try:
        found = [r for r in run.fine_tune(lambda: False, lambda *_: None, Heart(None)) if r]
    except TrainingDiverged:
        found = []
    curve = [
        {
            "examples": point,
            "score": each["score"],
            **{name: task["value"] for name, task in each["tasks"].items()},
        }
        for point, each in zip(points, found, strict=False)
    ]
    return {"number": number, "settings": settings, "curve": curve}


def to_parquet(lines: list[dict[str, Any]], path: Path) -> None:
    """A row per point of a curve, the settings as they are, lists by their text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tuner.domains import label_of

    rows = [
        {
            "number": line["number"],
            **{key: label_of(value) for key, value in line["settings"].items()},
            **point,
        }
        for line in sorted(lines, key=lambda line: line["number"])
        if line["number"] >= 0
        for point in line["curve"]
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=219)
    parser.add_argument("--out", type=Path, default=HERE / "curves.parquet")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    arguments = parser.parse_args()
    if arguments.out.exists():
        print(f"{arguments.out} is there; remove it to record anew")
        return
    notes = arguments.out.with_suffix(".lines")
    done = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    known = {line["number"] for line in done}
    began = time.monotonic()

    import torch

    from model.prepare import Warm

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="stockpot-curves-") as folder:
        space, warm = wide_space(small_encoder(Path(folder) / "encoder")), Warm()
        for number in range(-1, arguments.count):
            if number in known:
                continue
            if time.monotonic() - began > arguments.seconds:
                break
            started = time.monotonic()
            line = record(space, number, warm, Path(folder) / str(number))
            with open(notes, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            done.append(line)
            curve = " ".join(f"{point['score']:.3f}" for point in line["curve"])
            print(f"{number:4} {time.monotonic() - started:5.1f} s  {curve}", flush=True)
    if len(done) > arguments.count:
        to_parquet(done, arguments.out)
        print(f"{len(done) - 1} configurations in {arguments.out}")
        notes.unlink()


if __name__ == "__main__":
    main()
