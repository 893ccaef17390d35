"""A scripted upstream, a client and a proxy between them, all on loopback with real sockets.

client >> request     await wire.send(body)
upstream << request   wire.upstream.received
upstream >> answer    wire.upstream.answer
client << answer      what send gives
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, NamedTuple

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, web
from yarl import URL

from clifftop.memory.base import Store
from clifftop.proxy.app import RunningProxy, start_proxy
from clifftop.proxy.settings import ProxySettings

USAGE = {"input_tokens": 7, "output_tokens": 5}
GOOD = {"type": "message", "role": "assistant", "content": [], "usage": USAGE}

START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":11}}}'
    b"\n\n"
)
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
CONTENT = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
    b'{"type":"text","text":""}}\n\n'
)
TOO_LONG = (
    b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error",'
    b'"message":"prompt is too long: 208310 tokens > 200000 maximum"}}\n\n'
)
STREAM = (
    b'event: message_start\r\ndata: {"type":"message_start","message":{"usage":'
    b'{"input_tokens":11,"cache_read_input_tokens":400,"output_tokens":1}}}\r\n\r\n'
    b': ping\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","delta":'
    b'{"type":"text_delta","text":"say \\"usage\\" \xc3\xa9"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta",\ndata: "usage":{"output_tokens":42,'
    b'"input_tokens":0}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came to the upstream."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back to the client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


Script = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


async def good(request: web.Request, body: bytes) -> web.StreamResponse:
    return web.json_response(GOOD)


@dataclass(kw_only=True)
class Upstream:
    """Records raw bytes; `answer` may be changed at any time."""

    answer: Script = good
    received: list[Received] = field(default_factory=list)
    url: str = ""
    is_reading: bool = True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.content.read() if self.is_reading else b""
        headers = [
            (k.decode(), v.decode("utf-8", "surrogateescape")) for k, v in request.raw_headers
        ]
        self.received.append(
            Received(method=request.method, target=request.raw_path, headers=headers, body=body)
        )
        return await self.answer(request, body)

    @property
    def bodies(self) -> list[bytes]:
        return [received.body for received in self.received]


@dataclass(kw_only=True)
class Wire:
    """Client, proxy, upstream."""

    upstream: Upstream
    proxy: RunningProxy
    client: ClientSession

    async def send(
        self,
        body: Any = b"",
        *,
        path: str = "/v1/messages",
        method: str = "POST",
        headers: Any = (("content-type", "application/json"), ("x-api-key", "secret-key")),
    ) -> Answer:
        url = URL(self.proxy.url + path, encoded=True)
        data = body if body else None
        async with self.client.request(
            method, url, data=data, headers=list(headers), allow_redirects=False
        ) as answer:
            raw = [(k.decode(), v.decode()) for k, v in answer.raw_headers]
            return Answer(status=answer.status, headers=raw, body=await answer.read())


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[str]:
    """Serve every request with one handler on a free port."""

    @web.middleware
    async def enter(request: web.Request, handler: Any) -> web.StreamResponse:
        return await answer(request)

    runner = web.AppRunner(
        web.Application(middlewares=[enter], client_max_size=0),
        auto_decompress=False,
        handler_cancellation=True,
        access_log=None,
        max_line_size=2**17,
        max_field_size=2**17,
        max_headers=1_000,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def wired(
    *,
    store: Store | None = None,
    prefix: str = "",
    upstream: Upstream | None = None,
    **changes: Any,
) -> AsyncIterator[Wire]:
    """Start all three; `changes` are settings."""
    upstream = upstream or Upstream()
    async with serving(upstream.handle) as upstream.url, a_client() as client:
        base = upstream.url + prefix
        given = {"anthropic_upstream": base, "openai_upstream": base, "gemini_upstream": base}
        settings = ProxySettings(
            **{"port": 0, "follows_proxy_environment": False} | given | changes
        )
        proxy = await start_proxy(settings, store=store)
        try:
            yield Wire(upstream=upstream, proxy=proxy, client=client)
        finally:
            await proxy.stop()


@asynccontextmanager
async def a_client() -> AsyncIterator[ClientSession]:
    async with ClientSession(
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    ) as client:
        yield client


class Exchanged(NamedTuple):
    """One request on a raw connection: which connection, which request on it, what came."""

    connection: int
    number: int
    head: bytes
    body: bytes


RawScript = Callable[[Exchanged, asyncio.StreamWriter], Awaitable[bool]]
"""Writes what it likes; True waits for a further request on the connection, False closes it."""

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def raw_upstream(script: RawScript) -> AsyncIterator[tuple[str, list[Exchanged]]]:
    """Serve raw bytes; gives its URL and the list of what came."""
    seen: list[Exchanged] = []
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        connection = connections
        try:
            for number in count(1):
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                seen.append(Exchanged(connection, number, head, body))
                if not await script(seen[-1], writer):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


@asynccontextmanager
async def wired_raw(
    script: RawScript, **changes: Any
) -> AsyncIterator[tuple[Wire, list[Exchanged]]]:
    """Put a proxy before an upstream of raw bytes."""
    async with raw_upstream(script) as (base, seen):
        bases = {"anthropic_upstream": base, "openai_upstream": base}
        async with wired(**(bases | changes)) as wire:
            yield wire, seen


async def raw_exchange(port: int, sent: bytes) -> bytes:
    """Send bytes on a socket of their own and give all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def events(*given: bytes | Awaitable[object]) -> Script:
    """Stream these pieces, each as soon as what stands before it is over."""

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in given:
            if isinstance(piece, bytes):
                await response.write(piece)
            else:
                await piece
        return response

    return answer


def in_turn(*scripts: Script) -> Script:
    """Answer with one script after the other, and with the last one from then on."""
    following = list(scripts)

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        script = following.pop(0) if len(following) > 1 else following[0]
        return await script(request, body)

    return answer


def request_body(
    turns: int, *, result_chars: int = 4_000, words: str = "look at", **fields: Any
) -> bytes:
    """Give the body of an agent's request: a task, then calls with long results."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the failing test."}]
    for number in range(turns):
        call = {
            "type": "tool_use",
            "id": f"toolu_{number:04}",
            "name": "Read",
            "input": {"file_path": f"/repo/src/module_{number}.py"},
        }
        said = {"type": "text", "text": f"Step {number}: {words} module {number}."}
        output = f"line {number} of the file\n" * (result_chars // 20)
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": output}
        messages.append({"role": "assistant", "content": [said, call]})
        messages.append({"role": "user", "content": [result]})
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 1_000,
        "system": "You are a careful engineer.",
        "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
        "messages": messages,
    }
    return json.dumps(body | fields).encode()
