"""A small random encoder of every family that is promised to work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModel

from model.modules.encoder import quiet_transformers, tiny_tokenizer

WIDTH = 32
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
POSITIONS = {"max_position_embeddings": 66, "pad_token_id": 0}


@dataclass(frozen=True)
class Family:
    """What there is to know of a family; the tests hold it, docs/encoders.md says it."""

    config: Callable[[int], Any]
    layers: int = 2  # with weights of their own
    pooler: bool = True
    pals: bool = True
    checkpointing: bool = True
    longest: int = 512
    on_top: frozenset[str] = frozenset({"pooler"})  # of the encoder, above its layers
    everywhere: frozenset[str] = frozenset()  # what all layers read


FAMILIES: dict[str, Family] = {
    "BERT": Family(lambda n: transformers.BertConfig(vocab_size=n, **SIZES)),
    "RoBERTa": Family(
        lambda n: transformers.RobertaConfig(vocab_size=n, **SIZES, **POSITIONS), longest=65
    ),
    "XLM-R": Family(
        lambda n: transformers.XLMRobertaConfig(vocab_size=n, **SIZES, **POSITIONS), longest=65
    ),
    "DistilBERT": Family(
        lambda n: transformers.DistilBertConfig(
            vocab_size=n, dim=WIDTH, n_layers=2, n_heads=2, hidden_dim=64
        ),
        pooler=False,
        pals=False,
        on_top=frozenset(),
    ),
    "MPNet": Family(
        lambda n: transformers.MPNetConfig(vocab_size=n, **SIZES),
        checkpointing=False,
        longest=510,
        everywhere=frozenset({"encoder.relative_attention_bias"}),
    ),
    "ELECTRA": Family(
        lambda n: transformers.ElectraConfig(vocab_size=n, embedding_size=16, **SIZES),
        pooler=False,
        on_top=frozenset(),
        everywhere=frozenset({"embeddings_project"}),
    ),
    "ALBERT": Family(
        lambda n: transformers.AlbertConfig(vocab_size=n, embedding_size=16, **SIZES),
        layers=1,  # two passes through the same weights
        pals=False,
        checkpointing=False,
        everywhere=frozenset({"encoder.embedding_hidden_mapping_in"}),
    ),
    "DeBERTa-v2, v3": Family(
        lambda n: transformers.DebertaV2Config(
            vocab_size=n,
            **SIZES,
            type_vocab_size=0,
            relative_attention=True,
            position_biased_input=False,
            pos_att_type=["p2c", "c2p"],
            position_buckets=16,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        ),
        pooler=False,
        on_top=frozenset(),
        everywhere=frozenset({"encoder.rel_embeddings", "encoder.LayerNorm"}),
    ),
    "ModernBERT": Family(
        lambda n: transformers.ModernBertConfig(
            vocab_size=n,
            **SIZES,
            pad_token_id=0,
            cls_token_id=2,
            sep_token_id=3,
            bos_token_id=2,
            eos_token_id=3,
            max_position_embeddings=512,
            local_attention=8,
        ),
        pooler=False,
        pals=False,
        on_top=frozenset({"final_norm"}),
    ),
}


def save_encoder(name: str, folder: Path) -> Path:
    """With the tiny tokenizer beside it."""
    tokenizer = tiny_tokenizer()
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        AutoModel.from_config(FAMILIES[name].config(len(tokenizer))).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def table() -> str:
    """As it stands in docs/encoders.md."""
    yes = {True: "yes", False: "no"}
    rows = ["| family | layers to train or decay | pooler | PALs | LoRA | gradient checkpointing |"]
    rows.append("|---|---|---|---|---|---|")
    for name, family in FAMILIES.items():
        layers = "each" if family.layers > 1 else "one, shared"
        cells = [layers, yes[family.pooler], yes[family.pals], "yes", yes[family.checkpointing]]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)
