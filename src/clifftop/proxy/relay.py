"""Bytes through: bodies up, answers down as they come, and a tap that reads the usage on the way.

What passes is never changed and never held back. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

import msgspec
from aiohttp import ClientError, ClientResponse, StreamReader, web

from clifftop.proxy.upstream import forwarded

SLICE_BYTES = 256 * 1024
TAP_BYTES = 4 << 20
"""An event or a plain answer over this size has its usage unread."""

OUR_HEADERS = ("x-clifftop-stream", "x-clifftop-cliffs", "x-clifftop-note")


ABSENT = web.RequestKey("absent", set[str])
"""Headers that the upstream's answer to this request does not have."""


class Body(NamedTuple):
    """The beginning of a body. `is_whole`: nothing follows."""

    data: bytes
    is_whole: bool


async def read_body(stream: StreamReader, limit_bytes: int) -> Body:
    """Read a body, but stop once it is over the limit."""
    pieces: list[bytes] = []
    size = 0
    while size <= limit_bytes:
        piece = await stream.readany()
        if not piece:
            return Body(b"".join(pieces), is_whole=True)
        pieces.append(piece)
        size += len(piece)
    return Body(b"".join(pieces), is_whole=False)


async def read_ahead(stream: StreamReader, limit_bytes: int) -> bytes:
    """Read the beginning of an answer; one that breaks off does so again when it is passed on."""
    pieces = bytearray()
    try:
        while len(pieces) <= limit_bytes and (piece := await stream.readany()):
            pieces += piece
    except (ClientError, OSError, TimeoutError):
        pass
    return bytes(pieces)


async def sliced(data: bytes) -> AsyncIterator[memoryview]:
    """Give a body in slices: one write of many megabytes would hold up every other stream."""
    view = memoryview(data)
    for start in range(0, len(view), SLICE_BYTES):
        yield view[start : start + SLICE_BYTES]


async def streamed(start: bytes, rest: StreamReader) -> AsyncIterator[bytes]:
    """Give what was read of a body, then what follows."""
    if start:
        yield start
    while piece := await rest.readany():
        yield piece


class Relayed(NamedTuple):
    """An answer that was passed on. `is_whole`: to its end; `bytes_out`: of its body."""

    response: web.StreamResponse
    is_whole: bool
    bytes_out: int


async def relay_answer(
    request: web.BaseRequest,
    answer: ClientResponse,
    *,
    ours: Mapping[str, str],
    start: bytes = b"",
    tap: Tap | None = None,
) -> Relayed:
    """Pass an answer on, piece by piece as it comes; waits while the client reads slowly.

    `start`: what was read of the body already. Where the upstream breaks off, so do we: a clean end
    would tell the client that it has everything.
    """
    headers = forwarded(answer.raw_headers)
    for name in OUR_HEADERS:
        headers.popall(name, None)
    headers.update(ours)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    # aiohttp fills these in where they lack; an answer is the upstream's.
    request[ABSENT] = {"Date", "Server", "Content-Type"} - {name.title() for name in headers}
    await response.prepare(request)
    piece, size = start, 0
    while True:
        if piece:
            if tap is not None:
                tap.feed(piece)
            try:
                await response.write(piece)
            except ConnectionError:
                return Relayed(response, is_whole=False, bytes_out=size)
            size += len(piece)
        try:
            piece = await answer.content.readany()
        except (ClientError, OSError, TimeoutError):
            if request.transport is not None:
                request.transport.close()
            return Relayed(response, is_whole=False, bytes_out=size)
        if not piece:
            return Relayed(response, is_whole=True, bytes_out=size)


async def leave_absent(request: web.Request, response: web.StreamResponse) -> None:
    """Take out what aiohttp added to a relayed answer (`on_response_prepare`)."""
    for name in request.get(ABSENT, frozenset()):
        response.headers.popall(name, None)


class Tap(Protocol):
    """Reads along. Never raises, whatever passes."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the answer, cut anywhere."""
        ...

    def usage(self) -> dict[str, object]:
        """Give the usage read so far; empty where there was none."""
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
    """Usage of a stream of server-sent events.

    Anthropic names the prompt in `message_start`, the output in `message_delta`; others name both
    in the latter, and zeros before. So figures merge, and a zero never covers one.
    """

    def __init__(self) -> None:
        self._usage: dict[str, object] = {}
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

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
        if b'"usage"' not in data:
            return
        event = _object(data)
        inner = event.get("message")
        for holder in (event, inner if isinstance(inner, dict) else {}):
            usage = holder.get("usage")
            if isinstance(usage, dict):
                self._usage |= {key: value for key, value in usage.items() if value}


class JsonTap:
    """Usage of an answer that is one JSON object."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._is_over = False

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the answer."""
        self._is_over = self._is_over or len(self._body) + len(piece) > TAP_BYTES
        if not self._is_over:
            self._body += piece

    def usage(self) -> dict[str, object]:
        """Give the figures, once the answer is whole."""
        usage = {} if self._is_over else _object(bytes(self._body)).get("usage")
        return usage if isinstance(usage, dict) else {}


def _object(data: bytes) -> dict[str, object]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
