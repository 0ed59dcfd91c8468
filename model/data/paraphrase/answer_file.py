"""Every answer of the language model, a JSON line each, kept from the moment it is there.

The first line says what was asked for. A command that was killed reads the file and asks for the
rest; a line that the kill cut off is dropped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from model.common.errors import InputError
from model.common.typed import show
from model.common.untrusted import open_regular, parse_json

VERSION = 1
SYNC = 1.0  # seconds between two fsyncs: a kill loses nothing, a crash of the machine that much
FREE = ("began", "stockpot")  # of the first line, what another command may have otherwise


class ModelAnswer(NamedTuple):
    """What came of one request; `reason` says why nothing did."""

    key: str
    texts: tuple[str, ...]
    tokens: tuple[int, int]  # in and out, of all its tries
    reason: str = ""


class AnswerFile:
    """`request`: what is wanted, which must be what the file was begun with.

    Without `write` nothing is changed, not even by a file that is not there.
    """

    def __init__(self, path: Path, request: Mapping[str, Any], *, write: bool = True) -> None:
        self.path = path
        self.answers: dict[str, ModelAnswer] = {}
        self.tokens = (0, 0)  # paid for in all
        self.request = dict(request)
        self._synced = 0.0
        if not write and not os.path.lexists(path):
            return
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        self._file = os.fdopen(open_regular(path, flags), "r+b" if write else "rb", buffering=0)
        try:
            end = self._read()
            if write:
                self._file.truncate(end)
                self._file.seek(end)
            if write and not end:
                self._append({"stockpot_paraphrases": VERSION, **self.request})
        except BaseException:
            self.close()
            raise
        if not write:
            self.close()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, answer: ModelAnswer) -> None:
        event: dict[str, Any] = {"key": answer.key, "tokens": answer.tokens}
        event |= {"left_out": answer.reason} if answer.reason else {"texts": answer.texts}
        self._append(event)
        self._note(answer)

    def _note(self, answer: ModelAnswer) -> None:
        self.answers[answer.key] = answer
        self.tokens = (self.tokens[0] + answer.tokens[0], self.tokens[1] + answer.tokens[1])

    def _append(self, event: Mapping[str, Any]) -> None:
        line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
        end = self._file.tell()
        try:
            while line:
                line = line[self._file.write(line) or 0 :]
            if time.monotonic() - self._synced >= SYNC:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError:
            self._file.truncate(end)  # a full disk: half a line must not stand before others
            raise

    def _read(self) -> int:
        """Where the last whole line ends."""
        end = 0
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    value = parse_json(line)
                    if number == 1:
                        self._compare(value)
                    else:
                        self._note(_answer(value))
                except InputError:
                    raise
                except (ValueError, TypeError, KeyError) as error:
                    remedy = "remove that line, and what it held is asked for again"
                    fault = f"line {number}: is no answer of a model ({error}); {remedy}"
                    raise InputError(str(self.path), [fault]) from None
                end += len(line)
        return end

    def _compare(self, first: Any) -> None:
        if not isinstance(first, dict) or first.pop("stockpot_paraphrases", None) != VERSION:
            fault = "is no file of this command, or of another version; name another with --out"
            raise InputError(str(self.path), [fault])
        wanted = json.loads(json.dumps(self.request))
        keys = [key for key in {**wanted, **first} if key not in FREE]
        faults = [
            f"was begun with {key} {show(first.get(key))}, and now it is {show(wanted.get(key))}"
            for key in keys
            if first.get(key) != wanted.get(key)
        ]
        if faults:
            remedy = "give the same again, name another --out, or remove this file and its answers"
            raise InputError(str(self.path), [*faults, remedy])
        self.request |= {key: first[key] for key in FREE if key in first}


def _answer(event: Any) -> ModelAnswer:
    key, (read, written) = event["key"], event["tokens"]
    reason, texts = event.get("left_out", ""), event.get("texts", [])
    counts = all(type(count) is int and 0 <= count < 1 << 60 for count in (read, written))
    if not (
        isinstance(key, str) and isinstance(reason, str) and isinstance(texts, list) and counts
    ):
        raise ValueError("its values are of the wrong kinds")
    if not all(isinstance(text, str) for text in texts) or bool(texts) == bool(reason):
        raise ValueError("it has neither texts nor a reason")
    return ModelAnswer(key, tuple(texts), (read, written), reason)
