"""A provider without a model: Anthropic Messages that plays tool calls, one file after another.

What to answer is found in the request alone. A prompt says `Play steps 1-40.`; the calls are
numbered in their ids; the newest id that is still there names the next step. So a compacted history
is played like a whole one, and a resumed session goes on. All bodies are kept as they came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import uuid4

from aiohttp import web

Body = dict[str, Any]

STEP_ID = "toolu_clifftop_step_{:05d}"
STEP_IN_TEXT = re.compile(r"toolu_clifftop_step_(\d{5})")
PLAY = re.compile(r"Play steps (\d+)-(\d+)\.")
NATIVE_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
CACHE_BLOCK_TOKENS = 64


@dataclass(kw_only=True)
class Received:
    """One request. `kind`: step, done, title, refused, other; native is the client's compaction."""

    raw: bytes
    target: str
    headers: dict[str, str]
    kind: str = "other"
    step: int = 0
    prompt_tokens: int = 0

    @property
    def body(self) -> Body:
        body: Body = json.loads(self.raw)
        return body


@dataclass(kw_only=True)
class ScriptedProvider:
    """The provider. `refuse_at`: the step whose request is refused once as too long.

    `command`: what a step runs, with its number put in. `pauses_at`: the step that sleeps.
    """

    command: str = "cat data/{:03d}.txt"
    refuse_at: int | None = None
    pauses_at: int | None = None
    window_tokens: int = 1_000_000
    tokens_per_byte: float = 0.25
    received: list[Received] = field(default_factory=list)
    _prompts: list[str] = field(default_factory=list)

    @property
    def session(self) -> list[Received]:
        """The answered requests of the main conversation, in order."""
        return [request for request in self.received if request.kind in ("step", "done")]

    def kinds(self, kind: str) -> list[Received]:
        return [request for request in self.received if request.kind == kind]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.content.read()
        seen = Received(raw=raw, target=request.raw_path, headers=dict(request.headers))
        self.received.append(seen)
        if request.method != "POST" or request.path.split("/v1/")[-1] != "messages":
            return _error(404, "not_found_error", "no such path")
        body = seen.body
        prompt = json.dumps([body.get("tools"), body.get("system"), body["messages"]])
        seen.prompt_tokens = round(len(prompt) * self.tokens_per_byte)
        content = self._content(body, seen)
        if seen.step == self.refuse_at and seen.kind == "step":
            self.refuse_at, seen.kind = None, "refused"
            return _too_long(210_000, 200_000)
        if seen.prompt_tokens > self.window_tokens:
            seen.kind = "refused"
            return _too_long(seen.prompt_tokens, self.window_tokens)
        usage = self._usage(body, seen.prompt_tokens)
        if body.get("stream"):
            return await _streamed(request, message_of(body, content, usage))
        return web.json_response(message_of(body, content, usage))

    def _content(self, body: Body, seen: Received) -> list[Body]:
        text = json.dumps(body["messages"])
        if NATIVE_COMPACTION in json.dumps(body["messages"][-1]):
            seen.kind = "native"
            return [text_block("<summary>All steps so far were played.</summary>")]
        if not body.get("tools"):
            seen.kind = "title"
            return [text_block('{"title": "Scripted session"}')]
        seen.step = max((int(n) for n in STEP_IN_TEXT.findall(text)), default=0) + 1
        asked = max((int(last) for _, last in PLAY.findall(text)), default=0)
        thought = {
            "type": "thinking",
            "thinking": f"Step {seen.step} comes next.",
            "signature": f"c2lnbmF0dXJl{seen.step:04d}",
        }
        if seen.step > asked:
            seen.kind = "done"
            return [thought, text_block(f"All {asked} steps are played.")]
        seen.kind = "step"
        run = self.command.format(seen.step)
        if seen.step == self.pauses_at:
            run = f"sleep 600; {run}"
        call = {
            "type": "tool_use",
            "id": STEP_ID.format(seen.step),
            "name": "Bash",
            "input": {"command": run, "description": f"Play step {seen.step}"},
        }
        return [thought, text_block(f"Now step {seen.step}."), call]

    def _usage(self, body: Body, prompt_tokens: int) -> dict[str, int]:
        """Price a prompt with a prefix cache that forgets nothing."""
        bare = [bare_item(message) for message in body["messages"]]
        prompt = json.dumps([body.get("tools"), [bare_item(x) for x in body["system"]], *bare])
        shared = max((shared_chars(prompt, old) for old in self._prompts), default=0)
        self._prompts.append(prompt)
        cached = round(prompt_tokens * shared / len(prompt)) // CACHE_BLOCK_TOKENS
        cached_tokens = min(cached * CACHE_BLOCK_TOKENS, prompt_tokens - 4)
        return {
            "input_tokens": 4,
            "cache_creation_input_tokens": prompt_tokens - cached_tokens - 4,
            "cache_read_input_tokens": cached_tokens,
            "output_tokens": 60,
        }


def shared_chars(one: str, other: str) -> int:
    """Count the characters that two texts begin with alike, by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def bare_item(item: Any) -> Any:
    """An item as the cache sees it: no markers, and text is text, in a list or not."""
    if isinstance(item, list):
        return [bare_item(x) for x in item]
    if not isinstance(item, dict):
        return item
    bare = {key: bare_item(value) for key, value in item.items() if key != "cache_control"}
    if isinstance(bare.get("content"), str):
        bare["content"] = [text_block(bare["content"])]
    return bare


def extends(before: Body, after: Body) -> bool:
    """Do the items of one request begin with all items of another?"""
    old, new = (bare_item(body["messages"]) for body in (before, after))
    return bool(new[: len(old)] == old)


def cliffs_of(bodies: list[Body]) -> int:
    """Count the requests that do not extend the one before."""
    return sum(not extends(before, after) for before, after in pairwise(bodies))


def text_block(text: str) -> Body:
    return {"type": "text", "text": text}


def message_of(body: Body, content: list[Body], usage: dict[str, int]) -> Body:
    calls = any(block["type"] == "tool_use" for block in content)
    return {
        "id": f"msg_clifftop_{uuid4().hex}",  # the client merges messages of one id
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content
        if body.get("thinking")
        else [b for b in content if b["type"] != "thinking"],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


async def _streamed(request: web.Request, message: Body) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events_of(message):
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return response


def events_of(message: Body) -> Iterator[Body]:
    start = {**message, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    yield {"type": "message_delta", "delta": ended, "usage": usage}
    yield {"type": "message_stop"}


def _deltas(block: Body) -> tuple[Body, list[Body]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            arguments = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]


def _too_long(prompt_tokens: int, window_tokens: int) -> web.Response:
    said = f"prompt is too long: {prompt_tokens} tokens > {window_tokens} maximum"
    return _error(400, "invalid_request_error", said)


def _error(status: int, kind: str, said: str) -> web.Response:
    body = {"type": "error", "error": {"type": kind, "message": said}}
    return web.json_response(body, status=status)
