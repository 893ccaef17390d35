"""The checker of the Messages API: each rule has a request that breaks only it; real ones pass."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.messages_api import RULES, SDK_GAPS, Body, introduced, sdk_accepts, violations
from tests.strategies import Session, request, sessions

GOLDEN = sorted((Path(__file__).parent / "golden" / "anthropic").glob("*.json"))
MARK = {"type": "ephemeral"}
Change = Callable[[Body], object]
HOUR = {"type": "ephemeral", "ttl": "1h"}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def call(key: str, name: str = "Bash", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": key, "name": name, "input": {}, **fields}


def result(key: str, content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": key, "content": content}


def thought(words: str = "Hm.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": "sig"}


def reference(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "tool_name": name}


def server_call(key: str) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": key, "name": "web_search", "input": {"query": "x"}}


def server_result(key: str) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": key, "content": []}


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def document(**source: Any) -> dict[str, Any]:
    return {"type": "document", "source": source}


def good() -> Body:
    """Build a request that uses every part a rule speaks of, and breaks none."""
    tools = [{"name": n, "input_schema": {"type": "object"}} for n in ("Bash", "ToolSearch")]
    deferred = {"name": "Fetch", "input_schema": {"type": "object"}, "defer_loading": True}
    picture = image(type="base64", media_type="image/png", data="iVBORw0K")
    return {
        "model": "claude-opus-5-5",
        "max_tokens": 4_096,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "system": [text("You are an agent.", cache_control=MARK)],
        "tools": [*tools, deferred],
        "messages": [
            {"role": "user", "content": [text("Look."), picture]},
            {"role": "system", "content": "The date is known."},
            {"role": "assistant", "content": [thought(), call("a1", "ToolSearch"), call("a2")]},
            {"role": "user", "content": [result("a2"), result("a1", [reference("Fetch")])]},
            {"role": "user", "content": "Beside it."},
            {"role": "assistant", "content": [text("So."), call("b1", "Fetch")]},
            {"role": "user", "content": [result("b1", [text("page"), picture]), text("note")]},
            {
                "role": "assistant",
                "content": [server_call("s1"), server_result("s1"), text("Yes.")],
            },
            {"role": "user", "content": [text("Go on.", cache_control=MARK)]},
            {"role": "assistant", "content": [thought("Last."), call("c1")]},
            {"role": "user", "content": [result("c1")]},
        ],
    }


def content(body: Body, i: int) -> list[Any]:
    found: list[Any] = body["messages"][i]["content"]
    return found


def end_with(*messages: dict[str, Any]) -> Change:
    return lambda body: body["messages"].extend(messages)


def answer(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def put(i: int, *path: Any) -> Change:
    """Set the last of the path at the place that the others lead to, inside message i."""

    def change(body: Body) -> None:
        at = body["messages"][i]
        for step in path[:-2]:
            at = at[step]
        at[path[-2]] = path[-1]

    return change


def put_top(**fields: Any) -> Change:
    return lambda body: body.update(fields)


def mark_tool(i: int, **fields: Any) -> Change:
    return lambda body: body["tools"][i].update(fields)


def defer_all(body: Body) -> None:
    for tool in body["tools"]:
        tool["defer_loading"] = True
    body["messages"] = [{"role": "user", "content": "x"}]


def all_of(*changes: Change) -> Change:
    def change(body: Body) -> None:
        for part in changes:
            part(body)

    return change


# For each rule: changes of the good request that break this rule and no other.
BREAKS: dict[str, list[Change]] = {
    "messages": [
        put_top(messages=[]),
        put_top(messages="hello"),
        put_top(messages=None),
        lambda body: body["messages"].append("a string"),
        lambda body: body.pop("messages"),
    ],
    "role": [end_with({"role": "tool", "content": "x"}), end_with({"content": "x"})],
    "first-user": [lambda body: body["messages"].insert(0, answer(text("Hello.")))],
    "system-place": [
        lambda body: body["messages"].insert(0, {"role": "system", "content": "x"}),
        lambda body: body["messages"].insert(8, {"role": "system", "content": "x"}),
        lambda body: body["messages"].insert(1, {"role": "system", "content": "x"}),
        end_with(answer(text("x")), {"role": "system", "content": "x"}),
        end_with({"role": "system", "content": "x"}, user(text("after it"))),
    ],
    "content-shape": [
        put(4, "content", []),
        put(4, "content", None),
        put(4, "content", {"type": "text", "text": "x"}),
        put(4, "content", ["x"]),
        put(4, "content", [{"text": "x"}]),
        put(1, "content", None),
        lambda body: body["messages"][4].pop("content"),
    ],
    "block-shape": [
        put(0, "content", 0, {"type": "text"}),
        put(0, "content", 0, {"type": "text", "text": None}),
        put(2, "content", 2, "input", "{}"),
        put(2, "content", 2, "name", ""),
        put(3, "content", 0, "content", {"type": "text"}),
        put(3, "content", 0, "content", [{"text": "x"}]),
        lambda body: content(body, 7)[0].pop("input"),
    ],
    "blank-text": [
        put(4, "content", ""),
        put(4, "content", " \n"),
        put(0, "content", 0, "text", "\t"),
        put(6, "content", 0, "content", [text("")]),
        put_top(system=""),
        put_top(system=[text(" ")]),
    ],
    "block-role": [
        end_with(user(thought())),
        end_with(user(server_result("s9"))),
        end_with(answer(image(type="url", url="https://example.org/a.png"))),
        end_with({"role": "system", "content": [image(type="file", file_id="f")]}),
        end_with({"role": "system", "content": [{"type": "hologram"}]}),
    ],
    "call-answered": [
        end_with(answer(call("d1"))),
        end_with(answer(call("d1")), user(text("no result"))),
        end_with(answer(call("d1"), call("d2")), user(result("d1"))),
        end_with(answer(call("d1")), answer(text("no")), user(text("no result"))),
    ],
    "result-called": [
        lambda body: content(body, 10).append(result("gone")),
        lambda body: content(body, 10).append(result("a1")),
        lambda body: body["messages"].insert(0, user(result("gone"))),
    ],
    "results-first": [
        lambda body: content(body, 10).insert(0, text("before it")),
        lambda body: content(body, 3).insert(1, text("between")),
        lambda body: body["messages"].insert(10, {"role": "user", "content": "before it"}),
    ],
    "call-unique": [
        end_with(answer(call("d1"), call("d1")), user(result("d1"))),
        end_with(answer(call("d1")), answer(call("d1")), user(result("d1"))),
        end_with(answer(server_call("s2"), server_call("s2"), server_result("s2"))),
    ],
    "result-once": [
        lambda body: content(body, 10).append(result("c1")),
        lambda body: body["messages"].append(user(result("c1"))),
        lambda body: content(body, 7).insert(2, server_result("s1")),
    ],
    "id-shape": [
        end_with(answer(call("d:1")), user(result("d:1"))),
        end_with(answer(server_call("s 2"), server_result("s 2"))),
    ],
    "server-answered": [
        lambda body: content(body, 7).pop(1),
        end_with(answer(server_call("s2")), user(text("go on"))),
        end_with(answer(server_call("s2"), text("and on"))),
    ],
    "server-called": [
        lambda body: content(body, 7).pop(0),
        lambda body: content(body, 7).insert(0, content(body, 7).pop(1)),
        lambda body: content(body, 7).append(server_result("s0")),
    ],
    "thought-sealed": [
        lambda body: content(body, 2)[0].pop("signature"),
        lambda body: content(body, 2)[0].pop("thinking"),
        put(2, "content", 0, "signature", ""),
        put(2, "content", 0, {"type": "redacted_thinking"}),
    ],
    "loop-thinks": [
        lambda body: content(body, 9).pop(0),
        lambda body: content(body, 9).reverse(),
        end_with(
            answer(text("Done.")),
            user(text("More.")),
            answer(call("d1")),
            user(result("d1"), text("beside")),
            answer(thought(), call("e1")),
            user(result("e1")),
        ),
    ],
    "thinking-budget": [
        put_top(thinking={"type": "enabled", "budget_tokens": 4_096}),
        put_top(thinking={"type": "enabled", "budget_tokens": 1_023}),
        put_top(thinking={"type": "enabled"}),
    ],
    "thoughts-kept": [
        put(2, "content", 0, "thinking", "Hm"),
        put(2, "content", 0, "signature", "other"),
        put(2, "content", 0, {"type": "redacted_thinking", "data": "other"}),
        lambda body: content(body, 5).insert(0, thought("Made up.")),
        lambda body: content(body, 5).insert(0, thought()),
    ],
    "latest-untouched": [
        lambda body: content(body, 9).append(text("added")),
        lambda body: content(body, 9).insert(1, text("added")),
        lambda body: content(body, 9)[1].update(name="bash"),
        all_of(put(9, "content", 0, text("left out")), put_top(thinking={"type": "adaptive"})),
    ],
    "marker-count": [
        all_of(mark_tool(0, cache_control=MARK), mark_tool(1, cache_control=MARK),
               put(6, "content", 1, "cache_control", MARK)),
        all_of(put(6, "content", 0, "cache_control", MARK),
               put(6, "content", 1, "cache_control", MARK), put_top(cache_control=MARK)),
        all_of(put(6, "content", 0, "content", 0, "cache_control", MARK),
               put(6, "content", 0, "content", 1, "cache_control", MARK),
               mark_tool(0, cache_control=MARK)),
    ],
    "marker-shape": [
        put(8, "content", 0, "cache_control", {"type": "ephemeral", "ttl": "2h"}),
        put(8, "content", 0, "cache_control", {"type": "persistent"}),
        put(8, "content", 0, "cache_control", "ephemeral"),
    ],
    "marker-order": [
        put(8, "content", 0, "cache_control", HOUR),
        put_top(cache_control=HOUR),
        all_of(put_top(system=[text("x", cache_control=HOUR)]), mark_tool(0, cache_control=MARK)),
    ],
    "marker-place": [put(2, "content", 0, "cache_control", MARK)],
    "deferred-loaded": [
        put(3, "content", 1, "content", "Found Fetch."),
        put(3, "content", 1, "content", [reference("Bash")]),
        put(2, "content", 2, "name", "Fetch"),
    ],
    "reference-known": [
        lambda body: content(body, 3)[1]["content"].append(reference("Gone")),
        lambda body: body["tools"].pop(),
    ],
    "reference-alone": [
        lambda body: content(body, 3)[1]["content"].append(text("and a note")),
    ],
    "some-tool-loaded": [defer_all],
    "deferred-unmarked": [mark_tool(2, cache_control=MARK)],
    "media-source": [
        put(0, "content", 1, image(type="base64", media_type="image/bmp", data="iVBORw0K")),
        put(0, "content", 1, image(type="base64", media_type="image/png", data="")),
        put(0, "content", 1, image(type="base64", media_type="image/png", data="iVBO!Rw0K")),
        put(0, "content", 1, image(type="url", url="file:///a.png")),
        put(0, "content", 1, image(type="file", file_id="")),
        put(0, "content", 1, image(type="text", media_type="text/plain", data="x")),
        put(0, "content", 1, {"type": "image"}),
        put(6, "content", 0, "content", [image(type="base64")]),
        put(0, "content", 1, document(type="base64", media_type="image/png", data="iVBORw0K")),
        put(0, "content", 1, document(type="text", media_type="text/plain", data="")),
    ],
    "end-whitespace": [end_with(answer(text("I will "))), end_with(answer(text("So:\n")))],
    "tool-unique": [lambda body: body["tools"].insert(0, dict(body["tools"][0]))],
    "tool-shape": [
        lambda body: body["tools"].append({"name": "a b", "input_schema": {"type": "object"}}),
        lambda body: body["tools"].append({"name": "x" * 129, "input_schema": {"type": "object"}}),
        lambda body: body["tools"].append({"name": "x"}),
        lambda body: body["tools"].append({"input_schema": {"type": "object"}}),
    ],
    "max-tokens": [
        put_top(max_tokens=-1),
        put_top(max_tokens="4096"),
        put_top(max_tokens=True),
        lambda body: body.pop("max_tokens"),
    ],
    "model": [put_top(model=""), lambda body: body.pop("model")],
}  # fmt: skip

NOT_BROKEN: dict[str, Change] = {
    "nothing changed": lambda body: None,
    "ids reused in a later turn": end_with(answer(call("a1")), user(result("a1"))),
    "results split over two user messages": end_with(
        answer(call("d1"), call("d2")), user(result("d2")), user(result("d1"), text("beside"))
    ),
    "one answer split over two messages": end_with(
        answer(call("d1")), answer(call("d2")), user(result("d1"), result("d2"))
    ),
    "a system message last": end_with(
        {"role": "system", "content": [text("x", cache_control=MARK)]}
    ),
    "a system message of settings alone": end_with(
        {"role": "system", "output_config": {"effort": "low"}}
    ),
    "a paused turn": end_with(answer(text("Wait."), server_call("s2"))),
    "empty results": end_with(
        answer(call("d1"), call("d2"), call("d3")),
        user(result("d1", ""), result("d2", []), {"type": "tool_result", "tool_use_id": "d3"}),
    ),
    "an empty thought with its signature": put(2, "content", 0, "thinking", ""),
    "a redacted thought first": put(9, "content", 0, {"type": "redacted_thinking", "data": "x"}),
    "a loop without thinking when adaptive": all_of(
        lambda body: content(body, 9).pop(0), put_top(thinking={"type": "adaptive"})
    ),
    "text beside results begins no loop": end_with(
        user(text("more")), answer(text("Right."), call("d1")), user(result("d1"))
    ),
    "a loop without thinking or calls": end_with(
        answer(text("x")), user(text("y")), answer(text("z"))
    ),
    "four markers": all_of(mark_tool(0, cache_control=MARK), mark_tool(1, cache_control=MARK)),
    "an hour before five minutes": lambda body: body["system"][0].update(cache_control=HOUR),
    "blocks of a later API": end_with(answer({"type": "hologram"}), user({"type": "hologram"})),
    "a tool found by the server": all_of(
        put(3, "content", 1, "content", "found"),
        lambda body: content(body, 5).insert(0, {
            "type": "tool_search_tool_result", "tool_use_id": "s0",
            "content": {"type": "tool_search_tool_search_result",
                        "tool_references": [reference("Fetch")]},
        }),
        lambda body: content(body, 5).insert(
            0, {**server_call("s0"), "name": "tool_search_tool_regex"}
        ),
    ),
    "a tool added in mid-run": all_of(
        put(3, "content", 1, "content", "found"),
        lambda body: body["messages"].insert(5, {"role": "system", "content": [
            {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Fetch"}},
        ]}),
    ),
    "filling the cache only": put_top(max_tokens=0, thinking={"type": "adaptive"}),
    "tools of the server": lambda body: body["tools"].append(
        {"type": "web_search_20250305", "name": "web_search"}
    ),
    "a toolset without a name": lambda body: body["tools"].append(
        {"type": "mcp_toolset", "mcp_server_name": "tracker"}
    ),
    "an answer to be continued": end_with(answer(text("I will"))),
    "other sources": end_with(user(
        image(type="url", url="https://example.org/a.png"),
        document(type="text", media_type="text/plain", data="x"),
        document(type="content", content="x"),
        document(type="base64", media_type="application/pdf", data="JVBERg=="),
        document(type="file", file_id="f1"),
    )),
}  # fmt: skip


def changed(change: Change) -> Body:
    body = good()
    change(body)
    return body


def rules_broken(body: Body) -> set[str]:
    return {v.split()[0] for v in violations(body, before=good())}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_rule_refuses_what_breaks_only_it(rule: Any) -> None:
    for change in BREAKS[rule.id]:
        kept = rule.id in ("thoughts-kept", "latest-untouched")
        body = changed(change)
        found = {v.split()[0] for v in violations(body, before=good() if kept else None)}
        assert found == {rule.id}, body


def test_table_of_breaks_names_rules_only() -> None:
    assert list(BREAKS) == [rule.id for rule in RULES]
    assert len(set(BREAKS)) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_rule_says_what_and_whence(rule: Any) -> None:
    assert rule.sentence
    assert rule.source


@pytest.mark.parametrize("case", NOT_BROKEN)
def test_legal_request_is_accepted(case: str) -> None:
    body = changed(NOT_BROKEN[case])
    assert violations(body) == []
    assert sdk_accepts(body) is None


def test_violation_names_rule_and_place() -> None:
    assert violations(changed(put(0, "content", 0, "text", " "))) == [
        "blank-text $.messages[0].content[0]"
    ]
    assert violations(changed(put(4, "content", ""))) == ["blank-text $.messages[4].content"]
    assert violations(changed(put(6, "content", 0, "content", [text("")]))) == [
        "blank-text $.messages[6].content[0].content[0]"
    ]
    assert violations(changed(lambda body: content(body, 10).insert(0, text("x")))) == [
        "results-first $.messages[10].content[1]"
    ]


def test_merged_user_message_is_judged_as_one() -> None:
    body = changed(lambda body: body["messages"].insert(3, user(text("typed too early"))))
    assert violations(body) == [
        "results-first $.messages[4].content[0]",
        "results-first $.messages[4].content[1]",
    ]


@pytest.mark.parametrize(
    "drop", [slice(2, 5), slice(2, 7), slice(5, 5)], ids=["one turn", "one loop", "nothing"]
)
def test_thoughts_may_be_left_out_in_whole_turns(drop: slice) -> None:
    body = good()
    del body["messages"][drop]
    assert not {"thoughts-kept", "latest-untouched"} & rules_broken(body)


def test_latest_answer_without_thoughts_may_change() -> None:
    before, body = (
        changed(end_with(answer(text(words), call("d1")), user(result("d1")))) for words in "ab"
    )
    assert violations(body, before=before) == []


def test_repeated_thought_is_kept_in_order() -> None:
    body = good()
    body["messages"][9:9] = [*copy.deepcopy(body["messages"][9:11]), user(text("again"))]
    assert "thoughts-kept" in rules_broken(body)


def test_empty_text_with_a_marker_breaks_both_rules() -> None:
    body = changed(put(0, "content", 0, text("", cache_control=MARK)))
    assert {v.split()[0] for v in violations(body)} == {"blank-text", "marker-place"}


def test_only_what_was_added_is_introduced() -> None:
    client = changed(put(4, "content", " "))
    assert violations(client)
    assert introduced(client, client) == []
    ours = copy.deepcopy(client)
    ours["messages"].pop()
    assert introduced(ours, client) == ["call-answered $.messages[9].content[1]"]


@pytest.mark.parametrize("body", [{}, {"messages": [None, 1, []]}, {"messages": {}}])
def test_no_body_is_too_broken_to_judge(body: Body) -> None:
    assert violations(body)
    assert sdk_accepts(body)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_request_is_accepted(path: Path) -> None:
    body = json.loads(path.read_bytes())
    assert violations(body, before=body) == []
    assert sdk_accepts(body) is None
    assert path.stat().st_size < 40_000


def test_golden_folder_is_not_empty() -> None:
    assert len(GOLDEN) >= 4


def test_recorded_requests_of_real_clients_are_accepted(test_data: Path) -> None:
    checked = 0
    for path in sorted((test_data / "captures").glob("*/[0-9]*.json")):
        capture = json.loads(path.read_bytes())
        body = capture["body"]
        match capture["path"]:
            case "/v1/messages":
                pass
            case "/v1/messages/count_tokens":
                body = {**body, "max_tokens": 1}
            case _:
                continue
        checked += 1
        assert violations(body, before=body) == [], path
        assert sdk_accepts(body) is None, path
    assert checked > 60


@given(sessions(longest=20))
def test_drawn_session_is_accepted_by_the_sdk(session: Session) -> None:
    assert sdk_accepts(request(session, len(session.request_ends) - 1)) is None


@pytest.mark.parametrize(
    "change",
    [
        put(0, "content", 0, {"type": "text"}),
        put(0, "content", 0, "text", 3),
        put(2, "content", 0, {"type": "thinking", "thinking": "x"}),
        put(3, "content", 0, {"type": "tool_result", "content": "x"}),
        put(3, "content", 1, "content", [{"type": "hologram"}]),
        put(8, "content", 0, "cache_control", {"type": "persistent"}),
        put(4, "role", "tool"),
        put(1, "content", [thought()]),
        put_top(system=[{"type": "text"}]),
        put_top(max_tokens="many"),
        lambda body: body.pop("model"),
        lambda body: body["tools"].append({"type": "web_search_20250305"}),
    ],
)
def test_sdk_reads_every_part_to_its_end(change: Change) -> None:
    assert sdk_accepts(changed(change))


def test_gaps_of_the_sdk_are_named_with_a_reason() -> None:
    assert [gap for gap, reason in SDK_GAPS if reason] == [
        "unknown block kinds",
        "results of server tools whose content is an object (their errors)",
    ]
