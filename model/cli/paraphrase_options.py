"""The flags of `stockpot data paraphrase`, and what is wrong with them by themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from model.cli.flags import Flag, faults_of, flags_of, given_for, settle, sound
from model.common.errors import InputError
from model.common.secrets import redact
from model.common.typed import Above, AtLeast, AtMost
from model.data.paraphrase.card import Prices
from model.data.paraphrase.jobs import RewrittenSide
from model.data.paraphrase.make import out_faults
from model.data.paraphrase.server import url_faults

WHAT, MODEL, SERVER, FILE = "what to paraphrase", "by which model", "a server", "the file"
SERVER_ONLY = ("key_variable", "body", "parallel", "tries", "wait", "timeout")
RESERVED = ("model", "messages", "stream", "n", "seed", "temperature")
SECRET = re.compile(r"key|secret|passw|credential|authorization", re.IGNORECASE)


def read_body(given: Any) -> Any:
    """['max_tokens=800'] -> {'max_tokens': 800}"""
    if not isinstance(given, list):
        return given
    found: dict[str, Any] = {}
    faults = []
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not re.fullmatch(r"\w+", name):
            faults.append(f"'{redact(text)[:60]}' is not NAME=VALUE")
        elif SECRET.search(name) or redact(value) != value:
            faults.append(f"'{name}' looks like a secret; the key comes by --key-variable only")
        elif name in RESERVED:
            faults.append(f"'{name}' is set by the command itself; leave it out")
        else:
            found[name] = _json(value)
    if faults:
        raise InputError("--body", faults)
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, kw_only=True)
class ParaphraseOptions:
    tasks: Annotated[
        str, Flag("Read this task set: a shipped one's name or a YAML file.", WHAT, "SET")
    ] = "sample"
    data: Annotated[
        Path | None, Flag("Read the task's files in this folder.", WHAT, "DIR", "none")
    ] = None
    task: Annotated[str | None, Flag("Take rows of this task.", WHAT, "NAME", "none")] = None
    rows: Annotated[
        int | None, AtLeast(1), Flag("Take only the first N training rows.", WHAT, "N", "all")
    ] = None
    per_row: Annotated[
        int, AtLeast(1), AtMost(1000), Flag("Ask for N paraphrases of each row.", WHAT, "N")
    ] = 12
    side: Annotated[
        RewrittenSide, Flag("Rewrite this sentence of a pair, and leave the other.", WHAT)
    ] = "either"
    model: Annotated[
        str | None,
        Flag(
            "Ask this model: the server's name of it, a folder or a Hub id.", MODEL, "NAME", "none"
        ),
    ] = None
    base_url: Annotated[
        str | None,
        Flag(
            "Ask this OpenAI-compatible endpoint, as https://HOST/v1.",
            MODEL,
            "URL",
            "run the model here",
        ),
    ] = None
    template: Annotated[
        Path | None, Flag("Take a prompt of your own, see --show-prompt.", MODEL, "FILE", "shipped")
    ] = None
    temperature: Annotated[
        float | None,
        AtLeast(0),
        AtMost(2),
        Flag("Sample words at this temperature.", MODEL, "T", "the server's own; here 1"),
    ] = None
    seed: Annotated[
        int | None,
        AtLeast(0),
        AtMost(2**31 - 1),
        Flag("Seed the model's choices with N.", MODEL, "N", "not sent to a server; here 0"),
    ] = None
    per_request: Annotated[
        int, AtLeast(1), AtMost(100), Flag("Ask for N paraphrases in one request.", MODEL, "N")
    ] = 12
    key_variable: Annotated[
        str | None,
        Flag("Read the key from this environment variable.", SERVER, "VAR", "no key is sent"),
    ] = None
    body: Annotated[
        dict[str, Any],
        Flag(
            "Add a field to requests, as max_tokens=800; may be repeated.",
            SERVER,
            "K=V",
            "none",
            read=read_body,
        ),
    ] = field(default_factory=dict)
    parallel: Annotated[
        int, AtLeast(1), AtMost(256), Flag("Send N requests at once.", SERVER, "N")
    ] = 8
    tries: Annotated[
        int,
        AtLeast(1),
        AtMost(100),
        Flag("Try a request N times before it is left out.", SERVER, "N"),
    ] = 6
    wait: Annotated[
        float,
        Above(0),
        AtMost(60),
        Flag(
            "Wait S seconds before the second try, and twice as long before each further one.",
            SERVER,
            "S",
        ),
    ] = 1.0
    timeout: Annotated[
        float, Above(0), AtMost(3600), Flag("Give a request S seconds in total.", SERVER, "S")
    ] = 60.0
    price_in: Annotated[
        float,
        AtLeast(0),
        Flag("Count this price per million input tokens in the estimate.", SERVER, "P"),
    ] = 0.0
    price_out: Annotated[
        float,
        AtLeast(0),
        Flag("Count this price per million output tokens in the estimate.", SERVER, "P"),
    ] = 0.0
    out: Annotated[
        Path | None, Flag("Write this file: .arrow or .parquet.", FILE, "FILE", "none")
    ] = None
    near: Annotated[
        float,
        Above(0),
        AtMost(1),
        Flag(
            "Drop paraphrases at least this similar to another row; 1 drops exact copies only.",
            FILE,
            "S",
        ),
    ] = 0.7
    dry_run: Annotated[bool, Flag("Say what would be asked, and send nothing.", FILE)] = False
    show_prompt: Annotated[bool, Flag("Print the template in use, and end.", FILE)] = False
    quiet: Annotated[bool, Flag("Print only the result.", FILE, short="-q")] = False

    def __post_init__(self) -> None:
        settle(self)

    @property
    def prices(self) -> Prices:
        return Prices(self.price_in, self.price_out)

    @property
    def answers_depend_on(self) -> dict[str, Any]:
        """A command that goes on with another's answers must have the same."""
        local = self.base_url is None
        temperature, seed = (1.0, 0) if local else (None, None)
        return {
            "task": self.task,
            "model": self.model,
            "where": "here" if local else "a server",
            "per_row": self.per_row,
            "per_request": self.per_request,
            "side": self.side,
            "temperature": temperature if self.temperature is None else self.temperature,
            "seed": seed if self.seed is None else self.seed,
            "body": self.body,
        }


def option_faults(given: Mapping[str, Any]) -> list[str]:
    """What is wrong with flags by themselves, whatever else is."""
    table = ParaphraseOptions
    own = given_for(table, given)
    flags = flags_of(table)
    options = sound(table(**own))
    faults = faults_of(table, own)
    wanted = ("model",) if options.show_prompt else ("task", "model", "out")
    faults += [f"{flags[name].text} is missing" for name in wanted if own.get(name) is None]
    if options.base_url is not None:
        faults += url_faults(options.base_url)
    else:
        useless = [flags[name].text for name in SERVER_ONLY if name in own]
        faults += [f"{text} is for a server; give --base-url, or leave it out" for text in useless]
        if options.temperature == 0:
            faults.append("--temperature must be > 0 here: without chance all would be the same")
    if options.model and redact(options.model) != options.model:
        faults.append("--model holds a password or a key, and it would be written down")
    if options.out is not None and not options.show_prompt:
        faults += [f"--out {options.out}: {fault}" for fault in out_faults(options.out)]
    return faults
