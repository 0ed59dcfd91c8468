from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from model.modules.embeddings import At, embedding_module, kept, replaced
from model.modules.multitask import ModelSpec, MultitaskModel, TaskSpec, decide, probabilities
from model.modules.pairs import LAYOUTS

KINDS: dict[str, dict[str, Any]] = {
    "three classes": {"kind": "classes", "classes": 3, "high": 2.0, "outputs": 3},
    "one logit": {
        "kind": "binary",
        "classes": 2,
        "high": 1.0,
        "outputs": 1,
        "loss": "binary_cross_entropy",
    },
    "two logits": {"kind": "binary", "classes": 2, "high": 1.0, "outputs": 2},
    "regression": {
        "kind": "regression",
        "classes": 0,
        "high": 5.0,
        "outputs": 1,
        "loss": "mse",
        "metric": "pearson",
    },
}
TOGETHER = [
    (encoding, kind)
    for encoding in ("single", *LAYOUTS)
    for kind in KINDS
    if encoding != "cosine" or kind in ("one logit", "regression")  # a cosine is one number
]


@pytest.mark.parametrize("hidden", [0, 16])
@pytest.mark.parametrize(("encoding", "kind"), TOGETHER)
def test_every_encoding_gives_every_kind_its_outputs(
    encoding: str, kind: str, hidden: int, task_of: Any, model_of: Any, batch_of: Any
) -> None:
    task: TaskSpec = task_of("t", pair=encoding != "single", encoding=encoding, **KINDS[kind])
    model: MultitaskModel = model_of([task], head_hidden=hidden)
    batch = batch_of(task, 5)
    outputs = model("t", batch)
    assert outputs.shape == (5, task.outputs)
    outputs.sum().backward()
    assert all(weights.grad is not None for weights in model.heads.parameters())
    values, likely = decide(task, outputs)
    assert values.shape == (5,)
    assert (likely is None) == (kind == "regression")


@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler"])
@pytest.mark.parametrize("adapter", ["none", "pals"])
@pytest.mark.parametrize("at", ["words", "embeddings"])
def test_what_was_kept_of_a_pass_stands_in_for_it(
    at: At, pooling: str, adapter: str, model_of: Any, batch_of: Any
) -> None:
    model: MultitaskModel = model_of(pooling=pooling, adapter=adapter).eval()
    point = embedding_module(model.encoder, at)
    for task in model.spec.tasks:
        batch = batch_of(task)
        with kept(point) as given:
            plain = model(task.name, batch)
        (embeds,) = given
        with replaced(point, embeds):
            assert torch.equal(model(task.name, batch), plain)
        with replaced(point, embeds + torch.linspace(-1, 1, embeds.shape[-1])):
            assert not torch.allclose(model(task.name, batch), plain, atol=1e-4)
        assert torch.equal(model(task.name, batch), plain)  # the hooks are gone


def test_the_embedding_layers_output_is_its_last_word(model_of: Any, batch_of: Any) -> None:
    """After LayerNorm: a token has mean 0 and variance 1 there, word vectors have neither."""
    model: MultitaskModel = model_of(dropout=0.0).train()
    batch = batch_of(model.spec.tasks[0])
    sizes = {}
    for at in ("words", "embeddings"):
        with kept(embedding_module(model.encoder, at)) as given:  # type: ignore[arg-type]
            model("mood", batch)
        sizes[at] = given[0].var(dim=-1, unbiased=False).mean().item()
    assert sizes["embeddings"] == pytest.approx(1.0, rel=1e-2)
    assert sizes["words"] < 0.01


def test_segments_reach_the_encoder(model_of: Any, batch_of: Any) -> None:
    model: MultitaskModel = model_of().eval()
    batch = batch_of(model.tasks["same"])
    assert batch.token_type_ids.max() == 1
    plain = model("same", batch)
    batch.token_type_ids.zero_()
    assert not torch.allclose(model("same", batch), plain, atol=1e-6)


def test_the_order_of_a_pair_counts_for_two_sequences(model_of: Any, batch_of: Any) -> None:
    model: MultitaskModel = model_of().eval()
    batch = batch_of(model.tasks["near"], 4)
    u, v = model.encode(batch).chunk(2)
    head = model.heads["task_near"]
    by_hand = head(torch.cat([u, v, (u - v).abs()], dim=-1))
    assert torch.allclose(model("near", batch), by_hand, atol=1e-6)


# --- from outputs to answers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["three classes", "one logit", "two logits"])
@pytest.mark.parametrize("loss", ["cross_entropy", "dual_objective", "ordinal_log"])
def test_probabilities_sum_to_one(kind: str, loss: str, task_of: Any) -> None:
    task: TaskSpec = task_of("t", **{**KINDS[kind], "loss": loss})
    outputs = 5 * torch.randn(50, task.outputs, generator=torch.Generator().manual_seed(0))
    outputs[0], outputs[1] = 200.0, -200.0
    likely = probabilities(task, outputs)
    assert likely is not None
    assert likely.shape == (50, task.classes)
    assert torch.allclose(likely.sum(-1)[2:], torch.ones(48), atol=1e-6)
    assert likely.min() >= 0
    assert likely.isfinite().all()
    values, again = decide(task, outputs)
    assert again is not None
    assert torch.equal(again, likely)
    assert torch.equal(values, likely.argmax(-1).float())


def test_probabilities_are_those_of_the_loss(task_of: Any) -> None:
    outputs = torch.tensor([[0.0, 1.0, -2.0]])
    soft = probabilities(task_of("t"), outputs)
    assert soft is not None
    assert torch.allclose(soft, outputs.exp() / outputs.exp().sum())
    dual = probabilities(task_of("t", loss="dual_objective"), outputs)
    assert dual is not None
    each = 1 / (1 + (-outputs).exp())
    assert torch.allclose(dual, each / each.sum())
    one = probabilities(task_of("t", **KINDS["one logit"]), torch.tensor([[2.0]]))
    assert one is not None
    assert one[0, 1] == pytest.approx(1 / (1 + 2.718281828**-2))


def test_a_regression_is_clipped_to_its_range(task_of: Any) -> None:
    task: TaskSpec = task_of("t", **KINDS["regression"])
    outputs = torch.tensor([[-1.0], [0.5], [9.0]], dtype=torch.bfloat16)
    values, likely = decide(task, outputs)
    assert values.tolist() == [0, 0.5, 5]
    assert values.dtype == torch.float32
    assert likely is None


# --- names and states ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["items", "pop", "keys", "type", "encoder", "heads", "forward"])
def test_a_task_can_have_any_name(name: str, task_of: Any, model_of: Any, batch_of: Any) -> None:
    tasks = [task_of(name), task_of("other")]
    model: MultitaskModel = model_of(tasks, adapter="pals")
    assert model(name, batch_of(tasks[0])).shape == (6, 3)
    assert list(model.tasks) == [name, "other"]
    assert any(key.startswith(f"heads.task_{name}.") for key in model.task_tensors())


@pytest.mark.parametrize("adapter", ["none", "pals"])
def test_a_state_goes_round(adapter: str, model_of: Any, batch_of: Any) -> None:
    first: MultitaskModel = model_of(adapter=adapter, seed=1).eval()
    second: MultitaskModel = model_of(adapter=adapter, seed=2).eval()
    with torch.no_grad():
        for weights in first.parameters():
            weights.add_(0.01 * torch.randn_like(weights))
    batch = batch_of(first.tasks["same"])
    assert not torch.equal(first("same", batch), second("same", batch))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first("same", batch), second("same", batch))


def test_the_encoder_and_the_tasks_share_out_the_state(model_of: Any) -> None:
    model: MultitaskModel = model_of(adapter="pals")
    own = set(model.task_tensors())
    encoder = {f"encoder.{name}" for name in model.encoder.state_dict()}
    assert own | encoder == set(model.state_dict())
    assert not own & encoder
    assert {name.split(".")[0] for name in own} == {"heads", "pals"}


def test_shared_parameters_are_the_encoders_trained_ones(model_of: Any) -> None:
    model: MultitaskModel = model_of(adapter="pals")
    assert len(model.shared_parameters()) == len(list(model.encoder.parameters()))
    model.encoder.requires_grad_(False)
    assert model.shared_parameters() == []


def test_a_description_goes_round_through_json(model_of: Any) -> None:
    spec: ModelSpec = model_of().spec
    again = ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert [task.layout for task in again.tasks] == ["single", "cross", "bi"]


def test_an_unknown_task_is_an_error(tiny: MultitaskModel, batch_of: Any) -> None:
    with pytest.raises(KeyError):
        tiny("none", batch_of(tiny.tasks["mood"]))


# --- PALs ---------------------------------------------------------------------------------------


def train_on(model: MultitaskModel, task: str, batch: Any) -> None:
    model.encoder.requires_grad_(False)
    optimizer = torch.optim.Adam([w for w in model.parameters() if w.requires_grad], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(task, batch).square().sum().backward()
        optimizer.step()


def test_pals_change_the_outputs_of_their_own_task_only(
    model_of: Callable[..., MultitaskModel], batch_of: Any
) -> None:
    model = model_of(adapter="pals")
    batches = {task.name: batch_of(task) for task in model.spec.tasks}

    def encoded() -> dict[str, Tensor]:
        """The sentences as each task's head sees them."""
        model.eval()
        found = {}
        for name, batch in batches.items():
            assert model.pals is not None
            with torch.no_grad(), model.pals.use(name, batch.attention_mask):
                found[name] = model.encode(batch)
        return found

    with torch.no_grad():
        plain = {name: model.eval().encode(batch) for name, batch in batches.items()}
    before = encoded()
    assert all(torch.equal(plain[name], before[name]) for name in before)  # they start at 0
    train_on(model.train(), "same", batches["same"])
    after = encoded()
    assert torch.equal(after["mood"], before["mood"])
    assert torch.equal(after["near"], before["near"])
    assert not torch.allclose(after["same"], before["same"], atol=1e-3)
    with torch.no_grad():
        assert torch.equal(model.encode(batches["same"]), plain["same"])  # outside: none at all


def test_a_deep_copy_has_pals_of_its_own(
    model_of: Callable[..., MultitaskModel], batch_of: Any
) -> None:
    model = model_of(adapter="pals").eval()
    batch = batch_of(model.tasks["same"])
    kept = copy.deepcopy(model)
    before = model("same", batch)
    train_on(model, "same", batch)
    assert torch.equal(kept("same", batch), before)
    assert not torch.allclose(model("same", batch), before)


def test_without_segments_the_second_sentence_has_the_first_ones_kind(
    model_of: Any, task_of: Any, batch_of: Any
) -> None:
    task: TaskSpec = task_of("t", pair=True, encoding="cross", **KINDS["one logit"])
    model: MultitaskModel = model_of([task], segments=False).eval()
    batch = batch_of(task, 5)
    assert batch.token_type_ids.max() == 1
    plain = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    none = model.encoder(**plain, token_type_ids=batch.token_type_ids * 0).last_hidden_state
    assert torch.equal(model.encode(batch, "cls"), none[:, 0])
    with_them = model_of([task]).eval()
    given = with_them.encoder(**plain, token_type_ids=batch.token_type_ids).last_hidden_state
    assert torch.equal(with_them.encode(batch, "cls"), given[:, 0])


def test_a_model_from_before_head_layers_and_segments_has_what_was_then(tiny: Any) -> None:
    data = tiny.spec.to_dict()
    del data["head_layers"], data["segments"]
    old = ModelSpec.from_dict(json.loads(json.dumps(data)))
    assert (old.head_layers, old.segments) == (1, True)
