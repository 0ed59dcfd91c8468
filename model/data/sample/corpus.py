"""The sample corpus: three small tasks that are made here, the same bytes on every machine.

`sentiment`: five grades, with negation, intensifiers and contrast. `paraphrase`: question
pairs, with negatives that share their words. `similarity`: sentence pairs graded by how much
of what happened they share. Labels carry noise in every split, so that no setting reaches the
top and bad settings show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np

from model.common.errors import InputError, suggest

T = TypeVar("T")
SEED = 20_240_224
SENTIMENT_NOISE = 0.12  # moves to a neighbouring class
PARAPHRASE_NOISE = 0.08  # flips
SIMILARITY_NOISE = 0.5  # standard deviation, on 0..5
SENTIMENT_SHARES = (0.16, 0.24, 0.20, 0.24, 0.16)
PARAPHRASE_SHARES = (0.56, 0.44)
FURTHER = 1000  # rows of each task that are in no split


class SampleRow(NamedTuple):
    id: str
    sentence1: str
    sentence2: str | None
    label: float


class Dice:
    """Draws from a bit generator's raw integers, whose sequence numpy promises never to change
    (that of its distributions may)."""

    def __init__(self, *key: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([SEED, *key]))
        self._left: list[int] = []

    def raw(self) -> int:
        if not self._left:
            self._left = [int(word) for word in self._bits.random_raw(1024)[::-1]]
        return self._left.pop()

    def below(self, count: int) -> int:
        return self.raw() % count  # 64 bits: the bias is nil

    def share(self) -> float:
        return (self.raw() >> 11) / 2**53

    def chance(self, share: float) -> bool:
        return self.share() < share

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def two(self, items: Sequence[T]) -> tuple[T, T]:
        """Two different places of the list."""
        first = self.below(len(items))
        second = (first + 1 + self.below(len(items) - 1)) % len(items)
        return items[first], items[second]

    def normal(self) -> float:
        """Near enough, by a sum of twelve: no library function that may round differently."""
        return sum(self.share() for _ in range(12)) - 6.0


class SampleDraft(NamedTuple):
    """An example before its label is disturbed."""

    sentence1: str
    sentence2: str | None
    label: float


class SampleRecipe(NamedTuple):
    make: Callable[[Dice], SampleDraft]
    disturb: Callable[[Dice, float], float]
    shares: tuple[float, ...]  # of each class; empty where any label will do
    sizes: dict[str, int]
    key: int


def sample_split(task: str, split: str) -> tuple[SampleRow, ...]:
    """The rows of one split of one of the three tasks."""
    recipes = _recipes()
    if task not in recipes:
        fault = f"'{task}' is not a task of the sample corpus; {suggest(task, recipes)}"
        raise InputError("format sample", [fault])
    return _corpus(task)[split]


def further_rows(task: str) -> tuple[SampleRow, ...]:
    """More rows by the same recipe, none of whose sentences stands in a split: for benchmarks.

    They are drawn after the splits, which stay as they are.
    """
    return _corpus(task, FURTHER)["further"]


@cache
def _corpus(task: str, further: int = 0) -> dict[str, tuple[SampleRow, ...]]:
    """All splits at once: no sentence may stand in more than one of them."""
    recipe = _recipes()[task]
    sizes = {**recipe.sizes, "further": further}
    dice = Dice(recipe.key)
    home: dict[str, str] = {}  # the split in which each sentence stands
    pairs: set[frozenset[str]] = set()
    corpus: dict[str, tuple[SampleRow, ...]] = {}
    for split, size in sizes.items():
        rows: list[SampleRow] = []
        room = [round(share * size) for share in recipe.shares]
        while len(rows) < size:
            draft = recipe.make(dice)
            texts = frozenset(text for text in draft[:2] if text)
            known = any(home.get(text, split) != split for text in texts)
            if known or texts in pairs or (room and not room[int(draft.label)]):
                continue
            if room:
                room[int(draft.label)] -= 1
            pairs.add(texts)
            home.update(dict.fromkeys(texts, split))
            label = recipe.disturb(dice, draft.label)
            name = f"{task}-{split}-{len(rows) + 1:04d}"
            rows.append(SampleRow(name, draft.sentence1, draft.sentence2, label))
        corpus[split] = tuple(rows)
    return corpus


def _recipes() -> dict[str, SampleRecipe]:
    from model.data.sample.events import event_pair
    from model.data.sample.opinions import opinion
    from model.data.sample.questions import question_pair

    sizes = (("sentiment", 1600), ("paraphrase", 2400), ("similarity", 1200))
    split_sizes = {task: {"train": size, "dev": 400, "test": 400} for task, size in sizes}
    return {
        "sentiment": SampleRecipe(
            opinion, _neighbour, SENTIMENT_SHARES, split_sizes["sentiment"], 1
        ),
        "paraphrase": SampleRecipe(
            question_pair, _flip, PARAPHRASE_SHARES, split_sizes["paraphrase"], 2
        ),
        "similarity": SampleRecipe(event_pair, _blur, (), split_sizes["similarity"], 3),
    }


def _neighbour(dice: Dice, label: float) -> float:
    if not dice.chance(SENTIMENT_NOISE):
        return label
    moved = label + dice.pick((-1.0, 1.0))
    return moved if 0 <= moved <= 4 else 2 * label - moved


def _flip(dice: Dice, label: float) -> float:
    return 1 - label if dice.chance(PARAPHRASE_NOISE) else label


def _blur(dice: Dice, label: float) -> float:
    """Disturbed, and rounded to a fifth, as the mean of five annotators would be."""
    fifths = round((label + SIMILARITY_NOISE * dice.normal()) * 5)
    return min(max(fifths, 0), 25) / 5
