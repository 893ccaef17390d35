"""What the client sends and sees, and what the upstream got: transcripts through the real proxy."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clifftop import __version__
from clifftop.core.block import Placement
from clifftop.core.profile import PAPER
from clifftop.memory.base import InProcessStore, Remembered
from clifftop.proxy.app import start_proxy
from clifftop.proxy.settings import ProxySettings
from tests.proxy.scripted import GOOD, Script, Upstream, a_client, raw_exchange, request_body, wired

BUDGET = 8_000
NOTE, STREAM, CLIFFS = "x-clifftop-note", "x-clifftop-stream", "x-clifftop-cliffs"


def messages(body: bytes) -> list[Any]:
    return json.loads(body)["messages"]


def without_messages(body: bytes) -> bytes:
    start = body.index(b'"messages": [') + 13
    return body[:start] + b"..." + body[body.rindex(b"]") :]


# Below the budget, at a cliff, between cliffs


async def test_below_the_budget_the_upstream_gets_the_clients_bytes() -> None:
    body = b' {"max_tokens" : 1e3,\n"messages":[ {"role":"user","content":"h\\u00e9"} ],"x":1.0}\n'
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
        return web.Response(body=event, content_type="text/event-stream")

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


@pytest.mark.parametrize("status", [400, 413])
async def test_a_refused_prompt_is_cut_and_the_client_sees_only_the_good_answer(status: int) -> None:
    upstream = Upstream(answer=refusing(9_000, status=status))
    async with wired(budget_tokens=200_000, upstream=upstream) as wire:
        answer = await wire.send(request_body(20))
        assert (answer.status, json.loads(answer.body)) == (200, GOOD)
        assert wire.upstream.bodies[0] == request_body(20)
        assert answer.header(CLIFFS) == "1"
        assert wire.proxy.stats.replays == len(wire.upstream.bodies) - 1 == 1
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


async def test_after_three_replays_the_client_gets_the_upstreams_own_error() -> None:
    refusal = json.dumps({"error": {"message": "Prompt is too long", "type": "x"}}).encode()

    async def never(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(status=400, body=refusal, content_type="application/json")

    async with wired(budget_tokens=200_000, upstream=Upstream(answer=never)) as wire:
        answer = await wire.send(request_body(40))
        assert (answer.status, answer.body) == (400, refusal)
        sizes = [len(body) for body in wire.upstream.bodies]
        assert sizes == sorted(sizes, reverse=True)
        assert len(set(sizes)) == len(sizes) <= 4
        assert wire.proxy.stats.replays == len(sizes) - 1 >= 2


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


# Fail open

DEEP = b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ODD_BODIES = {
    "no JSON": b"hello",
    "half a body": request_body(12)[:30_000],
    "a list": b"[]",
    "a number": b"1",
    "unknown role": b'{"messages":[{"role":"tool","content":"x"}]}',
    "content is a number": b'{"messages":[{"role":"user","content":7}]}',
    "messages twice": b'{"messages":[],"messages":[{"role":"user","content":"x"}]}',
    "messages are an object": b'{"messages":{}}',
    "no messages": b"{}",
    "nested 100,000 deep": DEEP,
    "deep inside an item": b'{"messages":[{"role":"user","content":[' + DEEP + b"]}]}",
    "no UTF-8": b'{"messages":[{"role":"user","content":"\xff"}]}',
    "nul bytes": b"\0" * 1_000,
}


@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES.keys())
async def test_what_we_cannot_read_goes_out_as_it_came_once_with_a_note(body: bytes) -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        answer = await wire.send(body)
        assert wire.upstream.bodies == [body]
        assert answer.header(NOTE) == "passed-through (RequestError)"
        assert wire.proxy.stats.passed_through == 1


async def test_half_a_surrogate_pair_is_no_reason_to_pass_through() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        small = request_body(2).replace(b"failing", b"\\ud83d failing")
        large = request_body(12).replace(b"failing", b"\\ud83d failing")
        await wire.send(small)
        answer = await wire.send(large)
        assert wire.upstream.bodies[0] == small
        assert len(wire.upstream.bodies[1]) < len(large) / 2
        assert b"\\ud83d failing" in wire.upstream.bodies[1]
        assert answer.header(NOTE) is None


class BrokenStore(InProcessStore):
    async def longest(self, tenant: str, links: Sequence[bytes]) -> Any:
        raise OSError("disk of hunter2 is full")


class ForgetfulStore(InProcessStore):
    async def set_rate(self, upstream: str, model: str, rate: float) -> None:
        raise RecursionError


async def test_a_broken_store_does_not_stop_the_client() -> None:
    async with wired(budget_tokens=BUDGET, store=BrokenStore()) as wire:
        answer = await wire.send(request_body(12))
        assert wire.upstream.bodies == [request_body(12)]
        assert (answer.status, answer.header(NOTE)) == (200, "passed-through (OSError)")


async def test_failing_to_learn_does_not_stop_the_answer() -> None:
    async with wired(budget_tokens=BUDGET, store=ForgetfulStore()) as wire:
        usage = {"input_tokens": 20_000}

        async def counts(request: web.Request, body: bytes) -> web.StreamResponse:
            return web.json_response(GOOD | {"usage": usage})

        wire.upstream.answer = counts
        answer = await wire.send(request_body(6))
        assert json.loads(answer.body)["usage"] == usage
        assert (wire.proxy.stats.failures, wire.proxy.stats.passed_through) == (1, 0)


async def test_coded_bodies_are_relayed_untouched_with_a_note() -> None:
    body = gzip.compress(request_body(12))
    async with wired(budget_tokens=BUDGET) as wire:
        headers = [("content-encoding", "gzip"), ("accept-encoding", "br")]
        answer = await wire.send(body, headers=headers)
        received = wire.upstream.received[0]
        assert (received.body, received.all("content-encoding")) == (body, ["gzip"])
        assert received.all("accept-encoding") == ["br"]
        assert answer.header(NOTE) == "not compacted (content-encoding)"


async def test_stateful_requests_are_relayed_untouched_with_a_note() -> None:
    body = request_body(12, thread={"type": "continue"})
    async with wired(budget_tokens=BUDGET) as wire:
        answer = await wire.send(body)
        assert wire.upstream.bodies == [body]
        assert answer.header(NOTE) == "not compacted (stateful: thread)"


@pytest.mark.parametrize(
    "path",
    ["/v1/messages/count_tokens", "/v1/chat/completions", "/v1/threads/t/messages", "/v1//messages"],
)
async def test_other_paths_are_not_compacted(path: str) -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        await wire.send(request_body(12), path=path)
        assert wire.upstream.bodies == [request_body(12)]
        assert wire.upstream.received[0].target == path


# The network


@pytest.mark.parametrize(
    ("target", "arrives_as"),
    [
        (b"//evil.example/x", "//evil.example/x"),
        (b"/%2e%2e/x?y=%2F", "/%2e%2e/x?y=%2F"),
        (b"http://evil.example/v1/x", "/v1/x"),
        (b"/a\\b@evil.example", "/a\\b@evil.example"),
        (b"*", "/"),
    ],
)
async def test_no_target_leaves_the_upstream(target: bytes, arrives_as: str) -> None:
    async with wired() as wire:
        sent = b"OPTIONS " + target + b" HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        raw = await raw_exchange(wire.proxy.port, sent)
        assert raw.startswith(b"HTTP/1.1 200 OK")
        assert [received.target for received in wire.upstream.received] == [arrives_as]
        assert wire.upstream.received[0].all("host") == [wire.upstream.url.removeprefix("http://")]


async def test_a_base_path_is_kept_and_not_left() -> None:
    async with wired(prefix="/api/team", budget_tokens=BUDGET) as wire:
        await wire.send(request_body(12), path="/v1/messages?beta=true")
        assert wire.upstream.received[0].target == "/api/team/v1/messages?beta=true"
        assert (await wire.send(path="/%2e%2e/admin", method="GET")).status == 400
        assert len(wire.upstream.received) == 1


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/messages", lambda error: error["error"]["type"] == "api_error"),
        ("/v1/chat/completions", lambda error: error["error"]["code"] is None),
        ("/v1beta/models/g:generateContent", lambda e: e["error"]["status"] == "UNAVAILABLE"),
    ],
)
async def test_a_dead_upstream_is_a_502_in_the_clients_own_shape(path: str, kind: Any) -> None:
    dead = "http://127.0.0.1:9"
    bases = {f"{name}_upstream": dead for name in ("anthropic", "openai", "gemini")}
    async with wired(**bases) as wire:
        answer = await wire.send(request_body(1), path=path)
        error = json.loads(answer.body)
        assert (answer.status, kind(error)) == (502, True)
        assert "http://127.0.0.1:9 gave no answer" in error["error"]["message"]
        assert wire.proxy.stats.upstream_errors == 1


async def test_headers_of_both_sides_are_kept() -> None:
    async with wired(budget_tokens=BUDGET) as wire:
        given = [("X-Api-Key", "k"), ("x-tag", "1"), ("x-tag", "2"), ("accept-encoding", "br")]
        await wire.send(request_body(12), headers=given)
        received = wire.upstream.received[0]
        assert (received.all("x-api-key"), received.all("x-tag")) == (["k"], ["1", "2"])
        assert received.all("content-length") == [str(len(received.body))]
        assert received.all("accept-encoding") == ["identity"]
        assert received.all("user-agent") == []


async def test_credentials_of_netrc_are_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("NO_PROXY", "*")
    async with wired(follows_proxy_environment=True) as wire:
        assert (await wire.send(request_body(1))).status == 200
        assert wire.upstream.received[0].all("authorization") == []


async def test_the_outbound_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with wired() as outbound:
        monkeypatch.setenv("HTTP_PROXY", outbound.upstream.url)
        base = "http://api.example.invalid"
        async with wired(follows_proxy_environment=True, anthropic_upstream=base) as wire:
            assert (await wire.send(request_body(1))).status == 200
        assert outbound.upstream.received[0].target == base + "/v1/messages"


async def test_an_upgrade_is_answered_426_at_once() -> None:
    async with wired() as wire:
        headers = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        answer = await wire.send(method="GET", path="/v1/responses", headers=headers)
        assert answer.status == 426
        assert wire.upstream.received == []


async def test_a_body_that_breaks_off_is_not_sent() -> None:
    async with wired() as wire:
        sent = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
        raw = await raw_exchange(wire.proxy.port, sent + b"\r\nzz\r\n")
        assert b" 400 " in raw.partition(b"\r\n")[0]
        assert wire.upstream.received == []


async def test_our_own_paths_are_never_relayed() -> None:
    async with wired() as wire:
        health = await wire.send(method="GET", path="/_clifftop/health")
        assert json.loads(health.body) == {"status": "ok", "version": __version__}
        assert (await wire.send(method="GET", path="/_clifftop/other")).status == 404
        assert wire.upstream.received == []


async def test_long_headers_pass() -> None:
    async with wired() as wire:
        headers = [("anthropic-beta", "b" * 60_000)]
        assert (await wire.send(request_body(1), headers=headers)).status == 200
        assert wire.upstream.received[0].all("anthropic-beta") == ["b" * 60_000]


async def test_a_proxy_frees_its_port_when_it_stops_and_says_when_one_is_taken() -> None:
    first = await start_proxy(ProxySettings(port=0))
    with pytest.raises(OSError, match="address already in use"):
        await start_proxy(ProxySettings(port=first.port))
    assert first.url == f"http://127.0.0.1:{first.port}"
    await first.stop()
    again = await start_proxy(ProxySettings(port=first.port))
    async with a_client() as client, client.get(again.url + "/_clifftop/health") as answer:
        assert answer.status == 200
    await again.stop()


async def test_one_line_is_logged_per_request_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="clifftop")
    async with wired(budget_tokens=BUDGET, store=BrokenStore()) as wire:
        await wire.send(request_body(12), path="/v1/messages?key=hunter2")
        await wire.send(b"hunter2", path="/hunter2/path?key=hunter2")
    async with wired(budget_tokens=BUDGET) as wire:
        await wire.send(request_body(12))
        await wire.send(b'{"messages":[{"role":"hunter2","content":"Fix"}]}')
    lines = [record.getMessage() for record in caplog.records if record.name == "clifftop.proxy"]
    assert sum(line.startswith("request ") for line in lines) == 4
    text = "\n".join(lines)
    for secret in ("hunter2", "secret-key", "Fix", "module_", "careful"):
        assert secret not in text
    assert "cliffs=3 placed=3 rung=0" in text or "placed=" in text
