from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from smart_pytorch import SMARTLoss, sym_kl_loss
from torch import Tensor, nn

from model.common.rng import rng_seed
from model.config.settings import (
    BatchSettings,
    LayerScaleSettings,
    RDropSettings,
    SmartSettings,
)
from model.data.batches import Batch
from model.modules.multitask import MultitaskModel
from model.objectives.losses import IN_BATCH, make_loss
from model.objectives.surgery import pcgrad, surgery
from model.objectives.uncertainty import Uncertainty
from model.training.microbatches import split_batch
from model.training.optim import add_scalars, make_optimizer
from model.training.readings import MOST_SKIPS, Reader, TrainingDiverged, UnreadStep

from ..stepping import RATE, Round, close, gradients, stepper

NAMES = ("mood", "same", "near")


@pytest.fixture
def rounds(tiny: MultitaskModel, batch_of: Any) -> dict[str, Batch]:
    return {task.name: batch_of(task, 7) for task in tiny.spec.tasks}


# --- parts of a batch ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 20])
def test_the_parts_of_a_batch_are_the_batch(
    rounds: dict[str, Batch], name: str, parts: int
) -> None:
    batch = rounds[name]
    pieces = split_batch(batch, parts)
    assert len(pieces) == min(parts, 7)
    assert torch.equal(torch.cat([piece.labels for piece in pieces]), batch.labels)
    assert np.concatenate([piece.rows for piece in pieces]).tolist() == batch.rows.tolist()
    for field in ("input_ids", "attention_mask", "token_type_ids"):
        whole = getattr(batch, field).view(batch.parts, 7, -1)
        sides = [getattr(p, field).view(batch.parts, len(p.labels), -1) for p in pieces]
        assert torch.equal(torch.cat(sides, dim=1), whole)  # a pair's sides stay together


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_accumulating_gives_the_gradient_of_the_whole_batch(
    calm: Any, rounds: dict[str, Batch], name: str, parts: int
) -> None:
    whole, cut = calm(), calm()
    first = stepper(whole).take(0, [(name, rounds[name])], 1.0)
    second = stepper(cut, accumulate=parts).take(0, [(name, rounds[name])], 1.0)
    assert close(gradients(whole), gradients(cut), 1e-5)
    assert second.losses[name] == pytest.approx(first.losses[name], rel=1e-5)
    assert second.gradient_norm == pytest.approx(first.gradient_norm, rel=1e-4)


@pytest.mark.parametrize("loss", sorted(IN_BATCH))
def test_a_batch_whose_loss_compares_its_rows_is_not_cut(
    tiny: MultitaskModel, calm: Any, rounds: dict[str, Batch], loss: str
) -> None:
    """One row alone has no correlation."""
    tasks = [replace(tiny.tasks["near"], loss=loss)]
    whole, cut, batch = calm(tasks=tasks), calm(tasks=tasks), rounds["near"]
    first = stepper(whole).take(0, [("near", batch)], 1.0)
    second = stepper(cut, accumulate=7).take(0, [("near", batch)], 1.0)
    assert close(gradients(whole), gradients(cut), 1e-5)
    assert second.losses == pytest.approx(first.losses, rel=1e-5)


def test_a_step_is_that_of_plain_pytorch(calm: Any, rounds: dict[str, Batch]) -> None:
    ours, theirs = calm(), calm()
    report = stepper(ours, weights={"near": 0.5}).take(0, list(rounds.items()), 0.3)
    optimizer = make_optimizer(theirs.named_parameters(), layers=2, learning_rate=0.3 * RATE)
    total = torch.zeros(())
    for name, batch in rounds.items():
        loss = make_loss(theirs.tasks[name].loss)(theirs(name, batch), batch.labels)
        assert report.losses[name] == pytest.approx(float(loss.detach()), rel=1e-5)
        total = total + loss * (0.5 if name == "near" else 1.0)
    total.backward()
    assert close(gradients(ours), gradients(theirs), 1e-5)
    optimizer.step()
    mine, yours = dict(ours.named_parameters()), dict(theirs.named_parameters())
    assert all(torch.allclose(mine[n], yours[n], atol=1e-5) for n in mine)
    assert report.smart is None


def test_a_step_with_r_drop_is_that_of_plain_pytorch(calm: Any, rounds: dict[str, Batch]) -> None:
    ours, theirs = calm(dropout=0.2), calm(dropout=0.2)
    work = stepper(ours, rdrop=RDropSettings(weight=0.7, tasks=("mood", "near")))
    report = work.take(0, list(rounds.items()), 1.0)
    for position, (name, batch) in enumerate(rounds.items()):
        torch.manual_seed(rng_seed(0, 0, position, 0))
        loss_of = make_loss(theirs.tasks[name].loss)
        first = theirs(name, batch)
        loss = loss_of(first, batch.labels)
        if name != "same":
            second = theirs(name, batch)
            loss = (loss + loss_of(second, batch.labels)) / 2
            assert not torch.equal(first, second)
        assert report.losses[name] == pytest.approx(float(loss.detach()), rel=1e-5)
        if name == "mood":
            p, q = first.log_softmax(-1), second.log_softmax(-1)
            kl = [(a.exp() * (a - b)).sum(-1).mean() for a, b in ((p, q), (q, p))]
            loss = loss + 0.7 * (kl[0] + kl[1]) / 2
        elif name == "near":
            loss = loss + 0.7 * (first - second).square().mean()
        loss.backward()
    assert close(gradients(ours), gradients(theirs), 1e-5)


def test_learned_weights_scale_the_losses_and_learn(calm: Any, rounds: dict[str, Batch]) -> None:
    ours, theirs = calm(), calm()
    kinds = {task.name: task.kind for task in ours.spec.tasks}
    work = stepper(ours)
    work.uncertainty = Uncertainty(kinds, torch.device("cpu"))
    learned = work.uncertainty.log_variances
    add_scalars(work.optimizer, learned, rate=0.1, depth=4)
    with torch.no_grad():
        learned["mood"].fill_(0.5)
    report = work.take(0, list(rounds.items()), 1.0)
    leaves = {name: torch.tensor(0.5 if name == "mood" else 0.0) for name in kinds}
    for name, batch in rounds.items():
        s = leaves[name].requires_grad_()
        loss = make_loss(theirs.tasks[name].loss)(theirs(name, batch), batch.labels)
        part = 0.5 if kinds[name] == "regression" else 1.0
        (part * torch.exp(-s) * loss + s / 2).backward()
        assert report.losses[name] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert close(gradients(ours), gradients(theirs), 1e-5)
    for name, s in leaves.items():
        assert s.grad is not None
        torch.testing.assert_close(learned[name].grad, s.grad, rtol=1e-4, atol=1e-6)
        before = 0.5 if name == "mood" else 0.0
        assert learned[name].item() == pytest.approx(before - 0.1 * s.grad.sign().item(), abs=1e-3)


# --- all tasks in one pass ----------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_one_pass_for_all_tasks_is_the_step_of_passes_of_their_own(
    calm: Any, rounds: dict[str, Batch], pooling: str
) -> None:
    apart, joint = calm(pooling=pooling), calm(pooling=pooling)
    passes = count_calls(joint.encoder)
    batches = list(rounds.items())
    for number in range(2):
        expected = stepper(apart, weights={"near": 0.5}).take(number, batches, 1.0)
        together = BatchSettings(together=True)
        found = stepper(joint, weights={"near": 0.5}, batch=together).take(number, batches, 1.0)
        assert found.losses == pytest.approx(expected.losses, rel=1e-5)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
        assert close(gradients(apart), gradients(joint), 1e-5)
    assert len(passes) == 2


@pytest.mark.parametrize(
    ("passes", "settings"),
    [
        (3, {"smart": SmartSettings(weight=1.0)}),
        (3, {"smart": SmartSettings(weight=1.0, at="words", masks="shared", norm="l2")}),
        (4, {"smart": SmartSettings(weight=1.0, variant="ball", radius=0.1, steps=2)}),
        (2, {"smart": SmartSettings(weight=1.0, variant="random", radius=0.1)}),
        (2, {"rdrop": RDropSettings(weight=0.7)}),
        (2, {"smart": SmartSettings(bregman=1.0)}),  # its copy's too
        (4, {"smart": SmartSettings(weight=1.0, tasks=("mood", "near"))}),  # `same` by itself
        (5, {"smart": SmartSettings(weight=1.0, bregman=1.0), "rdrop": RDropSettings(weight=0.7)}),
    ],
)
def test_terms_with_passes_of_their_own_share_these_too(
    calm: Any, rounds: dict[str, Batch], settings: Any, passes: int
) -> None:
    apart, joint = calm(), calm()
    counted = count_calls(joint.encoder)
    works = [
        stepper(apart, weights={"near": 0.5}, **settings),
        stepper(joint, weights={"near": 0.5}, batch=BatchSettings(together=True), **settings),
    ]
    for work in works:  # so that Bregman's term is something
        for parameter in work.copy.parameters() if work.copy is not None else ():
            parameter.mul_(1.01)
    expected, found = (work.take(0, list(rounds.items()), 1.0) for work in works)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.smart == (expected.smart and pytest.approx(expected.smart, rel=1e-4))
    assert close(gradients(apart), gradients(joint), 1e-5 * expected.gradient_norm)
    assert len(counted) == passes


def test_shared_masks_are_shared_in_one_pass_for_all(calm: Any, rounds: dict[str, Batch]) -> None:
    smart = SmartSettings(weight=1.0, variant="random", radius=1e-7, masks="shared")
    for changes, none_left in (({}, True), ({"masks": "anew"}, False)):
        work = stepper(
            calm(dropout=0.3),
            smart=replace(smart, **changes),  # type: ignore[arg-type]
            batch=BatchSettings(together=True),
        )
        term = work.take(0, list(rounds.items()), 1.0).smart
        assert term is not None and (term < 1e-6) == none_left


@pytest.mark.parametrize(
    "settings",
    [
        {"batch": BatchSettings(together=False)},
        {"batch": BatchSettings()},  # on a CPU
        {"batch": BatchSettings(together=True), "surgery": "pcgrad"},
        {"batch": BatchSettings(together=True, accumulate=2)},
    ],
    ids=["off", "auto", "surgery", "accumulate"],
)
def test_tasks_have_passes_of_their_own_where_that_is_needed(
    calm: Any, rounds: dict[str, Batch], settings: Any
) -> None:
    model = calm()
    passes = count_calls(model.encoder)
    stepper(model, **settings).take(0, list(rounds.items()), 1.0)
    assert len(passes) >= 3


def test_a_pass_of_mostly_padding_is_none_for_all(calm: Any, rounds: dict[str, Batch]) -> None:
    work = stepper(calm(), batch=BatchSettings(together=True))
    parts = [work._microbatches(name, batch, (0, 0), 0)[0] for name, batch in rounds.items()]
    assert work._fit_together(parts)
    long = parts[0].batch.input_ids.repeat(1, 40)
    wide = replace(parts[0], batch=replace(parts[0].batch, input_ids=long))
    assert not work._fit_together([wide, *parts[1:]])


def count_calls(module: nn.Module) -> list[int]:
    calls: list[int] = []
    module.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


# --- random numbers -----------------------------------------------------------------------------


def test_a_step_draws_from_its_own_number_and_nothing_else(
    calm: Any, rounds: dict[str, Batch]
) -> None:
    def losses(number: int, seed: int, before: int) -> dict[str, float]:
        torch.manual_seed(before)
        work = stepper(calm(dropout=0.3), seed=seed)
        return work.take(number, list(rounds.items()), 1.0).losses

    assert losses(5, 0, before=1) == losses(5, 0, before=2)
    assert losses(5, 0, before=1) != losses(6, 0, before=1)
    assert losses(5, 0, before=1) != losses(5, 1, before=1)


def test_equal_batches_of_a_round_have_different_masks(calm: Any, rounds: dict[str, Batch]) -> None:
    work = stepper(calm(dropout=0.3), accumulate=1)
    parts = [
        work._microbatches("mood", rounds["mood"], (0, position), 0)[0] for position in range(3)
    ]
    assert len({float(work._accumulate_one(work.model, part).loss) for part in parts}) == 3


def test_seeds_of_different_keys_differ() -> None:
    keys = list(product(range(4), range(6), range(1, 4)))
    assert len({rng_seed(*key) for key in keys}) == len(keys)
    assert rng_seed(1, 2) == rng_seed(1, 2) != rng_seed(1, 2, 0)
    assert all(0 <= rng_seed(*key) < 2**63 for key in keys)


# --- SMART --------------------------------------------------------------------------------------


def test_every_kth_step_has_smart_and_k_times_of_it(calm: Any, rounds: dict[str, Batch]) -> None:
    def after(number: int, smart: SmartSettings) -> tuple[dict[str, Tensor], float | None]:
        model = calm()
        report = stepper(model, smart=smart).take(number, [("same", rounds["same"])], 1.0)
        return gradients(model), report.smart

    def smart(every: int) -> SmartSettings:
        return SmartSettings(weight=0.5, variant="random", radius=0.5, every=every)

    for number in range(7):
        plain, none = after(number, SmartSettings())
        always, term = after(number, smart(1))
        third, rare = after(number, smart(3))
        assert none is None
        assert term is not None and term > 1e-4
        assert not close(always, plain, 1e-5)
        if number % 3:
            assert rare is None
            assert close(third, plain)
            continue
        assert rare == pytest.approx(term)
        for name in plain:
            wanted = plain[name] + 3 * (always[name] - plain[name])
            assert torch.allclose(third[name], wanted, atol=1e-5)


@pytest.mark.parametrize("adapter", ["none", "pals"])
@pytest.mark.parametrize("name", NAMES)
def test_shared_masks_leave_nothing_to_a_perturbation_of_nothing(
    calm: Any, rounds: dict[str, Batch], name: str, adapter: str
) -> None:
    def term(masks: str) -> float:
        model = calm(dropout=0.3, adapter=adapter)
        smart = SmartSettings(weight=1.0, variant="random", radius=1e-7, masks=masks)
        found = stepper(model, smart=smart).take(0, [(name, rounds[name])], 1.0).smart
        assert found is not None
        return found

    assert term("shared") < 1e-8
    assert term("anew") > 1e-4  # two masks differ by themselves


@pytest.mark.parametrize("at", ["embeddings", "words"])
def test_published_smart_is_the_package_on_the_embedding_layers_output(
    calm: Any, rounds: dict[str, Batch], at: Any
) -> None:
    """As mt-dnn has it, and the package's README: not word vectors, but what the layers read."""
    mine, plain = calm(), calm()
    batch = rounds["mood"]
    smart = SmartSettings(weight=0.5, at="auto" if at == "embeddings" else at)
    told = stepper(mine, smart=smart).take(0, [("mood", batch)], 0.0)

    bert = plain.encoder
    mask = batch.attention_mask

    def head_of(embeds: Tensor) -> Tensor:
        hidden = bert.encoder(embeds, attention_mask=mask[:, None, None, :].bool())[0]
        weights = mask.unsqueeze(-1) / mask.sum(1)[:, None, None]
        outputs: Tensor = plain.heads["task_mood"]((hidden * weights).sum(1))
        return outputs

    embeds = bert.embeddings(input_ids=batch.input_ids, token_type_ids=batch.token_type_ids)
    outputs = head_of(embeds)
    torch.manual_seed(rng_seed(rng_seed(0, 0, 0, 0), 1))  # the start of the search
    package = SMARTLoss(head_of, partial(sym_kl_loss, reduction="batchmean"))
    term = package(embeds, outputs)
    (F.cross_entropy(outputs, batch.labels.long()) + 0.5 * term).backward()
    same = told.smart == pytest.approx(term.item(), rel=1e-4)
    assert same == (at == "embeddings")
    assert close(gradients(mine), gradients(plain), 1e-5) == (at == "embeddings")


def test_what_is_perturbed_suits_the_variant_unless_asked_for() -> None:
    assert SmartSettings().where == "embeddings"
    assert SmartSettings(variant="ball").where == SmartSettings(variant="random").where == "words"
    assert SmartSettings(at="words").where == "words"
    assert SmartSettings(variant="ball", at="embeddings").where == "embeddings"


def test_masks_suit_the_variant_unless_asked_for() -> None:
    assert not SmartSettings(variant="published").shared_masks
    assert SmartSettings(variant="ball").shared_masks
    assert SmartSettings(variant="published", masks="shared").shared_masks
    assert not SmartSettings(variant="ball", masks="anew").shared_masks


@pytest.mark.parametrize("variant", ["published", "ball", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_every_variant_regularises_every_kind_of_task(
    calm: Any, rounds: dict[str, Batch], name: str, variant: str
) -> None:
    plain, with_smart = calm(), calm()
    before = stepper(plain).take(0, [(name, rounds[name])], 1.0)
    smart = SmartSettings(weight=2.0, variant=variant, radius=0.3)
    report = stepper(with_smart, smart=smart).take(0, [(name, rounds[name])], 1.0)
    assert report.losses == before.losses  # told without the term
    assert report.smart is not None and report.smart > 0
    assert not close(gradients(plain), gradients(with_smart), 1e-6)


def test_smart_keeps_to_its_tasks(calm: Any, rounds: dict[str, Batch]) -> None:
    smart = SmartSettings(weight=1.0, variant="random", tasks=("mood",))
    work = stepper(calm(), smart=smart)
    assert work.take(0, [("same", rounds["same"])], 1.0).smart is None
    assert work.take(1, [("mood", rounds["mood"])], 1.0).smart is not None
    both = work.take(2, list(rounds.items()), 1.0)
    assert both.smart is not None


def test_a_frozen_encoder_can_have_smart_and_surgery(calm: Any, rounds: dict[str, Batch]) -> None:
    model = calm(adapter="pals")
    model.encoder.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.encoder.state_dict().items()}
    smart = SmartSettings(weight=1.0, variant="ball", bregman=0.5)
    work = stepper(model, smart=smart, surgery="pcgrad")
    report = work.take(0, list(rounds.items()), 1.0)
    assert report.smart is not None and math.isfinite(report.smart)
    assert all(torch.equal(t, before[n]) for n, t in model.encoder.state_dict().items())
    assert {name.split(".")[0] for name in gradients(model)} == {"heads", "pals"}


def test_every_kth_counts_the_batches_of_each_task(calm: Any, rounds: dict[str, Batch]) -> None:
    """A schedule that goes round three tasks must not give every third step to the same one."""
    smart = SmartSettings(weight=0.5, variant="random", radius=0.5, every=3)
    work = stepper(calm(), smart=smart)
    had = dict.fromkeys(NAMES, 0)
    with_smart = dict.fromkeys(NAMES, 0)
    for number in range(18):
        name = NAMES[number % 3]
        report = work.take(number, [(name, rounds[name])], 1.0, dict(had))
        had[name] += 1
        with_smart[name] += report.smart is not None
    assert with_smart == dict.fromkeys(NAMES, 2)


def test_bregman_keeps_to_the_tasks_of_smart(calm: Any, rounds: dict[str, Batch]) -> None:
    plain, held = calm(), calm()
    settings = SmartSettings(bregman=50.0, tasks=("mood",))
    for work in (stepper(plain), stepper(held, smart=settings)):
        for number in range(2):
            work.take(number, [("same", rounds["same"])], 1.0)
    assert close(gradients(plain), gradients(held))


# --- Bregman ------------------------------------------------------------------------------------


def test_the_first_step_has_no_bregman_term_and_later_ones_do(
    calm: Any, rounds: dict[str, Batch]
) -> None:
    plain, held = calm(), calm()
    first, second = stepper(plain), stepper(held, smart=SmartSettings(bregman=50.0, momentum=0.9))
    for number in range(2):
        for work in (first, second):
            work.take(number, list(rounds.items()), 1.0)
        if number == 0:
            assert close(gradients(plain), gradients(held))
    assert not close(gradients(plain), gradients(held), 1e-4)
    assert second.copy is not None
    assert first.copy is None  # made only where it is needed


def test_the_copy_follows_with_its_momentum(calm: Any, rounds: dict[str, Batch]) -> None:
    model = calm(adapter="pals")
    work = stepper(model, smart=SmartSettings(bregman=1.0, momentum=0.8))
    assert work.copy is not None
    assert not work.copy.training
    assert all(not weights.requires_grad for weights in work.copy.parameters())
    wanted = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    for number in range(3):
        work.take(number, list(rounds.items()), 1.0)
        now = dict(model.named_parameters())
        wanted = {n: 0.8 * kept + 0.2 * now[n].detach() for n, kept in wanted.items()}
        found = dict(work.copy.named_parameters())
        assert found.keys() == wanted.keys()
        assert all(torch.allclose(found[n], wanted[n], atol=1e-7) for n in wanted)
    assert not torch.equal(
        wanted["heads.task_mood.output.weight"], model.heads["task_mood"].output.weight
    )


# --- surgery ------------------------------------------------------------------------------------


@pytest.fixture
def at_odds(model_of: Any, task_of: Any, batch_of: Any) -> Callable[[], tuple[Any, Round]]:
    """Two tasks that want the opposite of each other, and a third."""

    def make() -> tuple[MultitaskModel, Round]:
        tasks = [task_of(name, classes=2, high=1.0, outputs=2) for name in ("one", "two", "three")]
        model: MultitaskModel = model_of(tasks, dropout=0.0).train()
        with torch.no_grad():
            one, two = model.heads["task_one"].output, model.heads["task_two"].output
            one.weight.mul_(20)
            two.weight.copy_(-0.5 * one.weight)
        batch = batch_of(tasks[0], 8)
        batch.labels.fill_(1)  # of one class: what raises one's logit lowers two's
        return model, [(task.name, batch) for task in tasks]

    return make


def test_surgery_changes_the_encoders_gradients_only(
    at_odds: Callable[[], tuple[Any, Round]],
) -> None:
    (plain, batches), (operated, _) = at_odds(), at_odds()
    stepper(plain).take(3, batches, 1.0)
    stepper(operated, surgery="pcgrad").take(3, batches, 1.0)
    before, after = gradients(plain), gradients(operated)
    assert before.keys() == after.keys()
    for name in before:
        if name.startswith("heads."):
            assert torch.equal(before[name], after[name])
    assert any(
        not torch.allclose(before[name], after[name], atol=1e-4)
        for name in before
        if name.startswith("encoder.")
    )


def test_surgery_is_that_of_the_tasks_own_gradients(
    at_odds: Callable[[], tuple[Any, Round]],
) -> None:
    operated, batches = at_odds()
    stepper(operated, surgery="pcgrad", seed=4, weights={"two": 0.7}).take(3, batches, 1.0)
    separate = []
    for name, batch in batches:
        alone, _ = at_odds()
        stepper(alone, weights={"two": 0.7}).take(3, [(name, batch)], 1.0)
        separate.append([weights.grad for weights in alone.shared_parameters()])
    wanted = surgery(separate, pcgrad, seed=rng_seed(4, 3, 3))
    for weights, gradient in zip(operated.shared_parameters(), wanted, strict=True):
        assert (weights.grad is None) == (gradient is None)
        if gradient is not None and weights.grad is not None:
            assert torch.allclose(weights.grad, gradient, atol=1e-6)


def test_surgery_needs_two_tasks_and_accumulates(at_odds: Callable[[], tuple[Any, Round]]) -> None:
    (plain, batches), (operated, _), (cut, _) = at_odds(), at_odds(), at_odds()
    stepper(plain).take(0, batches[:1], 1.0)
    stepper(operated, surgery="pcgrad").take(0, batches[:1], 1.0)
    assert close(gradients(plain), gradients(operated))
    operated, _ = at_odds()
    stepper(operated, surgery="pcgrad").take(0, batches, 1.0)
    stepper(cut, surgery="pcgrad", accumulate=3).take(0, batches, 1.0)
    assert close(gradients(operated), gradients(cut), 1e-5)


# --- weights, clipping, rates -------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weight", [0.0, 0.1, 3.0])
def test_a_loss_weight_scales_the_gradient(
    calm: Any, rounds: dict[str, Batch], name: str, weight: float
) -> None:
    plain, weighted = calm(), calm()
    smart = SmartSettings(weight=0.3, variant="random")
    one = stepper(plain, smart=smart).take(0, [(name, rounds[name])], 1.0)
    other = stepper(weighted, smart=smart, weights={name: weight}).take(
        0, [(name, rounds[name])], 1.0
    )
    wanted = {n: weight * gradient for n, gradient in gradients(plain).items()}
    # Sums of numbers of up to 200 that cancel out: their rounding is not small beside the result.
    assert close(gradients(weighted), wanted, 5e-4)
    assert other.losses == one.losses  # told as it is


def test_clipping_limits_the_norm_and_tells_it_as_it_was(
    calm: Any, rounds: dict[str, Batch]
) -> None:
    def norm_after(clip: float) -> tuple[float, float]:
        model = calm()
        report = stepper(model, clip=clip).take(0, list(rounds.items()), 1.0)
        left = math.sqrt(sum(float(g.square().sum()) for g in gradients(model).values()))
        return left, report.gradient_norm

    free, told = norm_after(0.0)
    assert free == pytest.approx(told, rel=1e-5)
    assert free > 0.5
    left, told = norm_after(0.25)
    assert left == pytest.approx(0.25, rel=1e-3)
    assert told == pytest.approx(free, rel=1e-5)
    assert norm_after(2 * free)[0] == pytest.approx(free, rel=1e-5)


def test_layer_scale_changes_the_rates_of_the_layers_alone(
    calm: Any, rounds: dict[str, Batch]
) -> None:
    scale = LayerScaleSettings(alpha=0.5, beta=2.0, layers={"mood": (1,)})
    work = stepper(calm(), layer_scale=scale)

    def rates(*names: str) -> dict[int, float]:
        work.take(0, [(name, rounds[name]) for name in names], 0.1)
        found = {group["depth"]: group["lr"] for group in work.optimizer.param_groups}
        return {depth: rate / (0.1 * RATE) for depth, rate in sorted(found.items())}

    assert rates("mood") == pytest.approx({0: 1.0, 1: 0.5, 2: 2.0, 3: 1.0, 4: 1.0})
    assert rates("same") == pytest.approx({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0})
    assert rates("mood", "same") == pytest.approx({0: 1.0, 1: 0.75, 2: 1.5, 3: 1.0, 4: 1.0})


def test_a_layer_scaled_to_nothing_stays_where_it_is(calm: Any, rounds: dict[str, Batch]) -> None:
    model = calm()
    before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    scale = LayerScaleSettings(alpha=0.0, beta=1.0, layers={"mood": (1,)})
    stepper(model, layer_scale=scale).take(0, [("mood", rounds["mood"])], 1.0)
    moved = {n for n, weights in model.named_parameters() if not torch.equal(weights, before[n])}
    assert not any(name.startswith("encoder.encoder.layer.0.") for name in moved)
    assert any(name.startswith("encoder.encoder.layer.1.") for name in moved)
    assert any(name.startswith("encoder.embeddings.") for name in moved)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_in_a_joint_step_each_tasks_gradient_is_scaled_by_its_own_layers(
    calm: Any, rounds: dict[str, Batch], clip: float
) -> None:
    best = {"mood": (1,), "same": (0,), "near": (0, 1)}
    alone: dict[str, dict[str, Tensor]] = {}
    for name in NAMES:
        model = calm()
        stepper(model).take(0, [(name, rounds[name])], 1.0)
        alone[name] = gradients(model)
    model = calm()
    scale = LayerScaleSettings(alpha=0.5, beta=3.0, layers=best, joint="gradients")
    work = stepper(model, layer_scale=scale, clip=clip)
    work.take(0, list(rounds.items()), 1.0)
    expected: dict[str, Tensor] = {}
    for task, found in alone.items():
        for name, gradient in found.items():
            factor = 1.0
            for layer in (0, 1):
                if name.startswith(f"encoder.encoder.layer.{layer}."):
                    factor = 3.0 if layer in best[task] else 0.5
            expected[name] = expected.get(name, 0.0) + factor * gradient
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected.values()))
    part = min(1.0, clip / norm) if clip else 1.0
    assert close(gradients(model), {n: g * part for n, g in expected.items()}, 1e-5)
    # The rates are then the plain ones: the scale would count twice.
    assert {group["lr"] for group in work.optimizer.param_groups} == {RATE}


def test_in_a_step_of_one_task_the_rates_are_scaled_either_way(
    calm: Any, rounds: dict[str, Batch]
) -> None:
    scale = LayerScaleSettings(alpha=0.5, beta=3.0, layers={"mood": (1,)}, joint="gradients")
    work = stepper(calm(), layer_scale=scale)
    work.take(0, [("mood", rounds["mood"])], 1.0)
    found = {group["depth"]: group["lr"] / RATE for group in work.optimizer.param_groups}
    assert (found[1], found[2]) == pytest.approx((0.5, 3.0))


# --- a run that goes astray ---------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run_with_step_and_task(
    calm: Any, rounds: dict[str, Batch], value: float
) -> None:
    model = calm()
    with torch.no_grad():
        model.heads["task_near"].output.bias.fill_(value)
    with pytest.raises(TrainingDiverged, match=r"step 41: the loss of 'near' is (nan|inf)") as told:
        stepper(model).take(41, list(rounds.items()), 1.0)
    assert "optim.learning_rate" in str(told.value)


def test_a_gradient_that_is_no_number_ends_the_run(calm: Any, rounds: dict[str, Batch]) -> None:
    model = calm()
    model.heads["task_mood"].output.weight.register_hook(lambda grad: grad * math.inf)
    with pytest.raises(TrainingDiverged, match=r"step 7: the gradient's norm is"):
        stepper(model).take(7, [("mood", rounds["mood"])], 1.0)


# --- one objective, and half precision ----------------------------------------------------------


def test_a_step_on_one_objective(calm: Any, rounds: dict[str, Batch]) -> None:
    model = calm()
    work = stepper(model)
    unread = [
        work.step_on(n, "mood", lambda: model.encode(rounds["mood"]).square().mean(), 1.0)
        for n in range(5)
    ]
    values = [report.losses["mood"] for report in Reader().read(unread)]
    assert values[-1] < values[0]
    lost = work.step_on(9, "mood", lambda: model.encode(rounds["mood"]).mean() * math.nan, 1.0)
    with pytest.raises(TrainingDiverged, match="step 9: the loss of 'mood' is nan"):
        list(Reader().read([*unread, lost]))


@pytest.fixture
def no_onednn() -> Iterator[None]:
    """Some virtual machines name bf16 instructions that they do not have; oneDNN believes them."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@pytest.mark.usefixtures("no_onednn")
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("surgery", ["none", "pcgrad"])
def test_half_precision_stays_near_and_keeps_whole_weights(
    calm: Any, rounds: dict[str, Batch], dtype: torch.dtype, surgery: str
) -> None:
    whole, half = calm(), calm()
    settings: dict[str, Any] = {
        "smart": SmartSettings(weight=0.1, variant="ball", bregman=0.1),
        "surgery": surgery,
        "clip": 1.0,
    }
    by_whole, by_half = stepper(whole, **settings), stepper(half, precision=dtype, **settings)
    if dtype == torch.float16:  # these heads have losses of thousands
        by_half.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(3):
        one = by_whole.take(step, list(rounds.items()), 0.1)
        two = by_half.take(step, list(rounds.items()), 0.1)
        assert two.losses == pytest.approx(one.losses, rel=0.05)
        assert two.losses != one.losses
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=0.2)  # told unscaled
    assert {weights.dtype for weights in half.parameters()} == {torch.float32}
    assert by_half.scaler.is_enabled() == (dtype == torch.float16)


@pytest.mark.usefixtures("no_onednn")
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_heads_and_losses_are_whole_numbers_under_autocast(
    calm: Any, rounds: dict[str, Batch], dtype: torch.dtype
) -> None:
    model = calm(head_hidden=8)
    seen: set[torch.dtype] = set()
    for part in model.heads.modules():
        if isinstance(part, nn.Linear):
            part.register_forward_hook(lambda _, __, output: seen.add(output.dtype))
    inside: set[torch.dtype] = set()
    layer = model.encoder.encoder.layer[0].intermediate.dense
    layer.register_forward_hook(lambda _, __, output: inside.add(output.dtype))
    work = stepper(model, precision=dtype)
    work.step(0, list(rounds.items()), 1.0, dict.fromkeys(model.tasks, 0))
    assert seen == {torch.float32} and inside == {dtype}


@pytest.mark.usefixtures("no_onednn")
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_a_step_that_overflows_in_float16_is_left_out_and_the_next_one_is_smaller(
    calm: Any, rounds: dict[str, Batch]
) -> None:
    model = calm()
    work = stepper(model, precision=torch.float16)
    work.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    reader = Reader(float16=True)
    before = [weights.detach().clone() for weights in model.parameters()]
    turns = dict.fromkeys(model.tasks, 0)
    told = list(reader.read([work.step(0, list(rounds.items()), 1.0, turns)]))
    assert told == [] and reader.skipped == 1
    assert all(map(torch.equal, before, model.parameters()))
    for number in range(1, 40):
        if list(reader.read([work.step(number, list(rounds.items()), 1.0, turns)])):
            break
        reader.skipped = 1  # the start was set too high on purpose
    assert number > 3 and work.scaler.get_scale() == 2.0 ** (40 - number)
    assert not all(map(torch.equal, before, model.parameters()))


def test_overflow_for_ever_or_in_the_loss_itself_is_divergence() -> None:
    def step(number: int, loss: float, norm: float) -> UnreadStep:
        value = torch.tensor(loss)
        return UnreadStep.of(number, {"mood": value}, [value], None, torch.tensor(norm))

    reader = Reader(float16=True)
    some = [step(n, 0.5, math.inf) for n in range(MOST_SKIPS)]
    assert list(reader.read(some)) == []
    assert len(list(reader.read([step(20, 0.5, 1.0), *some]))) == 1  # one that fits, and again
    with pytest.raises(TrainingDiverged, match="step 99: the gradient's norm is inf"):
        list(reader.read([step(99, 0.5, math.inf)]))
    with pytest.raises(TrainingDiverged, match="step 5: the loss of 'mood' is nan"):
        list(Reader(float16=True).read([step(5, math.nan, math.nan)]))
