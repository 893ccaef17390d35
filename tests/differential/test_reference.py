"""Profile `reference` against the authors' package 0.1.0 (`cliffcompaction`), with equal knobs.

Deviations, all on purpose:

1. Role `system` messages that trail the head: theirs moves them into the block, ours keeps the head
   whole (promise: the head is never touched). Their leading `system:` parts are cut off below.
2. Arguments that hold half a surrogate pair: theirs raises, ours renders.
3. Server tools (`server_tool_use`): theirs does not know them, ours shows them as calls.
4. Where the cut falls when a tail is not legal: theirs cuts there all the same.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cliffcompaction.cliff import compact as their_compact
from cliffcompaction.config import Config
from cliffcompaction.dialects.anthropic import DIALECT
from hypothesis import assume, given

from clifftop.core import reference
from clifftop.core.block import Blocks, Placement
from clifftop.core.cuts import Cuts
from clifftop.core.profile import FULL, REFERENCE, WHOLE_THOUGHTS, Profile
from clifftop.dialects.anthropic import AnthropicMessages
from tests.strategies import Session, request_body, sessions

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "anthropic").glob("*.json"))
KNOBS = [
    (REFERENCE, Config()),
    (
        replace(REFERENCE, caps=FULL),
        Config(thought_max_chars=300, thinking_max_chars=300),
    ),
    (replace(REFERENCE, keep_recent=1), Config(keep_recent=1)),
]


def ours(body: bytes, profile: Profile) -> str | None:
    history = AnthropicMessages().read(body).history
    cut = Cuts(history).choose(history.head, len(history), profile.keep_recent, lookback=0)
    if cut is None:
        return None
    blocks = Blocks(history, profile=profile, budget_tokens=45_000)
    return blocks.text(Placement(history.head, cut, 0))


def theirs(messages: list[dict[str, Any]], config: Config) -> str | None:
    compacted = their_compact(messages, DIALECT, config)
    if compacted is None:
        return None
    text = compacted.summary["content"]
    head = [m for m in messages if m["role"] == "assistant"] and next(
        i for i, m in enumerate(messages) if m["role"] == "assistant"
    )
    moved = sum(
        bool(DIALECT.summarize_message(m, config)) for m in messages[compacted.head_len : head]
    )
    header, _, rest = text.partition("\n\n")
    parts = rest.split(reference.SEPARATOR)[moved:] if rest else []
    return f"{header}\n\n{reference.SEPARATOR.join(parts)}" if parts else header


def agree(body: bytes) -> int:
    messages, compared = json.loads(body)["messages"], 0
    for profile, config in KNOBS:
        our_text, their_text = ours(body, profile), theirs(messages, config)
        if our_text is not None and their_text is not None:
            assert our_text == their_text
            compared += 1
    return compared


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_excerpts_of_committed_requests_are_the_same(path: Path) -> None:
    agree(path.read_bytes())


def test_the_excerpts_of_every_recorded_request_are_the_same(test_data: Path) -> None:
    paths = sorted((test_data / "captures" / "claude-code").glob("[0-9]*.json"))
    bodies = [json.loads(path.read_text())["body"] for path in paths]
    encoded = [json.dumps(body, ensure_ascii=False).encode() for body in bodies]
    assert sum(agree(body) for body in encoded) > 60


@given(sessions(longest=20))
def test_the_excerpts_of_drawn_sessions_are_the_same(session: Session) -> None:
    body = request_body(session, len(session.request_ends) - 1)
    # Their parts cannot be told apart again when a text holds their separator.
    assume(b"\\n---\\n" not in body and b"server_tool_use" not in body)
    agree(body)


def test_the_knobs_are_theirs() -> None:
    assert REFERENCE.caps == WHOLE_THOUGHTS
    assert Config().keep_recent == REFERENCE.keep_recent
    assert Config().cmd_max_chars == REFERENCE.caps.signature_chars
    assert Config().result_max_chars == REFERENCE.caps.result_chars
    assert Config().human_max_chars == reference.PERSON_CHARS
