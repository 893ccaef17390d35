"""Requests that are no turn of a session: counts, titles, probes, the client's own summaries."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from aiohttp import web

from clifftop.dialects.anthropic import AnthropicMessages, purpose_of
from clifftop.memory.base import InProcessStore
from tests.proxy.scripted import GOOD, Script, Upstream, good, in_turn, request_body, wired
from tests.proxy.test_compaction import refusing

BUDGET = 8_000
NOTE, STREAM, CLIFFS = "x-clifftop-note", "x-clifftop-stream", "x-clifftop-cliffs"
COUNT = "/v1/messages/count_tokens?beta=true"


# Counting tokens


def counting(status: int = 200) -> Script:
    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        if "count_tokens" not in request.path:
            return web.json_response(GOOD)
        return web.json_response({"input_tokens": len(body)}, status=status)

    return answer


def count_body(turns: int) -> bytes:
    fields = json.loads(request_body(turns))
    del fields["max_tokens"]
    return json.dumps(fields).encode()


async def test_what_is_counted_is_what_is_sent() -> None:
    async with wired(budget_tokens=BUDGET, upstream=Upstream(answer=counting())) as wire:
        for turns in (3, 12, 20):
            await wire.send(request_body(turns))
            answer = await wire.send(count_body(turns), path=COUNT)
            sent, counted = (json.loads(body) for body in wire.upstream.bodies[-2:])
            assert counted == {k: v for k, v in sent.items() if k != "max_tokens"}
            assert json.loads(answer.body) == {"input_tokens": len(wire.upstream.bodies[-1])}
        assert wire.upstream.bodies[1] == count_body(3)
        assert wire.upstream.received[1].target == COUNT


async def test_counting_opens_no_stream_and_stores_nothing() -> None:
    store = InProcessStore()
    async with wired(store=store, upstream=Upstream(answer=counting())) as wire:
        answer = await wire.send(count_body(100), path=COUNT)
        assert len(wire.upstream.bodies[0]) < len(count_body(100)) / 2
        assert (len(store), wire.proxy.stats.cliffs, wire.proxy.stats.counted) == (0, 0, 1)
        assert answer.header(STREAM) is None


async def test_shadow_counts_the_clients_own_bytes() -> None:
    upstream = Upstream(answer=counting())
    async with wired(budget_tokens=BUDGET, is_shadow=True, upstream=upstream) as wire:
        await wire.send(count_body(12), path=COUNT)
        assert wire.upstream.bodies == [count_body(12)]


@pytest.mark.parametrize("status", [404, 405, 501, 500, 529])
async def test_a_count_that_the_upstream_does_not_give_is_estimated(status: int) -> None:
    async with wired(budget_tokens=BUDGET, upstream=Upstream(answer=counting(status))) as wire:
        answer = await wire.send(count_body(12), path=COUNT)
        tokens = json.loads(answer.body)["input_tokens"]
        assert answer.status == 200
        assert tokens == pytest.approx(len(wire.upstream.bodies[0]) * 0.3, rel=0.1)
        assert answer.header(NOTE) == f"tokens estimated (upstream: {status})"


async def test_a_count_without_an_upstream_is_estimated() -> None:
    async with wired(anthropic_upstream="http://127.0.0.1:9") as wire:
        answer = await wire.send(count_body(2), path=COUNT)
        assert answer.status == 200
        assert json.loads(answer.body)["input_tokens"] > 2_000
        assert answer.header(NOTE) == "tokens estimated (upstream: no answer)"


@pytest.mark.parametrize("status", [400, 401, 429])
async def test_other_errors_of_a_count_are_the_clients(status: int) -> None:
    async with wired(upstream=Upstream(answer=counting(status))) as wire:
        assert (await wire.send(count_body(2), path=COUNT)).status == status


async def test_a_count_that_we_cannot_read_goes_out_as_it_came() -> None:
    async with wired(upstream=Upstream(answer=counting(404))) as wire:
        answer = await wire.send(b"hello", path=COUNT)
        assert (answer.status, wire.upstream.bodies) == (404, [b"hello"])


# Side calls


def lone(text: str = "foo", **fields: Any) -> bytes:
    return request_body(0, messages=[{"role": "user", "content": text}], **fields)


TITLE = {"format": {"type": "json_schema", "schema": {"properties": {"title": {}}}}}
SIDE_CALLS = {
    "title": request_body(0, tools=[], output_config=TITLE),
    "title over a session": request_body(
        0,
        tools=[],
        output_config=TITLE,
        messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    ),
    "quota probe": lone("quota", max_tokens=1),
    "one question": lone(tools=[]),
    "a summary in prose": lone("Here is the conversation so far" * 9_000, tools=[]),
}


@pytest.mark.parametrize("body", SIDE_CALLS.values(), ids=SIDE_CALLS.keys())
async def test_side_calls_are_relayed_and_open_no_stream(body: bytes) -> None:
    store = InProcessStore()
    async with wired(budget_tokens=BUDGET, store=store, is_strict=True) as wire:
        answer = await wire.send(body)
        assert wire.upstream.bodies == [body]
        assert (answer.header(STREAM), answer.header(NOTE), len(store)) == (None, None, 0)
        assert wire.proxy.stats.side_calls == 1


@pytest.mark.parametrize(
    "body",
    [request_body(0), request_body(1), request_body(1, tools=[]), request_body(9, max_tokens=1)],
    ids=["first", "one turn", "without tools", "a history warmed up"],
)
async def test_requests_of_a_session_are_no_side_calls(body: bytes) -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        assert (await wire.send(body)).header(STREAM) is not None


# Summaries that the client asks for

CLAUDE_CODE = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
HEADS = [
    CLAUDE_CODE,
    "Your task is to create a detailed summary of the conversation so far",
    "You are the component that summarizes internal chat history",
]


def summary_body(turns: int, head: str = CLAUDE_CODE) -> bytes:
    fields = json.loads(request_body(turns))
    fields["messages"][-1]["content"].append({"type": "text", "text": head})
    return json.dumps(fields).encode()


@pytest.mark.parametrize("head", HEADS)
def test_known_summary_requests_are_recognised(head: str) -> None:
    assert purpose_of(AnthropicMessages().read(summary_body(3, head))) == "summary"
    own = [*json.loads(request_body(3))["messages"], {"role": "user", "content": f"\n{head}"}]
    assert purpose_of(AnthropicMessages().read(request_body(0, messages=own))) == "summary"


def test_a_summary_request_that_was_answered_is_history() -> None:
    own = json.loads(summary_body(3))["messages"]
    later = [*own, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]
    assert purpose_of(AnthropicMessages().read(request_body(0, messages=later))) == "turn"


@pytest.mark.parametrize("window", [None, 200_000])
async def test_a_summary_request_gets_the_full_history(window: int | None) -> None:
    store = InProcessStore()
    if window:
        await store.set_window("anthropic", "claude-opus-5-5", window)
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        await wire.send(request_body(20))
        known, cliffs = len(store), wire.proxy.stats.cliffs
        answer = await wire.send(summary_body(20))
        assert wire.upstream.bodies[1] == summary_body(20)
        assert answer.header(NOTE) == "summary request: full history"
        assert (len(store), wire.proxy.stats.cliffs) == (known, cliffs)
        assert wire.proxy.stats.summaries == 1


async def test_a_summary_request_over_the_window_gets_the_compacted_history() -> None:
    store = InProcessStore()
    await store.set_window("anthropic", "claude-opus-5-5", 20_000)
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        answer = await wire.send(summary_body(20))
        assert len(wire.upstream.bodies[0]) < len(summary_body(20)) / 2
        assert CLAUDE_CODE.encode() in wire.upstream.bodies[0]
        assert answer.header(NOTE) == "summary request: full history over the window"
        assert len(store) == 0


async def test_a_summary_request_that_is_refused_gets_what_its_session_gets() -> None:
    store = InProcessStore()
    script = in_turn(good, refusing(15_000))
    async with wired(budget_tokens=BUDGET, store=store, upstream=Upstream(answer=script)) as wire:
        await wire.send(request_body(20))
        known = len(store)
        answer = await wire.send(summary_body(20))
        assert (answer.status, wire.proxy.stats.replays, len(store)) == (200, 1, known)
        session, full, cured = (json.loads(body)["messages"] for body in wire.upstream.bodies)
        assert cured[:-1] == session[:-1]
        assert len(full) > len(cured)


async def test_a_summary_request_below_the_budget_is_the_clients_bytes() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        answer = await wire.send(summary_body(2))
        assert wire.upstream.bodies == [summary_body(2)]
        assert answer.header(NOTE) is None


async def test_the_log_names_the_purpose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="clifftop")
    async with wired(budget_tokens=BUDGET) as wire:
        for body in (request_body(2), summary_body(2), lone(tools=[])):
            await wire.send(body)
        await wire.send(count_body(2), path=COUNT)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("purpose=")[1].split()[0] for line in lines] == [
        "turn",
        "summary",
        "side",
        "none",
    ]
    assert "route=count" in lines[-1]
    assert "input_tokens=7 output_tokens=5" in lines[0]
