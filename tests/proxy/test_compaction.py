"""Cliffs through the real proxy: what the upstream gets, what is remembered, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from clifftop.core.block import Placement
from clifftop.core.profile import PAPER
from clifftop.memory.base import InProcessStore, Remembered
from tests.proxy.scripted import CONTENT, GOOD, Script, Upstream, request_body, wired

BUDGET = 8_000
NOTE, STREAM, CLIFFS = "x-clifftop-note", "x-clifftop-stream", "x-clifftop-cliffs"


def messages(body: bytes) -> list[Any]:
    return json.loads(body)["messages"]


def without_messages(body: bytes) -> bytes:
    start = body.index(b'"messages": [') + 13
    return body[:start] + b"..." + body[body.rindex(b"]") :]


# Below the budget, at a cliff, between cliffs


async def test_below_the_budget_the_upstream_gets_the_clients_bytes() -> None:
    body = b' {"max_tokens" : 1e3,"tools":[{}],\n'
    body += b'"messages":[ {"role":"user","content":"h\\u00e9"} ],"x":1.0}\n'
    async with wired(budget_tokens=BUDGET) as wire:
        answer = await wire.send(body)
        assert wire.upstream.bodies == [body]
        assert (answer.status, json.loads(answer.body)) == (200, GOOD)
        assert (answer.header(CLIFFS), answer.header(NOTE)) == ("0", None)
        assert len(answer.header(STREAM) or "") == 12


async def test_a_cliff_changes_nothing_but_the_messages() -> None:
    body = request_body(12, metadata={"user_id": "u\u2028"})
    async with wired(budget_tokens=BUDGET) as wire:
        answer = await wire.send(body)
        sent = wire.upstream.bodies[0]
        assert len(sent) < len(body) / 2
        assert without_messages(sent) == without_messages(body)
        before, after = messages(body), messages(sent)
        assert after[0] == before[0]
        assert after[1]["content"][0]["text"].startswith("[clifftop]")
        assert after[2:] == before[-len(after[2:]) :]
        assert int(answer.header(CLIFFS) or 0) > 0
        assert wire.proxy.stats.compacted == 1


async def test_between_cliffs_each_prompt_extends_the_one_before() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        cliffs = 0
        for turns in range(1, 40):
            answer = await wire.send(request_body(turns))
            now = int(answer.header(CLIFFS) or 0)
            if turns > 1:
                earlier, latest = (messages(body) for body in wire.upstream.bodies[-2:])
                assert (latest[: len(earlier)] == earlier) == (now == cliffs)
            cliffs = now
        assert cliffs > 3
        assert max(map(len, wire.upstream.bodies)) < BUDGET * 4


async def test_a_repeated_request_gets_the_same_bytes_and_no_further_cliff() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        answers = [await wire.send(request_body(12)) for _ in range(3)]
        assert len(set(wire.upstream.bodies)) == 1
        assert len({answer.header(CLIFFS) for answer in answers}) == 1


async def test_losing_the_store_gives_the_same_bytes() -> None:
    bodies = [request_body(turns) for turns in range(1, 30)]
    async with wired(budget_tokens=BUDGET) as watched:
        for body in bodies:
            await watched.send(body)
    for number, body in enumerate(bodies):
        async with wired(budget_tokens=BUDGET) as restarted:
            await restarted.send(body)
            assert restarted.upstream.bodies == [watched.upstream.bodies[number]]


async def test_simultaneous_requests_get_one_prefix() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        await asyncio.gather(*(wire.send(request_body(12)) for _ in range(8)))
        assert len(set(wire.upstream.bodies)) == 1


class RacedStore(InProcessStore):
    """Another replica always places first, and one turn later than we would."""

    async def put(
        self, tenant: str, link: bytes, remembered: Remembered, **more: Any
    ) -> Remembered:
        first, cut, rung = remembered.placement
        theirs = Remembered(
            placement=Placement(first, cut + 2, rung),
            budget_tokens=remembered.budget_tokens,
            rules=remembered.rules,
        )
        await super().put(tenant, link, theirs)
        return await super().put(tenant, link, remembered)


async def test_the_first_writers_cliff_is_sent() -> None:
    async with wired(budget_tokens=BUDGET, store=InProcessStore()) as ours:
        await ours.send(request_body(8))
    store = RacedStore()
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        await wire.send(request_body(8))
        assert len(messages(wire.upstream.bodies[0])) == len(messages(ours.upstream.bodies[0])) - 2
        await wire.send(request_body(8))
        assert wire.upstream.bodies[0] == wire.upstream.bodies[1]


async def test_a_changed_budget_keeps_the_cliff_and_says_so_once() -> None:
    store = InProcessStore()
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        await wire.send(request_body(8))
        assert len(store) == 1
    async with wired(budget_tokens=2 * BUDGET, store=store) as later:
        answers = [await later.send(request_body(8)) for _ in range(2)]
        assert later.upstream.bodies[0] == wire.upstream.bodies[0]
        assert "the budget has changed" in (answers[0].header(NOTE) or "")
        assert answers[1].header(NOTE) is None
    async with wired(budget_tokens=BUDGET, profile=PAPER, store=store) as other:
        assert "profile has changed" in ((await other.send(request_body(8))).header(NOTE) or "")


async def test_a_stored_cliff_that_does_not_fit_is_ignored_and_said() -> None:
    class Damaged(InProcessStore):
        async def longest(self, tenant: str, links: Sequence[bytes]) -> Any:
            found = Remembered(placement=Placement(1, 4, 99), budget_tokens=BUDGET, rules=b"")
            return len(links) - 2, found

    async with wired(budget_tokens=BUDGET, store=Damaged()) as wire:
        answer = await wire.send(request_body(3))
        assert wire.upstream.bodies == [request_body(3)]
        assert "stored cliff ignored" in (answer.header(NOTE) or "")


async def test_sub_agents_and_other_heads_are_streams_of_their_own() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        one = await wire.send(request_body(3))
        other = await wire.send(request_body(3).replace(b"Fix the failing", b"Explain the"))
        assert one.header(STREAM) != other.header(STREAM)
        assert (await wire.send(request_body(9))).header(STREAM) == one.header(STREAM)


# The budget


async def test_an_automatic_budget_follows_the_fixed_part_and_stays() -> None:
    async with wired() as wire:
        title = request_body(0, tools=[], system="Name this session.")
        await wire.send(title)
        fixed = "You are careful. " * 5_000  # 85 KB: 25,500 tokens at the default rate
        await wire.send(request_body(20, system=fixed))
        assert len(wire.upstream.bodies[1]) > 45_000 / 0.3
        assert wire.proxy.stats.cliffs == 0
        await wire.send(request_body(50, system=fixed))
        assert wire.proxy.stats.cliffs == 1


async def test_usage_moves_the_rate_of_its_model_only() -> None:
    store = InProcessStore()
    body = request_body(6)

    async def counts(request: web.Request, sent: bytes) -> web.StreamResponse:
        usage = {"input_tokens": 100, "cache_read_input_tokens": len(sent) // 5}
        return web.json_response(GOOD | {"usage": usage})

    async with wired(budget_tokens=BUDGET, store=store, upstream=Upstream(answer=counts)) as wire:
        await wire.send(body)
        rate = await store.rate("anthropic", "claude-opus-5-5")
        assert rate == pytest.approx(0.2, rel=0.1)
        assert await store.rate("anthropic", "claude-haiku") is None


async def test_usage_of_a_stream_is_measured_against_what_was_sent() -> None:
    store = InProcessStore()

    async def counts(request: web.Request, sent: bytes) -> web.StreamResponse:
        start = {"type": "message_start", "message": {"usage": {"input_tokens": len(sent) // 5}}}
        event = b"event: message_start\ndata: " + json.dumps(start).encode() + b"\n\n"
        return web.Response(body=event + CONTENT, content_type="text/event-stream")

    async with wired(budget_tokens=BUDGET, store=store, upstream=Upstream(answer=counts)) as wire:
        await wire.send(request_body(12))
        assert wire.proxy.stats.compacted == 1
        assert await store.rate("anthropic", "claude-opus-5-5") == pytest.approx(0.2, rel=0.1)


LONG_TASK = [{"role": "user", "content": "Read this. " * 8_000}]


async def test_a_budget_that_nothing_meets_is_said_once_with_the_figures() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        tail = messages(request_body(3))[1:]
        notes = [
            (await wire.send(request_body(0, messages=LONG_TASK + tail[: 2 * n]))).header(NOTE)
            for n in (1, 2, 3)
        ]
        assert notes[1:] == [None, None]
        assert notes[0] is not None
        assert notes[0].startswith("over budget: prompt ")
        assert "smallest sensible budget 53000 tokens" in notes[0]
        assert wire.proxy.stats.over_budget == 3


async def test_strict_refuses_what_stays_over_the_budget() -> None:
    async with wired(budget_tokens=BUDGET, is_strict=True) as wire:
        answer = await wire.send(request_body(0, messages=LONG_TASK))
        error = json.loads(answer.body)
        assert (answer.status, error["type"]) == (400, "error")
        assert error["error"]["type"] == "invalid_request_error"
        assert "budget 8000" in error["error"]["message"]
        assert wire.upstream.received == []
        assert wire.proxy.stats.refused == 1
        assert (await wire.send(request_body(12))).status == 200


async def test_shadow_counts_and_sends_the_clients_bytes() -> None:
    async with wired(budget_tokens=BUDGET, is_shadow=True) as wire:
        for turns in (4, 8, 12):
            answer = await wire.send(request_body(turns))
        assert wire.upstream.bodies == [request_body(turns) for turns in (4, 8, 12)]
        assert (answer.header(NOTE), answer.header(CLIFFS)) == ("shadow", "2")
        assert (wire.proxy.stats.cliffs, wire.proxy.stats.compacted) == (2, 0)


# Overflow


def refusing(limit: int, *, status: int = 400) -> Script:
    """Refuse prompts over a number of tokens, as Anthropic does."""

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        tokens = len(body) * 28 // 100
        if tokens <= limit:
            return web.json_response(GOOD)
        text = f"prompt is too long: {tokens} tokens > {limit} maximum"
        error = {"type": "invalid_request_error", "message": text}
        return web.json_response({"type": "error", "error": error}, status=status)

    return answer


@pytest.mark.parametrize("status", [400, 403, 413, 422, 500])
async def test_a_refused_prompt_is_cut_and_the_client_sees_only_the_good_answer(
    status: int,
) -> None:
    upstream = Upstream(answer=refusing(9_000, status=status))
    async with wired(budget_tokens=200_000, upstream=upstream) as wire:
        answer = await wire.send(request_body(20))
        assert (answer.status, json.loads(answer.body)) == (200, GOOD)
        assert wire.upstream.bodies[0] == request_body(20)
        assert answer.header(CLIFFS) == "1"
        assert wire.proxy.stats.replays == len(wire.upstream.bodies) - 1 == 1
        assert wire.proxy.stats.cliffs == 1
        await wire.send(request_body(21))
        earlier, latest = (messages(body) for body in wire.upstream.bodies[1:3])
        assert latest[: len(earlier)] == earlier  # the replay's cliff was remembered


async def test_sizes_that_are_named_save_useless_replays() -> None:
    upstream = Upstream(answer=refusing(3_500))
    async with wired(budget_tokens=200_000, upstream=upstream) as wire:
        assert (await wire.send(request_body(20))).status == 200
        assert wire.proxy.stats.replays == 1  # keeping three turns was known not to do


async def test_a_cliff_that_was_refused_is_replaced_in_the_store() -> None:
    store = InProcessStore()
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        wire.upstream.answer = refusing(3_500)
        assert (await wire.send(request_body(7))).status == 200
        assert wire.proxy.stats.replays == 1
        assert (await wire.send(request_body(7))).status == 200
        assert wire.proxy.stats.replays == 1
        assert wire.upstream.bodies[1] == wire.upstream.bodies[2]
        assert len(store) == 1


class CuredStore(InProcessStore):
    """Another replica has met the same refusal and cut to the newest turn already."""

    async def put(
        self, tenant: str, link: bytes, remembered: Remembered, **more: Any
    ) -> Remembered:
        if more.get("instead_of") is not None:
            cured = replace(remembered, placement=Placement(1, 13, 2))
            await super().put(tenant, link, cured, instead_of=more["instead_of"])
        return await super().put(tenant, link, remembered, **more)


async def test_the_first_cure_of_a_refusal_is_sent() -> None:
    store = CuredStore()
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        wire.upstream.answer = refusing(3_500)
        for _ in range(2):
            assert (await wire.send(request_body(7))).status == 200
        assert len(messages(wire.upstream.bodies[1])) == 4  # head, block, one turn
        assert wire.upstream.bodies[1] == wire.upstream.bodies[2]
        assert "dropped (" not in messages(wire.upstream.bodies[1])[1]["content"][0]["text"]


async def test_after_three_replays_the_client_gets_the_upstreams_own_error() -> None:
    refusal = json.dumps({"error": {"message": "Prompt is too long", "type": "x"}}).encode()

    async def never(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(status=400, body=refusal, content_type="application/json")

    async with wired(budget_tokens=200_000, upstream=Upstream(answer=never)) as wire:
        # Much text of the model's own, so that each rung saves something.
        answer = await wire.send(request_body(800, result_chars=20, words="look again at " * 20))
        assert (answer.status, answer.body) == (400, refusal)
        sizes = [len(body) for body in wire.upstream.bodies]
        assert all(later < 0.9 * earlier for earlier, later in pairwise(sizes))
        assert (len(sizes), wire.proxy.stats.replays) == (4, 3)


async def test_a_window_that_was_named_bounds_later_prompts() -> None:
    store = InProcessStore()
    async with wired(budget_tokens=200_000, store=store) as wire:
        wire.upstream.answer = refusing(20_000)
        await wire.send(request_body(20))
        assert await store.window("anthropic", "claude-opus-5-5") == 20_000
        for turns in range(21, 60):
            assert (await wire.send(request_body(turns))).status == 200
        assert wire.proxy.stats.replays == 1


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 529])
async def test_other_errors_are_relayed_as_they_are(status: int) -> None:
    async def fails(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(status=status, body=b'{"error":"x"}', headers={"Retry-After": "7"})

    async with wired(budget_tokens=BUDGET, upstream=Upstream(answer=fails)) as wire:
        answer = await wire.send(request_body(12))
        assert (answer.status, answer.body) == (status, b'{"error":"x"}')
        assert answer.header("retry-after") == "7"
        assert len(wire.upstream.bodies) == 1


async def test_shadow_never_replays() -> None:
    upstream = Upstream(answer=refusing(9_000))
    async with wired(budget_tokens=BUDGET, is_shadow=True, upstream=upstream) as wire:
        assert (await wire.send(request_body(20))).status == 400
        assert wire.upstream.bodies == [request_body(20)]
