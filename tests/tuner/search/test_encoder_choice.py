"""A search that chooses among encoders: each has its own rate and its own tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer

from model.common import hub
from model.common.errors import InputError
from model.common.files import read_yaml
from model.data.sources import load_split
from model.data.tokens import tokenise
from model.modules.encoder import load_tokenizer, tiny_tokenizer
from tests.model.modules.encoders import save_encoder
from tests.tuner.search_runs import run_here
from tests.tuner.soup_runs import write_toy
from tuner.runs.open import open_run
from tuner.runs.request import ExecutionOptions, SearchRequest
from tuner.search import plan
from tuner.search.disk import estimate_size
from tuner.search.plan import plan_search
from tuner.search.terminal import SearchConsole
from tuner.soup.ingredients import collect
from tuner.soup.make import spec_of
from tuner.soup.runner import LocalRunner
from tuner.space.space import load_space

SPACE = """\
about: two encoders
tasks: {tasks}
base: {{encoder.max_length: 32, budget.examples: 60}}
parameters:
  encoder.name: {{choice: [tiny, {other}]}}
  optim.rate_scale: {{choice: [0.5, 2]}}
start_from:
  - {{encoder.name: {other}, optim.rate_scale: 2}}
  - {{encoder.name: tiny, optim.rate_scale: 0.5}}
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT whose words have other numbers than the tiny encoder's."""
    folder = save_encoder("BERT", tmp_path_factory.mktemp("other"))
    words = tiny_tokenizer().get_vocab()
    special = {word: n for word, n in words.items() if word.startswith("[")}
    rest = [word for word in words if word not in special]
    numbers = sorted(words[word] for word in rest)
    turned = {**special, **dict(zip(reversed(rest), numbers, strict=True))}
    BertTokenizer(vocab=turned, model_max_length=512).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def space(other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("space")
    file = folder / "two.yaml"
    file.write_text(SPACE.format(tasks=write_toy(folder / "toy"), other=other))
    return file


def test_a_space_knows_its_encoders(space: Path, other: Path) -> None:
    two = load_space(str(space))
    assert two.encoders == ("tiny", str(other))
    assert two.config({}).encoder.name == "tiny" == two.default_point()["encoder.name"]
    assert two.config({"encoder.name": str(other)}).encoder.name == str(other)
    assert load_space("default", None, {"encoder.name": "tiny"}).encoders == ("tiny",)
    assert estimate_size(two).model > 0


@pytest.mark.parametrize("named", ["in the space", "by --set"])
def test_encoders_that_only_the_hub_has_are_refused_where_it_is_away(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "no_way", lambda: True)
    monkeypatch.setattr(plan, "load_tokenizer", pytest.fail)  # which tries for a minute or more
    tasks = write_toy(tmp_path / "toy")
    file = tmp_path / "two.yaml"
    file.write_text(SPACE.format(tasks=tasks, other="no/encoder"))
    by_set: dict[str, Any] = {"tasks": str(tasks), "set": {"encoder.name": "no/encoder"}}
    request = SearchRequest(space=str(file)) if named == "in the space" else SearchRequest(**by_set)
    with pytest.raises(InputError, match="'no/encoder' is not on this machine"):
        plan_search(request, ExecutionOptions(storage_path=tmp_path), SearchConsole(quiet=True))


@pytest.mark.slow
def test_each_encoder_trains_at_its_own_rate_and_is_averaged_on_its_own_tokens(
    space: Path, other: Path, tmp_path: Path
) -> None:
    flags = ("--space", str(space), "--num-samples", "3", "--name", "two", "--no-report")
    flags += ("--no-early-stopping", "--keep", "20")
    done = run_here(tmp_path, *flags, "--max-examples", "60")
    assert done.returncode == 0, done.stderr
    rates: dict[Any, float] = {}
    for config in sorted((tmp_path / "two" / "trials").glob("*/config.yaml")):
        settings = read_yaml(config).data["settings"]  # the default, then the start points
        rates.setdefault(settings["encoder.name"], settings["optim.learning_rate"])
    assert rates.keys() == {"tiny", str(other)}
    assert rates[str(other)] == pytest.approx(2 * 2e-4)  # twice what suits its width
    run = open_run(tmp_path / "two", print)
    found = collect(
        run.state, run.folder, run.space, keep=20, goal="overall", read=lambda each: None
    )
    assert len(found.groups) == 2  # averages are of one encoder each
    seen = []
    dev = load_split(run.tasks["mood"], "dev", None).table
    for group in found.groups:
        best = found.ingredients[group[0]]
        spec = spec_of(run, replace(found, groups=[group]))
        rows = LocalRunner(spec).data.rows["mood"]
        assert np.array_equal(rows.tokens.ids1, tokenise(dev, load_tokenizer(str(best.model))).ids1)
        seen.append(rows.tokens.ids1)
    assert not np.array_equal(*seen)
