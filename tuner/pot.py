"""One model in memory that takes on the weights of one average after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from model.folder import read_model
from model.multitask import MultitaskModel
from tuner.average import RunningMean, distance, tensors_of
from tuner.dishes import Dish, single

Part = tuple[int, float]  # an ingredient and its weight


class Pot:
    """Cooks model folders, which it knows by number.

    Beside the model it holds a running mean and reads one tensor at a time, so its memory does
    not grow with the ingredients.
    """

    def __init__(self, folders: Sequence[Path], base: int, device: torch.device) -> None:
        self.folders = folders
        model, self.tokenizer = read_model(folders[base])  # whose configuration the soup gets
        self.model: MultitaskModel = model.to(device)
        self._begun: tuple[Part, ...] = ()
        self._mean = RunningMean()

    def cook(self, menu: Mapping[str, Dish]) -> tuple[MultitaskModel, Any]:
        """The model of dishes that share a trunk, and its tokenizer. The next one replaces it."""
        first = next(iter(menu.values()))
        with torch.no_grad():
            self._put_average(tuple(zip(first.members, first.weights, strict=True)))
            for task, dish in menu.items():
                if dish.head is not None:
                    self._put_head(task, self.folders[dish.head])
        return self.model, self.tokenizer

    def distances(self, members: Sequence[int], base: int) -> list[float]:
        """Of each from the base, as a share of the base's length; no third model is loaded."""
        model, _ = self.cook({"": single(base)})
        state = model.state_dict()
        return [distance(self.folders[member], state) for member in members]

    def _put_average(self, parts: tuple[Part, ...]) -> None:
        """The mean of all but the last part is kept: the next soup often begins with it."""
        if parts[:-1][: len(self._begun)] != self._begun:
            self._begun, self._mean = (), RunningMean()
        for member, weight in parts[len(self._begun) : -1]:
            self._mean.add(self.folders[member], weight)
        self._begun = parts[:-1]
        last, weight = parts[-1]
        self._mean.put_into(self.model, self.folders[last], weight)

    def _put_head(self, task: str, folder: Path) -> None:
        own = (f"heads.task_{task}.", f"pals.tasks.task_{task}.")
        target = self.model.state_dict()
        for name, tensor in tensors_of(folder):
            if name.startswith(own):
                target[name].copy_(tensor)
