from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest

from model.common.errors import InputError
from model.data.info import overlaps
from model.data.rows import labels_of
from model.data.sample import Dice, further_rows, sample_split
from model.data.sample import corpus as sample
from model.data.sources import load_split
from model.tasks.task_set import SPLITS, Task, load_task_set

TASKS = load_task_set("sample")
SIZES = {"sentiment": 1600, "paraphrase": 2400, "similarity": 1200}
# Scores on this corpus are compared across versions: change it only with a reason.
SHA256 = "17e3ca747fa1e9f9f72ed45faa917ebf63ca31831630830d84df8f4698a871c2"


def test_the_corpus_is_the_same_bytes_everywhere() -> None:
    digest = hashlib.sha256()
    for task in TASKS:
        for split in SPLITS:
            for row in sample_split(task.name, split):
                digest.update(json.dumps(row).encode() + b"\n")
    assert digest.hexdigest() == SHA256


def test_making_it_again_gives_the_same_rows() -> None:
    first = sample_split("similarity", "dev")
    sample._corpus.cache_clear()
    assert sample_split("similarity", "dev") == first


@pytest.mark.parametrize("task", TASKS.tasks, ids=lambda task: task.name)
def test_sizes_and_labels_are_as_the_task_says(task: Task) -> None:
    for split in SPLITS:
        loaded = load_split(task, split, None)
        assert len(loaded.table) == (SIZES[task.name] if split == "train" else 400)
        assert loaded.damaged == () and loaded.table["id"].to_pylist()[0].endswith("-0001")
        assert (loaded.table["sentence2"].null_count == 0) == task.pair
        labels = labels_of(loaded.table)
        if task.kind == "regression":
            assert np.allclose(labels * 5, np.round(labels * 5), atol=1e-5)
            assert labels.std() > 1.2
        else:
            shares = np.bincount(labels.astype(int), minlength=task.classes) / len(labels)
            assert shares.min() > 0.1 and shares.max() < 0.62


@pytest.mark.parametrize("task", TASKS.tasks, ids=lambda task: task.name)
def test_no_sentence_stands_in_two_splits_and_no_row_twice(task: Task) -> None:
    splits = {split: load_split(task, split, None) for split in SPLITS}
    assert overlaps(splits) == []
    sentences = {
        split: {text for row in sample_split(task.name, split) for text in row[1:3] if text}
        for split in SPLITS
    }
    assert not sentences["train"] & sentences["dev"]
    assert not (sentences["train"] | sentences["dev"]) & sentences["test"]
    rows = chain.from_iterable(sample_split(task.name, split) for split in SPLITS)
    times = Counter(frozenset(text for text in row[1:3] if text) for row in rows)
    assert max(times.values()) == 1


@pytest.mark.parametrize(
    ("disturb", "label", "low", "high"),
    [(sample._neighbour, 2.0, 0.09, 0.15), (sample._flip, 1.0, 0.06, 0.10)],
)
def test_the_noise_is_as_large_as_it_says(
    disturb: Callable[[Dice, float], float], label: float, low: float, high: float
) -> None:
    dice = Dice(99)
    moved = [disturb(dice, label) != label for _ in range(5000)]
    assert low < np.mean(moved) < high


def test_noise_keeps_labels_in_their_range() -> None:
    dice = Dice(98)
    assert {sample._neighbour(dice, 0.0) for _ in range(200)} == {0.0, 1.0}
    assert {sample._neighbour(dice, 4.0) for _ in range(200)} == {4.0, 3.0}
    blurred = [sample._blur(dice, 5.0) for _ in range(200)]
    assert max(blurred) == 5.0 and min(blurred) > 3.0 and len(set(blurred)) > 3


def test_dice_are_fair_and_normal_enough() -> None:
    dice = Dice(97)
    counts = Counter(dice.below(6) for _ in range(6000))
    assert min(counts.values()) > 850
    draws = np.array([dice.normal() for _ in range(4000)])
    assert abs(draws.mean()) < 0.06 and abs(draws.std() - 1) < 0.05
    assert all(first != second for first, second in (dice.two("abc") for _ in range(100)))


def test_a_task_the_corpus_does_not_have_is_told() -> None:
    with pytest.raises(InputError, match="did you mean 'sentiment'"):
        sample_split("sentimant", "train")


@pytest.mark.parametrize("task", TASKS.names)
def test_further_rows_share_no_sentence_with_a_split_and_leave_all_splits_as_they_are(
    task: str,
) -> None:
    alone, longer = sample._corpus(task), sample._corpus(task, sample.FURTHER)
    assert all(longer[split] == alone[split] for split in SPLITS)
    rows = further_rows(task)
    assert len(rows) == sample.FURTHER == len({row.id for row in rows})
    known = {text for split in SPLITS for row in alone[split] for text in row[1:3] if text}
    assert not known & {text for row in rows for text in row[1:3] if text}
