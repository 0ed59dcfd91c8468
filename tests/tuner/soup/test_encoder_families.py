"""A soup of every family of encoders, and of models that were trained with LoRA."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from model.evaluation.model_folder import load_model, read_model, save_model
from model.modules.encoder import load_encoder, tiny_tokenizer
from model.modules.lora import has_lora
from model.modules.multitask import MultitaskModel
from tests.conftest import make_model
from tests.model.modules.encoders import FAMILIES, save_encoder
from tests.tuner.soup_runs import POINTS, make_run, write_toy
from tuner.soup.average import SoupModel
from tuner.soup.combinations import WEIGHTS, combine
from tuner.soup.make import make_soup


def trained(folder: Path, seed: int) -> MultitaskModel:
    """The encoder with other weights, as training would leave them."""
    model = make_model(encoder=load_encoder(str(folder)), seed=seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return model.eval()


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_two_of_a_family_give_the_model_halfway_between_them(
    name: str, batch_of: Any, tmp_path: Path
) -> None:
    encoder = save_encoder(name, tmp_path / "encoder")
    models = [trained(encoder, seed) for seed in (1, 2)]
    folders = [tmp_path / str(number) for number in range(2)]
    for folder, model in zip(folders, models, strict=True):
        save_model(folder, model, tiny_tokenizer())
    between = copy.deepcopy(models[0])
    theirs = dict(models[1].named_parameters())
    for parameter_name, parameter in between.named_parameters():
        parameter.copy_((parameter.double() + theirs[parameter_name].double()) / 2)

    both = combine(WEIGHTS, [0, 1])
    model = SoupModel(folders, 0, torch.device("cpu"))
    soup, tokenizer = model.average(dict.fromkeys(between.tasks, both))
    for parameter_name, parameter in soup.named_parameters():
        torch.testing.assert_close(parameter, between.get_parameter(parameter_name))
    save_model(tmp_path / "soup", soup, tokenizer)
    again, _ = read_model(tmp_path / "soup")
    for task in between.spec.tasks:
        batch = batch_of(task)
        answers = again.eval()(task.name, batch)
        torch.testing.assert_close(answers, between(task.name, batch), atol=1e-5, rtol=1e-4)
        assert not torch.allclose(answers, models[0](task.name, batch), atol=1e-4)


@pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
def test_trials_with_lora_are_averaged_after_merging(tmp_path: Path) -> None:
    toy = write_toy(tmp_path / "data")
    lora = {"encoder.adapter": "lora", "encoder.lora_rank": 2, "average.share": 0}
    run = make_run(
        tmp_path / "run", POINTS[:2], tasks=str(toy), data=toy.parent, examples=96, **lora
    )
    soup = make_soup(
        run, methods=["uniform soup"], folders=True, log=lambda _: None, warn=pytest.fail
    )
    merged = [
        load_file(run / "trials" / trial / "checkpoints" / checkpoint / "model/model.safetensors")
        for trial, checkpoint in (each.name.split("/") for each in soup.ingredients)
    ]
    assert len(merged) == 2
    found = soup.method("uniform soup")
    assert found is not None
    mean = load_file(run / found.folder / "model.safetensors")
    assert mean.keys() == load_encoder("tiny").state_dict().keys()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (merged[0][name] + merged[1][name]) / 2)
    apart = [name for name in mean if not torch.equal(merged[0][name], merged[1][name])]
    assert any("attention" in name for name in apart)
    predictor = load_model(run / found.folder)
    assert not has_lora(predictor.model.encoder)
    assert len(predictor.predict("mood", ["good good film", "bad house"])) == 2
