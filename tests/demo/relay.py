"""A hand-written compacting relay: just enough of a proxy for the tests to see cliffs."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from clifftop.demo.prefix import blocks_of, read_prompt

KEEP_TURNS = 3


@dataclass(slots=True, kw_only=True)
class Relay:
    upstream: str
    budget_tokens: int
    cut: int | None = None
    spoil: Callable[[int, dict[str, Any]], dict[str, Any]] | None = None
    sent: list[dict[str, Any]] = field(default_factory=list)

    def compact(self, body: dict[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        outgoing = {**body, "messages": self.layout(messages)}
        if read_prompt(outgoing).tokens > self.budget_tokens:
            turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
            self.cut = turns[-KEEP_TURNS]
            outgoing = {**body, "messages": self.layout(messages)}
        return outgoing

    def layout(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.cut is None:
            return messages
        typed = [m["content"] for m in messages[2 : self.cut] if isinstance(m["content"], str)]
        calls = [
            f"- {block['name']} {str(block['input'])[:120]}"
            for message in messages[2 : self.cut]
            for block in blocks_of(message["content"])
            if block["type"] == "tool_use"
        ]
        block = {"role": "user", "content": "\n".join(["[record]", *typed, *calls[-60:]])}
        return [messages[0], block, messages[1], *messages[self.cut :]]

    async def forward(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = msgspec.json.decode(data)
        outgoing = self.compact(body)
        if self.spoil is not None:
            outgoing = self.spoil(len(self.sent), outgoing)
        self.sent.append(outgoing)
        if outgoing is not body and outgoing != body:
            data = msgspec.json.encode(outgoing)
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.upstream + request.path_qs, data=io.BytesIO(data)) as answer,
        ):
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/messages", self.forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def start_relay(
    budget_tokens: int,
) -> Callable[[str], Awaitable[tuple[str, Callable[[], Awaitable[None]]]]]:
    async def start(upstream: str) -> tuple[str, Callable[[], Awaitable[None]]]:
        serving = Relay(upstream=upstream, budget_tokens=budget_tokens).serve()
        url = await serving.__aenter__()

        async def stop() -> None:
            await serving.__aexit__(None, None, None)

        return url, stop

    return start
