"""The folder that goes to the Hub: a model's known files and nothing else, looked at beforehand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from model.common.errors import Gathered, InputError
from model.common.files import write_atomic
from model.common.secrets import redact
from model.common.untrusted import (
    held,
    parse_json,
    read_json,
    read_regular,
    refuse_irregular,
)
from model.evaluation.model_folder import HEADS, SPEC
from model.modules.encoder_defaults import HUB_ID
from model.training.finish import link_or_copy
from tuner.soup.record import CARD, SOUP_JSON

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
WEIGHTS = re.compile(r"model(-[0-9]{5}-of-[0-9]{5})?\.safetensors")
VOCABULARY = re.compile(
    r"tokenizer\.json|vocab\.(txt|json)|merges\.txt|(spiece|sentencepiece\.bpe|tokenizer)\.model"
    r"|special_tokens_map\.json|added_tokens\.json"
)
TEXTS = (CONFIG, TOKENIZER, SPEC, "model.safetensors.index.json")
STAYS = (CARD, SOUP_JSON, "predictions")  # of the run, not of the model
NEEDED = (CONFIG, SPEC, HEADS, TOKENIZER)
PATHS = ("_name_or_path", "name_or_path")  # where the encoder came from, on this machine

AGAIN = "make the model again with stockpot soup"


def check_folder(place: Path) -> list[str]:
    """The files to send. Raises InputError with all that speaks against it."""
    gathered = Gathered(str(place))
    names = sorted(path.name for path in place.iterdir() if path.name not in STAYS)
    with gathered:
        if faults := list(_faults(place, names)):
            raise InputError(str(place), faults)
    for name in names:
        with gathered:
            refuse_irregular(place / name)
            _check(place / name)
    gathered.tell()
    return names


def _faults(place: Path, names: list[str]) -> Iterator[str]:
    for name in names:
        if not is_known(name):
            yield f"'{name}' is not part of a model; move it away, it would be public"
    for name in NEEDED:
        if name not in names:
            yield f"'{name}' is missing; {AGAIN}"
    if not any(map(WEIGHTS.fullmatch, names)):
        yield f"there are no weights as safetensors; {AGAIN}"


def is_known(name: str) -> bool:
    patterns = (WEIGHTS, VOCABULARY)
    return name in (*TEXTS, HEADS) or any(each.fullmatch(name) for each in patterns)


def _check(path: Path) -> None:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        try:
            with held(path) as name, safe_open(name, "pt") as file:
                file.keys()
        except (SafetensorError, OSError) as error:
            raise InputError(str(path), [f"is damaged ({error}); {AGAIN}"]) from None
    elif path.name in TEXTS:
        try:
            text = read_regular(path).decode("utf-8")
            if not isinstance(parse_json(text, finite=False), dict):
                raise ValueError("no object")
        except ValueError as error:
            raise InputError(str(path), [f"is damaged ({error}); {AGAIN}"]) from None
        if redact(text) != text:
            raise InputError(str(path), ["holds a password, a key or a token; take it out"])


def gather(place: Path, names: list[str], folder: Path) -> None:
    """Into a folder of its own, without paths of this machine."""
    for name in names:
        link_or_copy(place / name, folder / name)
    for name in (CONFIG, TOKENIZER):
        data = read_json(folder / name, finite=False)
        local = [key for key in PATHS if key in data and not _on_hub(data[key])]
        if local:
            kept = {key: value for key, value in data.items() if key not in local}
            write_atomic(folder / name, json.dumps(kept, indent=2, sort_keys=True) + "\n")


def _on_hub(name: object) -> bool:
    return isinstance(name, str) and bool(HUB_ID.fullmatch(name)) and not Path(name).exists()
