"""The agent sends what Claude Code would and takes an answer only when it is whole."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from clifftop.demo.agent import Assembly, encode_message, play
from clifftop.demo.provider import Provider, stream_frames
from clifftop.demo.session import Session
from clifftop.errors import ClifftopError
from tests.demo.conftest import Recording
from tests.demo.relay import Relay


def events(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 3,
        "output_tokens": 4,
    }
    message = {"content": content, "stop_reason": "end_turn", "usage": usage}
    frames = b"".join(stream_frames(message)).split(b"\n\n")[:-1]
    return [msgspec.json.decode(frame.split(b"\ndata: ")[1]) for frame in frames]


def test_every_answer_is_put_together_as_it_was(session: Session) -> None:
    for step in session.steps:
        assembly = Assembly()
        for event in events(step.assistant):
            assembly.add(event)
        assert assembly.answer().content == step.assistant


def test_usage_and_stop_reason_come_from_the_stream() -> None:
    assembly = Assembly()
    for event in events([{"type": "text", "text": "é – 😀" * 100}]):
        assembly.add(event)
    answer = assembly.answer()
    assert (answer.usage.prompt_tokens, answer.usage.output_tokens) == (6, 4)
    assert answer.stop_reason == "end_turn"


def test_a_stream_that_ends_early_is_an_error() -> None:
    assembly = Assembly()
    for event in events([{"type": "text", "text": "half"}])[:-1]:
        assembly.add(event)
    with pytest.raises(ClifftopError, match="ended early"):
        assembly.answer()


def test_an_error_event_is_an_error() -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ClifftopError, match="broke off: Overloaded"):
        Assembly().add(event)


def test_requests_look_like_claude_codes(straight: Recording) -> None:
    body = json.loads(straight.received[5].body)
    assert list(body)[:4] == ["model", "messages", "system", "tools"]
    assert body["stream"] is True
    assert straight.received[5].body.startswith(b'{"model":"claude-opus-5-5","messages":[{')
    assert ["cache_control" in block for block in body["system"]] == [False, True, True]
    assert [message["role"] for message in body["messages"][:3]] == ["user", "system", "assistant"]


def test_the_marker_moves_to_the_newest_block(straight: Recording) -> None:
    for one in straight.received[:30]:
        messages = json.loads(one.body)["messages"]
        assert b"cache_control" not in json.dumps(messages[:-1]).encode()
        assert "cache_control" in messages[-1]["content"][-1]


def test_a_lone_text_is_a_string_unless_it_is_marked() -> None:
    message = {"role": "user", "content": "hi"}
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    assert msgspec.json.decode(encode_message(message, marked=False)) == message
    assert msgspec.json.decode(encode_message(message, marked=True))["content"] == [marked]


def test_calls_know_what_was_sent_and_what_it_cost(straight: Recording) -> None:
    assert len(straight.calls) == len(straight.session.steps) == len(straight.received)
    for call, one in zip(straight.calls, straight.received, strict=True):
        assert call.sent_sha256 == sha256(one.body).hexdigest()
        assert call.sent_bytes == len(one.body)
        assert call.usage == one.usage
        assert call.full_tokens == one.usage.prompt_tokens


async def test_a_refusal_is_raised_with_its_message(session: Session) -> None:
    provider = Provider(session=session, window_tokens=20_000)
    async with provider.serve() as url:
        with pytest.raises(ClifftopError, match=r"answered 400: prompt is too long: \d+ tokens"):
            await play(proxy_url=url, provider=provider, session=session, on_call=lambda call: None)


async def test_an_answer_to_another_step_is_noticed(session: Session) -> None:
    def one_step_back(number: int, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "messages": body["messages"][:-2]} if number == 3 else body

    provider = Provider(session=session)
    async with provider.serve() as url:
        relay = Relay(upstream=url, budget_tokens=10**9, spoil=one_step_back)
        async with relay.serve() as relay_url:
            with pytest.raises(ClifftopError, match="request 4 did not arrive as it was sent"):
                await play(
                    proxy_url=relay_url,
                    provider=provider,
                    session=session,
                    on_call=lambda call: None,
                )


async def test_another_provider_behind_the_proxy_is_noticed(session: Session) -> None:
    short = Session(
        seed=session.seed,
        model=session.model,
        system=session.system,
        tools=session.tools,
        head=session.head,
        steps=session.steps[:2],
        directives=(),
    )
    asked, other = Provider(session=short), Provider(session=short)
    async with asked.serve(), other.serve() as url:
        with pytest.raises(ClifftopError, match="does not lead to"):
            await play(proxy_url=url, provider=asked, session=short, on_call=lambda call: None)


async def test_nobody_listening_is_a_clear_error(session: Session) -> None:
    provider = Provider(session=session)
    with pytest.raises(ClifftopError, match=r"request 1 to http://127\.0\.0\.1:9 failed"):
        await play(
            proxy_url="http://127.0.0.1:9",
            provider=provider,
            session=session,
            on_call=lambda call: None,
        )
