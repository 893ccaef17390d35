"""A plan that would break a promise is refused, each for its own reason."""

from __future__ import annotations

import pytest

from clifftop.core.plan import Insert, Keep, Plan, check
from clifftop.core.sizes import Size
from clifftop.core.turns import Call, History, Item, Part, Result, Role, Said, Thought, Typed
from clifftop.errors import PlanError


def item(role: Role, *parts: Part) -> Item:
    return Item(role=role, parts=parts, size=Size(text_bytes=1), key=b"")


def history(*, thinks: bool = False) -> History:
    items = [item("user", Typed(text="task")), item("system")]
    for n in range(4):
        thought = [Thought(text="hm")] if thinks and n == 0 else []
        items.append(item("assistant", *thought, Call(id=str(n), name="Bash", arguments={})))
        items.append(item("user", Result(call_id=str(n), text="ok")))
    return History(items, fixed=Size(), thinking_required=thinks)


BLOCK = Insert("[clifftop]")
GOOD = Plan((Keep(0, 1), BLOCK, Keep(1, 2), Keep(6, 10)))


def test_a_good_plan_passes() -> None:
    check(GOOD, history())
    check(Plan((Keep(0, 10),)), history())
    assert GOOD.kept() == [0, 1, 6, 7, 8, 9]
    assert not GOOD.is_untouched


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((Keep(0, 9),), "untouched plan must keep every item"),
        ((Keep(0, 1), BLOCK, BLOCK, Keep(1, 2), Keep(6, 10)), "at most one block"),
        ((Keep(0, 1), BLOCK, Keep(1, 2), Keep(6, 8), Keep(6, 10)), "kept twice"),
        ((BLOCK, Keep(1, 2), Keep(6, 10)), "head of 2 items"),
        ((Keep(1, 2), Keep(0, 1), BLOCK, Keep(6, 10)), "head of 2 items"),
        ((Keep(0, 1), BLOCK, Keep(1, 2), Keep(6, 9)), "newest turns must come last"),
        ((Keep(0, 1), BLOCK, Keep(1, 2), Keep(7, 10)), "does not start a turn"),
        ((Keep(0, 1), BLOCK, Keep(1, 2), Keep(2, 3), Keep(6, 10)), "are parted"),
        ((Keep(0, 1), BLOCK, Keep(1, 2), Keep(3, 4), Keep(2, 3), Keep(6, 10)), "before its call"),
        ((Keep(0, 2), BLOCK, Keep(6, 10)), "role system would stand before a user"),
    ],
)
def test_a_bad_plan_is_refused(steps: tuple[Keep | Insert, ...], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        check(Plan(steps), history())


def test_a_loop_without_its_thought_is_refused() -> None:
    with pytest.raises(PlanError, match="without its thought"):
        check(GOOD, history(thinks=True))
    anchored = Plan((Keep(0, 1), BLOCK, Keep(1, 2), Keep(2, 4), Keep(6, 10)))
    check(anchored, history(thinks=True))


def test_what_the_client_put_next_to_each_other_is_the_clients() -> None:
    items = [
        item("user", Typed(text="x")),
        item("assistant", Said(text="a")),
        item("system"),
        item("user"),
    ]
    check(Plan((Keep(0, 1), BLOCK, Keep(1, 4))), History(items, fixed=Size()))


def test_runs_join_neighbours() -> None:
    assert list(Keep.runs([1, 2, 3, 7, 9, 10])) == [Keep(1, 4), Keep(7, 8), Keep(9, 11)]
    assert list(Keep.runs([])) == []
