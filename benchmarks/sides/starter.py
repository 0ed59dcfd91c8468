"""Training and evaluation as the starter code of a course project has them.

Shuffled batches, padded to their longest; the tokenizer at work inside the loop; one step on a
batch of each task in turn; `torch.optim.AdamW` as it comes. The encoder is transformers' own,
with its fast attention, which is more than starter code usually has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer

from model.data.sources import load_split
from model.modules.encoder import minilm_folder
from model.tasks.task_set import Task, TaskSet

BATCH = 16


@dataclass(frozen=True)
class Texts:
    """A task's rows as text, cleaned, as starter code holds them."""

    task: Task
    rows: list[tuple[str, str | None, float]]


def texts_of(tasks: TaskSet, data: Path | None, split: str) -> list[Texts]:
    found = []
    for task in tasks:
        table = load_split(task, split, data).table
        columns = (table[name].to_pylist() for name in ("sentence1", "sentence2", "label"))
        found.append(Texts(task, list(zip(*columns, strict=True))))
    return found


class Collate:
    """Text to tensors, batch by batch."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, rows: list[tuple[str, str | None, float]]) -> dict[str, Tensor]:
        first = [row[0] for row in rows]
        second = [row[1] or "" for row in rows] if rows[0][1] is not None else None
        batch = self.tokenizer(first, second, padding=True, truncation=True, return_tensors="pt")
        return {**batch, "labels": torch.tensor([row[2] for row in rows])}


class StarterModel(nn.Module):
    def __init__(self, tasks: TaskSet) -> None:
        super().__init__()
        self.bert = AutoModel.from_pretrained(str(minilm_folder()), dtype=torch.float32)
        width = self.bert.config.hidden_size
        self.dropout = nn.Dropout(0.1)
        outputs = {t.name: t.classes if t.kind == "classes" else 1 for t in tasks}
        self.heads = nn.ModuleDict({name: nn.Linear(width, n) for name, n in outputs.items()})

    def forward(self, task: str, batch: dict[str, Tensor], embeds: Tensor | None = None) -> Tensor:
        words = {"input_ids": batch["input_ids"]} if embeds is None else {"inputs_embeds": embeds}
        out = self.bert(
            **words,
            attention_mask=batch["attention_mask"],
            token_type_ids=batch["token_type_ids"],
        )
        outputs: Tensor = self.heads[task](self.dropout(out.pooler_output))
        return outputs


def loss_of(kind: str, outputs: Tensor, labels: Tensor) -> Tensor:
    if kind == "classes":
        return F.cross_entropy(outputs, labels.long())
    if kind == "binary":
        return F.binary_cross_entropy_with_logits(outputs.squeeze(-1), labels.float())
    return F.mse_loss(outputs.squeeze(-1), labels.float())


def endless(loader: Any) -> Iterator[dict[str, Tensor]]:
    while True:
        yield from loader


class Starter:
    def __init__(self, tasks: TaskSet, data: Path | None, *, smart: bool = False) -> None:
        torch.manual_seed(0)
        collate = Collate(AutoTokenizer.from_pretrained(str(minilm_folder())))
        self.model = StarterModel(tasks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
        self.texts = texts_of(tasks, data, "train")
        self.streams = [
            endless(DataLoader(of.rows, shuffle=True, batch_size=BATCH, collate_fn=collate))
            for of in self.texts
        ]
        self.smart = smart
        self.turn = 0
        self.model.train()
        self.rate(3)

    def rate(self, count: int) -> float:
        """Examples per second over so many steps, data included."""
        examples, total = 0, 0.0
        began = time.perf_counter()
        for _ in range(count):
            of = self.texts[self.turn % len(self.texts)]
            batch = next(self.streams[self.turn % len(self.texts)])
            self.turn += 1
            self.optimizer.zero_grad()
            outputs = self.model(of.task.name, batch)
            loss = loss_of(of.task.kind, outputs, batch["labels"])
            if self.smart:
                loss = loss + self._smart(of.task, batch, outputs)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            examples += len(batch["labels"])
        return examples / (time.perf_counter() - began)

    def _smart(self, task: Task, batch: dict[str, Tensor], outputs: Tensor) -> Tensor:
        """The package's own term, used as its README shows: on the embedding layer's output,
        which goes back in as `inputs_embeds`."""
        from smart_pytorch import SMARTLoss, kl_loss, sym_kl_loss

        apart: Callable[..., Tensor] = F.mse_loss if outputs.shape[-1] == 1 else kl_loss
        last: Callable[..., Tensor] = F.mse_loss if outputs.shape[-1] == 1 else sym_kl_loss
        smart = SMARTLoss(
            eval_fn=lambda embeds: self.model(task.name, batch, embeds),
            loss_fn=apart,
            loss_last_fn=last,
        )
        embeds = self.model.bert.embeddings(
            input_ids=batch["input_ids"], token_type_ids=batch["token_type_ids"]
        )
        term: Tensor = smart(embeds, outputs)
        return term


@torch.no_grad()
def evaluate_rows(model: StarterModel, texts: list[Texts], collate: Collate) -> int:
    """A dev pass: batches in file order, padded to their longest; the number of rows."""
    count = 0
    model.eval()
    for of in texts:
        for batch in DataLoader(of.rows, shuffle=False, batch_size=BATCH, collate_fn=collate):
            outputs = model(of.task.name, batch)
            outputs.numpy().tolist()  # starter code gathers plain lists
            count += len(batch["labels"])
    model.train()
    return count
