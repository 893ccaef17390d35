"""Each row of the overflow corpus through the real proxy: cured unseen, or relayed as it is.

Only `/v1/messages` is read yet, so rows of other APIs come on that path too, by their class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.proxy.scripted import GOOD, Script, Upstream, good, in_turn, request_body, wired

GOLDEN = Path(__file__).parents[1] / "golden" / "overflow-errors.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
ANTHROPIC = ("messages", "invoke", "rawPredict")
CURED = ("overflow", "overflow_in_plus_out", "overflow_bytes")

# Frames of websockets and AWS event streams have no status and travel on no path that is read.
SENT = [(number, row) for number, row in enumerate(ROWS) if isinstance(row["status"], int)]


def rows(*, is_overflow: bool) -> list[Any]:
    return [
        pytest.param(row, id=f"{number} {row['provider']} {row['api']} {row['status']}")
        for number, row in SENT
        if row["is_overflow"] == is_overflow and (not is_overflow or row["class"] in CURED)
    ]


def raw(row: dict[str, Any]) -> bytes:
    body = row["body"]
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def said(row: dict[str, Any]) -> Script:
    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        kind = "text/event-stream" if row["stream"] else "application/json"
        return web.Response(status=row["status"], body=raw(row), content_type=kind)

    return answer


@pytest.mark.parametrize("row", rows(is_overflow=True))
async def test_an_overflow_is_cured_and_the_client_sees_only_the_good_answer(
    row: dict[str, Any],
) -> None:
    upstream = Upstream(answer=in_turn(said(row), good))
    async with wired(budget_tokens=200_000, upstream=upstream) as wire:
        answer = await wire.send(request_body(20, stream=row["stream"]))
        assert (answer.status, json.loads(answer.body)) == (200, GOOD)
        first, second = map(len, wire.upstream.bodies)
        assert second < 0.9 * first
        assert wire.proxy.stats.replays == 1


@pytest.mark.parametrize("row", rows(is_overflow=False))
async def test_a_false_friend_is_relayed_as_it_is(row: dict[str, Any]) -> None:
    upstream = Upstream(answer=in_turn(said(row), good))
    async with wired(budget_tokens=200_000, upstream=upstream) as wire:
        answer = await wire.send(request_body(20, stream=row["stream"]))
        assert (answer.status, answer.body) == (row["status"], raw(row))
        assert wire.upstream.bodies == [request_body(20, stream=row["stream"])]


async def test_an_answer_that_ran_into_the_window_stands_and_the_next_prompt_is_cut() -> None:
    (row,) = [row for row in ROWS if row["class"] == "overflow_soft" and row["api"] in ANTHROPIC]
    upstream = Upstream(answer=in_turn(said(row), good))
    async with wired(budget_tokens=200_000, upstream=upstream) as wire:
        answer = await wire.send(request_body(20, stream=True))
        assert (answer.status, answer.body) == (200, raw(row))
        await wire.send(request_body(21, stream=True))
        first, second = map(len, wire.upstream.bodies)
        assert second < first / 2


def test_no_row_of_the_anthropic_dialect_is_left_out() -> None:
    left = [row for row in ROWS if row["api"] in ANTHROPIC and row["is_overflow"]]
    sent = [row for _, row in SENT if row["class"] in (*CURED, "overflow_soft")]
    assert left
    assert [row for row in left if row not in sent] == []
