"""What is read on the way, wherever the stream was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clifftop.proxy import tap as tap_module
from clifftop.proxy.tap import EventTap, JsonTap, tap_for
from tests.proxy.scripted import CONTENT, PING, START, STREAM, TOO_LONG, pieces

USAGE = {"input_tokens": 11, "cache_read_input_tokens": 400, "output_tokens": 42}


@given(st.lists(st.integers(0, len(STREAM)), max_size=40))
def test_usage_is_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    tap = EventTap()
    for piece in pieces(STREAM, cuts):
        tap.feed(piece)
    assert tap.usage() == USAGE


END = (
    b'event: message_delta\r\ndata: {"type":"message_delta",\r\ndata: "delta":{"stop_reason":'
    b'"end_turn"}}\r\n\r\n'
)


@given(st.lists(st.integers(0, 1_000), max_size=40))
def test_content_and_stop_reason_are_seen_however_the_stream_is_cut(cuts: list[int]) -> None:
    tap = EventTap()
    waiting = START + PING + b": comment\n\nevent: ping\n\n"
    for piece in pieces(waiting, cuts):
        tap.feed(piece)
    assert (tap.has_content, tap.is_empty, tap.stop_reason()) == (False, True, "")
    for piece in pieces(CONTENT + END, cuts):
        tap.feed(piece)
    assert (tap.has_content, tap.is_empty, tap.stop_reason()) == (True, False, "end_turn")


@pytest.mark.parametrize("event", [CONTENT, END, TOO_LONG, b"data: [DONE]\n\n", b"data: {}\n\n"])
def test_any_event_but_pings_and_starts_settles_an_answer(event: bytes) -> None:
    tap = EventTap()
    tap.feed(START + event[:-1])
    assert not tap.has_content
    tap.feed(event[-1:])
    assert tap.has_content


def test_each_kind_of_line_end_ends_an_event() -> None:
    start = b'data: {"usage":{"input_tokens":%d}}'
    for end in (b"\n", b"\r\n"):
        tap = EventTap()
        tap.feed(end.join([start % 1, b"", start % 2, b"", b""]))
        assert tap.usage() == {"input_tokens": 2}


def test_usage_is_the_same_at_every_single_border() -> None:
    for cut in range(len(STREAM)):
        tap = EventTap()
        tap.feed(STREAM[:cut])
        tap.feed(STREAM[cut:])
        assert tap.usage() == USAGE


@given(st.lists(st.binary(max_size=50) | st.sampled_from([b"data: ", b'"usage"', b"{", b"\n\n"])))
def test_no_bytes_break_the_taps(stream: list[bytes]) -> None:
    for tap in (EventTap(), JsonTap()):
        for piece in stream:
            tap.feed(piece)
        assert isinstance(tap.usage(), dict)


@pytest.mark.parametrize(
    "data",
    [
        b'{"usage":7}',
        b'[{"usage":{}}]',
        b'{"message":{"usage":[]}}',
        b'{"usage":',
        b'{"message":1}',
    ],
)
def test_odd_usage_is_no_usage(data: bytes) -> None:
    tap = EventTap()
    tap.feed(b"data: " + data + b"\n\n")
    assert tap.usage() == {}


def test_deep_nesting_is_no_usage() -> None:
    for tap in (EventTap(), JsonTap()):
        tap.feed(b'data: {"usage":' + b"[" * 200_000 + b"\n\n")
        assert tap.usage() == {}


def test_a_huge_event_is_passed_over_and_the_next_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_module, "TAP_BYTES", 1_000)
    tap = EventTap()
    for _ in range(100):
        tap.feed(b'data: {"usage": {"input_tokens": 1}}' + b" " * 50)
    for _ in range(100):
        tap.feed(b'\ndata: {"usage":{"input_tokens":2}}')
    tap.feed(b'\ndata: {"usage":{"output_tokens":9}}')
    held = len(tap._rest) + sum(map(len, tap._data))
    assert held < 3_000
    tap.feed(b'\n\ndata: {"usage":{"input_tokens":3}}\n\n')
    assert tap.usage() == {"input_tokens": 3}


def test_usage_of_a_plain_answer() -> None:
    tap = JsonTap()
    assert tap.is_empty
    for piece in (b'{"usage":', b'{"input_tokens":', b'9},"stop_reason":"max_tokens"}'):
        tap.feed(piece)
    assert (tap.usage(), tap.stop_reason()) == ({"input_tokens": 9}, "max_tokens")
    assert (tap.has_content, tap.is_empty) == (False, False)


def test_a_huge_plain_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_module, "TAP_BYTES", 100)
    tap = JsonTap()
    for piece in (b'{"usage":{"input_tokens":9},"x":"', b"x" * 100, b'"}'):
        tap.feed(piece)
    assert tap.usage() == {}
    assert len(tap._body) <= 100


def test_the_tap_follows_the_content_type() -> None:
    assert isinstance(tap_for({"Content-Type": "Text/Event-Stream; charset=utf-8"}), EventTap)
    assert isinstance(tap_for({"Content-Type": "application/json"}), JsonTap)
    assert tap_for({"Content-Type": "text/html"}) is None
    assert tap_for({}) is None
    coded = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert tap_for(coded) is None
