"""What suits an encoder where the run does not say: its pooling, its learning rate; and cautions.

Found without loading the encoder: from our own notes, a folder's or the Hub's small JSON files.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from model.common.errors import InputError
from model.common.untrusted import read_json
from model.tasks.task_set import Task, TaskSet

Pooling = Literal["cls", "mean", "pooler"]
MINILM = "minilm"
TINY = "tiny"
CAUTIONS = {
    MINILM: "minilm was trained on Quora question pairs among others, so its scores on Quora "
    "paraphrases flatter"
}
USUAL_RATE = 2e-5  # of the papers, for encoders of BERT's width
# (widest, rate). A rule of thumb: minilm, 384 wide, was measured to bear ten times BERT's rate,
# and narrow encoders are like it in that.
RATES = ((384, 2e-4), (512, 1e-4))
POOLING_FILE = "1_Pooling/config.json"  # in every sentence-transformers model
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
PATIENCE = 3.0  # seconds for the Hub's answer


@dataclass(frozen=True)
class EncoderDefaults:
    """What an encoder works well with, where the run does not say otherwise."""

    pooling: Pooling
    learning_rate: float


def encoder_defaults(name: str) -> EncoderDefaults:
    """Mean pooling for encoders trained that way, [CLS] as in the papers for the rest."""
    if name == MINILM:
        return EncoderDefaults("mean", 2e-4)  # six narrow layers bear ten times BERT's rate
    if name == TINY:
        return EncoderDefaults("mean", 1e-3)
    if (own := _in_folder(name, "stockpot.json")) is not None:
        notes = _read(own)
        return EncoderDefaults(notes.get("pooling", "cls"), _rate(notes.get("learning_rate")))
    return EncoderDefaults(_pooling(name), _rate_for(_width(name)))


def caution(encoder_name: str, tasks: TaskSet) -> str | None:
    """What to bear in mind about this encoder's scores on these tasks, if anything."""
    told = CAUTIONS.get(encoder_name)
    return told if told and any(_is_quora(task) for task in tasks) else None


def _is_quora(task: Task) -> bool:
    source = task.source
    names = " ".join([*source.files.values(), source.dataset, source.config]).lower()
    return "quora" in names or "qqp" in names


def _read(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path, links=True, finite=False)
    except OSError as error:
        raise InputError(str(path), [f"cannot be read as JSON: {error}"]) from None
    if not isinstance(data, dict):
        raise InputError(str(path), ["is not a JSON object; is the folder damaged?"])
    return data


def _rate(noted: Any) -> float:
    """The rate in a model folder's notes; the usual one where it has none that could be one."""
    known = isinstance(noted, int | float) and not isinstance(noted, bool)
    return float(noted) if known and 0 < noted and math.isfinite(noted) else USUAL_RATE


def _rate_for(width: int | None) -> float:
    if width is None:
        return USUAL_RATE
    return next((rate for widest, rate in RATES if width <= widest), USUAL_RATE)


def _pooling(name: str) -> Pooling:
    path = file_of(name, POOLING_FILE)
    if path is None:
        return "cls"
    return "cls" if _read(path).get("pooling_mode_cls_token") else "mean"


def _width(name: str) -> int | None:
    path = file_of(name, "config.json")
    if path is None:
        return None
    with suppress(InputError):  # loading the encoder will tell it better
        config = _read(path)
        width = config.get("hidden_size", config.get("dim"))  # DistilBERT's name for it
        return width if type(width) is int and width > 0 else None
    return None


def file_of(name: str, filename: str) -> Path | None:
    """A small file of an encoder: of a folder, or of the Hub's. Never raises, hardly waits."""
    if (found := _in_folder(name, filename)) is not None:
        return found
    is_hub_id = HUB_ID.fullmatch(name) and _in_folder(name, "") is None
    return _hub_file(name, filename) if is_hub_id else None


def _in_folder(name: str, filename: str) -> Path | None:
    path = Path(os.path.expanduser(name)) / filename
    try:
        return path if path.exists() else None
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        return None


def _hub_file(name: str, filename: str) -> Path | None:
    """From the cache, which also knows what is not there; else from the Hub, unless offline."""
    try:
        import huggingface_hub as hub
        from huggingface_hub.errors import EntryNotFoundError

        cached = hub.try_to_load_from_cache(name, filename)
        if cached is not None or hub.constants.HF_HUB_OFFLINE:
            return Path(cached) if isinstance(cached, str) else None
        # The library's own download tries again and again where there is no network; this
        # asks once. That the file is not there is then noted in the cache by the download.
        with suppress(EntryNotFoundError):
            hub.get_hf_file_metadata(hub.hf_hub_url(name, filename), timeout=PATIENCE)
        with _no_progress_bars():
            return Path(hub.hf_hub_download(name, filename))
    except Exception:  # no network, no such model, a private one: loading it will tell
        return None


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()
