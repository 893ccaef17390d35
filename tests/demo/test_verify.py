"""Each promise holds on a good run and is seen to break on a damaged one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from clifftop.demo.provider import Received
from clifftop.demo.verify import Promise, find_cliffs, read_outgoing, verify
from tests.demo.conftest import BUDGET_TOKENS, Recording

NAMES = [
    "untouched",
    "verbatim",
    "cache-friendly",
    "whole",
    "bounded",
    "nobody-forgotten",
    "markers",
]
Body = dict[str, Any]


def check(recording: Recording, received: list[Received] | None = None) -> list[Promise]:
    return verify(
        session=recording.session,
        calls=recording.calls,
        received=recording.received if received is None else received,
        budget_tokens=BUDGET_TOKENS,
    )


def damage(recording: Recording, index: int, change: Callable[[Body], Any]) -> dict[str, Promise]:
    received = list(recording.received)
    body = json.loads(received[index].body)
    change(body)
    received[index] = dataclasses.replace(received[index], body=json.dumps(body).encode())
    return {promise.name: promise for promise in check(recording, received)}


def broken(promises: dict[str, Promise]) -> set[str]:
    return {name for name, promise in promises.items() if not promise.holds}


def test_all_promises_hold_behind_the_relay(cliffed: Recording) -> None:
    promises = check(cliffed)
    assert [promise.name for promise in promises] == NAMES
    assert [promise for promise in promises if not promise.holds] == []


def test_cliffs_are_where_the_history_does_not_go_on(
    cliffed: Recording, straight: Recording
) -> None:
    cliffs = find_cliffs([read_outgoing(one) for one in cliffed.received])
    tokens = [one.usage.prompt_tokens for one in cliffed.received]
    assert len(cliffs) >= 6
    assert cliffs == [i for i in range(1, len(tokens)) if tokens[i] < tokens[i - 1]]
    assert find_cliffs([read_outgoing(one) for one in straight.received]) == []


def test_without_a_cliff_only_the_bound_breaks(straight: Recording) -> None:
    promises = {promise.name: promise for promise in check(straight)}
    assert broken(promises) == {"bounded"}
    assert promises["bounded"].detail == "request 21: 50,980 tokens, 49,500 allowed"


def test_untouched_breaks_when_bytes_differ_before_the_first_cliff(cliffed: Recording) -> None:
    promises = damage(cliffed, 4, lambda body: None)
    assert broken(promises) == {"untouched"}
    assert promises["untouched"].detail == "request 5: not the bytes that the agent sent"


def test_untouched_breaks_when_a_request_is_lost(cliffed: Recording) -> None:
    promises = check(cliffed, cliffed.received[:-1])
    assert promises[0].detail == "151 requests arrived, 152 were sent"


def test_verbatim_breaks_when_a_kept_result_is_changed(cliffed: Recording) -> None:
    def change(body: Body) -> None:
        body["messages"][-1]["content"][0]["content"] += "."

    promises = damage(cliffed, 60, change)
    assert "verbatim" in broken(promises)
    assert promises["verbatim"].detail.startswith("request 61: ")


def test_verbatim_breaks_when_a_thought_in_the_middle_is_changed(cliffed: Recording) -> None:
    def change(body: Body) -> None:
        said = [m["content"] for m in body["messages"] if m["role"] == "assistant"]
        thoughts = [content[0] for content in said if content[0]["type"] == "thinking"]
        thoughts[-2]["thinking"] += " "

    assert "verbatim" in broken(damage(cliffed, 64, change))


def test_verbatim_breaks_when_two_messages_change_places(cliffed: Recording) -> None:
    def change(body: Body) -> None:
        messages = body["messages"]
        messages[3:5], messages[5:7] = messages[5:7], messages[3:5]

    promises = damage(cliffed, 60, change)
    assert "out of order" in promises["verbatim"].detail


def test_verbatim_breaks_when_the_head_lacks_a_message(cliffed: Recording) -> None:
    promises = damage(cliffed, 60, lambda body: body["messages"].pop(2))
    assert promises["verbatim"].detail == "request 61: a message of the head is missing"


def test_verbatim_breaks_on_a_second_block(cliffed: Recording) -> None:
    def change(body: Body) -> None:
        body["messages"].insert(2, {"role": "user", "content": "another"})

    assert "second block" in damage(cliffed, 60, change)["verbatim"].detail


def test_cache_friendly_breaks_on_a_new_prefix_without_a_drop(cliffed: Recording) -> None:
    def change(body: Body) -> None:
        block = next(m for m in body["messages"] if m["content"][0] == "[")
        block["content"] += "\none more line"

    promises = damage(cliffed, 60, change)
    assert broken(promises) == {"cache-friendly"}
    assert "a new prefix that frees" in promises["cache-friendly"].detail


def test_cache_friendly_breaks_when_the_tools_change(cliffed: Recording) -> None:
    promises = damage(cliffed, 60, lambda body: body["tools"].pop())
    assert promises["cache-friendly"].detail.endswith("the system prompt or the tools changed")


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_whole_breaks_when_a_partner_is_missing(cliffed: Recording, role: str) -> None:
    def change(body: Body) -> None:
        messages = body["messages"]
        messages.remove([m for m in messages if m["role"] == role][-2])

    promises = damage(cliffed, 60, change)
    assert "whole" in broken(promises)
    assert "toolu_" in promises["whole"].detail


def test_whole_breaks_when_the_last_call_is_open(cliffed: Recording) -> None:
    promises = damage(cliffed, 60, lambda body: body["messages"].pop())
    assert promises["whole"].detail.endswith("is not answered")


def test_bounded_breaks_over_the_slack(cliffed: Recording) -> None:
    received = list(cliffed.received)
    usage = dataclasses.replace(received[70].usage, input_tokens=BUDGET_TOKENS)
    received[70] = dataclasses.replace(received[70], usage=usage)
    assert [p.name for p in check(cliffed, received) if not p.holds] == ["bounded"]


def test_bounded_allows_what_head_and_newest_turn_need(straight: Recording) -> None:
    for count, holds in ((1, True), (20, False)):
        promises = verify(
            session=straight.session,
            calls=straight.calls[:count],
            received=straight.received[:count],
            budget_tokens=1_000,
        )
        assert [promise.holds for promise in promises if promise.name == "bounded"] == [holds]


def test_nobody_forgotten_breaks_when_a_directive_is_gone(cliffed: Recording) -> None:
    directive = cliffed.session.directives[0]

    def change(body: Body) -> None:
        block = next(m for m in body["messages"] if directive in m["content"])
        block["content"] = block["content"].replace(directive, "")

    promises = damage(cliffed, len(cliffed.received) - 1, change)
    assert "nobody-forgotten" in broken(promises)
    assert directive in promises["nobody-forgotten"].detail


def test_markers_breaks_at_five(cliffed: Recording) -> None:
    def change(body: Body) -> None:
        for tool in body["tools"][:2]:
            tool["cache_control"] = {"type": "ephemeral"}

    promises = damage(cliffed, 60, change)
    assert broken(promises) == {"markers"}
    assert promises["markers"].detail == "5 cache markers in one request"


def test_nothing_received_is_no_success(cliffed: Recording) -> None:
    names = {promise.name for promise in check(cliffed, []) if not promise.holds}
    assert names == {"untouched", "nobody-forgotten"}
