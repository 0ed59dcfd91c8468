"""From a plan to a file of training rows: ask for what has no answer yet, then write."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.common.errors import InputError
from model.common.files import write_atomic
from model.common.locks import file_lock
from model.data.columnar import first_line
from model.data.paraphrase.answer_file import AnswerFile, ModelAnswer
from model.data.paraphrase.jobs import ParaphraseJob
from model.tasks.task_set import Task

Answers = Callable[[Sequence[ParaphraseJob]], Generator[ModelAnswer, None, None]]
SUFFIXES = (".arrow", ".parquet")
STREAK = 20  # requests in a row without an answer, after which something is wrong with all of them


def answers_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.answers.jsonl")


def card_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.card.md")


class NoAnswers(OSError):
    """The model no longer answers; what it said is kept."""


@dataclass
class ParaphraseProgress:
    """How far it is, for whoever watches."""

    requests: int
    answered: int = 0  # earlier ones too
    made: int = 0
    left_out: int = 0
    read: int = 0  # tokens
    written: int = 0


@dataclass(frozen=True)
class CollectedAnswers:
    """All answers that there are, and why the others are not."""

    answers: Mapping[str, ModelAnswer]
    tokens: tuple[int, int]
    header: Mapping[str, Any] = field(default_factory=dict)  # of the answer file


def unanswered(
    jobs: Sequence[ParaphraseJob], answers: Mapping[str, ModelAnswer]
) -> list[ParaphraseJob]:
    """What was left out is tried again."""
    return [job for job in jobs if job.key not in answers or answers[job.key].reason]


def ask(
    jobs: Sequence[ParaphraseJob],
    file: AnswerFile,
    start: Callable[[], Answers],
    watch: Callable[[ParaphraseProgress], None] = lambda progress: None,
) -> CollectedAnswers:
    """Ask for what the file lacks; if that is nothing, nobody is started who could answer.

    Every answer is in the file before the next is looked at.
    """
    missing = unanswered(jobs, file.answers)
    lacking = {job.key for job in missing}
    known = [file.answers[job.key] for job in jobs if job.key not in lacking]
    progress = ParaphraseProgress(len(jobs), len(known), sum(len(each.texts) for each in known))
    progress.read, progress.written = file.tokens
    streak = 0
    if not missing:
        return CollectedAnswers(file.answers, file.tokens, file.request)
    answers = start()
    watch(progress)
    with closing(answers(missing)) as found:
        for answer in found:
            file.add(answer)
            streak = streak + 1 if answer.reason else 0
            progress.answered += not answer.reason
            progress.left_out += bool(answer.reason)
            progress.made += len(answer.texts)
            progress.read, progress.written = file.tokens
            watch(progress)
            if streak >= STREAK:
                raise NoAnswers(
                    f"{streak} requests in a row had no answer, the last: {answer.reason}"
                )
    return CollectedAnswers(file.answers, file.tokens, file.request)


@contextmanager
def output_lock(out: Path) -> Iterator[None]:
    """Keep other commands with the same --out away."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        fault = "a file stands where its folder should be; name another --out"
        raise InputError(str(out), [fault]) from None
    with file_lock(out.with_name(f".{out.name}.lock")) as taken:
        if taken is False:
            fault = "another process is making this file; wait for it, or name another --out"
            raise InputError(str(out), [fault])
        yield


def out_faults(out: Path) -> list[str]:
    """What is wrong with the name; nothing that somebody else made is written over."""
    if out.suffix not in SUFFIXES:
        return [f"must end in {' or '.join(SUFFIXES)}, the files that augment reads"]
    if out.is_dir():
        return ["is a folder; name a file"]
    if out.exists() and not answers_path(out).exists():
        return ["is there already, and was not made by this command; name another"]
    return []


def write_rows(task: Task, table: pa.Table, out: Path) -> None:
    """As `model.data.sources.load_augmentation` reads it: Parquet has the task's own columns."""
    sink = pa.BufferOutputStream()
    if out.suffix == ".arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(_own_columns(task, table), sink)
    try:
        write_atomic(out, sink.getvalue().to_pybytes())
    except OSError as error:
        raise InputError(str(out), [f"cannot be written: {first_line(error)}"]) from None


def _own_columns(task: Task, table: pa.Table) -> pa.Table:
    source = task.source
    if not source.header:
        return table if task.pair else table.drop_columns(["sentence2"])
    sides = ("sentence1", "sentence2")[: len(source.text)]
    columns = {name: table[side] for name, side in zip(source.text, sides, strict=True)}
    columns[source.label] = table["label"]
    name = source.id or "id"
    return pa.table({name: table["id"], **columns} if name not in columns else columns)
