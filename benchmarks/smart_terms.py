"""How large SMART's term is: by variant, place, radius and the dropout of the perturbed pass.

    python benchmarks/smart_terms.py [--quick]

MiniLM in training (`none`: without dropout), sentences of the sample corpus, a random head of five
classes whose logits have a variance of about 1; the mean of several heads and draws. It is a mean
symmetric KL, so no speed is measured, and it does not matter what else runs.
"""

from __future__ import annotations

import argparse
from itertools import product

import torch
from torch import Tensor

from model.data.sample.corpus import sample_split
from model.modules.embeddings import At, embedding_module, kept, replaced
from model.modules.encoder import load_encoder, load_tokenizer
from model.objectives.smart import smart_terms

SENTENCES, CLASSES = 12, 5
MASKS = ("none", "anew", "shared")
PLACES: tuple[At, ...] = ("words", "embeddings")
RADII = (1, 0.1, 0.01, 1e-5)


class Bench:
    def __init__(self, seeds: range) -> None:
        self.seeds = seeds
        self.encoder = load_encoder("minilm")
        texts = [row.sentence1 for row in sample_split("sentiment", "dev")[:SENTENCES]]
        self.tokens = load_tokenizer("minilm")(texts, padding=True, return_tensors="pt")

    def pooled(self) -> Tensor:
        hidden: Tensor = self.encoder(**self.tokens)[0]
        mask = self.tokens["attention_mask"].unsqueeze(-1)
        return (hidden * mask).sum(1) / mask.sum(1)

    def term(self, at: At, masks: str, variant: str, radius: float, seed: int) -> float:
        """Of one head and one draw."""
        self.encoder.train(masks != "none")
        draw = torch.Generator().manual_seed(seed)
        point = embedding_module(self.encoder, at)
        torch.manual_seed(seed)
        with kept(point) as embeds:
            clean = self.pooled()
        head = (
            torch.randn(clean.shape[1], CLASSES, generator=draw) / clean.detach().norm(dim=1).mean()
        )

        def perturbed(embeds: Tensor) -> list[Tensor]:
            if masks == "shared":
                torch.manual_seed(seed)
            with replaced(point, embeds):
                return [self.pooled() @ head]

        (term,) = smart_terms(
            perturbed,
            embeds[0].detach(),
            [(clean @ head).detach()],
            torch.randn(embeds[0].shape, generator=draw),
            kinds=["classes"],
            variant=variant,
            radius=radius,
        )
        return float(term.detach())

    def mean(self, at: At, masks: str, variant: str, radius: float = 1.0) -> str:
        terms = [self.term(at, masks, variant, radius, seed) for seed in self.seeds]
        return f"{sum(terms) / len(terms):.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one draw: only shows that it works")
    bench = Bench(range(1 if parser.parse_args().quick else 4))
    for at in PLACES:
        bench.encoder.train()
        with kept(embedding_module(bench.encoder, at)) as embeds:
            bench.pooled()
        print(f"{at}: root mean square {embeds[0].detach().square().mean().sqrt():.2g}", flush=True)
    print("\n| place | masks | radius | random | ball | published, of size 1 |")
    print("|---|---|---|---|---|---|")
    for at, masks, radius in product(PLACES, MASKS, RADII):
        cells = [bench.mean(at, masks, variant, radius) for variant in ("random", "ball")]
        cells.append(bench.mean(at, masks, "published") if radius == 1 else "")
        print(f"| {at} | {masks} | {radius:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
