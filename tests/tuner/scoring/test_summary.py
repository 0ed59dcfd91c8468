from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from model.evaluation.predictions import PREDICTIONS, write_predictions
from model.evaluation.scores import Scored, score
from model.tasks.task_set import load_task_set
from tuner.runs.state import EVENTS, RunState
from tuner.scoring.crossfit import Difference
from tuner.scoring.summarise import summarise
from tuner.scoring.summary import Expected, Repeated, Spent
from tuner.scoring.tables import difference_text

TASKS = load_task_set("sample")
FIVE, TWO, DEGREE = TASKS.names
MOST = 12_000
ROWS = 120
LABELS = {
    FIVE: np.arange(ROWS) % 5 * 1.0,
    TWO: np.arange(ROWS) % 2 * 1.0,
    DEGREE: np.linspace(0, 5, ROWS),
}
POINT = {
    "smart.weight": 0.01234567,
    "encoder.dropout": 0.1,
    "loss.weights": "2-1-0.2",
    "batch.sizes": "16-16-8",
    "optim.layer_decay": 0.95,
    "optim.learning_rate": 4.1e-4,
}


class Run:
    """Makes up a run with its dev predictions, event by event."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        self.rng = np.random.default_rng(0)
        self.events: list[dict[str, Any]] = []
        self.clock = 1_000_000.0
        run = {"version": "1", "name": "made-up", "objectives": ["overall"], "num_samples": 12}
        self.add("run", **(run | {"seed": 0, "sampler": "tpe", "resumed": False} | changes))

    def add(self, event: str, **fields: Any) -> None:
        self.clock += 10
        self.events.append({"event": event, "time": self.clock, **fields})

    @property
    def state(self) -> RunState:
        return RunState.from_events(self.events, warn=pytest.fail)

    def trial(
        self, right: float, *, end: str = "finished", evaluations: int = 3, **changes: Any
    ) -> str:
        """A trial that is right this often at its end, and a little less before."""
        name = self.state.next_id
        fields = {"trial": name, "number": 0, "params": POINT, "settings": {}, "seed": 0}
        self.add("created", **(fields | {"origin": "sampler"} | changes))
        for number in range(1, evaluations + 1):
            self.evaluate(name, right - 0.04 * (evaluations - number), number * MOST // 3)
        if end == "stopped":
            self.add("stopped", trial=name, examples=1, rung=1, reason="too low")
        elif end:
            self.add(end, trial=name)
        return name

    def evaluate(self, trial: str, right: float, examples: int) -> None:
        predictions = {}
        for task, labels in LABELS.items():
            hit = self.rng.random(ROWS) < right
            other = (
                self.rng.uniform(0, 5, ROWS)
                if task == DEGREE
                else (labels + 1) % TASKS[task].classes
            )
            predictions[task] = np.where(hit, labels, other)
        scores = score(
            {
                t.name: Scored(t.metric, 1, t.classes, LABELS[t.name], predictions[t.name])
                for t in TASKS
            }
        )
        file = f"predictions/{examples:08d}.parquet"
        columns = [
            pa.array([name for name in LABELS for _ in range(ROWS)]).dictionary_encode(),
            pa.array([str(row) for _ in LABELS for row in range(ROWS)]),
            np.concatenate(list(LABELS.values())),
            np.concatenate(list(predictions.values())),
            pa.nulls(ROWS * 3, pa.list_(pa.float32())),
        ]
        place = self.folder / "trials" / trial
        place.mkdir(parents=True, exist_ok=True)
        write_predictions(
            place / file,
            pa.table(dict(zip(PREDICTIONS.names, columns, strict=True))).cast(PREDICTIONS),
        )
        self.add(
            "evaluated",
            trial=trial,
            examples=examples,
            score=scores.overall.value,
            interval=[scores.overall.low, scores.overall.high],
            values={},
            tasks={name: {"value": each.value} for name, each in scores.tasks.items()},
            checkpoint=f"{examples:08d}",
            predictions=file,
        )

    def fail(self, kind: str, reason: str, **changes: Any) -> str:
        name = self.trial(0.5, end="", evaluations=0, **changes)
        self.add("failed", trial=name, kind=kind, reason=reason, traceback="")
        return name

    def repeat(self, of: str, right: float, seed: int) -> str:
        return self.trial(right, evaluations=1, origin="confirm", of=of, seed=seed, number=None)

    def summary(self, **options: Any) -> Any:
        return summarise(self.state, self.folder, TASKS, **options)


def readable(text: str) -> str:
    """The text, after checking what every one of them must keep to."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 100
    assert not any(line != line.rstrip() for line in text.splitlines())
    return text


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "made-up")


@pytest.fixture
def whole(run: Run) -> Run:
    """A search with one of everything."""
    run.trial(0.55, origin="default", params={}, number=None)
    best = run.trial(0.85)
    second = run.trial(0.8, origin="start_from")
    run.trial(0.4, end="stopped", evaluations=1)
    run.trial(0.3, end="stopped", evaluations=1)
    run.fail("memory", "no memory for a batch of 32")
    run.fail("memory", "no memory for a batch of 64")
    run.fail("code", "KeyError: 'x'\n\x1b[31mred")
    run.fail("infrastructure", "its worker died: node 10.0.0.3 is gone")
    for seed in (1, 2, 3):
        run.repeat(best, 0.84, seed)
        run.repeat(second, 0.83, seed)
    checkpoint = run.folder / "trials" / best / "checkpoints" / f"{MOST:08d}" / "model"
    checkpoint.mkdir(parents=True)
    (run.folder / "study.journal").touch()
    return run


def test_the_counts_tell_how_trials_ended(whole: Run) -> None:
    summary = whole.summary()
    assert {outcome: n for outcome, n in summary.counts.items() if n} == {
        "finished": 3,
        "pruned": 2,
        "failed": 3,
        "lost": 1,
    }
    assert [(f.kind, f.trials) for f in summary.failures] == [
        ("memory", ("t0005", "t0006")),
        ("code", ("t0007",)),
    ]
    assert summary.lost == ["t0008"]
    text = readable(summary.text())
    assert "9 of 12 configurations (3 finished, 2 pruned, 3 failed, 1 lost)" in text
    assert "2 failed (memory), t0005, t0006: no memory for a batch of 32" in text
    assert "1 failed (code), t0007: KeyError: 'x' red" in text
    assert "1 lost with the machine, t0008" in text


def climb(run: Run) -> tuple[str, str]:
    """A search by rungs: three short trials, and one final. The best's short run, and the final."""
    short = {"length": MOST // 3, "level": 0, "evaluations": 1}
    run.trial(0.55, origin="default", params={}, number=None, **short)
    best = run.trial(0.7, **short)
    run.trial(0.3, **short)
    return best, run.trial(0.85, origin="promoted", of=best, number=None, length=MOST, level=1)


RUNGS = {"rungs": [[MOST // 3, 3], [MOST, 1]], "num_samples": 3}


def test_what_was_trained_is_told_by_the_trials_lengths(tmp_path: Path) -> None:
    run = Run(tmp_path, **RUNGS)
    climb(run)
    summary = run.summary()
    assert summary.examples == 2 * MOST
    assert sum(summary.counts.values()) == 3  # configurations, and not their runs
    assert summary.counts["finished"] == 1 and summary.counts["pruned"] == 2
    assert summary.spent == [Spent(MOST // 3, 3, MOST), Spent(MOST, 1, MOST)]
    text = readable(summary.text())
    assert "3 of 3 configurations (1 finished, 2 pruned)\n  4 trials, 24,000 examples" in text
    assert (
        "trials by planned examples, and their share: 3 × 4,000 (50 %), 1 × 12,000 (50 %)" in text
    )


def test_a_final_is_the_best_and_compared_with_the_default_where_both_have_been(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, **RUNGS)
    best, final = climb(run)
    summary = run.summary()
    assert [row.trial for row in summary.best[:2]] == [final, best]
    assert summary.lead_at == (MOST // 3, MOST // 3)
    rows = {row.trial: row.overall for row in summary.best}
    assert summary.lead.value == pytest.approx(rows[best] - rows["t0000"])
    assert "best against the default, after 4,000 examples each" in readable(summary.text())
    gain = summary.gain
    assert gain is not None and (gain.configurations, gain.examples) == (3, (MOST // 3,) * 3)
    assert gain.difference.low <= gain.difference.value <= gain.difference.high
    text = summary.text()
    assert f"{gain.verdict}: " in text
    assert "  best of 3 configurations against the default, on rows that did not choose it," in text
    said = f"after 4,000 examples each; {final} was trained for 12,000: its own lead is not known"
    assert f"  {said}" in text


def test_what_was_not_trained_alike_is_told_with_both_lengths(tmp_path: Path) -> None:
    """An evaluation comes after a whole step of each task, so a rung's are not of one length."""
    run = Run(tmp_path, **RUNGS)
    short = {"length": MOST // 3, "level": 0, "evaluations": 0, "end": ""}
    for right, examples, more in ((0.5, 4_020, {"origin": "default"}), (0.8, 4_000, {})):
        params = {"params": {}, "number": None} if more else {}
        name = run.trial(right, **more, **params, **short)
        run.evaluate(name, right, examples)
        run.add("finished", trial=name)
    summary = run.summary()
    assert summary.gain is not None and sorted(summary.gain.examples) == [4_000, 4_020]
    assert summary.lead_at == (4_000, 4_020)
    text = readable(summary.text())
    assert text.count("after 4,000 to 4,020 examples") == 2 and "examples each" not in text


def test_a_final_that_its_machine_took_along_is_no_failure_of_the_search(tmp_path: Path) -> None:
    run = Run(tmp_path, **RUNGS)
    best, _ = climb(run)
    lost = run.fail("infrastructure", "its worker died", origin="promoted", of=best, number=None)
    summary = run.summary()
    assert summary.lost == [lost]
    assert summary.counts["finished"] == 1 and summary.counts["lost"] == 0


def test_the_time_that_evaluating_took_is_told(run: Run) -> None:
    name = run.trial(0.5, evaluations=0, end="")
    took = {"seconds": 75.0, "evaluation_seconds": 25.0}
    run.add("evaluated", trial=name, examples=10, score=0.5, **took)
    run.add("finished", trial=name)
    assert "evaluating took 25 % of the time" in readable(run.summary().text())


def test_the_best_come_first_with_interval_and_tasks(whole: Run) -> None:
    summary = whole.summary()
    assert [row.trial for row in summary.best] == ["t0001", "t0002", "t0000"]
    assert summary.best[0].tasks.keys() == set(TASKS.names)
    text = readable(summary.text())
    line = next(line for line in text.splitlines() if line.startswith("  t0001"))
    assert re.fullmatch(
        r"  t0001  \.\d{3} \[\.\d{3}, \.\d{3}\] {7,}\.\d{3} +\.\d{3} +\.\d{3} +12,000  sampler",
        line,
    )


def test_settings_have_full_names_and_few_digits(run: Run) -> None:
    run.trial(0.7)
    text = readable(run.summary().text())
    assert "optim.learning_rate" in text and "2-1-0.2" in text
    assert "0.0123" in text and "0.01234567" not in text
    run.trial(0.7, params=POINT | {"head.dropout": 0.2, "optim.weight_decay": 0.01})
    text = readable(run.summary().text())
    assert "encoder.dropout" in text and "head.dropout" in text
    assert "optim.learning_rate" in text


def test_many_settings_and_tasks_go_below_each_other(run: Run) -> None:
    many = {f"part{n}.a_setting_with_a_name": n / 7 for n in range(12)}
    run.trial(0.7, params=many)
    run.trial(0.6, params={"one.more": True})
    text = readable(run.summary().text())
    assert all(key in text for key in many) and "True" in text


def test_no_more_than_eight_are_shown_and_the_default_besides(run: Run) -> None:
    run.trial(0.3, origin="default", params={}, evaluations=1)
    for _ in range(9):
        run.trial(0.8, evaluations=1)
    summary = run.summary()
    assert len(summary.best) == 8 and summary.default not in summary.best
    table = summary.text().split("\n\n")[1].splitlines()
    assert len(table) == 2 + 8 + 1 and table[-1].endswith("default")


def test_the_best_is_compared_with_the_default_on_the_same_examples(whole: Run) -> None:
    summary = whole.summary()
    assert summary.lead is not None and summary.lead.low > 0
    rows = {row.trial: row.overall for row in summary.best}
    assert summary.lead.value == pytest.approx(rows["t0001"] - rows["t0000"])
    found = re.search(
        r"best against the default, after 12,000 examples each, on all rows: (.*)",
        summary.text(),
    )
    assert found and re.fullmatch(r"\+\.\d{3} \[\+\.\d{3}, \+\.\d{3}\]", found[1])


def test_a_difference_that_may_be_nothing_is_a_tie(run: Run) -> None:
    run.trial(0.7, origin="default", params={})
    run.trial(0.72)
    run.trial(0.7)
    summary = run.summary()
    assert summary.lead is not None and summary.lead.tie
    assert re.search(r"on all rows: \+\.\d{3} \[-\.\d{3}, \+\.\d{3}\], a tie", summary.text())


def test_a_default_that_nothing_beat_is_said_to_be_so(run: Run) -> None:
    run.trial(0.9, origin="default", params={})
    run.trial(0.5)
    summary = run.summary()
    assert summary.lead is None and summary.cross_fit.lead is None
    assert "nothing beat the default" in readable(summary.text())
    assert "against the default" not in summary.text()


def test_the_cross_fitted_score_and_gap_stand_beside_the_plain_one(run: Run) -> None:
    for _ in range(8):
        run.trial(0.7)
    summary = run.summary()
    fitted = summary.cross_fit
    assert fitted is not None and fitted.plain == pytest.approx(summary.best[0].overall)
    assert fitted.gap > 0
    assert "cross-fitted (chosen on one half, scored on the other): ." in readable(summary.text())
    assert f"(optimism gap +{fitted.gap:.3f})".replace("+0.", "+.") in summary.text()


def test_every_evaluation_of_a_finished_trial_is_a_candidate(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.trial(0.5, origin="default", params={})
    run.trial(0.7)
    run.trial(0.9, end="stopped")
    fitted = run.summary().cross_fit
    assert fitted is not None and max(fitted.chosen) < 6
    monkeypatch.setattr("tuner.scoring.summarise.CANDIDATES", 2)
    summary = run.summary()
    assert "among the best 2 of 6" in summary.text() and summary.lead is not None


def test_predictions_that_are_gone_cost_the_score_and_not_the_summary(whole: Run) -> None:
    next((whole.folder / "trials/t0002/predictions").iterdir()).unlink()
    summary = whole.summary()
    assert summary.cross_fit is None and summary.lead is not None  # of t0001
    text = readable(summary.text())
    assert "no cross-fitted score: trial t0002" in text and "best trials" in text


def test_repeats_are_judged_without_the_run_they_were_chosen_by(whole: Run) -> None:
    first, second = whole.summary().repeats
    assert {first.trial, second.trial} == {"t0001", "t0002"}
    assert len(first.scores) == 3 and first.search not in first.scores
    assert first.mean >= second.mean and first.tie is None and second.tie is True
    assert f"tie with {first.trial}" in whole.summary().text()


def scored_repeats(run: Run, scores: dict[float, list[float]]) -> list[Repeated]:
    """Repeats with these very scores, for trials with those of the keys."""
    for own, values in scores.items():
        of = run.trial(0.5, evaluations=0, end="")
        run.add("evaluated", trial=of, examples=10, score=own)
        run.add("finished", trial=of)
        for seed, value in enumerate(values, 1):
            again = run.trial(0.5, evaluations=0, end="", origin="confirm", of=of, seed=seed)
            run.add("evaluated", trial=again, examples=10, score=value)
            run.add("finished", trial=again)
    found: list[Repeated] = run.summary().repeats
    return found


def test_a_difference_beyond_the_pooled_noise_is_none_of_a_tie(run: Run) -> None:
    # Pooled variance (2e-6 * 3 + 0) / 6 by hand: spread .001, t(6) = 2.447, noise .001998.
    exact = {0.9: [0.800, 0.801, 0.799], 0.8: [0.7985, 0.7995, 0.7975], 0.7: [0.797, 0.798, 0.796]}
    first, near, far = scored_repeats(run, exact)
    assert first.spread == pytest.approx(0.001)
    assert (near.tie, far.tie) == (True, False)
    assert "below t0000" in run.summary().text()


def test_the_order_of_repeats_is_by_their_own_mean(run: Run) -> None:
    first, second = scored_repeats(run, {0.9: [0.7, 0.71], 0.8: [0.75, 0.76]})
    assert (first.search, second.search) == (0.8, 0.9)


def test_one_repeat_each_cannot_show_noise(run: Run) -> None:
    first, second = scored_repeats(run, {0.9: [0.7], 0.8: [0.6]})
    assert first.spread is None and second.tie is None
    assert "--confirm with more" in readable(run.summary().text())


def test_several_objectives_have_a_front(tmp_path: Path) -> None:
    run = Run(tmp_path, objectives=["a", "b"])
    for values in ((0.9, 0.1), (0.5, 0.5), (0.4, 0.4), (0.1, 0.9), (0.5, 0.5)):
        name = run.trial(0.5, evaluations=0, end="")
        tasks = {key: {"value": value} for key, value in zip("ab", values, strict=True)}
        run.add("evaluated", trial=name, examples=10, score=sum(values) / 2, tasks=tasks)
        run.add("finished", trial=name)
    summary = run.summary()
    assert [name for name, _ in summary.front] == ["t0000", "t0001", "t0004", "t0003"]
    assert summary.front[0][1] == {"a": 0.9, "b": 0.1}
    assert "Pareto front" in readable(summary.text())


def test_a_task_can_be_the_objective(tmp_path: Path) -> None:
    run = Run(tmp_path, objectives=[DEGREE])
    run.trial(0.5, origin="default", params={})
    run.trial(0.8)
    summary = run.summary()
    assert summary.goal == DEGREE and f"best trials, by {DEGREE}" in readable(summary.text())
    tasks = {row.trial: row.tasks[DEGREE] for row in summary.best}
    assert summary.lead.value == pytest.approx(tasks["t0001"] - tasks["t0000"])
    assert summary.cross_fit.plain == pytest.approx(tasks["t0001"])


def test_places_are_told_if_they_are_there(whole: Run) -> None:
    model = whole.folder / "trials/t0001/checkpoints" / f"{MOST:08d}" / "model"
    assert whole.summary().places["best model"] == model
    assert str(model) in whole.summary().text()
    model.rmdir()
    (whole.folder / "study.journal").unlink()
    assert set(whole.summary().places) == {"run"}
    assert "the checkpoint of t0001 is not there any more" in whole.summary().text()


def test_places_in_this_folder_are_told_from_here(
    whole: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole.folder.parent)
    assert "best model  made-up/trials/t0001/checkpoints/" in readable(whole.summary().text())


def test_only_the_time_in_which_a_driver_was_at_work_counts(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.trial(0.5)
    before = run.summary().seconds
    assert before == 50.0  # created, evaluated three times, finished, ten seconds each
    run.clock += 20 * 3600
    run.add("run", **{key: run.events[0][key] for key in EVENTS["run"]})
    assert run.summary().seconds == before
    run.trial(0.6)
    assert run.summary().seconds == 2 * before


EXPECTED = Expected(
    examples=5400,
    trial="t0004",
    recommended=True,
    best=0.7,
    best_sd=0.02,
    default=0.65,
    default_sd=0.03,
    worse=0.04,
    top=0.72,
    top_sd=0.03,
    top_trial=None,
    top_changes={"pair.encoding.near": ("cosine", "cross"), "smart.steps": (3, None)},
    earlier=(("first", {"mood": 0.96, "near": 0.0}),),
)


def test_the_best_that_is_expected_stands_beside_the_best_that_was_seen(whole: Run) -> None:
    text = readable(whole.summary(expected=EXPECTED).text())
    assert "forecast in full, 5,400 examples: t0004's settings .700 ± .020" in text
    assert "the default is better in full than the recommended model's settings: 4 %" in text
    assert "of all settings these are forecast to be best (not tried): .720 ± .030" in text
    assert re.search(r"pair.encoding.near +cosine +cross\n +smart.steps +3 +-\n", text)
    assert "taken from first: mood 0.96, near nothing" in text
    same = replace(EXPECTED, top_changes={}, earlier=(), recommended=False)
    said = readable(whole.summary(expected=same).text())
    assert "of all settings t0004's are forecast to be best: .720 ± .030" in said
    assert "the default is better in full than the best trial's settings: 4 %" in said
    assert "taken from" not in said


def test_what_to_run_next_comes_last(whole: Run) -> None:
    text = whole.summary(next_steps=["tensorboard --logdir x"], seconds=75.0).text()
    assert text.endswith("next\n  tensorboard --logdir x")
    assert "trained in 1:15" in text


@pytest.mark.parametrize("fill", ["nothing", "failures", "open", "stopped", "no default", "one"])
def test_any_state_of_a_search_can_be_summed_up(run: Run, fill: str) -> None:
    if fill == "failures":
        run.fail("code", "broke", origin="default", params={})
        run.fail("diverged", "x" * 400)
    elif fill == "open":
        run.trial(0.5, end="", evaluations=2)
        run.trial(0.5, end="", evaluations=0)
    elif fill == "stopped":
        run.trial(0.5, end="stopped")
    elif fill in ("no default", "one"):
        run.trial(0.5, evaluations=1)
        if fill == "no default":
            run.trial(0.6)
    text = readable(run.summary().text())
    assert ("no trial has finished" in text) == (fill not in ("no default", "one"))
    assert ("no run of the default" in text) == (fill in ("no default", "one"))


def test_an_empty_ledger_can_be_summed_up(tmp_path: Path) -> None:
    state = RunState.from_events([], warn=pytest.fail)
    assert readable(summarise(state, tmp_path, TASKS).text())


def test_a_difference_is_a_tie_when_its_interval_holds_nothing() -> None:
    assert Difference(0.01, -0.01, 0.03).tie and Difference(0.01, 0.0, 0.02).tie
    assert not Difference(0.01, 0.001, 0.03).tie and not Difference(-0.01, -0.02, -0.001).tie


def test_an_end_beside_zero_is_not_read_as_zero() -> None:
    ahead, level = Difference(0.0015, 0.0003, 0.0029), Difference(0.0014, -0.0002, 0.003)
    assert difference_text(ahead) == "+.0015 [+.0003, +.0029]"
    assert difference_text(level) == "+.0014 [-.0002, +.0030], a tie"
    assert difference_text(Difference(0.002, 0.0, 0.003)) == "+.002 [.000, +.003], a tie"
    # What four digits do not show is no difference.
    assert difference_text(Difference(0.002, 1e-9, 0.003)) == "+.002 [.000, +.003], a tie"
