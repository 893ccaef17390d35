"""The nine promises as properties over whole sessions, and as a state machine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.messages_api import violations
from tests.promises import Sent, Stream, judge, whole
from tests.strategies import (
    Session,
    branch,
    directives,
    edit_head,
    filler,
    request_body,
    sessions,
)


def stream_of(session: Session) -> Stream:
    return Stream(session.budget_tokens, window_tokens=session.window_tokens)


def typed_before(session: Session, n: int) -> list[str]:
    return directives(session.messages[: session.request_ends[n]])


@given(sessions())
def test_every_promise_holds_for_every_request(session: Session) -> None:
    stream, previous = stream_of(session), None
    for n in range(len(session.request_ends)):
        sent = stream.send(request_body(session, n))
        judge(sent, previous, stream, typed_before(session, n))
        previous = sent


@given(sessions(broken=True))
def test_a_damaged_history_raises_our_errors_only(session: Session) -> None:
    from clifftop.errors import ClifftopError

    stream = stream_of(session)
    for n in range(len(session.request_ends)):
        try:
            stream.send(request_body(session, n))
        except ClifftopError:
            continue


@given(sessions(longest=25), st.data())
def test_a_branch_back_gives_the_prompt_that_went_out_there(
    session: Session, data: st.DataObject
) -> None:
    stream = stream_of(session)
    went_out = [
        stream.send(request_body(session, n)).outgoing for n in range(len(session.request_ends))
    ]
    n = data.draw(st.integers(0, len(went_out) - 1))
    assert stream.send(request_body(session, n)).outgoing == went_out[n]
    other = branch(session, n)
    previous = None
    for m in range(len(other.request_ends)):
        sent = stream.send(request_body(other, m))
        judge(sent, previous, stream, typed_before(other, m))
        previous = sent


@given(sessions(longest=25))
def test_an_edited_head_is_a_new_stream_that_keeps_every_promise(session: Session) -> None:
    stream = stream_of(session)
    stream.send(request_body(session, len(session.request_ends) - 1))
    edited, previous = edit_head(session), None
    for n in range(len(edited.request_ends)):
        sent = stream.send(request_body(edited, n))
        judge(sent, previous, stream, typed_before(edited, n))
        previous = sent


@given(sessions(longest=30), st.integers(0, 3))
def test_refusals_are_answered_with_smaller_valid_prompts(session: Session, first: int) -> None:
    stream = stream_of(session)
    last = len(session.request_ends) - 1
    sent: Sent | None = stream.send(request_body(session, last))
    rung = first
    for _ in range(3):
        assert sent is not None
        smaller = stream.refuse(sent, rung)
        if smaller is None:
            break
        assert smaller.decision.size_tokens <= 0.9 * sent.decision.size_tokens
        whole(smaller)
        assert smaller.placement is not None
        sent, rung = smaller, smaller.placement.rung + 1


class Conversation(RuleBasedStateMachine):
    """Grow, branch, edit, lose the store, noisy rates, huge results, tools near the budget."""

    @initialize(session=sessions(longest=30))
    def begin(self, session: Session) -> None:
        self.session, self.n = session, -1
        self.stream = stream_of(session)
        self.previous: Sent | None = None
        self.is_calm = True

    def send(self) -> None:
        sent = self.stream.send(request_body(self.session, self.n))
        calm = self.previous if self.is_calm else None
        typed = typed_before(self.session, self.n)
        judge(sent, calm, self.stream, typed, forgets=self.forgets_safely)
        self.previous, self.is_calm = sent, True

    forgets_safely = True

    @precondition(lambda self: self.n + 1 < len(self.session.request_ends))
    @rule(steps=st.integers(1, 4))
    def grow(self, steps: int) -> None:
        self.n = min(self.n + steps, len(self.session.request_ends) - 1)
        self.send()

    @precondition(lambda self: self.n > 1)
    @rule(back=st.integers(1, 5))
    def go_back(self, back: int) -> None:
        self.n = max(0, self.n - back)
        self.is_calm = False
        self.send()

    @precondition(lambda self: self.n >= 0)
    @rule()
    def edit(self) -> None:
        self.session, self.is_calm = edit_head(self.session), False
        self.send()

    @rule()
    def lose_the_store(self) -> None:
        self.stream.memory.clear()

    @rule(rate=st.floats(0.18, 0.35))
    def recalibrate(self, rate: float) -> None:
        self.stream.rate, self.forgets_safely = rate, False

    @precondition(lambda self: self.n >= 0)
    @rule(times=st.sampled_from((1, 3)))
    def get_a_huge_result(self, times: int) -> None:
        text = filler(times * self.session.budget_tokens * 4, "a line of a log\n")
        self.append(text, f"huge-{len(self.session.messages)}")

    @precondition(lambda self: self.n >= 0)
    @rule(share=st.sampled_from((0.5, 0.97, 1.3)))
    def declare_large_tools(self, share: float) -> None:
        description = "x" * int(share * self.session.budget_tokens * 4)
        tool = {"name": "large", "description": description, "input_schema": {"type": "object"}}
        tools = [t for t in self.session.tools if t["name"] != "large"]
        self.session = replace(self.session, tools=[*tools, tool])
        self.forgets_safely = False  # older crossings were measured with other tools
        self.append("done", f"tool-{len(self.session.messages)}")

    @precondition(lambda self: self.previous is not None)
    @rule(rung=st.integers(0, 3))
    def refuse(self, rung: int) -> None:
        assert self.previous is not None
        smaller = self.stream.refuse(self.previous, rung)
        if smaller is not None:
            whole(smaller)
            self.previous, self.forgets_safely = smaller, False

    def append(self, text: str, key: str) -> None:
        """One more turn behind the newest request."""
        end = self.session.request_ends[self.n]
        call: dict[str, Any] = {"type": "tool_use", "id": key, "name": "Bash", "input": {}}
        thinks = (self.session.thinking or {}).get("type") == "enabled"
        thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        turn = [
            {"role": "assistant", "content": [*([thought] if thinks else []), call]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": key, "content": text}],
            },
        ]
        messages = [*self.session.messages[:end], *turn]
        ends = (*self.session.request_ends[: self.n + 1], len(messages))
        self.session = replace(self.session, messages=messages, request_ends=ends)
        self.n += 1
        if violations(json.loads(request_body(self.session, self.n))):
            note("the client's own request breaks a rule")
        self.send()

    @invariant()
    def memory_is_small(self) -> None:
        assert all(
            len(placement) == 3 for placement in getattr(self, "stream", Stream(1)).memory.values()
        )


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=max(30, settings.default.max_examples // 3), stateful_step_count=25
)
