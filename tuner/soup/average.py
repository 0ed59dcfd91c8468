"""Averages of model folders' weights, in float32, read tensor by tensor.

The mean is kept running (mean += (new - mean) * share), as torch's own averaging does it: a mean
of equal models is that model to the bit, and of many it needs the memory of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def _tensor(folder: Path, name: str) -> Tensor:
    for path in weight_files(folder):
        own = name.removeprefix(ENCODER) if path.name != HEADS else name
        with held(path) as place, safe_open(place, framework="pt") as file:
            if own in file.keys():  # noqa: SIM118 - it is no mapping
                tensor: Tensor = file.get_tensor(own)
                return tensor
    raise InputError("soup", [f"{folder} has no '{name}'"])


class RunningMean:
    """The weighted mean of some models' weights, to which one more can be added at a time."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.total = 0.0

    def add(self, folder: Path, weight: float = 1.0) -> None:
        share = self._share(weight)
        for name, tensor in tensors_of(folder):
            if share == 1:
                self.tensors[name] = _as_float(tensor, copy=True)
            elif self.tensors[name].is_floating_point():
                # In place, and with no more than one tensor beside the mean.
                self.tensors[name].lerp_(_as_float(tensor), share)
        self.total += weight

    def put_into(self, model: MultitaskModel, folder: Path, weight: float = 1.0) -> None:
        """Give the model what the mean would be with one more; the mean itself stays as it is."""
        target = model.state_dict()
        share = self._share(weight)
        for name, tensor in tensors_of(folder):
            if name not in target:
                raise InputError("soup", [f"this encoder's files have '{name}', it has not"])
            target[name].copy_(tensor)
            if share < 1 and tensor.is_floating_point():
                # In place: the largest tensor may be half of a small model.
                mean = self.tensors[name].to(target[name].device)
                torch.lerp(mean, target[name], share, out=target[name])

    def _share(self, weight: float) -> float:
        if not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"a weight must be a number above 0, but got {weight}")
        return weight / (self.total + weight)


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
            for number, tensor in enumerate(_tensors(folders, name, place), 1):
                if number == 1:
                    place.copy_(tensor)
                elif place.is_floating_point():
                    place.lerp_(tensor, 1 / number)
            continue
        origin = start[name].to(place)
        # The length of the sum of unit vectors tells their mean cosine, however many.
        place.zero_()
        for tensor in _tensors(folders, name, place):
            way = tensor - origin
            place.add_(way.div_(vector_norm(way).clamp_min(torch.finfo(torch.float32).tiny)))
        cosine = (float(vector_norm(place)) ** 2 - count) / (count * (count - 1))
        place.zero_()
        for number, tensor in enumerate(_tensors(folders, name, place), 1):
            place.lerp_(tensor - origin, 1 / number)
        place.mul_(stock_share(cosine, count)).add_(origin)


def _tensors(folders: Sequence[Path], name: str, like: Tensor) -> Iterator[Tensor]:
    """A tensor of each model, one at a time."""
    return (_as_float(_tensor(folder, name)).to(like.device) for folder in folders)


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


def _as_float(tensor: Tensor, copy: bool = False) -> Tensor:
    if not tensor.is_floating_point():
        return tensor.clone() if copy else tensor
    return tensor.to(torch.float32, copy=copy)


# --- one model in memory that takes on one average after the other ------------------------------

Weighted = tuple[int, float]  # an ingredient and its weight


class SoupModel:
    """Averages model folders, which it knows by number.

    Beside the model it holds a running mean and reads one tensor at a time, so its memory does
    not grow with the ingredients.
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
        self._begun: tuple[Weighted, ...] | None = ()  # of the mean; None: it is not whole
        self._mean = RunningMean()

    def average(self, combinations: Mapping[str, Combination]) -> tuple[MultitaskModel, Any]:
        """The model of combinations with one trunk, and its tokenizer. The next replaces it."""
        first = next(iter(combinations.values()))
        with torch.no_grad():
            if first.rule == STOCK:
                self._begun, self._mean = (), RunningMean()  # the start is a third model by itself
                put_stock(self.model, [self.folders[m] for m in first.members], self.start())
            else:
                self._put_average(tuple(zip(first.members, first.weights, strict=True)))
            for task, combination in combinations.items():
                if combination.head is not None:
                    self._put_head(task, combination.head)
        return self.model, self.tokenizer

    def distances(self, members: Sequence[int], base: int) -> list[float]:
        """Of each from the base, as a share of the base's length; no third model is loaded."""
        model, _ = self.average({"": single(base)})
        state = model.state_dict()
        return [distance(self.folders[member], state) for member in members]

    def _put_average(self, parts: tuple[Weighted, ...]) -> None:
        """The mean of all but the last part is kept: the next soup often begins with it."""
        begun, self._begun = self._begun, None  # until all were read: a file may be out of reach
        if begun is None or parts[:-1][: len(begun)] != begun:
            begun, self._mean = (), RunningMean()
        for member, weight in parts[len(begun) : -1]:
            self._mean.add(self.folders[member], weight)
        self._begun = parts[:-1]
        last, weight = parts[-1]
        self._mean.put_into(self.model, self.folders[last], weight)

    def _put_head(self, task: str, head: Combination) -> None:
        own = (f"heads.task_{task}.", f"pals.tasks.task_{task}.")
        target, total = self.model.state_dict(), 0.0
        for member, weight in zip(head.members, head.weights, strict=True):
            total += weight
            for name, tensor in tensors_of(self.folders[member], heads_only=True):
                if name.startswith(own):
                    target[name].lerp_(tensor.to(target[name]), weight / total)
