"""Bytes through unchanged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientPayloadError, ClientSession, StreamReader, TCPConnector, web
from aiohttp.base_protocol import BaseProtocol

from clifftop.proxy.app import start_proxy
from clifftop.proxy.relay import read_body
from clifftop.proxy.settings import Limits, ProxySettings
from tests.proxy.scripted import (
    CONTENT,
    STREAM,
    Upstream,
    Wire,
    events,
    pieces,
    raw_exchange,
    request_body,
    wired,
)


async def test_a_body_is_read_up_to_its_limit() -> None:
    for size, is_whole in ((0, True), (9, True), (10, True), (11, False), (500, False)):
        stream = StreamReader(BaseProtocol(asyncio.get_running_loop()), 2**16)
        for _ in range(size):
            stream.feed_data(b"x")
        stream.feed_eof()
        body = await read_body(stream, 10)
        assert (body.data + await stream.read(), body.is_whole) == (b"x" * size, is_whole)


# Over the wire


async def streaming(request: web.Request, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces(STREAM, [1, 2, 3, 40, 41, 200, 333, len(STREAM) - 1]):
        await response.write(piece)
        await asyncio.sleep(0.002)
    return response


async def test_a_stream_is_relayed_byte_for_byte() -> None:
    async with wired(upstream=Upstream(answer=streaming)) as wire:
        answer = await wire.send(request_body(2, stream=True))
        assert (answer.status, answer.body) == (200, STREAM)
        assert answer.header("content-type") == "text/event-stream"


async def test_each_piece_goes_out_before_the_next_one_comes() -> None:
    go_on = asyncio.Event()
    answer = events(CONTENT + b"data: 1", go_on.wait(), b"\n\n")
    async with (
        wired(upstream=Upstream(answer=answer)) as wire,
        wire.client.post(wire.proxy.url + "/v1/messages", data=request_body(1)) as answered,
    ):
        # The upstream still waits.
        assert await answered.content.readexactly(len(CONTENT) + 7) == CONTENT + b"data: 1"
        go_on.set()
        assert await answered.content.read() == b"\n\n"


async def raw_upstream(answer: bytes, *, seen: list[bytes] | None = None) -> asyncio.Server:
    """Answer the first request on each connection with raw bytes, then close it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        if seen is not None:
            seen.append(head)
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0)


@asynccontextmanager
async def relayed_from(answer: bytes, *, seen: list[bytes] | None = None) -> AsyncIterator[Wire]:
    server = await raw_upstream(answer, seen=seen)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, wired(anthropic_upstream=base, openai_upstream=base) as wire:
        yield wire


BROKEN_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
BROKEN_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"


@pytest.mark.parametrize("answer", [BROKEN_CHUNKS, BROKEN_LENGTH])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
async def test_an_answer_that_breaks_off_does_not_end_cleanly(answer: bytes, path: str) -> None:
    async with relayed_from(answer) as wire:
        with pytest.raises(ClientPayloadError):
            await wire.send(request_body(1), path=path)
        assert wire.proxy.stats.broken == 1


async def test_an_error_answer_that_breaks_off_does_not_end_cleanly() -> None:
    async with relayed_from(BROKEN_LENGTH.replace(b"200 OK", b"400 Bad Request")) as wire:
        with pytest.raises(ClientPayloadError):
            await wire.send(request_body(1))


async def test_answers_keep_status_reason_and_repeated_headers_and_gain_none() -> None:
    answer = (
        b"HTTP/1.1 207 Very Odd\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nX-Hop: 1\r\n"
        b"Connection: close, x-hop\r\nx-clifftop-note: forged\r\nContent-Length: 2\r\n\r\nok"
    )
    async with relayed_from(answer) as wire:
        raw = await raw_exchange(
            wire.proxy.port, b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        )
        head, _, body = raw.partition(b"\r\n\r\n")
        assert body == b"ok"
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 207 Very Odd",
            b"set-cookie: a=1",
            b"Set-Cookie: b=2",
            b"Content-Length: 2",
            b"Connection: close",
        ]


async def test_requests_gain_no_header() -> None:
    seen: list[bytes] = []
    async with relayed_from(b"HTTP/1.1 204 No Content\r\n\r\n", seen=seen) as wire:
        sent = b"GET /v1/models?x=%2F HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: 1\r\nx-a: 2\r\n"
        await raw_exchange(wire.proxy.port, sent + b"Connection: close\r\nCookie: a=1\r\n\r\n")
        host = seen[0].split(b"Host: ")[1].split(b"\r\n")[0]
        assert seen[0].split(b"\r\n") == [
            b"GET /v1/models?x=%2F HTTP/1.1",
            b"Host: " + host,
            b"X-A: 1",
            b"X-A: 2",
            b"Cookie: a=1",
            b"",
            b"",
        ]
        assert host != b"127.0.0.1"


async def test_redirects_cookies_and_coded_answers_are_the_clients_to_handle() -> None:
    async def moved(request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {"Location": "/elsewhere", "Set-Cookie": "a=1", "Content-Encoding": "gzip"}
        return web.Response(status=307, headers=headers, body=b"\x1f\x8bnot really")

    async with wired(upstream=Upstream(answer=moved)) as wire:
        for _ in range(2):
            answer = await wire.send(method="GET", path="/v1/files")
            assert (answer.status, answer.body) == (307, b"\x1f\x8bnot really")
            assert answer.header("location") == "/elsewhere"
        assert [received.target for received in wire.upstream.received] == ["/v1/files"] * 2
        assert wire.upstream.received[1].all("cookie") == []


async def test_a_cookie_of_one_client_never_travels_with_another() -> None:
    async def sets(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(headers={"Set-Cookie": "session=1; Path=/"})

    async with wired(upstream=Upstream(answer=sets)) as wire:
        # aiohttp's jar would not keep cookies of an address, only of a name.
        base = wire.upstream.url.replace("127.0.0.1", "localhost")
        settings = ProxySettings(port=0, anthropic_upstream=base, follows_proxy_environment=False)
        proxy = await start_proxy(settings)
        for _ in range(2):
            async with wire.client.get(proxy.url + "/api/x") as answer:
                assert answer.headers["Set-Cookie"] == "session=1; Path=/"
        await proxy.stop()
        assert [received.all("cookie") for received in wire.upstream.received] == [[], []]


async def test_calls_do_not_wait_for_each_other() -> None:
    calls = 150
    all_here = asyncio.Barrier(calls)

    async def together(request: web.Request, body: bytes) -> web.StreamResponse:
        await all_here.wait()
        return web.Response()

    async with wired(upstream=Upstream(answer=together)) as wire, asyncio.timeout(30):
        async with ClientSession(connector=TCPConnector(limit=0)) as client:
            sending = (client.get(wire.proxy.url + f"/v1/{n}") for n in range(calls))
            answers = await asyncio.gather(*sending)
        assert {answer.status for answer in answers} == {200}


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "PURGE"])
async def test_any_method_is_relayed(method: str) -> None:
    async def length(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(body=b"" if request.method == "HEAD" else b"answer")

    async with wired(upstream=Upstream(answer=length)) as wire:
        body = b"body" if method in ("PUT", "PATCH") else b""
        answer = await wire.send(body, method=method, path="/any/path?q=1")
        received = wire.upstream.received[0]
        assert (received.method, received.target, received.body) == (method, "/any/path?q=1", body)
        assert answer.status == 200
        assert answer.body == (b"" if method == "HEAD" else b"answer")


async def test_a_client_that_goes_away_ends_the_call_upstream() -> None:
    has_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()
        return response

    async with wired(upstream=Upstream(answer=endless)) as wire:
        sending = asyncio.create_task(wire.send(request_body(1)))
        await has_begun.wait()
        sending.cancel()
        async with asyncio.timeout(10):
            await has_ended.wait()


async def test_a_slow_client_slows_the_upstream() -> None:
    sent = 0

    async def flood(request: web.Request, body: bytes) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2_000):
            await response.write(b"x" * 65_536)
            sent += 65_536
        return response

    async with wired(upstream=Upstream(answer=flood)) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.proxy.port, limit=4_096)
        writer.write(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 40 << 20
        writer.close()


async def test_one_hundred_megabytes_are_relayed_as_a_stream() -> None:
    """Counts what the proxy has taken from the client while the upstream reads nothing."""
    piece, count = b"".join(b"%07d" % n for n in range(9_000)), 1_600
    taken, may_read = 0, asyncio.Event()
    received = bytearray()

    async def slow(request: web.Request, body: bytes) -> web.StreamResponse:
        await may_read.wait()
        async for chunk in request.content.iter_any():
            received.extend(chunk)
        return web.Response(body=b"ok")

    async def body() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(count):
            taken += len(piece)
            yield piece

    async with wired(upstream=Upstream(answer=slow, is_reading=False)) as wire:
        sending = asyncio.create_task(wire.send(body(), path="/v1/files"))
        before = -1
        while before != taken:
            before = taken
            await asyncio.sleep(0.2)
        assert taken < 40 << 20
        may_read.set()
        assert (await sending).body == b"ok"
        assert bytes(received) == piece * count
        assert wire.upstream.received[0].all("transfer-encoding") == ["chunked"]


async def test_a_body_over_the_limit_is_relayed_with_its_length_and_a_note() -> None:
    body = request_body(40)
    async with wired(limits=Limits(body_bytes=50_000), budget_tokens=8_000) as wire:
        answer = await wire.send(body)
        assert wire.upstream.bodies == [body]
        assert wire.upstream.received[0].all("content-length") == [str(len(body))]
        assert answer.header("x-clifftop-note") == "not compacted (body over 50000 bytes)"
        assert wire.proxy.stats.too_large == 1
        assert json.loads(answer.body)["type"] == "message"
