"""The provider speaks Anthropic's stream and finds the step in the request itself."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import msgspec
import pytest

from clifftop.demo.agent import encode_message, request_body
from clifftop.demo.provider import Provider, find_step
from clifftop.demo.session import Session


def request(session: Session, messages: list[dict[str, Any]], **changes: Any) -> bytes:
    encoded = [encode_message(m, marked=m is messages[-1]) for m in messages]
    return json.dumps({**json.loads(request_body(session, encoded)), **changes}).encode()


@pytest.mark.parametrize("step", [0, 1, 2, 40, 41, 100])
def test_step_is_found_from_the_last_user_item(session: Session, step: int) -> None:
    messages = session.messages(step)
    assert find_step(session, messages) == step
    assert find_step(session, [messages[0], {"role": "user", "content": "x"}, messages[-1]]) == (
        step if step else None
    )


def test_step_behind_a_persons_text_is_found_beside_other_blocks(session: Session) -> None:
    number = next(n for n, step in enumerate(session.steps) if isinstance(step.user, str))
    typed = session.steps[number].user
    reminder = {"type": "text", "text": "<system-reminder>x</system-reminder>"}
    mixed = [{"role": "user", "content": [reminder, {"type": "text", "text": typed}]}]
    assert find_step(session, mixed) == number + 1


def test_unknown_histories_have_no_step(session: Session) -> None:
    last = {"type": "tool_result", "tool_use_id": "toolu_0999_0", "content": ""}
    assert find_step(session, []) is None
    assert find_step(session, [{"role": "user", "content": "hello"}]) is None
    assert find_step(session, [{"role": "user", "content": [last]}]) is None


async def test_stream_has_the_real_sequence_of_events(session: Session) -> None:
    provider = Provider(session=session)
    async with provider.serve() as url, aiohttp.ClientSession() as http:
        data = request(session, session.messages(0))
        async with http.post(f"{url}/v1/messages?beta=true", data=data) as answer:
            text = await answer.text()
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
    frames = [frame.split("\n") for frame in text.rstrip("\n").split("\n\n")]
    events = [json.loads(frame[1].removeprefix("data: ")) for frame in frames]
    names = [event["type"] for event in events]
    assert [frame[0] for frame in frames] == [f"event: {name}" for name in names]
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    count = len(session.steps[0].assistant)
    assert names.count("content_block_start") == names.count("content_block_stop") == count
    deltas = {event["delta"]["type"] for event in events if event["type"] == "content_block_delta"}
    assert deltas == {"thinking_delta", "signature_delta", "text_delta", "input_json_delta"}
    usage = provider.received[0].usage
    assert events[0]["message"]["usage"]["cache_creation_input_tokens"] == usage.cache_write_tokens
    assert events[-2]["usage"]["output_tokens"] == usage.output_tokens > 100
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert provider.received[0].body == data


async def test_without_stream_the_message_comes_whole(session: Session) -> None:
    provider = Provider(session=session)
    async with provider.serve() as url, aiohttp.ClientSession() as http:
        data = request(session, session.messages(3), stream=False)
        async with http.post(f"{url}/v1/messages", data=data) as answer:
            message = await answer.json()
    assert message["content"] == session.steps[3].assistant
    assert message["stop_reason"] == "tool_use"


async def test_usage_sums_to_the_prompt_and_reads_what_came_before(session: Session) -> None:
    provider = Provider(session=session)
    async with provider.serve() as url, aiohttp.ClientSession() as http:
        for step in (1, 2):
            data = request(session, session.messages(step))
            async with http.post(f"{url}/v1/messages", data=data) as answer:
                await answer.read()
    first, second = (one.usage for one in provider.received)
    assert first.cache_read_tokens == 0
    assert first.prompt_tokens - 64 < second.cache_read_tokens <= first.prompt_tokens
    assert second.input_tokens == 0


async def test_a_prompt_over_the_window_gets_the_real_error(session: Session) -> None:
    provider = Provider(session=session, window_tokens=10_000)
    async with provider.serve() as url, aiohttp.ClientSession() as http:
        data = request(session, session.messages(4))
        async with http.post(f"{url}/v1/messages", data=data) as answer:
            body = await answer.json()
            assert answer.status == 400
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    message = body["error"]["message"].split()
    assert message[:4] + message[5:7] == ["prompt", "is", "too", "long:", "tokens", ">"]
    assert message[-2:] == ["10000", "maximum"]
    assert provider.received == []


@pytest.mark.parametrize(
    "data",
    [b"no json", b"[]", b'{"messages":[]}', b'{"model":"m","messages":[{"role":"user"}]}'],
)
async def test_what_is_no_request_is_refused(session: Session, data: bytes) -> None:
    async with (
        Provider(session=session).serve() as url,
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/messages", data=data) as answer,
    ):
        assert answer.status == 400
        assert msgspec.json.decode(await answer.read())["type"] == "error"


@pytest.mark.parametrize("path", ["/", "/v1/messages", "/v1/models"])
async def test_other_paths_are_not_there(session: Session, path: str) -> None:
    async with (
        Provider(session=session).serve() as url,
        aiohttp.ClientSession() as http,
        http.get(url + path) as answer,
    ):
        assert answer.status in (404, 405)
