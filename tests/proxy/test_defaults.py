"""Each default of aiohttp that we change on purpose has a check that fails with it restored."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout, CookieJar, TCPConnector, web
from yarl import URL

from clifftop.proxy import upstream as upstream_module
from clifftop.proxy.app import start_proxy
from clifftop.proxy.settings import Limits, ProxySettings
from tests.proxy.scripted import Wire, raw_exchange, request_body, wired

AppRunner = web.AppRunner
Check = Callable[[Wire], Awaitable[None]]


async def coded_body_arrives_as_it_was(wire: Wire) -> None:
    coded = gzip.compress(b"body")
    await wire.send(coded, path="/v1/x", headers=[("content-encoding", "gzip")])
    assert wire.upstream.bodies == [coded]


async def coded_answer_arrives_as_it_was(wire: Wire) -> None:
    async def gzipped(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"x"), headers={"Content-Encoding": "gzip"})

    wire.upstream.answer = gzipped
    assert (await wire.send(method="GET", path="/v1/x")).body == gzip.compress(b"x")


async def client_gone_ends_the_call(wire: Wire) -> None:
    is_begun, has_ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.Request, body: bytes) -> web.StreamResponse:
        is_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()
        return web.Response()

    wire.upstream.answer = endless
    sending = asyncio.create_task(wire.send(request_body(1)))
    await is_begun.wait()
    sending.cancel()
    await has_ended.wait()


async def long_target_passes(wire: Wire) -> None:
    await wire.send(method="GET", path="/v1/x?" + "q" * 20_000)
    assert len(wire.upstream.received) == 1


async def long_header_passes(wire: Wire) -> None:
    assert (await wire.send(b"x", headers=[("anthropic-beta", "b" * 60_000)])).status == 200


async def many_headers_pass(wire: Wire) -> None:
    headers = [(f"x-{number}", "1") for number in range(200)]
    assert (await wire.send(b"x", path="/v1/x", headers=headers)).status == 200


def answering(**more: Any) -> Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.Response(**more)

    return answer


async def long_header_comes_back(wire: Wire) -> None:
    wire.upstream.answer = answering(headers={"x-long": "b" * 60_000})
    # Not through the client of the tests: it has limits of its own.
    raw = await get(wire)
    assert b"x-long: " + b"b" * 60_000 in raw


async def many_headers_come_back(wire: Wire) -> None:
    wire.upstream.answer = answering(headers={f"x-{number}": "1" for number in range(200)})
    assert b"x-199: 1" in await get(wire)


async def long_reason_comes_back(wire: Wire) -> None:
    wire.upstream.answer = answering(status=299, reason="r" * 20_000)
    assert b"r" * 20_000 in await get(wire)


async def get(wire: Wire) -> bytes:
    return await raw_exchange(
        wire.proxy.port, b"GET /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    )


async def calls_do_not_queue(wire: Wire) -> None:
    all_here = asyncio.Barrier(101)

    async def together(request: web.Request, body: bytes) -> web.StreamResponse:
        await all_here.wait()
        return web.Response()

    wire.upstream.answer = together
    async with ClientSession(connector=TCPConnector(limit=0)) as client:
        answers = await asyncio.gather(*(client.get(wire.proxy.url + "/x") for _ in range(101)))
    assert {answer.status for answer in answers} == {200}


async def cookies_do_not_stay(wire: Wire) -> None:
    wire.upstream.answer = answering(headers={"Set-Cookie": "session=1; Path=/"})
    # aiohttp's jar keeps no cookies of an address, only of a name.
    base = wire.upstream.url.replace("127.0.0.1", "localhost")
    settings = ProxySettings(port=0, anthropic_upstream=base, follows_proxy_environment=False)
    proxy = await start_proxy(settings)
    for _ in range(2):
        async with wire.client.get(proxy.url + "/api/x"):
            pass
    await proxy.stop()
    assert [received.all("cookie") for received in wire.upstream.received] == [[], []]


async def no_header_is_added(wire: Wire) -> None:
    await wire.send(b"x", path="/v1/x", headers=[("x-api-key", "k")])
    names = {name.lower() for name, _ in wire.upstream.received[0].headers}
    # The client of the tests names the content type itself.
    assert names == {"host", "x-api-key", "content-length", "content-type"}


async def no_type_is_invented(wire: Wire) -> None:
    sent = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
    await raw_exchange(wire.proxy.port, sent)
    assert wire.upstream.received[0].all("content-type") == []


async def netrc_is_not_read(wire: Wire) -> None:
    await wire.send(b"x", path="/v1/x")
    assert wire.upstream.received[0].all("authorization") == []


async def redirects_are_the_clients(wire: Wire) -> None:
    wire.upstream.answer = answering(status=307, headers={"Location": "/elsewhere"})
    assert (await wire.send(method="GET", path="/v1/x")).status == 307
    assert len(wire.upstream.received) == 1


async def spelling_of_targets_stays(wire: Wire) -> None:
    await wire.send(method="GET", path="/v1/%41%2Fx?q=%2b&r=%41")
    assert wire.upstream.received[0].target == "/v1/%41%2Fx?q=%2b&r=%41"


@dataclass(frozen=True, kw_only=True)
class Changed:
    """`given`: what aiohttp would take if we gave nothing."""

    side: str
    name: str
    given: Any
    check: Check


CHANGED = [
    Changed(side="server", name="auto_decompress", given=True, check=coded_body_arrives_as_it_was),
    Changed(
        side="server", name="handler_cancellation", given=False, check=client_gone_ends_the_call
    ),
    Changed(side="server", name="max_line_size", given=8_190, check=long_target_passes),
    Changed(side="server", name="max_field_size", given=8_190, check=long_header_passes),
    Changed(side="server", name="max_headers", given=128, check=many_headers_pass),
    Changed(
        side="client", name="auto_decompress", given=True, check=coded_answer_arrives_as_it_was
    ),
    Changed(side="client", name="max_line_size", given=8_190, check=long_reason_comes_back),
    Changed(side="client", name="max_field_size", given=8_190, check=long_header_comes_back),
    Changed(side="client", name="max_headers", given=128, check=many_headers_come_back),
    Changed(side="client", name="connector", given=TCPConnector, check=calls_do_not_queue),
    Changed(side="client", name="cookie_jar", given=CookieJar, check=cookies_do_not_stay),
    Changed(side="client", name="skip_auto_headers", given=(), check=no_header_is_added),
    Changed(
        side="client",
        name="skip_auto_headers",
        given=("User-Agent", "Accept", "Accept-Encoding"),
        check=no_type_is_invented,
    ),
    Changed(side="client", name="trust_env", given=True, check=netrc_is_not_read),
    Changed(side="request", name="allow_redirects", given=True, check=redirects_are_the_clients),
    Changed(side="url", name="encoded", given=False, check=spelling_of_targets_stays),
]
IDS = [f"{changed.side} {changed.name} {changed.check.__name__}" for changed in CHANGED]


def restore(monkeypatch: pytest.MonkeyPatch, changed: Changed) -> None:
    def value() -> Any:
        return changed.given() if isinstance(changed.given, type) else changed.given

    class Session(ClientSession):
        async def request(self, *given: Any, **more: Any) -> Any:  # type: ignore[override]
            if changed.side == "request":
                more[changed.name] = value()
            return await super().request(*given, **more)

    def session(**more: Any) -> ClientSession:
        return Session(**(more | ({changed.name: value()} if changed.side == "client" else {})))

    def runner(app: web.Application, **more: Any) -> web.AppRunner:
        is_ours = "keepalive_timeout" in more  # the scripted upstream's stays as it is
        return AppRunner(app, **(more | ({changed.name: value()} if is_ours else {})))

    if changed.side == "server":
        monkeypatch.setattr(web, "AppRunner", runner)
    elif changed.side == "url":
        monkeypatch.setattr(upstream_module, "URL", lambda text, **_: URL(text))
    else:
        monkeypatch.setattr(upstream_module, "ClientSession", session)


@pytest.fixture(autouse=True)
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "netrc"
    path.write_text("default login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(path))
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.mark.parametrize("changed", CHANGED, ids=IDS)
async def test_what_we_set_is_needed(changed: Changed) -> None:
    async with wired() as wire, asyncio.timeout(30):
        await changed.check(wire)


@pytest.mark.filterwarnings("ignore")  # what is restored may leave things open
@pytest.mark.parametrize("changed", CHANGED, ids=IDS)
async def test_with_the_default_restored_the_check_fails(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore(monkeypatch, changed)
    async with wired(limits=Limits(stop_s=0.1)) as wire:
        has_passed = False
        with suppress(Exception):
            async with asyncio.timeout(1):
                await changed.check(wire)
                has_passed = True
        assert not has_passed


async def test_nothing_limits_a_call_but_connecting() -> None:
    async with upstream_module.make_session(ProxySettings().limits) as session:
        assert session.timeout == ClientTimeout(total=None, sock_connect=10, sock_read=None)


async def test_what_cannot_be_seen_in_a_test_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def runner(app: web.Application, **more: Any) -> web.AppRunner:
        given.update(more)
        return AppRunner(app, **more)

    monkeypatch.setattr(web, "AppRunner", runner)
    proxy = await start_proxy(ProxySettings(port=0))
    await proxy.stop()
    # An agent thinks for longer than aiohttp keeps an idle connection; the answer of an early
    # refusal must reach a client that still sends.
    assert (given["keepalive_timeout"], given["lingering_time"]) == (3_600, 10)
    assert given["read_bufsize"] == 256 * 1024


async def test_no_access_log_is_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with wired() as wire:
        await wire.send(method="GET", path="/v1/x?key=hunter2")
    assert not [record for record in caplog.records if record.name == "aiohttp.access"]
    assert "hunter2" not in caplog.text
