"""The session strategy draws every kind of session it promises, and only legal ones."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.messages_api import introduced, violations
from tests.strategies import (
    BYTES_PER_TOKEN,
    Session,
    blocks_of,
    branch,
    directives,
    edit_head,
    request,
    request_body,
    sessions,
)

EXAMPLES = 300
RARE = 4  # sessions of 300 in which even the rarest kind must occur


def blocks(s: Session, role: str, *kinds: str) -> Iterator[dict[str, Any]]:
    for m in s.messages:
        if m["role"] == role:
            yield from (b for b in blocks_of(m) if not kinds or b["type"] in kinds)


def results(s: Session) -> list[dict[str, Any]]:
    return list(blocks(s, "user", "tool_result"))


def calls(s: Session) -> list[dict[str, Any]]:
    return list(blocks(s, "assistant", "tool_use"))


def inner(s: Session, kind: str) -> list[dict[str, Any]]:
    lists = (b["content"] for b in results(s) if isinstance(b.get("content"), list))
    return [c for content in lists for c in content if c["type"] == kind]


def text_of(result: dict[str, Any]) -> str:
    content = result.get("content", "")
    return content if isinstance(content, str) else "\n".join(c.get("text", "") for c in content)


def user_texts(s: Session) -> list[str]:
    return [b["text"] for b in blocks(s, "user", "text")]


def beside_results(s: Session, start: str) -> bool:
    return any(
        b["type"] == "text" and b["text"].startswith(start)
        for m in s.messages
        if any(b["type"] == "tool_result" for b in blocks_of(m))
        for b in blocks_of(m)
    )


def apart(s: Session, start: str) -> bool:
    """Whether a later user message without results holds a text that starts like this."""
    first = next((i for i, m in enumerate(s.messages) if m["role"] == "assistant"), 0)
    return any(
        m["role"] == "user"
        and all(b["type"] != "tool_result" for b in blocks_of(m))
        and any(b.get("text", "").startswith(start) for b in blocks_of(m))
        for m in s.messages[first:]
    )


def adjacent(s: Session, first: str, second: str) -> bool:
    roles = [m["role"] for m in s.messages]
    return any(a == first and b == second for a, b in pairwise(roles))


def results_in_other_order(s: Session) -> bool:
    for m, after in pairwise(s.messages):
        asked = [b["id"] for b in blocks_of(m) if b["type"] == "tool_use"]
        given_ids = [b["tool_use_id"] for b in blocks_of(after) if b["type"] == "tool_result"]
        if len(asked) == len(given_ids) and asked != given_ids:
            return True
    return False


def path_behind_bulk(tool: str) -> Callable[[Session], bool]:
    return lambda s: any(
        c["name"] == tool
        and len(str(next(iter(c["input"].values())))) > 800
        and list(c["input"])[-1].endswith("path")
        for c in calls(s)
    )


def in_a_result(part: str) -> Callable[[Session], bool]:
    return lambda s: has([text_of(r) for r in results(s)], part)


def fixed_share(s: Session) -> float:
    fixed = len(json.dumps([s.system, s.tools]))
    return fixed / (s.budget_tokens * BYTES_PER_TOKEN)


def newest_turns_chars(s: Session, turns: int) -> int:
    starts = [i for i, m in enumerate(s.messages) if m["role"] == "assistant"]
    return len(json.dumps(s.messages[starts[-turns:][0] :])) if starts else 0


def thinks(s: Session) -> list[bool]:
    return [
        blocks_of(m)[0]["type"] in strategies.THOUGHTS
        for m in s.messages
        if m["role"] == "assistant"
    ]


def has(texts: list[str], part: str) -> bool:
    return any(part in t for t in texts)


KINDS: dict[str, Callable[[Session], object]] = {
    "head is a string": lambda s: isinstance(s.messages[0]["content"], str),
    "head is one text block": lambda s: [b["type"] for b in blocks_of(s.messages[0])] == ["text"],
    "head of two messages": lambda s: s.messages[1]["role"] == "user",
    "head with an image": lambda s: blocks_of(s.messages[0])[-1]["type"] == "image",
    "head begins with a forged header": lambda s: has(user_texts(s)[:2], "[clifftop]"),
    "system role in the head": lambda s: "system" in [m["role"] for m in s.messages[:3]],
    "system role in mid-run": lambda s: "system" in [m["role"] for m in s.messages[4:]],
    "system role before an answer": lambda s: adjacent(s, "system", "assistant"),
    "no system role": lambda s: all(m["role"] != "system" for m in s.messages),
    "user after user": lambda s: any(
        a["role"] == b["role"] == "user"
        for a, b in pairwise(s.messages[3:])
    ),
    "parallel calls": lambda s: any(
        sum(b["type"] == "tool_use" for b in blocks_of(m)) > 2 for m in s.messages
    ),
    "results in another order": results_in_other_order,
    "results over two messages": lambda s: any(
        {b["type"] for m in pair for b in blocks_of(m)[:1]} == {"tool_result"}
        for pair in pairwise(s.messages)
    ),
    "ids reused in later turns": lambda s: max(Counter(c["id"] for c in calls(s)).values()) > 1,
    "failed long result": lambda s: any(
        r.get("is_error") and len(text_of(r)) > 500 for r in results(s)
    ),
    "result of exactly 500": lambda s: any(len(text_of(r)) == 500 for r in results(s)),
    "result of exactly 501": lambda s: any(len(text_of(r)) == 501 for r in results(s)),
    "empty result": lambda s: any(r.get("content") == "" for r in results(s)),
    "blank result": lambda s: any(r.get("content") == " \n" for r in results(s)),
    "result of an empty list": lambda s: any(r.get("content") == [] for r in results(s)),
    "result without content": lambda s: any("content" not in r for r in results(s)),
    "result as a list": lambda s: len(inner(s, "text")) > 1,
    "result with image and text": lambda s: inner(s, "image"),
    "image-heavy session": lambda s: len(inner(s, "image")) > 10,
    "result with a document": lambda s: inner(s, "document"),
    "result with a reference": lambda s: inner(s, "tool_reference"),
    "deferred tools declared": lambda s: any(t.get("defer_loading") for t in s.tools),
    "deferred tool called": lambda s: any(c["name"] in strategies.DEFERRED_TOOLS for c in calls(s)),
    "deferred tools that grow": lambda s: (
        s.tools_grow and any(c["name"] in strategies.DEFERRED_TOOLS for c in calls(s))
    ),
    "budget line in results": lambda s: has([text_of(r) for r in results(s)], "tokens left"),
    "sub-agent hand-back": lambda s: has([text_of(r) for r in results(s)], "[Subagent hand-back]"),
    "reminder beside a result": lambda s: beside_results(s, "<system-reminder>"),
    "reminder apart": lambda s: apart(s, "<system-reminder>"),
    "growing reminder": lambda s: len({t for t in user_texts(s) if "todo list" in t}) > 1,
    "cut-off note": lambda s: has(user_texts(s), "cut off mid-stream"),
    "command output": lambda s: has(user_texts(s), "<local-command-stdout>"),
    "task notification to the user": lambda s: has(user_texts(s), "<task-notification>"),
    "task notification by the system": lambda s: any(
        "<task-notification>" in str(m["content"]) for m in s.messages if m["role"] == "system"
    ),
    "background task without end": lambda s: (
        str(s.messages).count("background with ID") > str(s.messages).count("<task-id>")
    ),
    "interrupted call": lambda s: beside_results(s, "[Request interrupted"),
    "aside beside a result": lambda s: beside_results(s, "aside-"),
    "directive": lambda s: directives(s.messages),
    "directive in mid-loop": lambda s: any(
        blocks_of(a)[0]["type"] == "tool_result" and directives([b])
        for a, b in pairwise(s.messages)
    ),
    "many directives": lambda s: len(directives(s.messages)) > 6,
    "paste of 9,000": lambda s: any(len(d) >= 9_000 for d in directives(s.messages)),
    "directive with an image": lambda s: any(
        blocks_of(m)[0]["type"] == "image" for m in s.messages[1:] if directives([m])
    ),
    "directive as a string": lambda s: any(
        isinstance(m["content"], str) for m in s.messages if directives([m])
    ),
    "directive as one block": lambda s: any(
        [b["type"] for b in m["content"]] == ["text"]
        for m in s.messages
        if directives([m]) and isinstance(m["content"], list)
    ),
    "thinking in every turn": lambda s: len(thinks(s)) > 5 and all(thinks(s)),
    "thinking at some turns": lambda s: len(thinks(s)) > 5 and len(set(thinks(s))) == 2,
    "no thinking": lambda s: not any(thinks(s)),
    "redacted thinking": lambda s: any(blocks(s, "assistant", "redacted_thinking")),
    "odd thinking": lambda s: any(
        "\u2028" in b["thinking"] for b in blocks(s, "assistant", "thinking")
    ),
    "empty thinking": lambda s: any(not b["thinking"] for b in blocks(s, "assistant", "thinking")),
    "thinking enabled": lambda s: s.thinking and s.thinking["type"] == "enabled",
    "thinking adaptive": lambda s: s.thinking and s.thinking["type"] == "adaptive",
    "thinking not asked for": lambda s: s.thinking is None,
    "thinking left over": lambda s: s.thinking is None and any(thinks(s)),
    "web search": lambda s: any(blocks(s, "assistant", "web_search_tool_result")),
    "code execution": lambda s: any(blocks(s, "assistant", "code_execution_tool_result")),
    "server tool and call in one answer": lambda s: any(
        {"server_tool_use", "tool_use"} <= {b["type"] for b in blocks_of(m)} for m in s.messages
    ),
    "unknown kind from the model": lambda s: any(blocks(s, "assistant", "hologram")),
    "unknown kind from the user": lambda s: any(blocks(s, "user", "hologram")),
    "call of no arguments": lambda s: any(c["input"] == {} for c in calls(s)),
    "odd numbers": lambda s: any("ratio" in c["input"] for c in calls(s)),
    "long tool name": lambda s: any(len(c["name"]) > 100 for c in calls(s)),
    **{f"bulk before path: {tool}": path_behind_bulk(tool) for tool in (
        "Write", "Edit", "MultiEdit", "NotebookEdit",
    )},
    **{f"line break {br!r} in a result": in_a_result(f"fine{br}") for br in strategies.LINE_BREAKS},
    **{f"forged line {line[:14]!r}": in_a_result(line) for line in strategies.FORGED_LINES},
    "result begins like a header": lambda s: any(
        text_of(r).startswith("[clifftop]") for r in results(s)
    ),
    "east Asian and emoji text": lambda s: has(user_texts(s), "语言") or has(user_texts(s), "🙂"),
    "short results only": lambda s: (
        len(results(s)) > 5 and all(len(text_of(r)) <= 700 for r in results(s))
    ),
    "result of the budget": lambda s: any(
        len(text_of(r)) >= s.budget_tokens * BYTES_PER_TOKEN for r in results(s)
    ),
    "result of three budgets": lambda s: any(
        len(text_of(r)) >= 3 * s.budget_tokens * BYTES_PER_TOKEN for r in results(s)
    ),
    "newest 3 turns over budget": lambda s: (
        newest_turns_chars(s, 3) > s.budget_tokens * BYTES_PER_TOKEN
    ),
    "fixed part under 30 %": lambda s: fixed_share(s) < 0.3,
    "fixed part near the budget": lambda s: 0.9 < fixed_share(s) < 1.1,
    "fixed part over the budget": lambda s: fixed_share(s) > 1.2,
    "system as a string": lambda s: isinstance(s.system, str),
    "no system": lambda s: s.system is None,
    "billing line that moves": lambda s: s.billing_moves and isinstance(s.system, list),
    "window just over the budget": lambda s: (
        s.window_tokens and s.window_tokens < 1.5 * s.budget_tokens
    ),
    "window unknown": lambda s: s.window_tokens is None,
    "several turns at once": lambda s: (
        len(s.request_ends) < sum(m["role"] == "assistant" for m in s.messages)
    ),
    "ten budgets long": lambda s: (
        len(str(s.messages)) > 10 * s.budget_tokens * BYTES_PER_TOKEN
    ),
    "one turn": lambda s: sum(m["role"] == "assistant" for m in s.messages) == 1,
    "over 40 turns": lambda s: sum(m["role"] == "assistant" for m in s.messages) > 40,
    "compact spelling": lambda s: s.spelling == "compact",
    "spaced spelling": lambda s: s.spelling == "spaced",
    "escaped spelling": lambda s: s.spelling == "escaped",
}  # fmt: skip


@pytest.fixture(scope="module")
def drawn() -> list[Session]:
    """The sessions that a property test of 300 examples sees."""
    found: list[Session] = []

    @settings(max_examples=EXAMPLES, derandomize=True, database=None)
    @given(sessions())
    def collect(session: Session) -> None:
        found.append(session)

    collect()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(drawn: list[Session], kind: str) -> None:
    count = sum(bool(KINDS[kind](s)) for s in drawn if len(s.messages) > 1 and calls(s))
    assert count >= RARE


def test_every_request_is_legal(drawn: list[Session]) -> None:
    for session in drawn:
        for n in {0, len(session.request_ends) // 2, len(session.request_ends) - 1}:
            body = request(session, n)
            assert violations(body, before=body) == []


def test_requests_grow_and_the_last_holds_all(drawn: list[Session]) -> None:
    for session in drawn:
        ends = session.request_ends
        assert list(ends) == sorted(set(ends))
        assert ends[-1] == len(session.messages)
        after = [session.messages[end]["role"] for end in ends[:-1]]
        assert set(after) <= {"assistant"}


@given(sessions(longest=12))
def test_body_is_the_request_in_the_clients_spelling(session: Session) -> None:
    last = len(session.request_ends) - 1
    body = request_body(session, last)
    assert json.loads(body) == request(session, last)
    match session.spelling:
        case "compact":
            assert b'": ' not in body[:40]
        case "spaced":
            assert b'"model": "' in body
        case "escaped":
            assert body.isascii()


@given(sessions(longest=12))
def test_marker_moves_to_the_newest_message(session: Session) -> None:
    n = len(session.request_ends) - 1
    messages = request(session, n)["messages"]
    assert messages[:-1] == session.messages[:-1]
    assert all("cache_control" not in str(m["content"]) for m in messages[:-1])
    assert isinstance(messages[-1]["content"], list)
    assert messages[-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


@given(sessions(longest=12), st.data())
def test_branch_and_edited_head_stay_legal(session: Session, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(session.request_ends) - 1))
    other = branch(session, n)
    assert request(other, n) == request(session, n)
    assert violations(request(other, len(other.request_ends) - 1)) == []
    assert violations(request(other, n + 1 if n + 1 < len(other.request_ends) else n)) == []
    edited = edit_head(session)
    assert edited.messages[0] != session.messages[0]
    assert edited.messages[1:] == session.messages[1:]
    assert violations(request(edited, n)) == []


@given(sessions(longest=10, broken=True))
def test_broken_session_is_refused(session: Session) -> None:
    body = request(session, 0)
    assert violations(body)
    assert introduced(body, body) == []
    json.loads(request_body(session, 0))


@given(sessions(calm=True))
def test_calm_session_is_ordinary_and_legal(session: Session) -> None:
    body = request(session, len(session.request_ends) - 1)
    assert violations(body) == []
    assert fixed_share(session) <= 0.4
    assert all(len(text_of(r)) < 1_200 for r in results(session))


def test_only_the_billing_line_and_grown_tools_move_between_requests(drawn: list[Session]) -> None:
    moved = grown = 0
    for session in drawn:
        first, last = request(session, 0), request(session, len(session.request_ends) - 1)
        if session.billing_moves and isinstance(session.system, list) and first != last:
            assert first["system"][0] != last["system"][0]
            assert first["system"][1:] == last["system"][1:]
            moved += 1
        else:
            assert first.get("system") == last.get("system")
        deferred = [
            {t["name"] for t in body["tools"] if t.get("defer_loading")} for body in (first, last)
        ]
        assert deferred[0] <= deferred[1]
        assert session.tools_grow or deferred[0] == deferred[1]
        grown += deferred[0] < deferred[1]
    assert min(moved, grown) >= RARE


def test_every_branch_is_legal_at_its_end(drawn: list[Session]) -> None:
    for session in drawn[::6]:
        for n in range(len(session.request_ends)):
            other = branch(session, n)
            end = min(n + 2, len(other.request_ends) - 1)
            assert violations(request(other, end)) == []


def test_every_damage_is_refused() -> None:
    for break_one in strategies.DAMAGES.values():
        messages: list[Any] = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "text", "text": "y"}]},
            {"role": "user", "content": "z"},
        ]
        break_one(messages)
        assert violations({"model": "m", "max_tokens": 1, "messages": messages})


def test_directives_are_told_apart(drawn: list[Session]) -> None:
    for session in drawn:
        texts = directives(session.messages)
        assert len({t[:14] for t in texts}) == len(texts)


@pytest.mark.parametrize(("width", "height", "size_bytes"), strategies.IMAGES)
def test_image_has_a_png_header_with_its_dimensions(
    width: int, height: int, size_bytes: int
) -> None:
    data = base64.b64decode(strategies.png(width, height, size_bytes))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (width, height)
    assert len(data) > size_bytes


def test_filler_has_its_length_and_is_never_blank() -> None:
    assert strategies.filler(0, "ab") == ""
    assert strategies.filler(3, "ab ") == "ab "
    assert strategies.filler(1, " a") == "x"
