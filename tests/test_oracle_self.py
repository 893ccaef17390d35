"""The oracle against cases worked out by hand from the paper's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import oracle
from tests.oracle import compact, signature


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "s"}


def call(name: str = "Bash", /, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "c1", "name": name, "input": arguments}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content, **fields}


def parts_of(*old: dict[str, Any], user_text: Any = "window", block: str | None = None) -> Any:
    """Compact `old` and one newest turn; check that the newest turn is what stays."""
    newest = assistant(text("newest"))
    parts, recent = compact([*old, newest], 1, user_text=user_text, block=block)
    assert recent == [newest]
    return parts


def test_oracle_imports_nothing_of_clifftop() -> None:
    assert "import clifftop" not in Path(oracle.__file__).read_text()
    assert "from clifftop" not in Path(oracle.__file__).read_text()


def test_turn_gives_thought_said_call_result_in_order() -> None:
    turn = [
        assistant(thinking("look first"), text("Listing."), call(command="ls -la", timeout=5)),
        user([result("a.py\nb.py\n")]),
    ]
    assert parts_of(*turn) == [
        ("thought", "look first"),
        ("said", "Listing."),
        ("call", "Bash(command=ls -la, timeout=5)"),
        ("result", "a.py\nb.py"),
    ]


@pytest.mark.parametrize(
    ("length", "cut"), [(299, "t" * 299), (300, "t" * 300), (301, "t" * 300 + "…")]
)
def test_thinking_and_text_are_cut_after_300_code_points(length: int, cut: str) -> None:
    assert parts_of(assistant(thinking("t" * length), text("t" * length))) == [
        ("thought", cut),
        ("said", cut),
    ]


def test_cut_counts_code_points_not_bytes() -> None:
    assert parts_of(assistant(text("語" * 301))) == [("said", "語" * 300 + "…")]


def test_blank_and_redacted_thinking_give_nothing() -> None:
    redacted = {"type": "redacted_thinking", "data": "xx"}
    assert parts_of(assistant(thinking(" \n"), thinking(""), redacted, text("x"))) == [
        ("said", "x")
    ]


def test_signature_is_cut_after_150_code_points_with_its_name() -> None:
    (part,) = parts_of(assistant(call("Write", content="c" * 900, file_path="/a.py")))
    assert part == ("call", "Write(content=" + "c" * 136 + "…")
    assert len(part[1]) == 151


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use"])
def test_calls_of_server_tools_are_calls(kind: str) -> None:
    served = {"type": "web_search_tool_result", "tool_use_id": "c1", "content": []}
    assert parts_of(assistant({**call(query="x"), "type": kind}, served)) == [
        ("call", "Bash(query=x)")
    ]


def test_signature_writes_other_values_as_compact_json() -> None:
    arguments = {"on": True, "path": "é", "edits": [{"a": "ü", "n": 1.0}], "none": None}
    assert signature("E", arguments) == 'E(on=true, path=é, edits=[{"a":"ü","n":1.0}], none=null)'
    assert signature("ls", {}) == "ls()"


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ("r" * 500, ["r" * 500]),
        ("r" * 501, []),
        (" " * 9 + "r" * 500 + "\n", ["r" * 500]),
        ("", []),
        (" \n", []),
        ([], []),
        ([text("a"), {"type": "image", "source": {}}, text("b")], ["a\nb"]),
        ([{"type": "document", "source": {}}], []),
        ([{"type": "tool_reference", "tool_name": "T"}], []),
    ],
)
def test_result_is_kept_whole_up_to_500_code_points_or_dropped(content: Any, kept: Any) -> None:
    parts = parts_of(assistant(call()), user([result(content)]))
    assert parts == [("call", "Bash()"), *(("result", t) for t in kept)]


def test_failed_result_follows_the_same_rule() -> None:
    assert parts_of(assistant(call()), user([result("E" * 501, is_error=True)]))[1:] == []


def test_results_stand_in_the_order_of_the_message_not_of_the_calls() -> None:
    turn = [assistant(call(n=1), call(n=2)), user([result("second"), result("first")])]
    assert parts_of(*turn)[2:] == [("result", "second"), ("result", "first")]


@pytest.mark.parametrize("user_text", ["drop", "window"])
def test_text_beside_a_result_is_a_result(user_text: str) -> None:
    turn = [assistant(call()), user([result("ok"), text("note " * 3), text("n" * 501)])]
    assert parts_of(*turn, user_text=user_text)[1:] == [
        ("result", "ok"),
        ("result", "note note note"),
    ]


def test_text_of_a_person_stays_verbatim_in_window_mode_only() -> None:
    old = [
        assistant(text("x")),
        user("  do it\n" * 900),
        {"role": "system", "content": "date"},
        assistant(text("y")),
        user([text("one"), {"type": "image", "source": {}}, text(" "), text("two")]),
    ]
    assert parts_of(*old) == [
        ("said", "x"),
        ("person", "  do it\n" * 900),
        ("person", "date"),
        ("said", "y"),
        ("person", "one"),
        ("person", "two"),
    ]
    assert parts_of(*old, user_text="drop") == [("said", "x"), ("said", "y")]


@pytest.mark.parametrize("content", ["BLOCK", [text("BLOCK")]])
def test_prior_compaction_is_discarded(content: Any) -> None:
    old = [user(content), assistant(text("x")), user("BLOCK and more")]
    assert parts_of(*old, block="BLOCK") == [("said", "x"), ("person", "BLOCK and more")]
    assert parts_of(*old)[0] == ("person", "BLOCK")


@pytest.mark.parametrize(("keep_recent", "kept"), [(0, 0), (1, 3), (2, 4), (3, 6), (9, 6)])
def test_recent_is_the_last_k_turns_whole(keep_recent: int, kept: int) -> None:
    messages = [
        user("block"),
        assistant(call()),
        user([result("1")]),
        assistant(text("2")),
        assistant(call()),
        user([result("3")]),
        {"role": "system", "content": "s"},
    ]
    parts, recent = compact(messages, keep_recent, user_text="window", block="block")
    assert recent == (messages[-kept:] if kept else [])
    assert bool(parts) is (kept < 6)


def test_no_assistant_message_leaves_nothing_recent() -> None:
    assert compact([user("a")], 3, user_text="window") == ([("person", "a")], [])
    assert compact([], 3, user_text="window") == ([], [])
