"""The session is long, varied and the same each time."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from clifftop.demo.prefix import BYTES_PER_TOKEN, image_tokens, read_prompt
from clifftop.demo.session import Session, make_session

PINNED = "1ae233d29afd989471ceba4234fa80915c32029f1495320f4854ee95af5d3c23"
SEEDS = (7, 1, 2, 3, 2026)


@pytest.fixture(params=SEEDS, ids=str, scope="module")
def any_session(request: pytest.FixtureRequest) -> Session:
    return make_session(request.param)


def blocks(session: Session, kind: str) -> Iterator[dict[str, Any]]:
    for step in session.steps:
        for block in [*step.assistant, *(step.user if isinstance(step.user, list) else [])]:
            if block["type"] == kind:
                yield block


def results(session: Session) -> list[str]:
    return [b["content"] for b in blocks(session, "tool_result") if isinstance(b["content"], str)]


def test_same_seed_gives_the_same_bytes(session: Session) -> None:
    assert make_session(7) == session
    assert make_session(8) != session


def test_bytes_of_the_default_seed_are_pinned(session: Session) -> None:
    # The PNG's compressed bytes belong to the zlib at hand, so they stay out of the pin.
    whole = [session.model, session.system, session.tools, session.messages(len(session.steps) - 1)]
    text = re.sub(r'"data": "iVBOR[^"]*"', '"data": "png"', json.dumps(whole))
    assert sha256(text.encode()).hexdigest() == PINNED


def test_it_has_over_120_requests(any_session: Session) -> None:
    assert len(any_session.steps) >= 120


def test_its_full_history_exceeds_300_000_tokens(any_session: Session) -> None:
    last = any_session.messages(len(any_session.steps) - 1)
    body = {"tools": any_session.tools, "system": any_session.system, "messages": last}
    assert len(read_prompt(body).data) / BYTES_PER_TOKEN > 300_000


def test_results_are_half_to_three_quarters_of_the_characters(any_session: Session) -> None:
    said = sum(len(b["text"]) for b in blocks(any_session, "text"))
    said += sum(len(b["thinking"]) for b in blocks(any_session, "thinking"))
    said += sum(
        len(json.dumps(b["input"], ensure_ascii=False)) for b in blocks(any_session, "tool_use")
    )
    said += sum(len(step.user) for step in any_session.steps if isinstance(step.user, str))
    answered = sum(map(len, results(any_session)))
    assert 0.50 <= answered / (answered + said) <= 0.75


def test_over_30_percent_of_results_are_long_and_many_are_short(any_session: Session) -> None:
    sizes = [len(text) for text in results(any_session)]
    assert sum(size > 500 for size in sizes) / len(sizes) > 0.30
    assert sum(size <= 120 for size in sizes) / len(sizes) > 0.30


def test_at_least_eight_tools_are_declared_and_used(any_session: Session) -> None:
    declared = {tool["name"] for tool in any_session.tools}
    used = {block["name"] for block in blocks(any_session, "tool_use")}
    assert len(used) >= 8
    assert used <= declared
    assert all(tool["input_schema"]["type"] == "object" for tool in any_session.tools)


def test_calls_fit_their_schemas(any_session: Session) -> None:
    schemas = {tool["name"]: tool["input_schema"] for tool in any_session.tools}
    for call in blocks(any_session, "tool_use"):
        schema = schemas[call["name"]]
        assert set(schema["required"]) <= set(call["input"]) <= set(schema["properties"])


def test_calls_run_in_parallel_and_writes_are_bulky(any_session: Session) -> None:
    steps = [
        [block for block in step.assistant if block["type"] == "tool_use"]
        for step in any_session.steps
    ]
    assert sum(len(calls) > 1 for calls in steps) >= 20
    bulky = [call for calls in steps for call in calls if len(json.dumps(call["input"])) > 500]
    assert {"Write", "Edit"} <= {call["name"] for call in bulky}


def test_each_call_is_answered_in_its_step_by_an_id_that_names_it(any_session: Session) -> None:
    for number, step in enumerate(any_session.steps):
        called = [block["id"] for block in step.assistant if block["type"] == "tool_use"]
        answers = step.user if isinstance(step.user, list) else []
        assert [block["tool_use_id"] for block in answers] == called
        assert called == [f"toolu_{number:04d}_{k}" for k in range(len(called))]


def test_thoughts_are_signed(any_session: Session) -> None:
    thoughts = list(blocks(any_session, "thinking"))
    assert len(thoughts) > 40
    assert len({block["signature"] for block in thoughts}) == len(thoughts)


def test_a_person_speaks_three_times_behind_an_answer_without_calls(any_session: Session) -> None:
    spoken = [step for step in any_session.steps if isinstance(step.user, str)]
    assert tuple(step.user for step in spoken) == any_session.directives
    assert len(spoken) == 3
    assert not any(b["type"] == "tool_use" for step in spoken for b in step.assistant)
    assert any_session.steps[-1].user is None


def test_one_result_is_a_real_image_of_large_size(any_session: Session) -> None:
    images = [
        b["content"] for b in blocks(any_session, "tool_result") if isinstance(b["content"], list)
    ]
    assert len(images) == 1
    source = images[0][0]["source"]
    data = base64.b64decode(source["data"])
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) < 4_000
    start = data.index(b"IDAT") + 4
    assert len(zlib.decompress(data[start:-16])) == height * (1 + width // 8)
    assert image_tokens(source) == 52 * 30


def test_a_long_failure_says_what_matters_in_its_last_line(any_session: Session) -> None:
    failed = [b["content"] for b in blocks(any_session, "tool_result") if b.get("is_error")]
    long = [text for text in failed if len(text) > 500]
    assert long
    assert all("AssertionError" in text.split("\n")[-1] for text in long)
    assert all("AssertionError" not in text[:-250] for text in long)
