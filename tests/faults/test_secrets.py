"""Passwords and keys are refused where they would be kept, and hidden where they would be shown."""

from __future__ import annotations

import base64
import html
import json
import quopri
import re
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.cli.text import one_line
from model.common.errors import InputError
from model.common.secrets import brief, redact
from model.common.typed import show
from model.common.untrusted import shown, unfit
from model.tasks.yaml_reader import plain_text
from tuner.ray_backend.failures import classify
from tuner.ray_backend.trainable import failure
from tuner.runs.schema import faults_of
from tuner.search.__main__ import main

KEY = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://me:pass@bucket/x", "s3://***@bucket/x"),
        ("at https://token@host:80/y now", "at https://***@host:80/y now"),
        ("postgresql+psycopg2://u:p%40q@db/optuna", "postgresql+psycopg2://***@db/optuna"),
        ("s3:/me:pass@bucket", "s3:/***@bucket"),  # as a path has it
        ("s3://b/x?access_key=A1&region=eu", "s3://b/x?access_key=***&region=eu"),
        ("s3://b/x?region=eu&secret_key=B2", "s3://b/x?region=eu&secret_key=***"),
        ("https://h/x?X-Amz-Signature=ab12", "https://h/x?X-Amz-Signature=***"),
        (f"key {KEY}.", "key ***."),
        ("s3://me:pa/ss@bucket/x", "s3://***@bucket/x"),
        ("s3://me:a:b@c/d@bucket", "s3://***@bucket"),
        ("s3://me:pa ss@bucket/x", "s3://***@bucket/x"),
        ("s3://me:p'a\"ss@bucket/x", "s3://***@bucket/x"),
        ("s3://me:12345/x@bucket", "s3://***@bucket"),
        ("https://me:123abc/x@host/y", "https://***@host/y"),
        ("http://host:9000/a@b", "http://host:9000/a@b"),
        ("http://host:80 is down, ask a@b.org", "http://host:80 is down, ask a@b.org"),
        ("postgresql://db:5432/x refuses me@db", "postgresql://db:5432/x refuses me@db"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("a@b.org wrote to c@d.org", "a@b.org wrote to c@d.org"),
        ("runs/mine/t0001", "runs/mine/t0001"),
        ("smart.weight=5 keys=3", "smart.weight=5 keys=3"),
        ("https://host/plain?region=eu", "https://host/plain?region=eu"),
    ],
)
def test_what_is_secret_is_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact(text, {}) == shown


def test_what_the_environment_calls_a_secret_is_hidden() -> None:
    environment = {"MY_TOKEN": "abcdefgh1", "HOME": "/home/somebody", "SHORT_KEY": "abc"}
    assert redact("abcdefgh1 in /home/somebody, abc", environment) == "*** in /home/somebody, abc"


@given(st.text(max_size=200) | st.text("as3:/@ '\"1\n.", max_size=60))
def test_hiding_twice_hides_no_more(text: str) -> None:
    assert redact(redact(text, {}), {}) == redact(text, {})


def test_an_error_does_not_repeat_a_password() -> None:
    error = InputError("s3://me:pass@bucket", ["https://me:pass@host does not answer"])
    assert "pass" not in str(error)
    assert "s3://***@bucket: 1 problem" in str(error)


@pytest.mark.parametrize(
    "flags",
    [
        ["--data", "s3://me:hunter2@bucket/data"],
        ["--encoder", "https://me:hunter2@host/encoder"],
        ["--set", "init_from=https://host/model?token=hunter2"],
        ["--set", "encoder={name: 'https://me:hunter2@host/encoder'}"],
    ],
    ids=["data", "encoder", "set", "nested"],
)
def test_a_secret_that_would_be_kept_is_refused(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "runs"
    assert main(["--storage-path", str(storage), *flags]) == 2
    said = "".join(capsys.readouterr())
    assert "holds a password or a key" in said
    assert "hunter2" not in said
    assert not storage.exists()


def test_a_secret_in_a_space_that_would_be_kept_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space, storage = tmp_path / "mine.yaml", tmp_path / "runs"
    space.write_text(
        "about: of https://me:hunter2@host\n"
        "tasks: sample\n"
        "base: {encoder.name: tiny, init_from: 'https://me:hunter2@host/model'}\n"
        "parameters:\n  optim.learning_rate: {float: [1.0e-5, 1.0e-3], log: true}\n"
    )
    assert main(["--storage-path", str(storage), "--space", str(space)]) == 2
    said = "".join(capsys.readouterr())
    for place in ("'about'", "'base.init_from'"):
        assert f"{place} holds a password or a key, which would be written to space.yaml" in said
    assert str(space) in said and "hunter2" not in said
    assert not storage.exists()


# --- in any text, in any encoding -----------------------------------------------------------------

PEM = "-----BEGIN KEY-----\nMIIEvgIBADANBgkqhkiG9w0BAQEF\nAASCBKgwggSkAgEAAoIBAQC7\n"
# What reads as another character, or as none, does not count: so it is promised.
READ = re.compile(r"\s|\\+(?:[0-3][0-7]{2}|[nrtbfxuU]?)|%..|&(?:\w+;|#\w+;?)")
SECRETS = st.text(
    st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), min_size=8, max_size=40
).filter(lambda text: len(READ.sub("", text)) >= 8 and len(set(text)) > 5) | st.just(PEM)
AROUND = st.text(st.characters(codec="ascii", categories=["L", "Zs", "P"]), max_size=700)
WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": lambda secret: secret,
    "quoted by Python": repr,
    "quoted twice": lambda secret: repr(repr(secret)),
    "as JSON": json.dumps,
    "as bytes": lambda secret: repr(secret.encode()),
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "percent-encoded, slashes left": quote,
    "as a form": quote_plus,
    "percent-encoded in small letters": lambda secret: (
        quote(secret, safe="").lower() if secret == secret.lower() else quote(secret, safe="")
    ),
    "percent-encoded twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "as HTML": html.escape,
    "in hexadecimal": lambda secret: secret.encode().hex(),
    "in hexadecimal with colons": lambda secret: secret.encode().hex(":").upper(),
    "in hexadecimal of UTF-16": lambda secret: secret.encode("utf-16").hex(" "),
    "in base64 of UTF-16": lambda secret: base64.b64encode(secret.encode("utf-16-le")).decode(),
    "in base64 by lines": lambda secret: base64.encodebytes(
        f"me, myself:{secret}".encode()
    ).decode(),
    "in base64 by short lines as JSON": lambda secret: json.dumps(
        "\n".join(textwrap.wrap(base64.b64encode(secret.encode()).decode(), 20))
    ),
    "in base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "in base64 with a user": lambda secret: base64.b64encode(f"me:{secret}".encode()).decode(),
    "in one line": lambda secret: " ".join(secret.split()),
    "indented": lambda secret: secret.replace("\n", "\n    "),
}


# Only letters and digits are found in these, so there must be enough of them.
FRAMED: dict[str, Callable[[str], str]] = {
    "in octal": lambda secret: "".join(f"\\{ord(c):03o}" for c in secret),
    "in braces": lambda secret: "".join(f"\\u{{{ord(c):x}}}" for c in secret),
    "quoted-printable": lambda secret: "".join(f"={ord(c):02X}" for c in secret),
    "quoted-printable, by lines": lambda secret: quopri.encodestring(secret.encode()).decode(),
    "as numbers": lambda secret: str(list(secret.encode())),
    "character by character": lambda secret: repr(list(secret)),
    "in capitals": lambda secret: secret.upper(),
    "in a frame": lambda secret: "│\n│ ".join(textwrap.wrap(secret, 7)),
    "in colours": lambda secret: f"{secret[:4]}\x1b[1;31m{secret[4:]}",
    "with invisible marks": lambda secret: "\u200b".join(secret),
}
LETTERS = SECRETS.filter(lambda text: len(re.sub(r"[\W_]", "", READ.sub("", text.strip()))) >= 8)


def leaks(secret: str, written: str, text: str) -> bool:
    """Whether half of it or more is still there, as it is or as it was written."""
    half = max(8, len(secret) // 2)
    parts = [secret, *secret.split("\n")]
    found = [p[i : i + half] for p in parts if len(p) >= half for i in range(len(p) - half + 1)]
    return any(part in text for part in found if part.strip()) or written.strip("'\"=") in text


@pytest.mark.parametrize("how", WRITTEN)
@given(secret=SECRETS, before=AROUND, after=AROUND)
@example(secret=PEM, before="x" * 490, after="")
@example(secret="abcdefghij-klmnopqrst/uvw+yz", before="x " * 245, after="y")
def test_a_secret_anywhere_in_any_text_never_survives(
    how: str, secret: str, before: str, after: str
) -> None:
    written = WRITTEN[how](secret)
    if leaks(secret, written, f"{before} {after}"):
        return  # what stands around it says as much
    text = f"{before} {written} {after}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", secret)
        assert not leaks(secret, written, redact(text))
        assert not leaks(secret, written, brief(text))
        assert not leaks(secret, written, one_line(text))
        assert not leaks(secret, written, classify(RuntimeError(text))["reason"])
        found = failure(RuntimeError(text))
        assert not leaks(secret, written, found["reason"] + found["traceback"])


@pytest.mark.parametrize("how", FRAMED)
@settings(max_examples=40)
@given(secret=LETTERS)
@example(secret=PEM)
def test_a_secret_in_a_frame_never_survives(how: str, secret: str) -> None:
    secret = re.sub(r"^[\W_]+|[\W_]+$", "", secret)
    shown = redact(f"a b {FRAMED[how](secret)} c d", {"SOME_TOKEN": secret})
    assert re.fullmatch(r"a b \W*\*\*\*\W* c d", shown)


def test_a_long_text_is_read_in_a_moment() -> None:
    """What is in a text may be a stranger's, as a sentence of a data file is."""
    began = time.process_time()
    for part in ("a:/b:", "x://", "a.", "?key", "key", "\\", "%41", "A"):
        redact(part * (100_000 // len(part)), {"SOME_TOKEN": "abcdefgh123"})
    assert time.process_time() - began < 60  # it had been minutes


BEYOND_ASCII = "schlüssel-€-😀-geheim"


@pytest.mark.parametrize(
    "written",
    [
        *(ascii(BEYOND_ASCII), json.dumps(BEYOND_ASCII), quote(BEYOND_ASCII)),
        *(repr(BEYOND_ASCII.encode()), BEYOND_ASCII.encode().hex("-")),
        *(BEYOND_ASCII.encode("utf-16-be").hex(), BEYOND_ASCII.encode("latin-1", "replace").hex()),
    ],
)
def test_letters_beyond_ascii_are_found_too(written: str) -> None:
    assert redact(f"x {written} y", {"A_KEY": BEYOND_ASCII}).strip("x y'b\"0") == "***"


@settings(max_examples=60)
@given(secret=LETTERS, before=st.integers(0, 90), after=st.integers(0, 5000))
@example(secret="eyJ0.abcdefghijklmnopqrstuvwxyz0123456789" * 4, before=0, after=0)
@example(secret="0123456789abcdefghijklmnopqrstuvwxyzABCDEFG", before=42, after=9)
def test_a_secret_in_a_value_is_hidden_before_the_value_is_cut(
    secret: str, before: int, after: int
) -> None:
    text = f"{'x ' * (before // 2)} {secret} {'y ' * (after // 2)}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_TOKEN", secret)
        told = [show(text), show([text]), show({text: 1}), show(Path(text)), shown(text)]
        told += [plain_text(text), *faults_of("started", {"trial": "t0000", "attempt": text})]
        told.append(
            failure(InputError("settings", [f"must be text, but is {show(text)}"]))["reason"]
        )
        nested: Any = 1
        for _ in range(40):
            nested = {text: nested}
        told += unfit(nested)
    for said in told:
        assert not leaks(secret, secret, said)


def test_a_secret_that_only_the_driver_knows_is_not_cut_by_the_worker() -> None:
    secret = "0123456789abcdefghijklmnopqrstuvwxyz"
    reason = failure(RuntimeError("x" * 480 + secret))["reason"]
    assert secret in reason  # the worker does not know it for one
    assert "0123456789" not in brief(reason, environment={"MY_KEY": secret})
