"""README.md of a soup, in the form that model hubs know as a model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model import __version__
from tuner.methods import GREEDY


def card_of(soup: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]) -> str:
    mine = next(method for method in soup["methods"] if method["name"] == GREEDY)
    chosen = {step["ingredient"] for step in soup["steps"] if step["accepted"]}
    lines = [
        "---",
        "library_name: transformers",
        "tags: [stockpot, model-soup, multitask]",
        "---",
        "",
        f"# Soup of {soup['run']}",
        "",
        f"A multitask text encoder for {', '.join(mine['tasks'])} (task set `{soup['tasks']}`): "
        f"the weights of {len(chosen)} checkpoint{'s' if len(chosen) != 1 else ''} of one "
        f"search, averaged (greedy soup). Made with Stockpot {__version__}.",
        "",
        "## Scores",
        "",
        "On the dev set that it was chosen on, with 95 % bootstrap intervals; the cross-fitted "
        "score repeats the choice on one half of dev and scores it on the other.",
        "",
        "| | metric | value | 95 % interval |",
        "|---|---|---|---|",
    ]
    for task, of in mine["tasks"].items():
        lines.append(f"| {task} | {of['metric']} | {_interval(of)} |")
    lines.append(f"| {soup['goal']} | | {_interval(mine['score'])} |")
    lines.append(f"| cross-fitted | | {_interval(mine['cross_fitted'])} |")
    if mine["difference"]:
        lines.append(f"| against the best single | | {_interval(mine['difference'], '+')} |")
    lines += ["", soup["recommendation"][:1].upper() + soup["recommendation"][1:] + ".", ""]
    lines += [f"**Caution:** {each}.\n" for each in soup["cautions"]]
    lines += [
        "## Ingredients",
        "",
        "| checkpoint | examples | score | sha256 |",
        "|---|---|---|---|",
    ]
    for each in soup["ingredients"]:
        if each["name"] in chosen:
            row = (each["name"], f"{each['examples']:,}", f"{each['score']:.4f}")
            lines.append(f"| {' | '.join(row)} | `{each['sha256'][:16]}` |")
    lines += ["", "## Settings", ""]
    for trial, params in settings.items():
        told = ", ".join(f"`{key}` {value}" for key, value in params.items())
        lines.append(f"- {trial}: {told or 'the default configuration'}")
    lines += [
        "",
        f"Data fingerprint: `{soup['data']}`.",
        "",
        "## Use",
        "",
        "```python",
        "from model.folder import load_model",
        "",
        'load_model("soup").predict(TASK, TEXTS)',
        "```",
        "",
        "`AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load the encoder; the "
        "heads are in `heads.safetensors`. `python -m tuner.predict` writes predictions for files.",
    ]
    return "\n".join(lines) + "\n"


def _interval(of: Mapping[str, Any], sign: str = "") -> str:
    return f"{of['value']:{sign}.4f} | [{of['low']:{sign}.4f}, {of['high']:{sign}.4f}]"
