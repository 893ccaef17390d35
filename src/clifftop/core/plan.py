"""What to send, as data: which items to keep, which text to insert, and a check of both.

A plan can be printed, compared and replayed. It knows nothing of bytes: rendering is the dialect's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from clifftop.core.turns import Call, History, Result
from clifftop.errors import PlanError


class Keep(NamedTuple):
    """Send items[start:stop] byte for byte."""

    start: int
    stop: int

    @staticmethod
    def runs(indices: Iterable[int]) -> Iterator[Keep]:
        """Join ascending indices into as few steps as possible."""
        start = stop = -1
        for index in indices:
            if index != stop and stop >= 0:
                yield Keep(start, stop)
            start = index if index != stop else start
            stop = index + 1
        if stop >= 0:
            yield Keep(start, stop)


class Insert(NamedTuple):
    """Send one user item of ours with this text."""

    text: str


class Plan(NamedTuple):
    """The outgoing items, in order."""

    steps: tuple[Keep | Insert, ...]

    @property
    def is_untouched(self) -> bool:
        """Does the request go out as it came?"""
        return not any(isinstance(step, Insert) for step in self.steps)

    def kept(self) -> list[int]:
        """Indices of the kept items, in outgoing order."""
        return [
            index
            for step in self.steps
            if isinstance(step, Keep)
            for index in range(step.start, step.stop)
        ]


def check(plan: Plan, history: History) -> None:
    """Prove on a plan what must hold of every outgoing request.

    The head whole and first, each item at most once, the tail in order and whole, at most one
    block, each result right behind its call, no call without the results that the history has for
    it, role `system` items where providers take them, a kept tool loop that begins with a thought
    if it did.

    Raises:
        PlanError: with the index of the first item that breaks a rule.
    """
    kept = plan.kept()
    if plan.is_untouched:
        if kept != list(range(len(history))):
            raise PlanError("an untouched plan must keep every item")
        return
    if sum(isinstance(step, Insert) for step in plan.steps) != 1:
        raise PlanError("a plan holds at most one block")
    if len(set(kept)) != len(kept):
        raise PlanError("an item is kept twice")
    _check_order(plan, kept, history)
    _check_pairs(kept, history)
    _check_system_items(plan, history)
    _check_loop(plan, history)


def _check_order(plan: Plan, kept: list[int], history: History) -> None:
    if kept[: history.head] != list(range(history.head)):
        raise PlanError(f"the head of {history.head} items must be kept whole, in order and first")
    tail = plan.steps[-1]
    if not isinstance(tail, Keep) or tail.stop != len(history) or tail.start >= tail.stop:
        raise PlanError("the newest turns must come last")
    if tail.start not in history.starts:
        raise PlanError(f"items[{tail.start}] does not start a turn")
    if any(index >= tail.start for index in kept[: len(kept) - (tail.stop - tail.start)]):
        raise PlanError("an item of the newest turns stands before them")


def _check_pairs(kept: list[int], history: History) -> None:
    where = {index: position for position, index in enumerate(kept)}
    calls: dict[str, int] = {}
    for index, item in enumerate(history.items):
        for part in item.parts:
            match part:
                case Call(id=call_id):
                    calls[call_id] = index
                case Result(call_id=call_id) if call_id in calls:
                    caller = calls[call_id]
                    if (caller in where) != (index in where):
                        raise PlanError(f"items[{caller}] and its result items[{index}] are parted")
                    if index in where and where[index] < where[caller]:
                        raise PlanError(f"result items[{index}] stands before its call")
                case _:
                    pass


def _check_system_items(plan: Plan, history: History) -> None:
    """Look at the seams only: what the client put next to each other is the client's."""
    for before, after in pairwise(plan.steps):
        if isinstance(before, Keep) and before.start < before.stop:
            follows = "user" if isinstance(after, Insert) else history.items[after.start].role
            if history.items[before.stop - 1].role == "system" and follows == "user":
                raise PlanError(
                    f"items[{before.stop - 1}] of role system would stand before a user"
                )


def _check_loop(plan: Plan, history: History) -> None:
    if not history.thinking_required:
        return
    tail = plan.steps[-1]
    assert isinstance(tail, Keep)
    turn = history.turn_at(tail.start)
    if not history.begins_with_thought[history.loop_start[turn]]:
        return
    first = turn
    standing = [index for index in plan.kept() if history.head <= index < tail.start]
    for index in reversed(standing):
        number = history.turn_at(index + 1) - 1
        if not history.has_results[number]:
            break
        first = number
    if not history.begins_with_thought[first]:
        at = history.starts[first]
        raise PlanError(f"items[{at}] begins a tool loop without its thought")
