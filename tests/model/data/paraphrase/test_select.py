from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from model.common.errors import InputError
from model.data.paraphrase.answer_file import AnswerFile, ModelAnswer
from model.data.paraphrase.jobs import JobPlan, ParaphraseJob, RewrittenSide, SourceRow, plan_jobs
from model.data.paraphrase.near import NearIndex, jaccard, normalised, shingles
from model.data.paraphrase.select import select

from .api import words


def changed(text: str, rng: random.Random, letters: int) -> str:
    for _ in range(letters):
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("abcdefgh ") + text[place + 1 :]
    return normalised(text)


def test_min_hash_finds_what_counting_every_pair_finds() -> None:
    rng = random.Random(0)
    texts = [words(str(number)) for number in range(60)]
    texts += [changed(text, rng, number % 6) for number, text in enumerate(texts)]
    index = NearIndex(texts, 0.7)
    sets = [shingles(text) for text in index.sentences]
    near = 0
    for place, text in enumerate(index.sentences):
        wanted = {n for n, other in enumerate(sets) if jaccard(sets[place], other) >= 0.7}
        assert index.near(text) == wanted
        near += len(wanted) > 1
    assert 20 < near < 100  # some are near, some are not


def test_a_sentence_is_the_same_whatever_its_marks() -> None:
    assert (
        normalised(" It's  FINE — really!") == normalised("it s fine, really") == "it s fine really"
    )
    assert normalised("ﬁne Straße") == "fine strasse" and normalised("?!") == ""


# --- single sentences -----------------------------------------------------------------------------

SOURCE = SourceRow(0, "r0", ("the old harbour was quiet before dawn",), 2.0)
TRAIN = [SOURCE, SourceRow(1, "r1", ("nobody came to the second concert",), 1.0)]
HELD_OUT = {"dev": [SourceRow(0, "d0", ("a long walk through empty streets",), 0.0)]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("before sunrise, no sound in the ancient port", ""),
        ("...", "without words"),
        ("very " * 60, "much longer than its row"),
        ("The old harbour was quiet before dawn!", "the same as its row"),
        ("the old harbours was quiet before dawn", "near to its row"),
        ("A long walk, through empty streets.", "the same as a row of dev"),
        ("a long walks through empty streets", "near to a row of dev"),
        ("Nobody came to the second concert", "the same as a training row"),
        ("nobody came to the second concerts", "near to a training row"),
        ("At daybreak the port lay still", "the same as another paraphrase"),
        ("at daybreak the port lay stills", "near to another paraphrase"),
    ],
)
def test_why_a_paraphrase_is_removed(text: str, reason: str) -> None:
    job = ParaphraseJob(SOURCE, 0, 0, 2)
    answers = {job.key: ModelAnswer(job.key, ("at daybreak the port lay still", text), (1, 1))}
    found = select([job], answers, TRAIN, HELD_OUT, 0.7)
    assert dict(found.removed) == ({reason: 1} if reason else {})
    assert found.made == 2 and len(found.kept) == 2 - bool(reason)
    table = found.table.to_pylist()
    assert table[0]["id"] == "r0~1" and {row["label"] for row in table} == {2.0}
    exact = select([job], answers, TRAIN, HELD_OUT, 1.0)
    assert len(exact.kept) == 2 - bool(reason and "near" not in reason)


# --- pairs ----------------------------------------------------------------------------------------

PAIR = SourceRow(0, "p0", ("how do I mend a torn tent", "what fixes a hole in a tent"), 1.0)
PAIRS = {
    "dev": [SourceRow(0, "d0", ("what fixes a hole in a tent", "who can sew a tent for me"), 1.0)]
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("which way is there to repair ripped canvas", ""),
        ("who can sew a tent for me", "the same as a row of dev"),  # the other way round there
        ("who can sew a tent for us", "near to a row of dev"),
        ("What fixes a hole in a tent?", "near to the other sentence of its pair"),
        ("how do I mend a torn tents", "near to its row"),
    ],
)
def test_a_pair_is_a_copy_if_both_of_its_sentences_are(text: str, reason: str) -> None:
    job = ParaphraseJob(PAIR, 0, 0, 1)
    found = select([job], {job.key: ModelAnswer(job.key, (text,), (1, 1))}, [PAIR], PAIRS, 0.7)
    assert dict(found.removed) == ({reason: 1} if reason else {})
    if not reason:
        assert found.kept[0].sentences == (text, PAIR.sentences[1])


def plan(
    row: SourceRow, per_row: int, side: RewrittenSide = "either", per_request: int = 12
) -> JobPlan:
    return plan_jobs([row], {}, per_row=per_row, per_request=per_request, side=side)


def test_the_paraphrases_of_a_pair_are_divided_between_its_sentences() -> None:
    jobs = plan(PAIR, 5).jobs
    assert [(job.side, job.count) for job in jobs] == [(0, 3), (1, 2)]
    jobs = plan(PAIR._replace(number=1), 5).jobs
    assert [(job.side, job.count) for job in jobs] == [(0, 2), (1, 3)]
    assert [(job.side, job.count) for job in plan(PAIR, 1).jobs] == [(0, 1)]
    assert [(job.side, job.count) for job in plan(PAIR, 5, "second").jobs] == [(1, 5)]
    jobs = plan(PAIR, 30, "first").jobs
    assert [job.count for job in jobs] == [12, 12, 6] and len({job.key for job in jobs}) == 3


def test_rows_of_dev_and_rows_that_were_there_before_are_left_alone() -> None:
    again = SOURCE._replace(number=2, sentences=("The OLD harbour was quiet before dawn.",))
    train = [
        *TRAIN,
        again,
        SourceRow(3, "r3", HELD_OUT["dev"][0].sentences, 1.0),
        SourceRow(4, "r4", ("?",), 1),
    ]
    found = plan_jobs(train, HELD_OUT, per_row=3, per_request=12)
    assert [job.row.id for job in found.jobs] == ["r0", "r1"]
    assert found.left_alone == {
        "the same as an earlier row": 1,
        "also in dev": 1,
        "without words": 1,
    }


# --- the file of answers -----------------------------------------------------------------------


def test_a_line_that_a_kill_cut_off_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, {"model": "m"}) as answer_file:
        answer_file.add(ModelAnswer("a", ("one", "two"), (3, 4)))
        answer_file.add(ModelAnswer("b", ("three",), (3, 4)))
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        before = AnswerFile(path, {"model": "m"}, write=False)
        assert path.read_bytes() == whole[:size]
        with AnswerFile(path, {"model": "m"}) as answer_file:
            assert answer_file.answers == before.answers
            for key, texts in (("a", ("one", "two")), ("b", ("three",))):
                if key not in answer_file.answers:
                    answer_file.add(ModelAnswer(key, texts, (3, 4)))
        assert path.read_bytes() == whole


def test_a_file_that_makes_no_sense_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    AnswerFile(path, {"model": "m"}).close()
    for line in ('{"key": 3}', "[]", '{"key": "a", "tokens": [1, 2], "texts": [4]}', "null", "7 8"):
        path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
        with pytest.raises(InputError, match="line 2: is no answer of a model"):
            AnswerFile(path, {"model": "m"}, write=False)
    path.write_text(json.dumps({"something": "else"}) + "\n")
    with pytest.raises(InputError, match="no file of this command"):
        AnswerFile(path, {"model": "m"})
