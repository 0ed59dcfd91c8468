"""A new user's way from four files to answers, with the installed package in another folder."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pandas
import pytest

from tests.installed import run, run_heard

NLI = ["entailment", "neutral", "contradiction"]
TOPICS = ["weather", "food", "travel", "sport"]
TASKS = f"""\
about: Four tasks of four kinds
tasks:
  nli:
    classes: [{", ".join(NLI)}]
    format: glue
    files: {{train: nli-train.tsv, dev: nli-dev.tsv, test: nli-test.tsv}}
    columns: {{text: [premise, hypothesis], label: gold}}
  alike:
    regression: [0, 5]
    format: parquet
    files: {{train: alike-train.parquet, dev: alike-dev.parquet, test: alike-test.parquet}}
    columns: {{text: [first, second], label: score}}
  fine:
    binary: true
    labels: [odd, fine]
    format: glue
    files: {{train: fine-train.tsv, dev: fine-dev.tsv, test: fine-test.tsv}}
    columns: {{text: sentence, label: label}}
  topic:
    classes: [{", ".join(TOPICS)}]
    format: parquet
    files: {{train: topic-train.parquet, dev: topic-dev.parquet, test: topic-test.parquet}}
    columns: {{text: sentence, label: topic}}
"""
SIZES = {"train": 60, "dev": 24, "test": 12}
FRAME = """
import sys
from pathlib import Path
from tuner import load_predictor, run_search

result = run_search(resume=True, name="mine", quiet=True)
frame = result.dataframe()
print(len(frame), result.best.id, round(frame["score_overall"].max(), 3))
answer = result.predictor().predict("topic", ["rain again"])[0]
print(answer.name, len(answer.probabilities))
print(load_predictor(Path("runs/mine"), "default").who)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's folder, with the four tasks' files."""
    rng = random.Random(0)

    def words() -> str:
        return " ".join(rng.choices("rain bread train ball old new very never".split(), k=5))

    for split, count in SIZES.items():
        rows = [(words(), words(), rng.choice(NLI)) for _ in range(count)]
        lines = ["premise\thypothesis\tgold", *("\t".join(row) for row in rows)]
        (tmp_path / f"nli-{split}.tsv").write_text("\n".join(lines) + "\n")
        lines = ["sentence\tlabel", *(f"{words()}\t{rng.randint(0, 1)}" for _ in range(count))]
        (tmp_path / f"fine-{split}.tsv").write_text("\n".join(lines) + "\n")
        pairs = [(words(), words(), 5 * rng.random()) for _ in range(count)]
        frame = pandas.DataFrame(pairs, columns=["first", "second", "score"])
        frame.to_parquet(tmp_path / f"alike-{split}.parquet")
        topics = [(words(), rng.choice(TOPICS)) for _ in range(count)]
        frame = pandas.DataFrame(topics, columns=["sentence", "topic"])
        frame.to_parquet(tmp_path / f"topic-{split}.parquet")
    (tmp_path / "tasks.yaml").write_text(TASKS)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_new_user_comes_from_four_files_to_answers(installed: Path, home: Path) -> None:
    def heard(*words: str) -> tuple[str, list[str]]:
        command = str(installed / "bin" / "stockpot")
        return run_heard(installed, home, command, *words, timeout=900)

    def stockpot(*words: str) -> str:
        return heard(*words)[0]

    said = stockpot("data", "info", "--tasks", "tasks.yaml")
    assert all(name in said for name in ("nli", "alike", "fine", "topic", *NLI))

    asked = ["--tasks", "tasks.yaml", "--encoder", "tiny", "--name", "mine"]
    said = stockpot("search", *asked, "--budget-examples", "320")
    assert "best trials" in said and "loss.weights.topic" in said
    assert "configurations against the default, on rows that did not choose it" in said
    page = (home / "runs/mine/report.html").read_text(encoding="utf-8")
    assert "configurations against the default: " in page

    before = len(pandas.read_parquet(home / "runs/mine/trials.parquet"))
    configurations = said.split(" configurations")[0].split()[-1]
    more = str(int(configurations) + 2)
    said = stockpot("search", "--resume", "--name", "mine", "--num-samples", more)
    assert f"of {more} configurations" in said
    assert len(pandas.read_parquet(home / "runs/mine/trials.parquet")) > before

    said = stockpot("soup", "runs/mine")
    recommended = said.split("\n* ")[1].split("  ")[0]
    assert all(len(line) <= 100 for line in said.splitlines() if "/" not in line)

    said, beside = heard("predict", "runs/mine", "--out", "answers")
    assert said.split() == ["answers/dev.parquet", "answers/test.parquet"]
    (who,) = (line for line in beside if line.startswith("answered by "))
    assert who.startswith(f"answered by the {recommended}")
    assert who.endswith(", which the search recommends")
    answers = pandas.read_parquet(home / "answers/test.parquet").groupby("task", observed=True)
    assert set(answers.get_group("topic")["prediction_name"]) <= set(TOPICS)
    assert set(answers.get_group("nli")["prediction_name"]) <= set(NLI)
    assert len(answers.get_group("alike")) == SIZES["test"]
    said, beside = heard("predict", "runs/mine", "--task", "fine", "--text", "rain again")
    assert said.startswith(("fine: odd", "fine: fine")) and who in beside

    assert "report" in stockpot("report", "runs/mine", "--tensorboard")
    frame, topic, default = run(
        installed, home, sys.executable, "-c", FRAME, timeout=900
    ).splitlines()
    assert int(frame.split()[0]) > before and frame.split()[1].startswith("t")
    assert topic.split()[0] in TOPICS and topic.split()[1] == "4"
    assert default.startswith("t0") and "the default configuration" in default
    assert default.endswith(f"the search recommends the {recommended}")
