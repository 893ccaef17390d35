"""Where things lie in a request body, and how to put new items into it without touching the rest.

Bytes in, spans out: nothing here knows what an item means. A body is never rebuilt from parsed
values, which would lose number spellings, escapes, unknown fields and duplicate keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from clifftop.errors import RequestError

Span = tuple[int, int]

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_scan_value = json.JSONDecoder().raw_decode

_SPACE = re.compile(rb"[ \t\n\r]*")
_KEY = re.compile(rb'[ \t\n\r]*"(?:[^"\\]|\\.)*"[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_COMMA = re.compile(rb"[ \t\n\r]*,[ \t\n\r]*")


class Layout(NamedTuple):
    """Byte spans in a body: of each top-level value, and of each element of the item list."""

    fields: dict[str, Span]
    items: list[Span]


def locate(body: bytes, key: str) -> Layout:
    """Find the spans of a JSON object's values and of the elements of its array `key`.

    Raises:
        RequestError: the body is no JSON object, or has no such array; with the place.
    """
    try:
        fields = _locate_fields(body)
    except _Mismatch:
        return _locate_slowly(body, key)
    if key not in fields:
        raise RequestError(f"$.{key} is missing")
    start, stop = fields[key]
    try:
        return Layout(fields, _locate_items(body, start, stop))
    except _Mismatch:
        return _locate_slowly(body, key)


def decode(body: bytes, span: Span, place: str) -> Any:
    """Parse the value at a span.

    Raises:
        RequestError: it is no JSON.
    """
    piece = body[span[0] : span[1]]
    try:
        return _any.decode(piece)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        # msgspec refuses half a surrogate pair, which a JavaScript client makes by cutting an
        # emoji.
        return json.loads(piece)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{place} is no JSON: {error}") from error


def splice(body: bytes, layout: Layout, key: str, pieces: Sequence[bytes]) -> bytes:
    """Replace the elements of the array `key`; all other bytes stay."""
    start, stop = layout.fields[key]
    return b"".join((body[:start], b"[", b",".join(pieces), b"]", body[stop:]))


class _Mismatch(Exception):
    """The fast way does not apply: let the standard library look."""


def _locate_fields(body: bytes) -> dict[str, Span]:
    """Walk an object's keys with the help of the values' raw lengths.

    msgspec gives values in order but not their places. Each place is found by arithmetic and
    compared, so a repeated key or anything else unforeseen is a mismatch, never a wrong span.
    """
    try:
        raws = _raw_object.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Mismatch from error
    at = _end(_SPACE, body, 0) + 1
    fields: dict[str, Span] = {}
    for number, (name, raw) in enumerate(raws.items()):
        if number:
            at = _end(_COMMA, body, at)
        key_end = _end(_KEY, body, at)
        value = bytes(raw)
        if _any.decode(body[at:key_end].rpartition(b":")[0]) != name:
            raise _Mismatch
        if body[key_end : key_end + len(value)] != value:
            raise _Mismatch
        at = key_end + len(value)
        fields[name] = (key_end, at)
    if body[at:].strip(b" \t\n\r") != b"}":
        raise _Mismatch
    return fields


def _locate_items(body: bytes, start: int, stop: int) -> list[Span]:
    try:
        raws = _raw_array.decode(body[start:stop])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Mismatch from error
    spans: list[Span] = []
    at = _end(_SPACE, body, start + 1)
    for number, raw in enumerate(raws):
        if number:
            at = _end(_COMMA, body, at)
        size = len(memoryview(raw))
        spans.append((at, at + size))
        at += size
    if body[at:stop].strip(b" \t\n\r") != b"]":
        raise _Mismatch
    return spans


def _end(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    found = pattern.match(body, at)
    if found is None:
        raise _Mismatch
    return found.end()


def _locate_slowly(body: bytes, key: str) -> Layout:
    """Do the same with the standard library's decoder, for bodies that msgspec refuses."""
    try:
        text = body.decode()
        spans, items = _scan_object(text, key)
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise RequestError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if items is None:
        raise RequestError(f"$.{key} is missing")
    if text.isascii():
        return Layout(spans, items)
    return _as_bytes(text, spans, items)


def _scan_object(text: str, key: str) -> tuple[dict[str, Span], list[Span] | None]:
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise RequestError("the body is no JSON object")
    spans: dict[str, Span] = {}
    items: list[Span] | None = None
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if spans:
            at = _skip(text, _expect(text, at, ","))
        _expect(text, at, '"')
        name, at = _scan_value(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        start = at
        if name == key:
            if items is not None:
                raise RequestError(f"$.{key} occurs twice")
            at, items = _scan_array(text, at, key)
        else:
            at = _scan_value(text, at)[1]
        spans[name] = (start, at)
        at = _skip(text, at)
    if _skip(text, at + 1) != len(text):
        raise RequestError(f"the body goes on behind its JSON object at character {at + 1}")
    return spans, items


def _scan_array(text: str, at: int, key: str) -> tuple[int, list[Span]]:
    if text[at : at + 1] != "[":
        raise RequestError(f"$.{key} is no array")
    items: list[Span] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        if items:
            at = _skip(text, _expect(text, at, ","))
        start = at
        at = _scan_value(text, at)[1]
        items.append((start, at))
        at = _skip(text, at)
    return at + 1, items


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise RequestError(f"the body is no JSON: expected {sign} at character {at}")
    return at + 1


def _as_bytes(text: str, spans: dict[str, Span], items: list[Span]) -> Layout:
    """Turn character offsets into byte offsets, in one pass over the text."""
    offsets = sorted({offset for span in (*spans.values(), *items) for offset in span})
    places: dict[int, int] = {}
    before = size = 0
    for offset in offsets:
        size += len(text[before:offset].encode())
        places[offset] = size
        before = offset
    return Layout(
        {name: (places[start], places[stop]) for name, (start, stop) in spans.items()},
        [(places[start], places[stop]) for start, stop in items],
    )
