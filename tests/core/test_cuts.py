"""Where a cut may fall, and what has to come along."""

from __future__ import annotations

from clifftop.core.cuts import Cuts
from clifftop.core.sizes import Size
from clifftop.core.turns import Call, History, Item, Other, Part, Result, Role, Said, Thought, Typed


def item(role: Role, *parts: Part, size: int = 10) -> Item:
    return Item(role=role, parts=parts, size=Size(text_bytes=size), key=b"")


def call(name: str, tool: str = "Bash") -> Call:
    return Call(id=name, name=tool, arguments={})


def answer(name: str, *loads: str) -> Result:
    return Result(call_id=name, text="ok", loads=loads)


def turns(*names: str) -> list[Item]:
    return [
        x for name in names for x in (item("assistant", call(name)), item("user", answer(name)))
    ]


HEAD = item("user", Typed(text="task"))


def cuts(items: list[Item], **fields: object) -> Cuts:
    return Cuts(History(items, fixed=Size(), **fields))  # type: ignore[arg-type]


def test_the_cut_is_the_kth_newest_turn() -> None:
    found = cuts([HEAD, *turns(*"abcdef")])
    assert [found.choose(1, 13, k, lookback=9) for k in (1, 2, 3)] == [11, 9, 7]


def test_nothing_to_leave_behind_is_no_cut() -> None:
    assert cuts([HEAD, *turns(*"abc")]).choose(1, 7, 3, lookback=9) is None
    assert cuts([HEAD]).choose(1, 1, 1, lookback=9) is None


def test_a_cut_between_call_and_late_result_moves_to_an_older_turn() -> None:
    late = [
        item("assistant", call("x")),
        item("user", Typed(text="wait")),
        *turns("c"),
        item("user", answer("x")),
    ]
    found = cuts([HEAD, *turns("a", "b"), *late, *turns("d")])
    assert found.choose(1, 12, 2, lookback=9) == 5


def test_an_unanswered_call_of_the_last_two_turns_is_not_left_behind() -> None:
    items = [
        HEAD,
        *turns("a", "b", "c"),
        item("assistant", call("x")),
        item("assistant", Said(text="hm")),
    ]
    found = cuts([*items[:-1], item("user", Typed(text="?")), items[-1]])
    assert found.choose(1, 10, 1, lookback=9) == 7


def test_an_old_interrupted_call_does_not_block_cuts_for_ever() -> None:
    items = [HEAD, item("assistant", call("x")), item("user", Typed(text="stop")), *turns(*"abcd")]
    assert cuts(items).choose(1, 11, 1, lookback=9) == 9


def test_an_id_that_is_used_again_means_the_newest_call() -> None:
    found = cuts([HEAD, *turns("call_0", "call_0", "call_0", "call_0")])
    assert all(found.is_legal(turn) for turn in range(4))


def test_the_newest_result_that_loads_a_deferred_tool_stands() -> None:
    load = [item("assistant", call("s", "ToolSearch")), item("user", answer("s", "Web"))]
    newer = [item("assistant", call("t", "ToolSearch")), item("user", answer("t", "Web"))]
    items = [HEAD, *load, *turns("a"), *newer, *turns("b", "c")]
    found = cuts(items, deferred_tools=frozenset({"Web"}))
    assert found.standing(9, 1_000) == [5, 6]
    assert found.standing(5, 1_000) == [1, 2]
    assert cuts(items).standing(9, 1_000) == []


def test_compaction_state_of_the_provider_stands() -> None:
    state = item("assistant", Other(kind="compaction", is_load_bearing=True), Said(text="on"))
    items = [HEAD, *turns("a"), state, item("user", Typed(text="go")), *turns("b", "c")]
    assert cuts(items).standing(7, 1_000) == [3, 4]


def thinking_loop(first_size: int = 10) -> list[Item]:
    thinks = item("assistant", Thought(text="hm"), call("a"), size=first_size)
    return [HEAD, thinks, item("user", answer("a")), *turns("b", "c", "d")]


def test_a_kept_loop_begins_with_a_thought_if_it_did() -> None:
    assert cuts(thinking_loop(), thinking_required=True).standing(7, 10_000) == [1, 2]
    assert cuts(thinking_loop()).standing(7, 10_000) == []


def test_the_anchor_is_the_newest_small_turn_that_thinks() -> None:
    items = thinking_loop(first_size=90_000)
    small = item("assistant", Thought(text="so"), call("b"))
    items[3] = small
    assert cuts(items, thinking_required=True).standing(7, 10_000) == [3, 4]
    items[3] = item("assistant", Thought(text="so"), call("b"), size=95_000)
    assert cuts(items, thinking_required=True).standing(7, 10_000) == [1, 2]


def test_a_loop_that_began_without_a_thought_needs_none() -> None:
    items = [HEAD, *turns("a", "b", "c")]
    assert cuts(items, thinking_required=True).standing(5, 10_000) == []


def test_a_person_between_loops_begins_a_new_one() -> None:
    items = [
        *thinking_loop()[:3],
        item("assistant", Said(text="done")),
        item("user", Typed(text="more")),
        *turns("x", "y"),
    ]
    found = cuts(items, thinking_required=True)
    assert found.history.loop_start == [0, 0, 2, 2]
    assert found.standing(7, 10_000) == []


def test_role_system_items_of_a_standing_turn_stay_behind() -> None:
    items = thinking_loop()
    items.insert(3, item("system"))
    assert cuts(items, thinking_required=True).standing(8, 10_000) == [1, 2]
