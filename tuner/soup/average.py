"""Averages of model folders' weights, in float32, read tensor by tensor.

The mean is kept running (mean += (new - mean) * share), as torch's own averaging does it, and in
the model itself: a mean of equal models is that model to the bit, of many it needs the memory of
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.linalg import vector_norm

from model.common.errors import InputError
from model.common.untrusted import held
from model.evaluation.model_folder import HEADS, read_model
from model.modules.multitask import MultitaskModel
from tuner.soup.combinations import STOCK, Combination, single

ENCODER = "encoder."


def weight_files(folder: Path) -> list[Path]:
    """The encoder's file, or its parts if it is a large one, and the heads'."""
    return [*sorted(folder.glob("model*.safetensors")), folder / HEADS]


def tensors_of(folder: Path, heads_only: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a model folder by its name in the model, one at a time."""
    for path in [folder / HEADS] if heads_only else weight_files(folder):
        prefix = "" if path.name == HEADS else ENCODER
        with held(path) as place, safe_open(place, framework="pt") as file:
            names = list(file.keys())
        for name in names:
            # Opened anew for each: a file that stays mapped keeps all that was read of it.
            with held(path) as place, safe_open(place, framework="pt") as file:
                tensor = file.get_tensor(name)
            yield prefix + name, tensor
            del tensor


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """The tensors' shapes, from the files' heads alone."""
    found: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        prefix = "" if path.name == HEADS else ENCODER
        with held(path) as place, safe_open(place, framework="pt") as file:
            for name in list(file.keys()):
                found[prefix + name] = tuple(file.get_slice(name).get_shape())
    return found


def _tensor(folder: Path, name: str, like: Tensor) -> Tensor:
    """One tensor of a folder, as `like` is. Whoever keeps it by a name keeps it beside the next."""
    for path in weight_files(folder):
        own = name.removeprefix(ENCODER) if path.name != HEADS else name
        with held(path) as place, safe_open(place, framework="pt") as file:
            if own in file.keys():  # noqa: SIM118 - it is no mapping
                tensor: Tensor = file.get_tensor(own)
                return tensor.to(like)
    raise InputError("soup", [f"{folder} has no '{name}'"])


def add_to(model: MultitaskModel, folder: Path, share: float) -> None:
    """Make the model the mean of itself and the folder's weights, whose share that is.

    In place, and with no more than one tensor beside: the largest may be half of a small model.
    """
    if not 0 < share <= 1:
        raise ValueError(f"a share must be above 0 and at most 1, but got {share}")
    target = model.state_dict()
    for name, tensor in tensors_of(folder):
        if name not in target:
            raise InputError("soup", [f"this encoder's files have '{name}', it has not"])
        place = target[name]
        if share == 1:
            place.copy_(tensor)
        elif place.is_floating_point():
            place.lerp_(tensor.to(place), share)
        del tensor  # before the next is read


def put_stock(model: MultitaskModel, folders: Sequence[Path], start: Mapping[str, Tensor]) -> None:
    """Give the model the mean of the folders' weights, drawn towards where all of them started.

    Model Stock (Jang et al., 2024): the farther apart the ways from the start, by the angle between
    them, the less their mean is trusted. Tensor by tensor; what has no start (a head) is the mean.
    """
    target, count = model.state_dict(), len(folders)
    for name in shapes_of(folders[0]):
        place = target[name]  # also what is summed up on the way: a tensor may be half a model
        known = name in start and start[name].shape == place.shape and count > 1
        if not known or not start[name].is_floating_point():
            for number, folder in enumerate(folders, 1):
                if number == 1:
                    place.copy_(_tensor(folder, name, place))
                elif place.is_floating_point():
                    place.lerp_(_tensor(folder, name, place), 1 / number)
            continue
        origin = start[name].to(place)
        # The length of the sum of unit vectors tells their mean cosine, however many.
        place.zero_()
        for folder in folders:  # `sub_` in place, as it is this tensor's only use
            place.add_(_unit(_tensor(folder, name, place).sub_(origin)))
        cosine = (float(vector_norm(place)) ** 2 - count) / (count * (count - 1))
        place.zero_()
        for number, folder in enumerate(folders, 1):
            place.lerp_(_tensor(folder, name, place).sub_(origin), 1 / number)
        place.mul_(stock_share(cosine, count)).add_(origin)


def _unit(way: Tensor) -> Tensor:
    """Made as long as one, in place."""
    return way.div_(vector_norm(way).clamp_min(torch.finfo(torch.float32).tiny))


def stock_share(cosine: float, count: int) -> float:
    """How far the stock goes from the start to the mean of `count` models."""
    cosine = min(1.0, max(0.0, cosine))
    return count * cosine / (1 + (count - 1) * cosine)


def distance(folder: Path, other: Mapping[str, Tensor]) -> float:
    """How far the weights are from the other's, as a share of the other's own length."""
    apart = length = 0.0
    for name, mine in tensors_of(folder):
        theirs = other[name].cpu()
        if theirs.is_floating_point():
            apart += float(vector_norm(mine.float() - theirs)) ** 2
            length += float(vector_norm(theirs)) ** 2
    return math.sqrt(apart / length) if length else 0.0


def first_unfit(folder: Path) -> str | None:
    """The first tensor with a value that is no finite number."""
    for name, tensor in tensors_of(folder):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None


# --- one model in memory that takes on one average after the other ------------------------------

Weighted = tuple[int, float]  # an ingredient and its weight


class SoupModel:
    """Averages model folders, which it knows by number.

    It averages in the model and reads one tensor at a time, so its memory does not grow with the
    ingredients, and nothing is beside the model when that is evaluated.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        base: int,
        device: torch.device,
        start: Callable[[], Mapping[str, Tensor]] = dict,
    ) -> None:
        self.folders = folders
        self.start = start  # the weights that all of them began with, as far as they are known
        model, self.tokenizer = read_model(folders[base])  # whose configuration the soup gets
        self.model: MultitaskModel = model.to(device)
        self._held: tuple[Weighted, ...] = ()  # whose mean the model is, if it is a mean

    def average(self, combinations: Mapping[str, Combination]) -> tuple[MultitaskModel, Any]:
        """The model of combinations with one trunk, and its tokenizer. The next replaces it."""
        first = next(iter(combinations.values()))
        held, self._held = self._held, ()  # until all were read: a file may be out of reach
        with torch.no_grad():
            if first.rule == STOCK:
                put_stock(self.model, [self.folders[m] for m in first.members], self.start())
            else:
                parts = tuple(zip(first.members, first.weights, strict=True))
                self._put_average(parts, held)
            heads = {task: of.head for task, of in combinations.items() if of.head is not None}
            for task, head in heads.items():
                self._put_head(task, head)
        if first.rule != STOCK and not heads:
            self._held = parts
        return self.model, self.tokenizer

    def distances(self, members: Sequence[int], base: int) -> list[float]:
        """Of each from the base, as a share of the base's length; no third model is loaded."""
        model, _ = self.average({"": single(base)})
        state = model.state_dict()
        return [distance(self.folders[member], state) for member in members]

    def _put_average(self, parts: tuple[Weighted, ...], held: tuple[Weighted, ...]) -> None:
        """One that begins with what is held goes on from there, as a greedy soup often does."""
        known = len(held) if parts[: len(held)] == held else 0
        totals = accumulate(weight for _, weight in parts)
        for (member, weight), total in islice(zip(parts, totals, strict=True), known, None):
            add_to(self.model, self.folders[member], weight / total)

    def _put_head(self, task: str, head: Combination) -> None:
        own = (f"heads.task_{task}.", f"pals.tasks.task_{task}.")
        target, total = self.model.state_dict(), 0.0
        for member, weight in zip(head.members, head.weights, strict=True):
            total += weight
            for name, tensor in tensors_of(self.folders[member], heads_only=True):
                if name.startswith(own):
                    target[name].lerp_(tensor.to(target[name]), weight / total)
