"""Bytes through: bodies up, answers down as they come.

What passes is never changed. An answer waits here only for its first content: until then it can
still be replaced by a better one. What an answer says is `tap`'s, what to do about it `exchange`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from aiohttp import ClientError, ClientResponse, StreamReader, web

from clifftop.proxy.tap import Tap
from clifftop.proxy.upstream import forwarded

SLICE_BYTES = 256 * 1024
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


class Held(NamedTuple):
    """The beginning of an answer. `is_broken`: it ended before there was any content."""

    data: bytes
    is_broken: bool = False


async def hold(stream: StreamReader, tap: Tap, *, limit_s: float, limit_bytes: int) -> Held:
    """Wait for the first content of an answer, but not for ever; the tap reads along.

    A plain answer is waited for to its end: its client can use no half of it.
    """
    data = bytearray()
    try:
        async with asyncio.timeout(limit_s) as timer:
            while len(data) < limit_bytes and not tap.has_content:
                piece = await stream.readany()
                if not piece:
                    return Held(bytes(data), is_broken=tap.is_empty)
                data += piece
                tap.feed(piece)
    except TimeoutError:
        return Held(bytes(data), is_broken=not timer.expired())
    except (ClientError, OSError):
        return Held(bytes(data), is_broken=True)
    return Held(bytes(data))


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

    `start`: what was read of the body already, by the tap too. Where the upstream breaks off, so do
    we: a clean end would tell the client that it has everything.
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
        if tap is not None:
            tap.feed(piece)


async def leave_absent(request: web.Request, response: web.StreamResponse) -> None:
    """Take out what aiohttp added to a relayed answer (`on_response_prepare`)."""
    for name in request.get(ABSENT, frozenset()):
        response.headers.popall(name, None)
