"""`stockpot data paraphrase`: check everything, ask, choose, write, and tell what came of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from model import __version__
from model.cli.exit_code import exit_code, of_the_machine
from model.cli.flags import given_for, sound
from model.cli.invocation import command
from model.cli.paraphrase_options import ParaphraseOptions, option_faults
from model.cli.status import doing, on_terminal
from model.cli.text import say, shown_path
from model.common.errors import Gathered, InputError, suggest
from model.common.files import write_atomic
from model.common.secrets import redact
from model.data.paraphrase.answer_file import AnswerFile
from model.data.paraphrase.asking import LETTERS, Gate, Messages, ServerAnswers, guessed_tokens
from model.data.paraphrase.card import card, left_out
from model.data.paraphrase.jobs import JobPlan, ParaphraseJob, SourceRow, plan_jobs, rows_of
from model.data.paraphrase.make import (
    Answers,
    CollectedAnswers,
    ParaphraseProgress,
    answers_path,
    ask,
    card_path,
    out_faults,
    output_lock,
    unanswered,
    write_rows,
)
from model.data.paraphrase.prompt import PromptTemplate, Style, read_template, shipped_template
from model.data.paraphrase.select import Selection, select
from model.data.paraphrase.server import Server, find_key
from model.data.sources import absent_files, load_split, require_data
from model.tasks.task_set import Task, load_task_set

NAMED = 5  # requests left out that are named
TENTHS = 10  # lines of progress where there is no terminal
GO_ON = "what was answered is kept; the same command goes on"


class Data(NamedTuple):
    task: Task
    train: list[SourceRow]
    held_out: dict[str, list[SourceRow]]  # dev, and test where there is one


class PreparedParaphrase(NamedTuple):
    """All that is checked before anything is sent."""

    options: ParaphraseOptions
    out: Path
    data: Data
    template: PromptTemplate
    plan: JobPlan
    server: Server | None

    def messages(self, job: ParaphraseJob) -> Messages:
        return self.template.fill(self.data.task, job.sentence, job.row.label, job.count)

    def answer_file(self, *, write: bool) -> AnswerFile:
        return open_answer_file(self.options, self.template, self.out, write=write)


def run_paraphrase(given: Mapping[str, Any]) -> int:
    own = given_for(ParaphraseOptions, given)
    faults = option_faults(own)
    options = sound(ParaphraseOptions(**own))
    if options.show_prompt and not faults:
        say(load_template(options).text)
        return 0
    prepared = prepare(options, faults)
    if options.dry_run:
        say(dry_run(prepared))
        return 0
    told = f"interrupted; {GO_ON}"
    return exit_code(
        lambda: make(prepared), "stopped", interrupted=told, mishap=of_the_machine, remedy=GO_ON
    )


# --- before anything is sent ----------------------------------------------------------------------


def prepare(options: ParaphraseOptions, faults: Sequence[str]) -> PreparedParaphrase:
    """Read and check everything; the faults of every kind are told at once."""
    where = command("data", "paraphrase")
    gathered = Gathered(where)
    if faults:
        gathered.errors.append(InputError(where, faults))
    found: dict[str, Any] = {}
    with gathered:
        found["template"] = load_template(options)
    with gathered:
        found["data"] = load_data(options)
    with gathered:
        found["server"] = find_server(options)
    if "template" in found and options.out is not None and not out_faults(options.out):
        with gathered:
            open_answer_file(options, found["template"], options.out, write=False)
    gathered.tell()
    assert options.out is not None  # one of the faults
    data: Data = found["data"]
    plan = plan_jobs(
        data.train,
        data.held_out,
        per_row=options.per_row,
        per_request=options.per_request,
        side=options.side,
        most_rows=options.rows,
    )
    if not plan.jobs:
        raise InputError(where, [f"no row is left to paraphrase{_reasons(plan.left_alone)}"])
    return PreparedParaphrase(options, options.out, data, found["template"], plan, found["server"])


def load_template(options: ParaphraseOptions) -> PromptTemplate:
    if options.template is None:
        return shipped_template(_style(options))
    template = read_template(options.template)
    if redact(template.text) != template.text:
        fault = "holds a password or a key, and a template is written down"
        raise InputError(str(options.template), [fault])
    return template


def _style(options: ParaphraseOptions) -> Style:
    if options.base_url is not None or options.model is None:
        return "list"
    with doing("looking at the model", options.quiet):
        from model.data.paraphrase.local import local_style  # loads transformers

        return local_style(options.model)


def load_data(options: ParaphraseOptions) -> Data:
    tasks = load_task_set(options.tasks)
    if options.task is None:
        raise InputError("--task", [suggest("", tasks.names)])
    task = tasks[options.task]
    require_data([task], options.data, ("train", "dev"))
    absent = absent_files([task], options.data)
    gathered, rows = Gathered(f"task {task.name}"), dict[str, list[SourceRow]]()
    for name in task.source.files:
        if (task.name, name) not in absent:
            with gathered, doing(f"reading {task.name} {name}", options.quiet):
                rows[name] = list(rows_of(load_split(task, name, options.data).table))
    gathered.tell()
    return Data(task, rows.pop("train"), rows)


def find_server(options: ParaphraseOptions) -> Server | None:
    if options.base_url is None:
        return None
    # A dry run sends nothing, so it needs no key.
    key = "" if options.dry_run else find_key(options.key_variable, options.base_url)
    return Server(
        base_url=options.base_url,
        model=options.model or "",
        key=key,
        timeout=options.timeout,
        temperature=options.temperature,
        body=options.body,
    )


def open_answer_file(
    options: ParaphraseOptions, template: PromptTemplate, out: Path, *, write: bool
) -> AnswerFile:
    request = {**options.answers_depend_on, "prompt": template.text, "stockpot": __version__}
    began = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return AnswerFile(answers_path(out), {**request, "began": began}, write=write)


def dry_run(prepared: PreparedParaphrase) -> str:
    """How much would be collected, and one whole prompt."""
    jobs, prices = prepared.plan.jobs, prepared.options.prices
    missing = unanswered(jobs, prepared.answer_file(write=False).answers)
    known = len(jobs) - len(missing)
    tokens = _estimate(prepared, missing)
    cost = f", cost about {prices.cost(tokens):,.2f}" if prices else ""
    lines = [
        _rows_told(prepared),
        f"{len(missing):,} requests to send" + (f", {known:,} are answered" if known else ""),
        f"about {tokens[0]:,} tokens in and {tokens[1]:,} out{cost}",
    ]
    for job in missing[:1]:
        lines += ["", "the first prompt:"]
        for message in prepared.messages(job):
            lines += ["", f"[{message['role']}]", message["content"]]
    return "\n".join([*lines, "", "nothing was sent"])


def _estimate(prepared: PreparedParaphrase, jobs: Sequence[ParaphraseJob]) -> tuple[int, int]:
    """Four letters a token: near enough for English, too few for many other languages."""
    read = sum(guessed_tokens(prepared.messages(job))[0] for job in jobs)
    written = sum(job.count * (len(job.sentence) // LETTERS + 4) for job in jobs)
    return read, written


# --- asking, and what comes of it -----------------------------------------------------------------


def make(prepared: PreparedParaphrase) -> int:
    options, data, jobs = prepared.options, prepared.data, prepared.plan.jobs
    with output_lock(prepared.out), prepared.answer_file(write=True) as file:
        watcher = ProgressDisplay(prepared)
        with doing(watcher.text, options.quiet):
            collected = ask(jobs, file, lambda: _answers(prepared, watcher), watcher.watch)
        with doing("taking out copies", options.quiet):
            chosen = select(jobs, collected.answers, data.train, data.held_out, options.near)
        if not chosen.kept:
            fault = f"nothing to write: {chosen.made:,} paraphrases{_reasons(chosen.removed)}"
            raise InputError(str(prepared.out), [fault])
        write_rows(data.task, chosen.table, prepared.out)
        told = card(
            prepared.out.name, _about(prepared), prepared.plan, collected, chosen, options.prices
        )
        write_atomic(card_path(prepared.out), told)
    say(summary(prepared, collected, chosen))
    return 1 if left_out(jobs, collected) else 0


def _answers(prepared: PreparedParaphrase, watcher: ProgressDisplay) -> Answers:
    options, settings = prepared.options, prepared.options.answers_depend_on
    if prepared.server is not None:
        return ServerAnswers(
            server=prepared.server,
            messages=prepared.messages,
            seed=settings["seed"],
            parallel=options.parallel,
            tries=options.tries,
            wait=options.wait,
            gate=watcher.gate,
        )
    from model.data.paraphrase.local import LocalAnswers  # loads torch

    return LocalAnswers(
        options.model or "",
        prepared.messages,
        seed=settings["seed"],
        temperature=settings["temperature"],
    )


class ProgressDisplay:
    """Progress: on a terminal a line that moves, else a line for each tenth."""

    def __init__(self, prepared: PreparedParaphrase) -> None:
        self.options = prepared.options
        self.gate = Gate()
        self.progress: ParaphraseProgress | None = None
        self.lines = -1

    def watch(self, progress: ParaphraseProgress) -> None:
        self.progress = progress
        done = progress.answered + progress.left_out
        lines = TENTHS * done // progress.requests
        if lines > self.lines and not self.options.quiet and not on_terminal():
            say(self.text(), sys.stderr)
        self.lines = lines

    def text(self) -> str:
        now = self.progress
        if now is None:
            return "loading the model"
        parts = [
            f"{now.answered:,} of {now.requests:,} requests answered",
            f"{now.made:,} paraphrases",
            f"{now.left_out:,} left out" if now.left_out else "",
            f"{now.read:,} tokens in, {now.written:,} out",
        ]
        if self.options.prices:
            parts.append(f"cost {self.options.prices.cost((now.read, now.written)):,.2f}")
        if self.gate.left > 1:
            parts.append(f"the server's limit: waiting {self.gate.left:.0f} s")
        return ", ".join(filter(None, parts))


def _about(prepared: PreparedParaphrase) -> dict[str, Any]:
    """What the card says of how it was made."""
    options, held_out = prepared.options, prepared.data.held_out
    settings = {"task set": options.tasks, **options.answers_depend_on}
    if options.base_url is not None:
        settings["server"] = redact(options.base_url)
    checked = ", ".join(f"{name} ({len(rows):,} rows)" for name, rows in held_out.items())
    settings |= {"copies removed of": checked, "near from": options.near}
    if not prepared.data.task.pair:
        del settings["side"]
    return {key: _told(value) for key, value in settings.items() if value != {}}


def _told(value: Any) -> Any:
    return "the server's own; none was sent" if value is None else value


def summary(prepared: PreparedParaphrase, collected: CollectedAnswers, chosen: Selection) -> str:
    out, task, prices = prepared.out, prepared.data.task.name, prepared.options.prices
    removed = sum(chosen.removed.values())
    cost = f", cost {prices.cost(collected.tokens):,.2f}" if prices else ""
    missing = left_out(prepared.plan.jobs, collected)
    lines = [
        _rows_told(prepared),
        f"{chosen.made:,} made, {len(chosen.kept):,} kept, "
        f"{removed:,} removed{_reasons(chosen.removed)}",
        f"tokens: {collected.tokens[0]:,} in, {collected.tokens[1]:,} out{cost}",
    ]
    if missing:
        count = f"{len(missing):,} request{'s' if len(missing) > 1 else ''}"
        lines.append(f"{count} left out; the same command tries again")
        lines += [f"  row {job.row.number + 1}: {reason}" for job, reason in missing[:NAMED]]
        lines += [f"  and {len(missing) - NAMED:,} more"] if len(missing) > NAMED else []
    file = shown_path(out.absolute())
    lines += [f"file: {file}", f"card: {shown_path(card_path(out).absolute())}"]
    return "\n".join([*lines, f"train with: --set augment.{task}={file}"])


def _rows_told(prepared: PreparedParaphrase) -> str:
    rows = len({job.row.number for job in prepared.plan.jobs})
    alone = prepared.plan.left_alone
    told = f"; {sum(alone.values()):,} left alone{_reasons(alone)}" if alone else ""
    return f"{prepared.data.task.name}: {rows:,} training rows{told}"


def _reasons(counts: Counter[str]) -> str:
    told = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
    return f" ({told})" if told else ""
