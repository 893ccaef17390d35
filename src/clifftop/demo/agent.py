"""The demo's agent: sends a session step by step as Claude Code would, and checks each answer.

It keeps the full history, as every client does, and knows nothing of budgets or cliffs: that
somebody between it and the provider compacts is none of its business.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import aiohttp
import msgspec

from clifftop.demo.prefix import BYTES_PER_TOKEN, Usage, normal_message, read_prompt
from clifftop.demo.provider import Provider
from clifftop.demo.script import Json
from clifftop.demo.session import Session
from clifftop.errors import ClifftopError

_MARK = {"type": "ephemeral"}
_TIMEOUT_S = 60.0
_BETAS = "interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as the agent saw it.

    `sent_sha256`, `sent_bytes`: of the body that left the agent. `full_tokens`: the prompt that it
    holds. `usage`: what the stream reported, for the prompt that reached the provider.
    """

    step: int
    sent_bytes: int
    sent_sha256: str
    full_tokens: int
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """All calls of a session that was played to its end."""

    calls: tuple[Call, ...]


async def play(
    *,
    proxy_url: str,
    provider: Provider,
    session: Session,
    on_call: Callable[[Call], None],
    pause_s: float = 0,
) -> Played:
    """Play the whole session through `proxy_url`; `on_call` hears of each call once it is answered.

    `pause_s`: rest after each call, so that people can watch.

    *Raises* ClifftopError when a call fails or is refused, or an answer does not arrive whole.
    """
    history = _History(session=session)
    calls: list[Call] = []
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=_headers(session)) as http:
        for number, step in enumerate(session.steps):
            body = history.body()
            try:
                answer = await _ask(http, proxy_url, body, number)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ClifftopError(
                    f"request {number + 1} to {proxy_url} failed: {type(error).__name__}: {error}"
                ) from error
            if answer.content != step.assistant:
                raise ClifftopError(
                    f"the answer to request {number + 1} did not arrive as it was sent"
                )
            call = Call(
                step=number,
                sent_bytes=len(body),
                sent_sha256=sha256(body).hexdigest(),
                full_tokens=history.tokens,
                usage=answer.usage,
            )
            calls.append(call)
            on_call(call)
            await asyncio.sleep(pause_s)
            history.add({"role": "assistant", "content": answer.content})
            if step.user is not None:
                history.add({"role": "user", "content": step.user})
    if len(provider.received) < len(calls):
        raise ClifftopError(
            f"the provider received {len(provider.received)} of {len(calls)} requests: "
            f"{proxy_url} does not lead to {provider.url}"
        )
    return Played(calls=tuple(calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An assistant message put together from its stream."""

    content: list[Json]
    stop_reason: str
    usage: Usage


@dataclass(slots=True, kw_only=True)
class Assembly:
    """Puts an answer together, one event of the stream after the other."""

    blocks: list[Json] = field(default_factory=list)
    pending_json: str = ""
    counted: Json = field(default_factory=dict)
    stop_reason: str = ""
    is_complete: bool = False

    def add(self, event: Json) -> None:
        """Take the next event.

        *Raises* ClifftopError for an error event.
        """
        match event["type"]:
            case "message_start":
                self.counted.update(event["message"]["usage"])
            case "content_block_start":
                self.blocks.append(dict(event["content_block"]))
                self.pending_json = ""
            case "content_block_delta":
                self._extend(event["delta"])
            case "content_block_stop":
                if self.blocks[event["index"]]["type"] == "tool_use":
                    self.blocks[-1]["input"] = msgspec.json.decode(self.pending_json or "{}")
            case "message_delta":
                self.counted.update(event["usage"])
                self.stop_reason = event["delta"]["stop_reason"]
            case "message_stop":
                self.is_complete = True
            case "error":
                raise ClifftopError(f"the stream broke off: {event['error']['message']}")

    def answer(self) -> Answer:
        """Give the whole message.

        *Raises* ClifftopError when the stream ended before its message_stop.
        """
        if not self.is_complete:
            raise ClifftopError(f"the stream ended early, after {len(self.blocks)} blocks")
        usage = Usage(
            input_tokens=self.counted["input_tokens"],
            cache_read_tokens=self.counted["cache_read_input_tokens"],
            cache_write_tokens=self.counted["cache_creation_input_tokens"],
            output_tokens=self.counted["output_tokens"],
        )
        return Answer(content=self.blocks, stop_reason=self.stop_reason, usage=usage)

    def _extend(self, delta: Json) -> None:
        block = self.blocks[-1]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] += delta["signature"]
            case "input_json_delta":
                self.pending_json += delta["partial_json"]


def request_body(session: Session, messages: Iterable[bytes]) -> bytes:
    """Write a request around messages that are encoded already.

    The order of fields is Claude Code's: `messages` before `system` and `tools`.
    """
    rest = {
        "system": [
            block if n == 0 else {**block, "cache_control": _MARK}
            for n, block in enumerate(session.system)
        ],
        "tools": session.tools,
        "metadata": {"user_id": msgspec.json.encode({"session_id": _session_id(session)}).decode()},
        "max_tokens": 128_000,
        "thinking": {"type": "adaptive", "display": "updates"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }
    head = b'{"model":' + msgspec.json.encode(session.model) + b',"messages":['
    return head + b",".join(messages) + b"]," + msgspec.json.encode(rest)[1:]


def encode_message(message: Json, *, marked: bool) -> bytes:
    """Write one message: a lone text as a string, unless the moving cache marker sits on it."""
    content: Any = message["content"]
    if marked:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        blocks[-1] = {**blocks[-1], "cache_control": _MARK}
        content = blocks
    return msgspec.json.encode({**message, "content": content})


@dataclass(slots=True, kw_only=True)
class _History:
    session: Session
    encoded: list[bytes] = field(default_factory=list)
    last: Json = field(default_factory=dict)
    size: int = 0

    def __post_init__(self) -> None:
        fixed = {"tools": self.session.tools, "system": self.session.system, "messages": []}
        self.size = len(read_prompt(fixed).data)
        for message in self.session.head:
            self.add(message)

    @property
    def tokens(self) -> int:
        return -(-self.size // BYTES_PER_TOKEN)

    def add(self, message: Json) -> None:
        self.encoded.append(encode_message(message, marked=False))
        self.last = message
        self.size += len(normal_message(message))

    def body(self) -> bytes:
        marked = encode_message(self.last, marked=True)
        return request_body(self.session, [*self.encoded[:-1], marked])


async def _ask(http: aiohttp.ClientSession, url: str, body: bytes, number: int) -> Answer:
    # As plain bytes a body over 1 MiB makes aiohttp warn that the event loop might be locked.
    async with http.post(f"{url}/v1/messages?beta=true", data=io.BytesIO(body)) as response:
        if response.status != 200:
            raise ClifftopError(
                f"request {number + 1} was answered {response.status}: "
                + _reason(await response.read())
            )
        assembly = Assembly()
        async for event in _events(response.content):
            assembly.add(event)
        return assembly.answer()


async def _events(stream: aiohttp.StreamReader) -> AsyncIterator[Json]:
    rest = b""
    async for chunk in stream.iter_any():
        *frames, rest = (rest + chunk).split(b"\n\n")
        for frame in frames:
            for line in frame.split(b"\n"):
                if line.startswith(b"data:"):
                    yield msgspec.json.decode(line[5:])


def _reason(data: bytes) -> str:
    try:
        return str(msgspec.json.decode(data)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return data[:200].decode(errors="replace")


def _headers(session: Session) -> dict[str, str]:
    return {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "clifftop-demo",
        "X-Claude-Code-Session-Id": _session_id(session),
        "anthropic-version": "2023-06-01",
        "anthropic-beta": _BETAS,
        "x-api-key": "no-key-needed",
        "x-app": "cli",
    }


def _session_id(session: Session) -> str:
    return f"00000000-0000-4000-8000-{session.seed % 10**12:012d}"
