"""Sentences out of what a language model says, however it says them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from model.common.untrusted import parse_json

THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)  # which some servers leave in the answer
MARKED = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.):])\s+(.*)")  # 1. one   2) two   - three
QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}


class Garbage(ValueError):
    """An answer of which no use can be made; says why, and what it cost."""

    def __init__(self, reason: str, tokens: tuple[int, int] = (0, 0)) -> None:
        super().__init__(reason)
        self.tokens = tokens


class Reply(NamedTuple):
    text: str
    tokens: tuple[int, int] | None  # into the model and out of it; None where it is not told


def read_reply(body: bytes) -> Reply:
    """The text of an OpenAI-compatible chat completion."""
    try:
        data = parse_json(body)
    except ValueError as error:  # cut off, a proxy's page, anything
        raise Garbage(f"an answer that is no JSON ({str(error)[:80]})") from None
    if not isinstance(data, dict):
        raise Garbage("an answer that is no JSON object")
    tokens = _usage(data.get("usage"))
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):  # in pieces
        pieces = [piece.get("text") for piece in content if isinstance(piece, dict)]
        content = "".join(piece for piece in pieces if isinstance(piece, str))
    if not isinstance(content, str) or not content.strip():
        said = error_text(data) or (message.get("refusal") if isinstance(message, dict) else None)
        told = f" ({said[:200]})" if isinstance(said, str) and said else ""
        raise Garbage(f"an answer without text{told}", tokens or (0, 0))
    return Reply(content, tokens)


def error_text(data: Any) -> str:
    """What a server says of an error, in any of the usual places."""
    error = data.get("error") if isinstance(data, dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    if said is None and isinstance(data, dict):
        said = data.get("message") or data.get("detail")
    return said if isinstance(said, str) else ""


def _usage(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not all(type(count) is int and 0 <= count < 1 << 40 for count in counts):
        return None
    return counts[0], counts[1]  # type: ignore[return-value]


def read_sentences(text: str, count: int) -> list[str]:
    """So many at most: a JSON list, also one that is cut off or wrapped; else a list in lines."""
    text = THOUGHTS.sub("", text)
    found = _json_list(text)
    if found is None:
        found = _lines(text, count)
    sentences = [tidy(sentence) for sentence in found]
    sentences = [sentence for sentence in sentences if sentence][:count]
    if not sentences:
        raise Garbage("an answer without a list of sentences")
    return sentences


def _json_list(text: str) -> list[str] | None:
    start = text.find("[")
    if start < 0:
        return None
    decoder = json.JSONDecoder()
    try:
        value = decoder.raw_decode(text, start)[0]
    except RecursionError:
        return []
    except ValueError:
        value = list(_whole_strings(text[start + 1 :], decoder))
    return [sentence for item in value if (sentence := _sentence(item)) is not None] or None


def _whole_strings(text: str, decoder: json.JSONDecoder) -> Iterator[str]:
    """Those of a list that ends in the middle."""
    place = 0
    while found := re.compile(r'[\s,]*(?=")').match(text, place):
        try:
            value, place = decoder.raw_decode(text, found.end())
        except ValueError:
            return
        yield value


def _sentence(item: Any) -> str | None:
    """An item may be an object around its sentence."""
    if isinstance(item, dict):
        texts = [value for value in item.values() if isinstance(value, str)]
        item = texts[0] if len(texts) == 1 else None
    return item if isinstance(item, str) else None


def _lines(text: str, count: int) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("```")]
    marked = [found[1] for line in lines if (found := MARKED.match(line))]
    if marked:
        return marked
    return lines if len(lines) == count else []


def tidy(text: str) -> str:
    """One line without control characters, in valid Unicode, without quotes around all of it."""
    text = text.encode("utf-8", "ignore").decode()  # JSON can hold halves of characters
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    while len(text) > 1 and QUOTES.get(text[0]) == text[-1] and text[0] not in text[1:-1]:
        text = text[1:-1].strip()
    return text
