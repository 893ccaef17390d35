"""A request is repeated only where the upstream cannot have seen it."""

from __future__ import annotations

import asyncio
import json

import pytest

from clifftop.proxy.settings import Limits
from tests.proxy.scripted import PLAIN, Exchanged, request_body, wired_raw

BODY = request_body(3)


def dying(at: tuple[int, ...], last_words: bytes = b"") -> object:
    """Answer each request but those on the named connections that come second on it."""

    async def script(came: Exchanged, writer: asyncio.StreamWriter) -> bool:
        if came.number == 2 and came.connection in at:
            writer.write(last_words)
            return False
        writer.write(PLAIN)
        return True

    return script


async def test_a_kept_connection_that_died_costs_one_more_try() -> None:
    async with wired_raw(dying(at=(1,))) as (wire, seen):
        answers = [await wire.send(BODY) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 200]
        assert [(came.connection, came.number) for came in seen] == [(1, 1), (1, 2), (2, 1)]
        assert seen[2].body == BODY
        assert (wire.proxy.stats.retries, wire.proxy.stats.upstream_errors) == (1, 0)


async def test_a_fresh_connection_that_dies_is_not_tried_again() -> None:
    async def dies(came: Exchanged, writer: asyncio.StreamWriter) -> bool:
        return False

    async with wired_raw(dies) as (wire, seen):
        assert (await wire.send(BODY)).status == 502
        assert (len(seen), wire.proxy.stats.retries) == (1, 0)


async def test_a_half_answer_is_not_tried_again() -> None:
    async with wired_raw(dying(at=(1,), last_words=PLAIN[:40])) as (wire, seen):
        assert (await wire.send(BODY)).status == 200
        assert (await wire.send(BODY)).status == 502
        assert (len(seen), wire.proxy.stats.retries) == (2, 0)


async def test_a_body_that_was_not_kept_is_not_sent_again() -> None:
    async with wired_raw(dying(at=(1,)), limits=Limits(body_bytes=1_000)) as (wire, seen):
        assert (await wire.send(b"small", path="/v1/files")).status == 200
        assert (await wire.send(BODY)).status == 502
        assert (len(seen), wire.proxy.stats.retries) == (2, 0)


@pytest.mark.parametrize("second_dies_too", [False, True])
async def test_there_is_one_more_try_not_two(second_dies_too: bool) -> None:
    async def script(came: Exchanged, writer: asyncio.StreamWriter) -> bool:
        is_answered = (came.connection, came.number) == (1, 1)
        if is_answered or (came.connection == 2 and not second_dies_too):
            writer.write(PLAIN)
            return True
        return False

    async with wired_raw(script) as (wire, seen):
        await wire.send(BODY)
        answer = await wire.send(BODY)
        assert answer.status == (502 if second_dies_too else 200)
        assert len(seen) == 3
        if second_dies_too:
            assert json.loads(answer.body)["error"]["type"] == "api_error"
