from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from smart_pytorch import SMARTLoss, sym_kl_loss
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from model.objectives.smart import (
    NORMS,
    VARIANTS,
    divergence,
    smart_terms,
    update_momentum,
)

KINDS = {"classes": 5, "binary": 1, "regression": 1}


def smart_term(
    forward: Callable[[Tensor], Tensor],
    embeds: Tensor,
    clean: Tensor,
    *,
    kind: str,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Tensor:
    """Of one task."""
    draw = torch.randn(embeds.shape, generator=generator)
    (term,) = smart_terms(lambda e: [forward(e)], embeds, [clean], draw, kinds=[kind], **options)
    return term


class Small(nn.Module):
    """A tiny BERT and a head, from embeddings to outputs; dropout masks are shared."""

    def __init__(self, outputs: int, *, train: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = BertConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            vocab_size=100,
            initializer_range=0.2,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(32, outputs)
        self.mask = torch.tensor([[1] * 6, [1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]])
        self.calls = 0
        self.train(train)

    def embeds(self) -> Tensor:
        ids = torch.randint(5, 100, (4, 6), generator=torch.Generator().manual_seed(1))
        found: Tensor = self.encoder.embeddings.word_embeddings(ids)
        return found

    def forward(self, embeds: Tensor) -> Tensor:
        self.calls += 1
        torch.manual_seed(7)
        hidden = self.encoder(inputs_embeds=embeds, attention_mask=self.mask).last_hidden_state
        outputs: Tensor = self.head(hidden.mean(dim=1))
        return outputs


def recorded(model: Small) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    seen: list[Tensor] = []

    def forward(embeds: Tensor) -> Tensor:
        seen.append(embeds.detach())
        outputs: Tensor = model(embeds)
        return outputs

    return forward, seen


def norm_of(delta: Tensor, norm: str) -> Tensor:
    return delta.abs().amax(dim=-1) if norm == "inf" else delta.pow(2).sum(dim=-1).sqrt()


def test_divergence_by_hand() -> None:
    a, b = torch.randn(2, 4, 3, dtype=torch.float64)
    total = 0.0
    for p, q in zip(a.softmax(-1).tolist(), b.softmax(-1).tolist(), strict=True):
        total += sum(x * math.log(x / y) + y * math.log(y / x) for x, y in zip(p, q, strict=True))
    for detach in (False, True):
        found = divergence("classes", a, b, detach=detach)
        assert found.item() == pytest.approx(total / 4, rel=1e-9)
    squares = [(x - y) ** 2 for x, y in zip(a[:, 0].tolist(), b[:, 0].tolist(), strict=True)]
    found = divergence("regression", a[:, :1], b[:, :1])
    assert found.item() == pytest.approx(sum(squares) / 4, rel=1e-9)


def test_one_logit_counts_as_two() -> None:
    a, b = torch.randn(2, 4, 1)
    two = [F.pad(x, (1, 0)) for x in (a, b)]
    torch.testing.assert_close(divergence("binary", a, b), divergence("binary", *two))


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_divergence_is_symmetric_zero_at_home_and_a_mean(kind: str, detach: bool) -> None:
    a, b = torch.randn(2, 4, KINDS[kind])
    apart = partial(divergence, kind, detach=detach)
    torch.testing.assert_close(apart(a, b), apart(b, a))
    torch.testing.assert_close(apart(a.repeat(3, 1), b.repeat(3, 1)), apart(a, b))
    assert apart(a, a).abs() < 1e-7 < apart(a, b)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_published_is_the_package(kind: str, norm: str, steps: int, train: bool) -> None:
    model = Small(KINDS[kind], train=train)
    losses: dict[str, Callable[..., Tensor]] = {
        "classes": partial(sym_kl_loss, reduction="batchmean"),
        "binary": lambda a, b: sym_kl_loss(F.pad(a, (1, 0)), F.pad(b, (1, 0)), "batchmean"),
        "regression": F.mse_loss,
    }
    package = SMARTLoss(
        model, losses[kind], norm_fn=lambda x: norm_of(x, norm).unsqueeze(-1), num_steps=steps
    )
    found = []
    for ours in (False, True):
        model.zero_grad()
        embeds = model.embeds()
        clean = model(embeds)
        torch.manual_seed(11)
        if ours:
            term = smart_term(
                model, embeds, clean, kind=kind, variant="published", steps=steps, norm=norm
            )
        else:
            term = package(embeds, clean)
        term.backward()
        found.append([term.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 30
    assert found[0][0] > 1e-3
    for theirs, our in zip(*found, strict=True):
        torch.testing.assert_close(our, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("noise", [None, 5.0])
def test_ball_never_leaves_its_ball(
    radius: float, norm: str, steps: int, noise: float | None
) -> None:
    model = Small(5)
    embeds = model.embeds().detach()
    forward, seen = recorded(model)
    smart_term(
        forward,
        embeds,
        model(embeds),
        kind="classes",
        variant="ball",
        radius=radius,
        norm=norm,
        steps=steps,
        noise=noise,
    )
    assert len(seen) == steps + 1
    for perturbed in seen:
        sizes = norm_of(perturbed - embeds, norm)
        assert sizes.max() <= radius * (1 + 1e-4) + 1e-6
        assert sizes.min() > 0


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("norm", "radius"), [("inf", 0.01), ("inf", 0.1), ("l2", 0.05), ("l2", 0.5)]
)
def test_ball_beats_random_directions_of_the_same_size(
    norm: str, radius: float, kind: str, train: bool
) -> None:
    model = Small(KINDS[kind], train=train)
    embeds = model.embeds().detach()
    clean = model(embeds).detach()
    found: dict[str, list[float]] = {"ball": [], "random": [], "corner": []}
    for seed in range(6):
        draw = torch.Generator().manual_seed(seed)
        term = partial(smart_term, model, embeds, clean, kind=kind, radius=radius, norm=norm)
        found["ball"].append(term(variant="ball", generator=draw).item())
        found["random"].append(term(variant="random", generator=draw).item())
        # A corner of the inf ball is a random direction as large as any in l2 as well.
        corner = torch.randn(embeds.shape, generator=draw).sign() * radius
        corner = corner / (1 if norm == "inf" else embeds.shape[-1] ** 0.5)
        found["corner"].append(divergence(kind, model(embeds + corner), clean).item())
    mean = {name: sum(values) / len(values) for name, values in found.items()}
    assert mean["ball"] > 1.5 * mean["random"]
    assert mean["ball"] > 1.5 * mean["corner"]


def test_more_steps_find_more() -> None:
    model = Small(5)
    embeds = model.embeds().detach()
    clean = model(embeds).detach()
    found = [
        sum(
            smart_term(
                model,
                embeds,
                clean,
                kind="classes",
                steps=steps,
                generator=torch.Generator().manual_seed(seed),
            ).item()
            for seed in range(4)
        )
        for steps in (1, 4)
    ]
    assert found[1] > found[0]


@pytest.mark.parametrize("norm", NORMS)
def test_random_lies_on_the_sphere_and_takes_one_pass(norm: str) -> None:
    model = Small(5)
    embeds = model.embeds().detach()
    forward, seen = recorded(model)
    smart_term(
        forward, embeds, model(embeds), kind="classes", variant="random", radius=0.3, norm=norm
    )
    assert len(seen) == 1
    sizes = norm_of(seen[0] - embeds, norm)
    torch.testing.assert_close(sizes, torch.full_like(sizes, 0.3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_search_leaves_no_gradients_and_the_last_pass_gives_them(variant: str) -> None:
    model = Small(5)
    embeds = model.embeds()
    clean = model(embeds)
    term = smart_term(model, embeds, clean, kind="classes", variant=variant, steps=2)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert term.ndim == 0 and term > 0
    term.backward()
    words = model.encoder.embeddings.word_embeddings.weight.grad
    assert words is not None and words.abs().max() > 0
    assert model.head.weight.grad is not None


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_perturbation_is_a_constant_of_the_term(variant: str) -> None:
    """Gradients are those of the divergence at the perturbation that was found."""
    model = Small(5)
    embeds = model.embeds()
    clean = model(embeds)
    forward, seen = recorded(model)
    draw = torch.Generator().manual_seed(0)
    term = smart_term(forward, embeds, clean, kind="classes", variant=variant, generator=draw)
    weights = list(model.parameters())
    found = torch.autograd.grad(term, weights, retain_graph=True, allow_unused=True)
    delta = seen[-1] - embeds.detach()
    apart = divergence("classes", model(embeds + delta), clean, detach=variant == "published")
    expected = torch.autograd.grad(apart, weights, allow_unused=True)
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_term_depends_on_the_generator_alone(variant: str) -> None:
    model = Small(5)
    embeds = model.embeds()
    clean = model(embeds)
    found = []
    for seed in (1, 1, 2):
        draw = torch.Generator().manual_seed(seed)
        term = smart_term(model, embeds, clean, kind="classes", variant=variant, generator=draw)
        found.append(term.item())
    assert found[0] == found[1] != found[2]


def test_momentum_by_hand() -> None:
    weights = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0]])}
    copy = {name: value.clone() for name, value in weights.items()}
    for value in weights.values():
        value += 10
    update_momentum(copy, weights.items(), beta=0.9)
    assert copy["a"].tolist() == pytest.approx([0.9 * 1 + 0.1 * 11, 0.9 * 2 + 0.1 * 12])
    assert copy["b"].tolist() == [[pytest.approx(0.9 * 3 + 0.1 * 13)]]
    update_momentum(copy, weights.items(), beta=0.0)
    assert torch.equal(copy["a"], weights["a"])
    with pytest.raises(ValueError, match="'b'"):
        update_momentum(copy, [("a", weights["a"])], beta=0.9)


def test_faults_are_named() -> None:
    x = torch.zeros(1, 2, 3)
    call = partial(smart_term, lambda e: e[:, 0], x, x[:, 0], kind="classes")
    with pytest.raises(ValueError, match="'sphere'; known: published, ball, random"):
        call(variant="sphere")
    with pytest.raises(ValueError, match="'l1'; known: inf, l2"):
        call(norm="l1")
