"""Reads along while an answer passes: its usage, why it stopped, whether content has come.

Never changes, keeps back or raises anything; no text of an answer stays here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

TAP_BYTES = 4 << 20
"""An event or a plain answer over this size is not read."""

WAITING = ("ping", "message_start")
"""Events that come before the model has written anything."""


class Tap(Protocol):
    """Reads along. Never raises, whatever passes."""

    @property
    def has_content(self) -> bool:
        """Has something come that settles what this answer is: content, an end, an error?"""
        ...

    @property
    def is_empty(self) -> bool:
        """Would an end at this place leave the client with nothing?"""
        ...

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the answer, cut anywhere."""
        ...

    def usage(self) -> dict[str, object]:
        """Give the usage read so far; empty where there was none."""
        ...

    def stop_reason(self) -> str:
        """Say why the model stopped, as far as it is known."""
        ...


def tap_for(headers: Mapping[str, str]) -> Tap | None:
    """Choose the tap for an answer; None where its bytes cannot be read."""
    if headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        return None
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    match kind:
        case "text/event-stream":
            return EventTap()
        case "application/json":
            return JsonTap()
        case _:
            return None


class EventTap:
    """Reads a stream of server-sent events.

    Anthropic names the prompt in `message_start`, the output in `message_delta`; others name both
    in the latter, and zeros before. So figures merge, and a zero never covers one.
    """

    def __init__(self) -> None:
        self.has_content = False
        self._usage: dict[str, object] = {}
        self._stop_reason = ""
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    @property
    def is_empty(self) -> bool:
        """Would an end at this place leave the client with nothing?"""
        return not self.has_content

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the stream."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._keep(line)
            self._line(bytes(self._rest))
            self._rest.clear()
        self._keep(rest)

    def usage(self) -> dict[str, object]:
        """Give the figures so far."""
        return self._usage

    def stop_reason(self) -> str:
        """Say why the model stopped; empty before the end."""
        return self._stop_reason

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        # One byte of what is too long, so that its line is not taken for the empty one.
        self._rest += piece if self._size <= TAP_BYTES else piece[:1]

    def _line(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._data.append(line[5:])
        elif not line:
            if self._size <= TAP_BYTES:
                self._event(b"\n".join(self._data))
            self._data.clear()
            self._size = 0

    def _event(self, data: bytes) -> None:
        is_read = b'"usage"' in data or b'"stop_reason"' in data
        if not is_read and (self.has_content or not data):
            return
        event = _object(data)
        self.has_content = self.has_content or event.get("type") not in WAITING
        delta = event.get("delta")
        if isinstance(delta, dict) and isinstance(reason := delta.get("stop_reason"), str):
            self._stop_reason = reason
        inner = event.get("message")
        for holder in (event, inner if isinstance(inner, dict) else {}):
            usage = holder.get("usage")
            if isinstance(usage, dict):
                self._usage |= {key: value for key, value in usage.items() if value}


class JsonTap:
    """Reads an answer that is one JSON object."""

    has_content = False  # before its end nothing is known

    def __init__(self) -> None:
        self._body = bytearray()
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """Would an end at this place leave the client with nothing?"""
        return not (self._body or self._is_over)

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the answer."""
        self._is_over = self._is_over or len(self._body) + len(piece) > TAP_BYTES
        if not self._is_over:
            self._body += piece

    def usage(self) -> dict[str, object]:
        """Give the figures, once the answer is whole."""
        usage = self._answer().get("usage")
        return usage if isinstance(usage, dict) else {}

    def stop_reason(self) -> str:
        """Say why the model stopped, once the answer is whole."""
        reason = self._answer().get("stop_reason")
        return reason if isinstance(reason, str) else ""

    def _answer(self) -> dict[str, object]:
        return {} if self._is_over else _object(bytes(self._body))


def _object(data: bytes) -> dict[str, object]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
