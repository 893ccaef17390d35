"""No credential and no text of a conversation in logs, in errors of ours, or in the store."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

from clifftop.memory.base import InProcessStore
from clifftop.proxy.settings import Limits
from tests.proxy.scripted import (
    CONTENT,
    PLAIN,
    START,
    TOO_LONG,
    Answer,
    Exchanged,
    Script,
    Upstream,
    events,
    good,
    in_turn,
    raw_exchange,
    request_body,
    wired,
    wired_raw,
)
from tests.proxy.test_hold import ending

KEY, BEARER, COOKIE, QUERY = "sk-ant-KEYKEY", "BEARERBEARER", "COOKIECOOKIE", "QUERYQUERY"
TEXT, MODEL, PATH = "TEXTTEXT", "MODELMODEL", "PATHPATH"
SECRETS = (KEY, BEARER, COOKIE, QUERY, TEXT, MODEL, PATH, "failing test", "module_1", "careful")
HEADERS = [
    ("x-api-key", KEY),
    ("authorization", f"Bearer {BEARER}"),
    ("cookie", f"session={COOKIE}"),
]
FIELDS: dict[str, Any] = {"words": TEXT, "model": MODEL, "stream": True}
BODY = request_body(12, **FIELDS)


class WatchedStore(InProcessStore):
    """Keeps what was put."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    async def put(self, tenant: str, link: bytes, remembered: Any, **more: Any) -> Any:
        self.seen.append((tenant, link, remembered, more))
        return await super().put(tenant, link, remembered, **more)


class BrokenStore(InProcessStore):
    async def longest(self, tenant: str, links: Sequence[bytes]) -> Any:
        raise OSError(f"the disk with {TEXT} of {KEY} is full")


def answering(status: int, text: str) -> Script:
    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        return web.json_response({"error": {"message": text}}, status=status)

    return answer


def assert_clean(where: str, text: str) -> None:
    for secret in SECRETS:
        assert secret not in text, f"{secret} in {where}"


def assert_ours_is_clean(answer: Answer) -> None:
    assert_clean("headers", str(answer.headers))
    assert_clean("an error of ours", answer.body.decode())


SCRIPTS = {
    "good": good,
    "cured": in_turn(events(START, TOO_LONG), good),
    "refused with an echo": answering(400, f"prompt is too long: {TEXT} {KEY}"),
    "another error with an echo": answering(401, f"bad key {KEY} for {TEXT}"),
    "broken": events(START),
    "window": ending(
        {"input_tokens": 9_000, "output_tokens": 9}, "model_context_window_exceeded", is_stream=True
    ),
    "odd stop reason": ending({"input_tokens": 9_000}, TEXT, is_stream=False),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_no_secret_in_the_log_and_the_store(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = WatchedStore()
    async with wired(store=store, budget_tokens=8_000, upstream=Upstream(answer=script)) as wire:
        for path in (f"/v1/messages?key={QUERY}", "/v1/messages/count_tokens", f"/v1/{PATH}"):
            answer = await wire.send(BODY, path=path, headers=HEADERS)
            assert_clean("headers", str(answer.headers))
        assert wire.upstream.received[0].all("authorization") == [f"Bearer {BEARER}"]
        assert_clean("repr", repr(wire.proxy))
    assert store.seen
    assert_clean("the log", caplog.text)
    # The model's name is what a window and a rate are kept under: no text of a conversation.
    assert_clean("placements", repr(store.seen))
    kept = pickle.dumps([list(lru._values.items()) for lru in (store._rates, store._windows)])
    assert_clean("the store", kept.decode("latin-1").replace(MODEL, ""))


BROKEN = {
    "what we cannot read": (TEXT.encode(), {}),
    "an unknown role": (b'{"messages":[{"role":"%s","content":"x"}]}' % TEXT.encode(), {}),
    "a broken store": (BODY, {"store": BrokenStore()}),
    "strict": (
        request_body(0, messages=[{"role": "user", "content": TEXT * 9_000}], model=MODEL),
        {"is_strict": True},
    ),
    "no upstream": (BODY, {"anthropic_upstream": "http://127.0.0.1:9"}),
    "too large": (BODY, {"limits": Limits(body_bytes=100)}),
    "a base path that is left": (BODY, {"prefix": "/base"}),
}


@pytest.mark.parametrize(("body", "changes"), BROKEN.values(), ids=BROKEN.keys())
async def test_no_secret_on_the_paths_of_failure(
    body: bytes, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with wired(**({"budget_tokens": 8_000} | changes)) as wire:
        answer = await wire.send(body, headers=HEADERS, path=f"/v1/messages?key={QUERY}")
        assert_ours_is_clean(answer)
        answer = await wire.send(body, headers=HEADERS, path=f"/%2e%2e/{PATH}?key={QUERY}")
        assert_ours_is_clean(answer)
        assert (await wire.send(body, headers=HEADERS, path=f"/_clifftop/{PATH}")).status == 404
    assert_clean("the log", caplog.text)


@pytest.mark.parametrize("said", [b"", PLAIN[:40], b"HTTP/1.1 TEXTTEXT\r\nKEYKEY\r\n\r\n"])
async def test_no_secret_where_the_upstream_breaks_off(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def script(came: Exchanged, writer: asyncio.StreamWriter) -> bool:
        writer.write(said)
        return False

    async with wired_raw(script) as (wire, _):
        assert_ours_is_clean(await wire.send(BODY, headers=HEADERS))
    assert_clean("the log", caplog.text)


async def test_no_secret_where_the_client_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    head = f"POST /v1/messages?key={QUERY} HTTP/1.1\r\nHost: h\r\nx-api-key: {KEY}\r\n"
    async with wired(upstream=Upstream(answer=events(CONTENT))) as wire:
        for rest in ("Transfer-Encoding: chunked\r\n\r\n5\r\nTEXTTEXT\r\n", f"{TEXT}\r\n\r\n"):
            # Where no request can be parsed, aiohttp's own 400 quotes the line to its sender.
            assert b" 400 " in await raw_exchange(wire.proxy.port, (head + rest).encode())
    assert "server error=BadHttpMessage" in caplog.text
    assert_clean("the log", caplog.text)


async def test_no_secret_where_a_stop_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    is_begun = asyncio.Event()

    async def endless(request: web.Request, body: bytes) -> web.StreamResponse:
        is_begun.set()
        await asyncio.Event().wait()
        return web.Response()

    async with wired(upstream=Upstream(answer=endless), limits=Limits(stop_s=0.01)) as wire:
        sending = asyncio.create_task(wire.send(BODY, headers=HEADERS))
        await is_begun.wait()
        await wire.proxy.stop()
        await asyncio.wait([sending])
        assert sending.exception() is not None
    assert_clean("the log", caplog.text)


def test_secrets_are_in_what_is_sent() -> None:
    for secret in (TEXT, MODEL, "failing test", "module_1", "careful"):
        assert secret.encode() in BODY
