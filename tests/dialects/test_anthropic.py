"""What Messages items are read as, and what a rendered request looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clifftop.core.decide import Decider, Terms
from clifftop.core.turns import Call, Media, Note, Other, Part, Result, Said, Thought, Typed
from clifftop.dialects import get_dialect
from clifftop.dialects.anthropic import AnthropicMessages
from clifftop.dialects.base import Request
from clifftop.errors import RequestError, SettingsError
from tests.long_sessions import READ, TASK, body_of, tool_turn
from tests.messages_api import sdk_accepts, violations
from tests.promises import items_of

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "anthropic").glob("*.json"))
EPHEMERAL = {"type": "ephemeral"}


def read(messages: list[Any], **fields: Any) -> Request:
    body = {"model": "m", "max_tokens": 9, "tools": [READ], "messages": messages, **fields}
    return AnthropicMessages().read(json.dumps(body).encode())


def parts(content: Any, role: str = "user", before: list[Any] | None = None) -> list[Part]:
    request = read([*(before or []), {"role": role, "content": content}])
    return list(request.history.items[-1].parts)


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def result(content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content, **more}


@pytest.mark.parametrize(
    ("content", "role", "expected"),
    [
        ("hello", "user", [Typed(text="hello")]),
        ([text("hello")], "user", [Typed(text="hello")]),
        ("hello", "assistant", [Said(text="hello")]),
        ("date: today", "system", [Note(text="date: today")]),
        ([text("<system-reminder>x")], "user", [Note(text="<system-reminder>x")]),
        ([text("\n<task-notification>")], "user", [Note(text="\n<task-notification>")]),
        ("[Request interrupted by user]", "user", [Note(text="[Request interrupted by user]")]),
        ("<div> is broken", "user", [Typed(text="<div> is broken")]),
        ([result()], "user", [Result(call_id="t", text="ok")]),
        ([result([text("a"), text("b")])], "user", [Result(call_id="t", text="a\nb")]),
        ([result(is_error=True)], "user", [Result(call_id="t", text="ok", is_error=True)]),
        (
            [result(), text("mind!")],
            "user",
            [Result(call_id="t", text="ok"), Result(call_id="", text="mind!")],
        ),
        (
            [result([{"type": "tool_reference", "tool_name": "Web"}])],
            "user",
            [Result(call_id="t", text="", loads=("Web",))],
        ),
        (
            [result([text("shot"), {"type": "image", "source": {}}])],
            "user",
            [Result(call_id="t", text="shot", media=("image",))],
        ),
        (
            [{"type": "thinking", "thinking": "hm", "signature": "s"}],
            "assistant",
            [Thought(text="hm")],
        ),
        ([{"type": "redacted_thinking", "data": "x"}], "assistant", [Thought(text="")]),
        (
            [{"type": "tool_use", "id": "t", "name": "Read", "input": {"a": 1}}],
            "assistant",
            [Call(id="t", name="Read", arguments={"a": 1})],
        ),
        (
            [
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "s",
                    "content": {"type": "web_search_tool_result_error", "error_code": "max_uses"},
                },
            ],
            "assistant",
            [
                Call(id="s", name="web_search", arguments={}),
                Result(
                    call_id="s",
                    text='{"type":"web_search_tool_result_error","error_code":"max_uses"}',
                    is_error=True,
                ),
            ],
        ),
        (
            [
                {
                    "type": "tool_search_tool_result",
                    "tool_use_id": "s",
                    "content": {
                        "type": "tool_search_tool_search_result",
                        "tool_references": [{"type": "tool_reference", "tool_name": "Web"}],
                    },
                }
            ],
            "assistant",
            None,
        ),
        ([{"type": "image", "source": {}}], "user", [Media(kind="image")]),
        ([{"type": "hologram"}], "user", [Other(kind="hologram")]),
        (
            [{"type": "compaction", "content": "x"}],
            "assistant",
            [Other(kind="compaction", is_load_bearing=True)],
        ),
    ],
)
def test_content_is_read_as(content: Any, role: str, expected: list[Part] | None) -> None:
    found = parts(content, role)
    if expected is None:
        assert isinstance(found[0], Result)
        assert found[0].loads == ("Web",)
    else:
        assert found == expected


def test_without_tools_user_text_after_an_answer_is_an_observation() -> None:
    messages = [TASK, {"role": "assistant", "content": "ls"}, {"role": "user", "content": "a.py"}]
    items = read(messages, tools=[]).history.items
    assert items[0].parts == (Typed(text=TASK["content"]),)
    assert items[2].parts == (Result(call_id="", text="a.py"),)


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([{"role": "tool", "content": "x"}], r"\$\.messages\[0\]\.role is 'tool'"),
        ([TASK, "x"], r"\$\.messages\[1\] is no object"),
        ([{"role": "user"}], r"\$\.messages\[0\]\.content"),
        ([{"role": "user", "content": [{"text": "x"}]}], r"\$\.messages\[0\]\.content\[0\]"),
        ([{"role": "user", "content": [3]}], r"\$\.messages\[0\]\.content\[0\]"),
    ],
)
def test_a_message_that_is_none_is_refused_with_its_place(messages: list[Any], place: str) -> None:
    with pytest.raises(RequestError, match=place):
        read(messages)


def test_invalid_utf_8_is_refused() -> None:
    body = body_of([TASK]).replace(b"pipeline", b"pip\xffline")
    with pytest.raises(RequestError, match=r"\$\.messages\[0\]"):
        AnthropicMessages().read(body)


def test_half_a_surrogate_pair_is_read_and_sent_as_it_came() -> None:
    messages = [TASK, *tool_turn(0, 50)]
    messages[2]["content"][0]["content"] = "cut \ud83d off"
    body = json.dumps({"model": "m", "tools": [READ], "messages": messages}).encode()
    request = AnthropicMessages().read(body)
    assert request.render(Decider(request.history, Terms(budget_tokens=9_000)).plan(None)) == body
    forced = Decider(request.history, Terms(budget_tokens=600)).force()
    assert forced is None  # one turn only: nothing to leave behind


def test_half_a_surrogate_pair_in_an_excerpt_is_valid_json() -> None:
    messages = [TASK, *(message for n in range(6) for message in tool_turn(n, 50))]
    messages[2]["content"][0]["content"] = "cut \ud83d off"
    request = AnthropicMessages().read(json.dumps({"tools": [READ], "messages": messages}).encode())
    decider = Decider(request.history, Terms(budget_tokens=9_000))
    forced = decider.force()
    assert forced is not None
    outgoing = request.render(decider.plan(forced.placement))
    assert "cut \ud83d off" in json.loads(outgoing)["messages"][1]["content"][0]["text"]


def test_moving_markers_and_one_block_lists_do_not_change_identity_or_size() -> None:
    plain = read([TASK]).history
    marked = read([{"role": "user", "content": [text(TASK["content"], cache_control=EPHEMERAL)]}])
    assert marked.history.items[0].key == plain.items[0].key
    assert marked.history.items[0].size == plain.items[0].size
    assert marked.history.chain == plain.chain


def test_the_billing_line_has_no_size() -> None:
    line = text("x-anthropic-billing-header: cc_version=2.1.332; cch=12345;")
    with_line = read([TASK], system=[line, text("You are.")]).history.fixed
    assert with_line == read([TASK], system=[text("You are.")]).history.fixed


def test_images_are_priced_by_what_they_show_not_by_base64() -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000},
    }
    for content in ([image], [result([image])]):
        size = read([TASK, {"role": "user", "content": content}]).history.items[1].size
        assert size.text_bytes < 400
        assert 0 < size.media_tokens < 5_000


def long_request(**fields: Any) -> Request:
    messages = [TASK, *(message for n in range(12) for message in tool_turn(n, 2_000))]
    last = messages[-1]["content"][0]
    last["cache_control"] = fields.pop("mark", EPHEMERAL)
    return read(messages, **fields)


def rendered(request: Request, budget_tokens: int = 4_000) -> dict[str, Any]:
    decider = Decider(request.history, Terms(budget_tokens=budget_tokens, rate=0.25))
    decision = decider.decide()
    assert decision.placement is not None
    body: dict[str, Any] = json.loads(request.render(decider.plan(decision.placement)))
    return body


def marks(body: dict[str, Any]) -> int:
    return json.dumps(body).count('"cache_control"')


def test_the_block_takes_a_free_marker_with_the_lifetime_of_the_next_one() -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    body = rendered(long_request(system=[text("a", cache_control=hour)], mark=hour))
    assert body["messages"][1]["content"][0]["cache_control"] == hour
    assert marks(body) == 3


def test_four_markers_are_never_passed() -> None:
    system = [text(str(n), cache_control=EPHEMERAL) for n in range(3)]
    body = rendered(long_request(system=system))
    assert "cache_control" not in body["messages"][1]["content"][0]
    assert marks(body) == 4


def test_no_marker_where_the_client_sets_none() -> None:
    messages = [TASK, *(message for n in range(12) for message in tool_turn(n, 2_000))]
    assert marks(rendered(read(messages))) == 0


def test_automatic_caching_takes_one_of_the_four() -> None:
    request = long_request(cache_control=EPHEMERAL)
    assert len(request.fixed_marks) == 1


def test_everything_beside_the_messages_is_passed_through() -> None:
    fields = {
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "metadata": {"user_id": "u"},
        "unheard_of": [1.10, {"a": None}],
    }
    body = rendered(long_request(**fields))
    assert {name: body[name] for name in fields} == fields


def test_a_request_with_a_thread_is_stateful() -> None:
    assert read([TASK], thread={"type": "continue"}).stateful == "thread"
    assert read([TASK]).stateful == ""


def test_deferred_tools_and_required_thinking_are_seen() -> None:
    tools = [READ, {"name": "Web", "defer_loading": True}]
    request = read([TASK], tools=tools, thinking={"type": "enabled", "budget_tokens": 1})
    assert request.history.deferred_tools == {"Web"}
    assert request.history.thinking_required
    assert not read([TASK], thinking={"type": "adaptive"}).history.thinking_required


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("budget_tokens", [1_500, 3_000])
def test_committed_requests_of_real_agents_stay_valid(path: Path, budget_tokens: int) -> None:
    body = path.read_bytes()
    assert_valid(body, budget_tokens)


def test_every_recorded_request_of_claude_code_stays_valid(test_data: Path) -> None:
    compacted = 0
    for path in sorted((test_data / "captures" / "claude-code").glob("[0-9]*.json")):
        record = json.loads(path.read_text())
        body = json.dumps(record["body"], ensure_ascii=False, separators=(",", ":")).encode()
        is_message = record["path"] == "/v1/messages"
        for budget_tokens in (45_000, 14_000):
            compacted += assert_valid(body, budget_tokens, is_message=is_message)
        compacted += assert_valid(body, 14_000, is_message=is_message, is_forced=True)
    assert compacted > 40


def assert_valid(
    body: bytes, budget_tokens: int, *, is_message: bool = True, is_forced: bool = False
) -> bool:
    """Byte-identical below the budget, only `messages` changed above it, and always valid."""
    request = get_dialect("anthropic").read(body)
    decider = Decider(request.history, Terms(budget_tokens=budget_tokens, rate=0.25))
    decision = (decider.force() if is_forced else None) or decider.decide()
    outgoing = request.render(decider.plan(decision.placement))
    if decider.full_tokens <= budget_tokens and not is_forced:
        assert outgoing == body
    before, after = json.loads(body), json.loads(outgoing)
    assert {k: v for k, v in before.items() if k != "messages"} == {
        k: v for k, v in after.items() if k != "messages"
    }
    if is_message:
        assert violations(after, before=before) == []
        assert sdk_accepts(after) is None
    if decision.placement is not None:
        assert items_of(outgoing)[0] == items_of(body)[0]
    return decision.placement is not None


def test_an_unknown_dialect_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match="did you mean 'anthropic'"):
        get_dialect("antropic")
