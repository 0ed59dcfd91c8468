"""Section 1, the answer: who is best, how sure that is, and what choosing flattered by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model.cli.invocation import command
from tuner.report.answer.collect import BestAnswer, Contender
from tuner.report.answer.draw import draw_scores, draw_tasks
from tuner.report.markup import Cell, Html, join, note, paragraph, table, tag
from tuner.report.numbers import Estimate, count, percent, sentence, short, short_value, with_sign
from tuner.report.pieces import pictures
from tuner.report.run import ReportedRun
from tuner.report.section import Section, apart, scored
from tuner.runs.state import OVERALL
from tuner.scoring.summary_text import taken_text, trained_text


def answer_section(run: ReportedRun, answer: BestAnswer, prefix: str) -> Section:
    parts: list[Any] = [_headline(run, answer)]
    parts += [note(line) for line in (*answer.cautions, *run.notes)]
    if answer.contenders:
        parts.append(_contenders(answer))
    if run.soup is None:
        parts.append(
            note(
                "This run has no soup; ",
                tag("code", command("soup", run.shown)),
                " makes one, and ensembles to compare it with.",
            )
        )
    figures = [draw_scores(answer, prefix), draw_tasks(answer, prefix)]
    parts.append(pictures([figure for figure in figures if figure is not None]))
    if answer.published:
        parts.append(_published(answer))
    parts += [_repeats(run), _front(run), expected_in_full(run)]
    parts += [note(line.strip("()")) for line in run.summary.notes]
    return Section(f"{prefix}answer", "The answer", join(parts))


def _headline(run: ReportedRun, answer: BestAnswer) -> Html:
    """What the search brought, which model to take and why; then how that was found out."""
    best, summary = answer.best, run.summary
    if best is None:
        return paragraph("No trial has finished, so there is no answer yet.", class_="lead")
    parts = [gain_of(run), _take(run, answer)]
    said: list[Any] = []
    first = summary.best[0].trial
    if summary.lead is not None and summary.default is not None:
        said = [
            f"Of the single models {first} is best. Its settings against the default "
            f"({summary.default.trial}), {trained_text(summary.lead_at)}, on all dev rows: ",
            apart(summary.lead),
            ". ",
        ]
    if (fitted := summary.cross_fit) is not None:
        held = Estimate(fitted.cross_fitted, fitted.low, fitted.high)
        said += [
            "Chosen on one half of dev and scored on the other (cross-fitted), the best trial has ",
            scored(held),
            f"; on the rows that chose it, {short(fitted.plain)}. The optimism gap between them "
            f"is {with_sign(fitted.gap)}.",
        ]
    return join([*parts, paragraph(*said)]) if said else join(parts)


def gain_of(run: ReportedRun) -> Html:
    summary = run.summary
    if (gain := summary.gain) is not None:
        first = summary.best[0]
        longer = (
            f" The best trial, {first.trial}, was trained for {count(first.examples)}: its own "
            "lead over the default is not known on such rows."
        )
        return paragraph(
            f"{sentence(gain.verdict)[:-1]}: {trained_text(gain.examples)}, the best of "
            f"{gain.configurations} configurations against the default: ",
            apart(gain.difference),
            " on rows that did not choose it."
            + (longer if first.examples > max(gain.examples) else ""),
            class_="lead",
        )
    said = "No run of the default configuration has finished to compare with."
    if summary.default is not None:
        said = "Whether searching paid cannot be told: too little is known of the default."
        if summary.best[0] == summary.default:
            said = "Nothing beat the default configuration."
    return paragraph(said, class_="lead")


def _take(run: ReportedRun, answer: BestAnswer) -> Html:
    """The soup's own sentence, as on the terminal; the plain scores stand in the table."""
    if run.soup and run.soup.recommendation:
        told = paragraph(sentence(run.soup.recommendation), class_="lead")
        predict = tag("code", command("predict", run.shown))
        return join([told, paragraph(predict, f" answers with the {run.soup.recommended}.")])
    choice = answer.recommended or answer.best
    assert choice is not None
    aim = "overall" if answer.goal == OVERALL else f"in {answer.goal}"
    said = ["Take the ", tag("b", choice.name), ": it scores ", scored(choice.score)]
    return paragraph(*said, f" {aim} on dev.", class_="lead")


HINTS = {
    OVERALL: "the mean of the tasks' metrics, each brought to 0..1, with its 95 % interval",
    "lead over best single": "on the same dev rows, with the 95 % interval of the difference",
    "cross-fitted": "chosen on one half of dev, scored on the other",
    "optimism": "how much choosing on dev flatters: the score there minus the cross-fitted one",
    "models": "how many models have to be run to answer",
}


def _contenders(answer: BestAnswer) -> Html:
    goal = answer.goal
    others = [name for name in (OVERALL, *answer.metrics) if name != goal]
    lead, gap = "lead over best single", "optimism"
    header = ["", "models", goal, lead, "cross-fitted", gap, *others]
    rows = [_contender(each, others) for each in answer.contenders]
    metrics = {name: f"{metric}, with its 95 % interval" for name, metric in answer.metrics.items()}
    left = {"", goal, lead, "cross-fitted", *others}
    return join(
        [
            table(header, rows, left=left, hints=HINTS | metrics, tall=True),
            note(
                "Brackets are 95 % intervals over the dev examples. ",
                tag("i", "A tie"),
                " means that zero is inside the interval of the difference: the data do not say "
                "which is better. ",
                tag("i", "Cross-fitted"),
                " repeats the choice on one half of dev and scores it on the other; ",
                tag("i", "optimism"),
                " is what the score on the rows that chose has more.",
            ),
        ]
    )


def _contender(each: Contender, others: Sequence[str]) -> list[Any]:
    name = join(
        [
            tag("b", each.name) if each.recommended else each.name,
            tag("span", "recommended", class_="badge") if each.recommended else None,
            tag("small", each.about) if each.about else None,
        ]
    )
    return [
        Cell(name, each.name, "name"),
        each.models,
        Cell(scored(each.score), each.score.value),
        Cell(apart(each.difference), each.difference.value if each.difference else 0.0),
        Cell(scored(each.cross_fitted), each.cross_fitted.value if each.cross_fitted else 0.0),
        with_sign(each.gap) if each.gap is not None else "-",
        *(Cell(scored(of := each.by(name)), of.value if of else 0.0) for name in others),
    ]


def _published(answer: BestAnswer) -> Html:
    rows = [
        [each.paper, each.preset, short(each.dev), short(each.test)] for each in answer.published
    ]
    return join(
        [
            tag("h3", "Published scores, not measured here"),
            table(["paper", "preset", "dev", "test"], rows, left={"paper", "preset"}),
            note(
                "As their authors report them: BERT-base on the full data, a single number without "
                "an interval, chosen on the dev set it is given for. With another encoder or fewer "
                "rows a score here is another thing; do not read a ranking into it."
            ),
        ]
    )


def _repeats(run: ReportedRun) -> Html | None:
    repeats = run.summary.repeats
    if not repeats:
        return None
    first = repeats[0].trial
    said = {None: "", True: f"a tie with {first}", False: f"below {first}"}
    rows = [
        [
            each.trial,
            short(each.search),
            short(each.mean),
            short(each.spread),
            len(each.scores),
            said[each.tie],
        ]
        for each in repeats
    ]
    header = ["trial", "in the search", "mean of repeats", "spread", "seeds", "difference"]
    return join(
        [
            tag("h3", "Run again with other seeds"),
            table(header, rows, left={"trial", "difference"}),
            note(
                "The score in the search is flattered by having been chosen; the repeats are not."
            ),
        ]
    )


def expected_in_full(run: ReportedRun) -> Html | None:
    """What the model of the results says beyond what was seen."""
    full = run.summary.expected
    if full is None:
        return None
    tried = f"tried as {full.top_trial}" if full.top_trial else "not tried"
    rows: list[list[Any]] = [
        [f"{full.whose} ({full.trial})", spread(full.best, full.best_sd)],
        ["the default configuration", spread(full.default, full.default_sd)],
        [f"the settings forecast to be best ({tried})", spread(full.top, full.top_sd)],
    ]
    changes = [
        [key, short_value(old), short_value(new)] for key, (old, new) in full.top_changes.items()
    ]
    header = ["parameter", full.trial, "forecast best"]
    chance = "less than 1 %" if full.worse < 0.01 else percent(full.worse)
    return join(
        [
            tag("h3", "Forecast for full training"),
            table(["settings", "forecast"], rows, left={"settings"}),
            paragraph(
                f"Probability that {full.whose}, trained in full, score lower than the default: "
                f"{chance}."
            ),
            table(header, changes, left={"parameter"}) if changes else None,
            note(
                f"By the model of all results, for a training of {count(full.examples)} examples, "
                "give or take a standard deviation: a forecast of the score on dev, not a "
                "measurement. It is about settings; the soup's recommendation is about models."
            ),
            *(
                note(f"Weight of what {name} says, by task (1: as it is): {taken_text(of)}.")
                for name, of in full.earlier
            ),
        ]
    )


def spread(value: float, sd: float) -> str:
    return f"{short(value)} ± {short(sd)}"


def _front(run: ReportedRun) -> Html | None:
    front = run.summary.front
    if not front:
        return None
    rows = [[name, *map(short, values.values())] for name, values in front]
    return join(
        [
            tag("h3", "Pareto front"),
            table(["trial", *front[0][1]], rows, left={"trial"}),
            note("Nothing that was tried is better than one of these in every objective."),
        ]
    )
