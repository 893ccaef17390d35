"""Faults of the network and of both sides: each test is a row of docs/faults.md, by docstring."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientPayloadError, web

from clifftop.proxy.settings import Limits
from tests.proxy.scripted import (
    CONTENT,
    GOOD,
    PLAIN,
    START,
    STREAM,
    Answer,
    Exchanged,
    RawScript,
    Upstream,
    Wire,
    events,
    in_turn,
    raw_exchange,
    request_body,
    serving,
    wired,
    wired_raw,
)

BODY = request_body(3, stream=True)
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def saying(*answers: bytes, is_reset: bool = True) -> RawScript:
    """Answer the first connection with the first bytes and so on; then reset or close it."""

    async def script(came: Exchanged, writer: asyncio.StreamWriter) -> bool:
        writer.write(answers[min(came.connection, len(answers)) - 1])
        await writer.drain()
        if is_reset:
            # Nothing may be lost in our own buffers: only the proxy's reading is tested.
            await asyncio.sleep(0.01)
            reset(writer)
        return False

    return script


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST."""
    found = writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


def is_retryable_error(answer: Answer) -> bool:
    error = json.loads(answer.body)
    return answer.status == 502 and error["error"]["type"] == "api_error"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


# The upstream


async def test_refused() -> None:
    """the upstream refuses the connection"""
    async with wired(anthropic_upstream="http://127.0.0.1:9") as wire:
        assert is_retryable_error(await wire.send(BODY))
        assert wire.proxy.stats.upstream_errors == 1


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Ty"])
async def test_reset_before_headers(said: bytes) -> None:
    """the upstream resets the connection before or in the headers"""
    async with wired_raw(saying(said)) as (wire, seen):
        assert is_retryable_error(await wire.send(BODY))
        assert len(seen) == 1


@pytest.mark.parametrize(
    "said", [EVENTS, EVENTS + chunk(START), JSON % 90, JSON % 90 + b'{"type":']
)
async def test_reset_after_headers(said: bytes) -> None:
    """the upstream breaks off after the headers, before any content"""
    for is_reset in (True, False):
        async with wired_raw(saying(said, is_reset=is_reset)) as (wire, seen):
            assert is_retryable_error(await wire.send(BODY))
            assert (len(seen), wire.proxy.stats.broken) == (1, 1)


@pytest.mark.parametrize("more", [b"", b'event: content_block_delta\ndata: {"ty'])
async def test_half_frames(more: bytes) -> None:
    """the upstream breaks off after content, perhaps in the middle of an event"""
    script = saying(EVENTS + chunk(START + CONTENT + more), is_reset=False)
    async with (
        wired_raw(script) as (wire, _),
        wire.client.post(wire.proxy.url + "/v1/messages", data=BODY) as answered,
    ):
        length = len(START + CONTENT + more)
        assert await answered.content.readexactly(length) == START + CONTENT + more
        with pytest.raises(ClientPayloadError):
            await answered.content.read()
        await until(lambda: wire.proxy.stats.broken == 1)


async def test_stalled_before_headers() -> None:
    """the upstream takes the request and stays silent"""
    has_ended = asyncio.Event()

    async def silent(request: web.Request, body: bytes) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()
        return web.Response()

    async with wired(upstream=Upstream(answer=silent), limits=Limits(hold_s=0.01)) as wire:
        sending = asyncio.create_task(wire.send(BODY))
        done, _ = await asyncio.wait([sending], timeout=0.2)
        assert not done
        sending.cancel()
        await until(has_ended.is_set)


async def test_stalled_after_headers() -> None:
    """the upstream stalls before any content"""
    go_on = asyncio.Event()
    upstream = Upstream(answer=events(START, go_on.wait(), CONTENT))
    async with (
        wired(upstream=upstream, limits=Limits(hold_s=0.01)) as wire,
        wire.client.post(wire.proxy.url + "/v1/messages", data=BODY) as answered,
    ):
        assert await answered.content.readexactly(len(START)) == START
        go_on.set()
        assert await answered.content.read() == CONTENT


async def test_length_too_long() -> None:
    """the answer's Content-Length is more than what comes"""
    async with wired_raw(saying(JSON % 90 + b"{}", is_reset=False)) as (wire, _):
        assert is_retryable_error(await wire.send(BODY))
        with pytest.raises(ClientPayloadError):
            await wire.send(BODY, path="/v1/files")


async def test_length_too_short() -> None:
    """the answer's Content-Length is less than what comes"""

    async def script(came: Exchanged, writer: asyncio.StreamWriter) -> bool:
        writer.write(PLAIN + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        return True

    async with wired_raw(script) as (wire, seen):
        for _ in range(3):
            answer = await wire.send(BODY)
            assert (answer.status, answer.body) == (200, b"{}")
        assert [came.connection for came in seen] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_gzip(kind: str) -> None:
    """the answer is gzip although identity was asked"""
    coded = gzip.compress(STREAM)

    async def gzipped(request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {"Content-Encoding": "gzip", "Content-Type": kind}
        return web.Response(body=coded, headers=headers)

    async with wired(upstream=Upstream(answer=gzipped)) as wire:
        answer = await wire.send(BODY)
        assert (answer.status, answer.body) == (200, coded)
        assert answer.header("content-encoding") == "gzip"
        assert wire.upstream.received[0].all("accept-encoding") == ["identity"]


async def test_a_burst_of_server_errors() -> None:
    """the upstream answers 5xx several times"""

    def failing(status: int) -> web.Response:
        return web.Response(status=status, body=b"<html>%d" % status, content_type="text/html")

    async def fails(request: web.Request, body: bytes) -> web.StreamResponse:
        return failing((500, 502, 503, 504, 529)[len(wire.upstream.received) - 1])

    async with wired(upstream=Upstream(answer=fails)) as wire:
        for status in (500, 502, 503, 504, 529):
            answer = await wire.send(BODY)
            assert (answer.status, answer.body) == (status, b"<html>%d" % status)
        assert wire.upstream.bodies == [BODY] * 5


async def test_rate_limit() -> None:
    """the upstream answers 429 with Retry-After"""
    head = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 17\r\nContent-Length: 4\r\n\r\nwait"
    async with wired_raw(saying(head, is_reset=False)) as (wire, seen):
        answer = await wire.send(BODY)
        assert (answer.status, answer.body, answer.header("retry-after")) == (429, b"wait", "17")
        assert len(seen) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirect(status: int) -> None:
    """the upstream redirects to another host"""
    elsewhere = Upstream()
    async with serving(elsewhere.handle) as elsewhere.url:

        async def moved(request: web.Request, body: bytes) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": elsewhere.url + "/v1/messages"})

        async with wired(upstream=Upstream(answer=moved)) as wire:
            answer = await wire.send(BODY)
            assert (answer.status, answer.header("location")) == (
                status,
                elsewhere.url + "/v1/messages",
            )
    assert elsewhere.received == []


# The client


@asynccontextmanager
async def left_early(*given: bytes, **changes: object) -> AsyncIterator[Wire]:
    """Send a request, go away once the upstream has written, and see its call end."""
    is_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        is_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    async with wired(upstream=Upstream(answer=events(*given, wait())), **changes) as wire:
        sending = asyncio.create_task(wire.send(BODY))
        await is_begun.wait()
        sending.cancel()
        await until(has_ended.is_set)
        yield wire


@pytest.mark.parametrize("given", [(), (START,), (START, CONTENT)])
async def test_client_gone(given: tuple[bytes, ...]) -> None:
    """the client goes away before the end"""
    async with left_early(*given) as wire:
        wire.upstream.answer = in_turn(events(STREAM))
        assert (await wire.send(BODY)).body == STREAM


async def test_slow_reader() -> None:
    """the client reads slowly"""
    written = 0
    piece = b": " + b"x" * 65_534

    async def flood(request: web.Request, body: bytes) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(CONTENT)
        for _ in range(2_000):
            await response.write(piece)
            written += len(piece)
        return response

    async with wired(upstream=Upstream(answer=flood)) as wire:
        _, writer = await asyncio.open_connection("127.0.0.1", wire.proxy.port, limit=4_096)
        head = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        writer.write(head + BODY)
        before = -1
        while before != written or not written:
            before = written
            await asyncio.sleep(0.2)
        assert written < 40 << 20
        writer.close()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
async def test_half_request_body(path: str) -> None:
    """the client sends half a body and closes"""
    async with wired() as wire:
        _, writer = await asyncio.open_connection("127.0.0.1", wire.proxy.port)
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
        writer.write(head + BODY[: len(BODY) // 2])
        await writer.drain()
        await until(lambda: wire.proxy.stats.requests == 1)
        writer.close()
        answer = await wire.send(BODY)
        assert json.loads(answer.body) == GOOD
        assert wire.upstream.bodies == [BODY]


async def test_broken_request_framing() -> None:
    """the client's chunked body is malformed"""
    async with wired() as wire:
        sent = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
        raw = await raw_exchange(wire.proxy.port, sent + b"\r\nzz\r\n")
        assert b" 400 " in raw.partition(b"\r\n")[0]
        assert wire.upstream.received == []


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/files"])
async def test_expect_continue(path: bytes) -> None:
    """the client sends Expect: 100-continue"""
    async with wired() as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.proxy.port)
        head = b"Host: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        writer.write(b"POST " + path + b" HTTP/1.1\r\n" + head % len(BODY))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        assert wire.upstream.bodies == [BODY]
        assert wire.upstream.received[0].all("expect") == []


def test_each_row_of_the_table_is_a_test() -> None:
    table = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    rows = [row.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.M)]
    tests = [
        test.__doc__ for name, test in vars(sys.modules[__name__]).items() if name[:5] == "test_"
    ]
    assert [row for row in rows if row not in ("what happened", "---")] == [t for t in tests if t]
