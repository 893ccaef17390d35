"""Spans are exact for any spelling of JSON, or the body is refused with the place."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clifftop.dialects import splice
from clifftop.dialects.splice import locate
from clifftop.errors import RequestError

KEYS = st.sampled_from(("model", "a b", 'q"uote', "ключ", "\ud83d", "\\", "tools", "\n"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
SPELLINGS: list[dict[str, Any]] = [
    {"separators": (",", ":"), "ensure_ascii": False},
    {"ensure_ascii": True},
    {"indent": 2, "ensure_ascii": False},
    {"indent": "\t", "separators": (" ,\r\n", " : ")},
]


def spell(value: Any, spelling: dict[str, Any]) -> bytes:
    return json.dumps(value, **spelling).encode("utf-8", "backslashreplace")


@given(
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.lists(VALUES, max_size=6),
    st.sampled_from(SPELLINGS),
    st.integers(0, 4),
)
def test_spans_hold_the_values_for_any_spelling(
    fields: dict[str, Any], items: list[Any], spelling: dict[str, Any], place: int
) -> None:
    pairs = list(fields.items())
    whole = dict([*pairs[:place], ("messages", items), *pairs[place:]])
    body = spell(whole, spelling)
    for found in (locate(body, "messages"), splice._locate_slowly(body, "messages")):
        assert [json.loads(body[start:stop]) for start, stop in found.items] == items
        assert {k: json.loads(body[a:b]) for k, (a, b) in found.fields.items()} == whole


@given(st.lists(VALUES, max_size=6), st.sampled_from(SPELLINGS))
def test_putting_the_same_items_back_changes_only_what_is_between_them(
    items: list[Any], spelling: dict[str, Any]
) -> None:
    body = spell({"model": "m", "messages": items, "n": 1e5}, spelling)
    found = locate(body, "messages")
    pieces = [body[start:stop] for start, stop in found.items]
    again = splice.splice(body, found, "messages", pieces)
    assert json.loads(again) == json.loads(body)
    start, stop = found.fields["messages"]
    assert again.startswith(body[:start])
    assert again.endswith(body[stop:])


def test_both_ways_agree_where_the_key_occurs_inside_other_values() -> None:
    example = {"messages": [{"role": "user"}], "note": '"messages":[1]'}
    body = spell({"tools": [example], "messages": [1, 2], "x": example}, SPELLINGS[0])
    assert locate(body, "messages") == splice._locate_slowly(body, "messages")


def test_number_spellings_survive() -> None:
    body = b'{"temperature":1E5,"top_p":1.10,"big":123456789012345678901,"messages":[ {"a":1} ]}'
    found = locate(body, "messages")
    assert splice.splice(body, found, "messages", [b"7"]).startswith(body[:67])


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "no JSON"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
        (b'{"messages":[1,2', "no JSON"),
        (b'{"messages":[1,]}', "no JSON"),
        (b'{"messages":[1]} x', "goes on"),
        (b'{"messages":[1]}}', "goes on"),
        (b'{"messages":{}}', "no array"),
        (b'{"messages":null}', "no array"),
        (b'{"model":"m"}', r"\$\.messages is missing"),
        (b'{"messages":[1],"messages":[2]}', "occurs twice"),
        (b'{"messages":' + b"[" * 100_000, "nested too deeply|no JSON"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"messages":[]}', "nested too deeply"),
        (b'{"messages" [1]}', "no JSON"),
        (b"{'messages':[1]}", "no JSON"),
        (b'{"messages":[1]', "no JSON"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_the_place(body: bytes, place: str) -> None:
    with pytest.raises(RequestError, match=place):
        locate(body, "messages")


@given(st.binary(max_size=60))
def test_any_bytes_are_located_or_refused(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        locate(body, "messages")


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_request_is_located_or_refused(at: int, byte: int) -> None:
    body = bytearray(
        spell({"a": "é\ud83d", "messages": [{"role": "user", "content": "x"}] * 8}, SPELLINGS[2])
    )
    body[at % len(body)] = byte
    try:
        found = locate(bytes(body), "messages")
    except RequestError:
        return
    assert [json.loads(body[a:b]) for a, b in found.items] == json.loads(body)["messages"]
