"""Algorithm 1 against a second reading of the paper, and what each profile keeps of a turn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clifftop.core.cliff import Excerpt, compact, excerpts, hole, truncate
from clifftop.core.profile import DEFAULT, PAPER, Profile
from clifftop.core.sizes import Size
from clifftop.core.turns import Call, Item, Note, Part, Result, Role, Said, Thought, Typed
from clifftop.dialects.anthropic import AnthropicMessages
from tests import oracle
from tests.strategies import Session, request_body, sessions


def item(role: Role, *parts: Part) -> Item:
    return Item(role=role, parts=parts, size=Size(text_bytes=1), key=b"")


def turn(result: Result, *more: Part) -> list[Item]:
    call = Call(id="a", name="Read", arguments={"file_path": "/x.py"})
    return [item("assistant", call), item("user", result, *more)]


def kept(turn: list[Item], profile: Profile = DEFAULT, rung: int = 0) -> list[tuple[str, str]]:
    return [tuple(x) for x in excerpts(turn, profile=profile, caps=profile.rungs[rung].caps)]


@settings(max_examples=max(settings.default.max_examples, 300))
@given(sessions(longest=25), st.sampled_from(("window", "drop")), st.integers(1, 4))
def test_profile_paper_is_algorithm_1(
    session: Session, user_text: Literal["window", "drop"], keep_recent: int
) -> None:
    profile = replace(PAPER, user_text=user_text, keep_recent=keep_recent)
    body = request_body(session, len(session.request_ends) - 1)
    history = AnthropicMessages().read(body).history
    turns = [history.turn(number) for number in range(len(history.starts))]
    ours = compact(turns, profile=profile)
    messages = json.loads(body)["messages"]
    parts, recent = oracle.compact(messages[history.head :], keep_recent, user_text=user_text)
    assert [tuple(part) for part in ours.parts] == parts
    assert sum(len(turn) for turn in ours.recent) == len(recent)


def test_short_result_stays_on_the_line_of_its_call() -> None:
    result = Result(call_id="a", text="exit 0\n")
    assert kept(turn(result)) == [("call", "Read(file_path=/x.py) -> exit 0")]


def test_long_result_is_dropped_not_cut_and_the_hole_is_named() -> None:
    result = Result(call_id="a", text="x" * 8_312)
    assert kept(turn(result)) == [("call", "Read(file_path=/x.py) -> dropped (8,312 chars)")]


def test_500_characters_stay_and_501_go() -> None:
    assert kept(turn(Result(call_id="a", text="x" * 500)))[0][1].endswith("x" * 500)
    assert kept(turn(Result(call_id="a", text="x" * 501)))[0][1].endswith("(501 chars)")


def test_failed_long_result_keeps_its_end() -> None:
    result = Result(call_id="a", text="x" * 600 + "the cause", is_error=True)
    assert kept(turn(result))[0][1].endswith(
        "-> failed, last 500 of 609 chars: …" + "x" * 491 + "the cause"
    )


def test_each_parallel_call_has_its_own_outcome() -> None:
    calls = [Call(id=name, name=name, arguments={}) for name in "ab"]
    failed = Result(call_id="a", text="boom", is_error=True)
    steps = [item("assistant", *calls), item("user", Result(call_id="b", text="clean"), failed)]
    assert kept(steps) == [("call", "a() -> failed: boom"), ("call", "b() -> clean")]


def test_image_of_a_result_is_named() -> None:
    result = Result(call_id="a", text="", media=("image",))
    assert kept(turn(result)) == [("call", "Read(file_path=/x.py) -> image dropped")]


def test_empty_result_and_missing_result_read_differently() -> None:
    assert kept(turn(Result(call_id="a", text=" \n")))[0][1].endswith("-> empty")
    assert kept(turn(Result(call_id="other", text="")))[0][1] == "Read(file_path=/x.py)"


@pytest.mark.parametrize("make", [lambda t: Thought(text=t), lambda t: Said(text=t)])
def test_thoughts_and_words_keep_300_characters(make: type) -> None:
    (excerpt,) = kept([item("assistant", make("é" * 301))])
    assert excerpt[1] == "é" * 300 + "…"


def test_paper_leaves_no_trace_of_a_long_result() -> None:
    assert kept(turn(Result(call_id="a", text="x" * 501)), PAPER) == [
        ("call", "Read(file_path=/x.py)")
    ]


def test_what_a_person_typed_is_left_to_the_pins() -> None:
    steps = turn(Result(call_id="a", text=""), Note(text="<system-reminder>x</system-reminder>"))
    steps.append(item("user", Typed(text="use tabs")))
    assert [kind for kind, _ in kept(steps)] == ["call"]
    assert ("person", "use tabs") in kept(steps, PAPER)


def test_lean_rungs_leave_results_out_altogether() -> None:
    assert kept(turn(Result(call_id="a", text="exit 0")), rung=2) == [
        ("call", "Read(file_path=/x.py)")
    ]


def test_newest_turns_are_the_same_objects() -> None:
    turns = [turn(Result(call_id="a", text=str(n))) for n in range(5)]
    old, recent = compact(turns, profile=DEFAULT)
    assert recent == turns[2:]
    assert [excerpt.text[-1] for excerpt in old] == ["0", "1"]


def test_a_hole_names_its_handle() -> None:
    assert hole(8_312) == "dropped (8,312 chars)"
    assert hole(8_312, "k3v9q2m7x4ta") == "dropped (8,312 chars; clifftop recall k3v9q2m7x4ta)"


@given(st.text(max_size=50), st.integers(0, 40))
def test_truncate_is_a_marked_prefix(text: str, chars: int) -> None:
    short = truncate(text, chars)
    assert short == text if len(text) <= chars else short == text[:chars] + "…"


def test_an_excerpt_is_a_kind_and_a_text() -> None:
    assert Excerpt("said", "x") == ("said", "x")
