from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from model.data.paraphrase.answers import Garbage, read_reply, read_sentences, tidy
from model.data.paraphrase.prompt import parse_template
from model.data.paraphrase.server import LONGEST_WAIT, retry_after


@pytest.mark.parametrize(
    "text",
    [
        '["one day", "two days"]',
        'Sure!\n```json\n["one day", "two days"]\n```',
        '{"paraphrases": ["one day", "two days"]}',
        '[{"text": "one day"}, {"text": "two days"}]',
        '<think>[1, "no"] perhaps</think>["one day", "two days", "and too many"]',
        '["one day", "two days", "three da',  # at the end of its tokens
        "1. one day\n2) two days",
        'Here:\n- "one day"\n- “two days”\n',
        "one day\n\ntwo  days\n",
    ],
)
def test_a_list_is_found_however_it_is_written(text: str) -> None:
    assert read_sentences(text, 2) == ["one day", "two days"]


@pytest.mark.parametrize("text", ["I cannot do that.", "[]", "[1, 2]", '["", " "]', "[" * 9999])
def test_what_is_no_list_is_garbage(text: str) -> None:
    with pytest.raises(Garbage):
        read_sentences(text, 3)


@settings(max_examples=50)
@given(st.text() | st.text('[]{}",:\\ud80\n1.-ab'), st.integers(1, 4))
def test_any_text_gives_clean_sentences_or_is_garbage(text: str, count: int) -> None:
    with suppress(Garbage):
        found = read_sentences(text, count)
        assert 1 <= len(found) <= count
        for sentence in found:
            assert sentence.encode() and sentence == tidy(sentence) and sentence.isprintable()


VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
MESSAGES = st.dictionaries(st.sampled_from(["content", "refusal", "text"]), VALUES)
PARTS = st.dictionaries(st.sampled_from(["message", "text"]), MESSAGES | VALUES)
KEYS = st.sampled_from(["choices", "usage", "error"])


@settings(max_examples=50)
@given(st.binary() | st.dictionaries(KEYS, st.lists(PARTS) | VALUES).map(json.dumps))
def test_any_body_is_a_reply_or_garbage(body: bytes | str) -> None:
    with suppress(Garbage):
        assert read_reply(body.encode() if isinstance(body, str) else body).text.strip()


def test_half_a_character_does_not_reach_the_file() -> None:
    assert read_sentences('["a \\ud83d day"]', 1) == ["a day"]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "86400"}, LONGEST_WAIT),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0),
        ({"retry-after": "Fri, 31 Dec 2199 23:59:59 GMT"}, LONGEST_WAIT),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after": "1.2.3"}, None),
    ],
)
def test_how_long_a_server_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_the_faults_of_a_template_are_told_at_once() -> None:
    with pytest.raises(InputError) as found:
        parse_template("{sentence}\n---\nSay {sentense}\n---\nin {cuont} ways", "mine.txt")
    assert len(found.value.faults) == 4  # two rules, two names, no sentence in the last part
    assert parse_template('Answer {"a": 1} to {sentence}', "mine.txt").system == ""
