"""Hugging Face's Trainer on the same tasks, a model for each, as it takes them.

The rows are tokenised before, so the loop only pads. Its grouping by length sorts stretches of
fifty batches, longest first; a few steps would meet the longest only. So its own sampler is asked
for the order of a whole pass, and the batches to be timed are drawn at random from that.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

from model.modules.encoder import minilm_folder, quiet_transformers
from model.tasks.task_set import TaskSet

from .starter import BATCH, texts_of


class Clock(TrainerCallback):
    """From the end of the first step, which also warms up, to the end of the last."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())


class HfTrainer:
    def __init__(self, tasks: TaskSet, data: Path | None, *, grouped: bool) -> None:
        self.grouped = grouped
        self.random = np.random.default_rng(0)
        self.tokenizer = AutoTokenizer.from_pretrained(str(minilm_folder()))
        self.models, self.rows, self.order = {}, {}, {}
        for of in texts_of(tasks, data, "train"):
            kind = of.task.kind
            name = of.task.name
            labels = of.task.classes if kind == "classes" else 2 if kind == "binary" else 1
            with quiet_transformers():
                self.models[name] = AutoModelForSequenceClassification.from_pretrained(
                    str(minilm_folder()), num_labels=labels, dtype=torch.float32
                )
            second = None if of.rows[0][1] is None else [row[1] or "" for row in of.rows]
            ids = self.tokenizer([row[0] for row in of.rows], second, truncation=True)
            whole = kind != "regression"
            self.rows[name] = [
                {**{key: ids[key][n] for key in ids}, "label": int(row[2]) if whole else row[2]}
                for n, row in enumerate(of.rows)
            ]
            lengths = [len(row) for row in ids["input_ids"]]
            self.order[name] = list(LengthGroupedSampler(BATCH, lengths=lengths))

    def rate(self, count: int) -> float:
        """Examples per second over so many steps of each task, one task after another."""
        examples = seconds = 0.0
        for name in self.models:
            clock = Clock()
            self._train(name, count + 1, clock)
            seconds += clock.ends[-1] - clock.ends[0]
            examples += BATCH * count
        return examples / seconds

    def _train(self, name: str, steps: int, clock: Clock) -> None:
        rows: Any = self.rows[name]
        if self.grouped:
            order = self.order[name]
            starts = self.random.choice(len(order) // BATCH, size=steps, replace=False) * BATCH
            rows = [rows[place] for start in starts for place in order[start : start + BATCH]]
        with tempfile.TemporaryDirectory(prefix="stockpot-bench-") as folder:
            trainer = Trainer(
                model=self.models[name],
                args=TrainingArguments(
                    output_dir=folder,
                    per_device_train_batch_size=BATCH,
                    max_steps=steps,
                    train_sampling_strategy="sequential" if self.grouped else "random",
                    save_strategy="no",
                    report_to=[],
                    disable_tqdm=True,
                    use_cpu=not torch.cuda.is_available(),
                    seed=int(self.random.integers(1 << 30)),
                ),
                train_dataset=rows,
                data_collator=DataCollatorWithPadding(self.tokenizer),
                callbacks=[clock],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
