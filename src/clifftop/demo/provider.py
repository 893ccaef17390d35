"""The demo's provider: Anthropic Messages on a loopback port, playing back a session.

It finds the step to answer from the request itself, so that a compacted or repeated request gets
the right answer. It judges nothing: whether the promises hold is `verify`'s business. No prices.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from clifftop.demo.prefix import (
    BYTES_PER_TOKEN,
    PrefixCache,
    Usage,
    blocks_of,
    read_prompt,
)
from clifftop.demo.script import Json
from clifftop.demo.session import Session

WINDOW_TOKENS = 1_000_000
_DELTA_CHARS = 160
_BODY_BYTES = 64 * 2**20
_TOOL_ID = re.compile(r"toolu_(\d{4})_\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it arrived, the step that it asked for, and what it cost."""

    body: bytes
    step: int
    usage: Usage


@dataclass(slots=True, kw_only=True)
class Provider:
    """An embedded provider; `received` holds every request that was answered, in order."""

    session: Session
    window_tokens: int = WINDOW_TOKENS
    received: list[Received] = field(default_factory=list)
    cache: PrefixCache = field(default_factory=PrefixCache)
    url: str = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on a free port of 127.0.0.1 while the context is open; yields the base URL."""
        app = web.Application(client_max_size=_BODY_BYTES)
        app.router.add_post("/v1/messages", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        try:
            body = msgspec.json.decode(data)
            prompt, model = read_prompt(body), body["model"]
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            return _refusal(f"this is no Messages request: {type(error).__name__}: {error}")
        step = find_step(self.session, body["messages"])
        if step is None:
            return _refusal("messages: the last user item belongs to no step of this session")
        if prompt.tokens > self.window_tokens:
            maximum = self.window_tokens
            return _refusal(f"prompt is too long: {prompt.tokens} tokens > {maximum} maximum")
        blocks = self.session.steps[step].assistant
        counted = self.cache.account(model, prompt)
        output = -(-len(msgspec.json.encode(blocks)) // BYTES_PER_TOKEN)
        usage = dataclasses.replace(counted, output_tokens=output)
        self.received.append(Received(body=data, step=step, usage=usage))
        message = _message(step, model, blocks, usage)
        if not body.get("stream"):
            return _json(message)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.headers["request-id"] = f"req_demo_{step:04d}"
        await response.prepare(request)
        for frames in stream_frames(message):
            await response.write(frames)
            await asyncio.sleep(0)
        await response.write_eof()
        return response


def find_step(session: Session, messages: list[Json]) -> int | None:
    """Tell which step a history asks for, by its last user item alone: ids, then a person's text.

    Returns None when that item is not of this session.
    """
    last = next((item for item in reversed(messages) if item.get("role") == "user"), None)
    if last is None:
        return None
    typed = {step.user: n + 1 for n, step in enumerate(session.steps) if isinstance(step.user, str)}
    typed[blocks_of(session.head[0]["content"])[-1]["text"]] = 0
    found: int | None = None
    for block in blocks_of(last["content"]):
        match = _TOOL_ID.fullmatch(block.get("tool_use_id", ""))
        if match is not None:
            found = int(match[1]) + 1
        elif block.get("text") in typed:
            found = typed[block["text"]]
    return found if found is not None and found < len(session.steps) else None


def stream_frames(message: Json) -> Iterator[bytes]:
    """Cut a whole message into server-sent events, one chunk for the start, each block, the end."""
    usage = message["usage"]
    opening = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield _frame({"type": "message_start", "message": opening}) + _frame({"type": "ping"})
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block)
        frames = [{"type": "content_block_start", "index": index, "content_block": empty}]
        frames += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        frames.append({"type": "content_block_stop", "index": index})
        yield b"".join(_frame(frame) for frame in frames)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _frame({"type": "message_delta", "delta": delta, "usage": usage}) + _frame(
        {"type": "message_stop"}
    )


def _deltas(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            parts = _slices(block["text"])
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in parts]
        case "thinking":
            deltas: list[Json] = [
                {"type": "thinking_delta", "thinking": part} for part in _slices(block["thinking"])
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "tool_use":
            parts = ["", *_slices(msgspec.json.encode(block["input"]).decode())]
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            return {**block, "input": {}}, deltas
        case other:
            raise ValueError(f"the provider says no {other} blocks")


def _slices(text: str) -> list[str]:
    return [text[i : i + _DELTA_CHARS] for i in range(0, len(text), _DELTA_CHARS)]


def _message(step: int, model: str, blocks: list[Json], usage: Usage) -> Json:
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": f"msg_demo_{step:04d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "cache_read_input_tokens": usage.cache_read_tokens,
            "output_tokens": usage.output_tokens,
            "service_tier": "standard",
        },
    }


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


def _refusal(message: str) -> web.Response:
    error = {"type": "invalid_request_error", "message": message}
    return _json({"type": "error", "error": error, "request_id": "req_demo"}, status=400)


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )
