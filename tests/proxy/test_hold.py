"""Answers wait for their first content, so that an early failure can still be replaced."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from clifftop.memory.base import InProcessStore
from clifftop.proxy.settings import Limits
from tests.proxy.scripted import (
    CONTENT,
    GOOD,
    PING,
    START,
    STREAM,
    TOO_LONG,
    Answer,
    Script,
    Upstream,
    events,
    good,
    in_turn,
    request_body,
    wired,
)

BODY = request_body(20, stream=True)


async def test_pings_and_the_start_of_a_message_wait_for_the_first_content() -> None:
    is_begun, go_on = asyncio.Event(), asyncio.Event()

    async def begun() -> None:
        is_begun.set()
        await go_on.wait()

    script = events(START, PING, b": comment\n\n", begun(), PING, CONTENT, b"rest")
    async with wired(upstream=Upstream(answer=script)) as wire:
        sending = asyncio.create_task(wire.send(BODY))
        await is_begun.wait()
        await wire.send(method="GET", path="/_clifftop/health")
        assert not sending.done()
        go_on.set()
        answer = await sending
        assert answer.status == 200
        assert answer.body == START + PING + b": comment\n\n" + PING + CONTENT + b"rest"


@pytest.mark.parametrize("limits", [Limits(hold_s=0.01), Limits(hold_bytes=len(START))])
async def test_the_wait_has_a_limit_in_time_and_in_bytes(limits: Limits) -> None:
    go_on = asyncio.Event()
    script = events(START, go_on.wait(), CONTENT)
    async with (
        wired(upstream=Upstream(answer=script), limits=limits) as wire,
        wire.client.post(wire.proxy.url + "/v1/messages", data=BODY) as answered,
    ):
        assert await answered.content.readexactly(len(START)) == START
        go_on.set()
        assert await answered.content.read() == CONTENT


async def test_shadow_holds_nothing() -> None:
    go_on = asyncio.Event()
    script = events(START, go_on.wait(), CONTENT)
    async with (
        wired(upstream=Upstream(answer=script), is_shadow=True) as wire,
        wire.client.post(wire.proxy.url + "/v1/messages", data=BODY) as answered,
    ):
        assert await answered.content.readexactly(len(START)) == START
        go_on.set()


@pytest.mark.parametrize("before", [b"", START, START + PING, b": hello\n\n"])
async def test_an_early_overflow_in_a_stream_is_cured_unseen(before: bytes) -> None:
    script = in_turn(events(before, TOO_LONG), events(STREAM))
    async with wired(budget_tokens=200_000, upstream=Upstream(answer=script)) as wire:
        answer = await wire.send(BODY)
        assert (answer.status, answer.body) == (200, STREAM)
        assert len(wire.upstream.bodies[1]) < len(wire.upstream.bodies[0]) == len(BODY)
        assert wire.proxy.stats.replays == 1


async def test_the_connection_of_a_replaced_answer_is_not_waited_for() -> None:
    forever = asyncio.Event()
    script = in_turn(events(TOO_LONG, forever.wait()), good)
    async with wired(budget_tokens=200_000, upstream=Upstream(answer=script)) as wire:
        assert json.loads((await wire.send(BODY)).body) == GOOD
        forever.set()


async def test_after_three_replays_the_client_gets_the_streams_own_error() -> None:
    async with wired(budget_tokens=200_000) as wire:
        wire.upstream.answer = in_turn(*(events(START, TOO_LONG) for _ in range(9)))
        body = request_body(800, result_chars=20, words="look again at " * 20, stream=True)
        answer = await wire.send(body)
        assert (answer.status, answer.body) == (200, START + TOO_LONG)
        assert wire.proxy.stats.replays == 3


async def test_other_early_errors_are_relayed_as_they_are() -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    async with wired(upstream=Upstream(answer=events(START, error))) as wire:
        answer = await wire.send(BODY)
        assert (answer.status, answer.body) == (200, START + error)
        assert len(wire.upstream.received) == 1


async def test_an_overflow_after_content_is_the_clients() -> None:
    go_on = asyncio.Event()
    script = events(START, CONTENT, go_on.wait(), TOO_LONG)
    async with (
        wired(upstream=Upstream(answer=script)) as wire,
        wire.client.post(wire.proxy.url + "/v1/messages", data=BODY) as answered,
    ):
        assert await answered.content.readexactly(len(START + CONTENT)) == START + CONTENT
        go_on.set()
        assert await answered.content.read() == TOO_LONG
        assert wire.proxy.stats.replays == 0


async def test_a_plain_answer_that_holds_an_overflow_is_cured() -> None:
    async def refuses(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(body=TOO_LONG.split(b"data: ")[1], content_type="application/json")

    script = in_turn(refuses, good)
    async with wired(budget_tokens=200_000, upstream=Upstream(answer=script)) as wire:
        assert json.loads((await wire.send(request_body(20))).body) == GOOD
        assert wire.proxy.stats.replays == 1


@pytest.mark.parametrize("before", [b"", START, PING, START + CONTENT[:20]])
async def test_a_stream_that_ends_before_any_content_is_an_error_to_retry(before: bytes) -> None:
    async with wired(upstream=Upstream(answer=events(before))) as wire:
        answer = await wire.send(BODY)
        error = json.loads(answer.body)
        assert (answer.status, error["error"]["type"]) == (502, "api_error")
        assert "broke off before any content" in error["error"]["message"]
        assert wire.proxy.stats.broken == 1


# What an answer that stands teaches

MODEL = "claude-opus-5-5"


def ending(usage: dict[str, int], stop_reason: str, *, is_stream: bool) -> Script:
    async def plain(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.json_response(GOOD | {"usage": usage, "stop_reason": stop_reason})

    delta = {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}
    end = b"event: message_delta\ndata: " + json.dumps(delta).encode() + b"\n\n"
    return events(CONTENT, end) if is_stream else plain


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_output_that_ran_into_the_window_stands_and_the_next_prompt_is_cut(
    is_stream: bool,
) -> None:
    store = InProcessStore()
    usage = {"input_tokens": 1_000, "cache_read_input_tokens": 21_000, "output_tokens": 2_000}
    script = in_turn(
        ending(usage, "model_context_window_exceeded", is_stream=is_stream), good, good
    )
    async with wired(store=store, budget_tokens=200_000, upstream=Upstream(answer=script)) as wire:
        first = await wire.send(BODY)
        assert (first.status, b"model_context_window_exceeded" in first.body) == (200, True)
        await wire.send(request_body(21))
        assert await store.window("anthropic", MODEL) == 24_000
        sizes = [len(body) for body in wire.upstream.bodies]
        assert sizes[0] == len(BODY)
        assert sizes[1] < sizes[0] / 2
        await wire.send(request_body(22))
        assert wire.proxy.stats.cliffs == 1
        assert (wire.proxy.stats.replays, wire.proxy.stats.late_overflows) == (0, 1)


@pytest.mark.parametrize(
    ("prompt_tokens", "known", "learned"),
    [(900, None, None), (22_000, 20_000, 20_000), (22_000, 30_000, 24_000)],
    ids=["a gateway's count", "never wider", "narrower"],
)
async def test_only_a_sound_and_smaller_window_is_learned(
    prompt_tokens: int, known: int | None, learned: int | None
) -> None:
    store = InProcessStore()
    if known:
        await store.set_window("anthropic", MODEL, known)
    usage = {"input_tokens": prompt_tokens, "output_tokens": 2_000}
    script = ending(usage, "model_context_window_exceeded", is_stream=False)
    async with wired(store=store, budget_tokens=200_000, upstream=Upstream(answer=script)) as wire:
        await wire.send(BODY)
        assert await store.window("anthropic", MODEL) == learned


async def test_a_count_knows_that_a_cut_is_due() -> None:
    script = in_turn(ending({}, "model_context_window_exceeded", is_stream=True), good)
    async with wired(budget_tokens=200_000, upstream=Upstream(answer=script)) as wire:
        await wire.send(BODY)
        for path in ("/v1/messages/count_tokens", "/v1/messages", "/v1/messages/count_tokens"):
            await wire.send(request_body(21), path=path)
        _, before, sent, after = wire.upstream.bodies
        assert before == sent == after
        assert len(sent) < len(BODY) / 2


async def test_a_count_keeps_the_room_that_its_stream_asks_for() -> None:
    store = InProcessStore()
    await store.set_window("anthropic", MODEL, 30_000)
    fields = json.loads(request_body(20, max_tokens=20_000))
    del fields["max_tokens"]
    async with wired(store=store, budget_tokens=200_000) as wire:
        await wire.send(request_body(10, max_tokens=20_000))
        await wire.send(json.dumps(fields).encode(), path="/v1/messages/count_tokens")
        # It would fit the window, but not with a quarter of that for the answer.
        assert len(wire.upstream.bodies[1]) < len(json.dumps(fields)) / 2


async def test_an_answer_clamped_at_the_known_window_cuts_the_next_prompt() -> None:
    store = InProcessStore()
    await store.set_window("anthropic", MODEL, 40_000)
    usage = {"input_tokens": 39_700, "output_tokens": 300}
    script = in_turn(ending(usage, "max_tokens", is_stream=False), good)
    async with wired(store=store, budget_tokens=39_900, upstream=Upstream(answer=script)) as wire:
        await wire.send(request_body(20))
        await wire.send(request_body(21))
        assert len(wire.upstream.bodies[1]) < len(wire.upstream.bodies[0]) / 2


async def test_an_answer_cut_short_far_from_the_window_changes_nothing() -> None:
    store = InProcessStore()
    await store.set_window("anthropic", MODEL, 200_000)
    usage = {"input_tokens": 24_000, "output_tokens": 1_000}
    script = in_turn(ending(usage, "max_tokens", is_stream=False), good)
    async with wired(store=store, budget_tokens=100_000, upstream=Upstream(answer=script)) as wire:
        await wire.send(request_body(20))
        await wire.send(request_body(21))
        assert wire.upstream.bodies[1] == request_body(21)


async def sent_with_usage(store: InProcessStore, *reported: int) -> tuple[list[int], Answer]:
    """Send growing requests, each answered with another count of prompt tokens."""
    scripts = [
        ending({"input_tokens": tokens, "output_tokens": 9}, "end_turn", is_stream=False)
        for tokens in reported
    ]
    upstream = Upstream(answer=in_turn(*scripts))
    async with wired(store=store, budget_tokens=200_000, upstream=upstream) as wire:
        for turns in range(len(reported)):
            answer = await wire.send(request_body(30 + 10 * turns))
        return [len(body) for body in wire.upstream.bodies], answer


async def test_a_prompt_that_was_cut_in_silence_makes_the_next_one_smaller() -> None:
    store = InProcessStore()
    sizes, answer = await sent_with_usage(store, 4_098, 7_000)
    assert sizes[1] < sizes[0] / 2
    assert answer.header("x-clifftop-cliffs") == "1"
    assert await store.window("anthropic", MODEL) is None  # one figure proves nothing


async def test_a_prompt_that_was_cut_in_silence_does_not_move_the_rate() -> None:
    store = InProcessStore()
    await sent_with_usage(store, 4_098)
    assert await store.rate("anthropic", MODEL) is None


async def test_the_length_that_a_server_keeps_twice_is_taken_for_its_window() -> None:
    store = InProcessStore()
    sizes, _ = await sent_with_usage(store, 2_050, 2_040, 2_400)
    assert await store.window("anthropic", MODEL) == 2_040
    assert sizes[2] < sizes[0] / 5


async def test_a_gateway_that_counts_uncached_tokens_only_costs_one_cliff() -> None:
    store = InProcessStore()
    _, answer = await sent_with_usage(store, 900, 2_000, 900, 1_700, 400)
    assert await store.window("anthropic", MODEL) is None
    assert answer.header("x-clifftop-cliffs") == "1"
