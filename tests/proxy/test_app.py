"""Fail open, the network and our own paths: transcripts through the real proxy."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ServerDisconnectedError, web

from clifftop import __version__
from clifftop.memory.base import InProcessStore, Remembered
from clifftop.proxy.app import start_proxy
from clifftop.proxy.settings import Limits, ProxySettings
from tests.promises import items_of
from tests.proxy.scripted import GOOD, Upstream, a_client, raw_exchange, request_body, wired

BUDGET = 8_000
NOTE, STREAM, CLIFFS = "x-clifftop-note", "x-clifftop-stream", "x-clifftop-cliffs"


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


class FailingStore(InProcessStore):
    """Works until it is told to fail."""

    is_failing = False

    async def longest(self, tenant: str, links: Sequence[bytes]) -> tuple[int, Remembered] | None:
        if self.is_failing:
            raise OSError
        return await super().longest(tenant, links)


async def test_a_stream_with_a_cliff_stays_on_it_when_something_fails() -> None:
    store = FailingStore()
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        await wire.send(request_body(12))
        store.is_failing = True
        answer = await wire.send(request_body(13))
        assert answer.header(NOTE) == "last good plan (OSError)"
        before, after = (items_of(body) for body in wire.upstream.bodies)
        assert after[: len(before)] == before
        assert (wire.proxy.stats.resumed, wire.proxy.stats.passed_through) == (1, 0)


@pytest.mark.parametrize("window_tokens", [None, 12_000])
async def test_bytes_over_a_known_window_are_never_a_silent_giant_bill(
    window_tokens: int | None,
) -> None:
    store = FailingStore()
    if window_tokens:
        await store.set_window("anthropic", "claude-opus-5-5", window_tokens)
    async with wired(budget_tokens=BUDGET, store=store) as wire:
        await wire.send(request_body(12))
        store.is_failing = True
        edited = request_body(12).replace(b"Step 1:", b"Step one:")  # the last plan does not fit
        answer = await wire.send(edited)
        if window_tokens is None:
            assert wire.upstream.bodies[1:] == [edited]
            assert answer.header(NOTE) == "passed-through (OSError)"
        else:
            assert wire.upstream.bodies[1:] == []
            assert (answer.status, json.loads(answer.body)["error"]["type"]) == (
                529,
                "overloaded_error",
            )


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
    [
        "/v1/messages/batches",
        "/v1/chat/completions",
        "/v1/threads/t/messages",
        "/v1//messages",
    ],
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
        sent = (
            b"OPTIONS " + target + b" HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
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


# Stopping


async def test_while_stopping_open_calls_end_and_ready_says_so() -> None:
    is_begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request, body: bytes) -> web.StreamResponse:
        is_begun.set()
        await go_on.wait()
        return web.json_response(GOOD)

    async with wired(upstream=Upstream(answer=slow)) as wire:
        ready = await wire.send(method="GET", path="/_clifftop/ready")
        assert (ready.status, json.loads(ready.body)) == (200, {"status": "ready"})
        sending = asyncio.create_task(wire.send(request_body(2)))
        await is_begun.wait()
        stopping = asyncio.create_task(wire.proxy.stop())
        await asyncio.sleep(0)
        ready = await wire.send(method="GET", path="/_clifftop/ready")
        assert (ready.status, json.loads(ready.body)) == (503, {"status": "stopping"})
        assert (await wire.send(method="GET", path="/_clifftop/health")).status == 200
        go_on.set()
        assert (await sending).status == 200
        await stopping


async def test_calls_that_do_not_end_are_broken_off_after_a_while() -> None:
    is_begun = asyncio.Event()

    async def endless(request: web.Request, body: bytes) -> web.StreamResponse:
        is_begun.set()
        await asyncio.Event().wait()
        return web.Response()

    async with wired(upstream=Upstream(answer=endless), limits=Limits(stop_s=0.01)) as wire:
        sending = asyncio.create_task(wire.send(request_body(2)))
        await is_begun.wait()
        await wire.proxy.stop()
        with pytest.raises(ServerDisconnectedError):
            await sending
