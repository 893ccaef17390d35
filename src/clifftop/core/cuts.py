"""Where a history may be cut, and which older turns must come along whole.

Every answer depends on the history alone, never on sizes of the moment, and providers' rules are
the only reason for anything here. The choice *whether* to cut is `decide`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

from clifftop.core.turns import Call, History, Other, Result

ANCHOR_SHARE = 1 / 16
"""An anchor should be small: at most this part of the budget, if there is a choice."""


class Cuts:
    """Legal cuts and load-bearing turns of one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._answered_until = list(accumulate([0, *history.last_answer], max))
        """`_answered_until[t]`: index of the last result for a call of the turns before t."""
        self._loads, self._provider_state = self._find_load_bearing()

    def is_legal(self, turn: int) -> bool:
        """May a kept tail begin with this turn: does it hold no result without its call?"""
        return self._answered_until[turn] < self.history.starts[turn]

    def choose(self, live: int, point: int, keep_recent: int, lookback: int) -> int | None:
        """Choose the cut for a cliff at a request point.

        The start of the K-th newest turn of items[live:point]; where that is not legal an older
        turn (up to `lookback` of them), then a newer one. None when there is nothing to leave
        behind.
        """
        history = self.history
        first, end = history.turn_at(live), history.turn_at(point)
        wanted = end - keep_recent
        if wanted <= first:
            return None
        limit = self._pending(first, end, point)
        older = range(wanted, max(first, wanted - lookback - 1), -1)
        for turn in chain(older, range(wanted + 1, end)):
            if turn <= limit and self.is_legal(turn):
                return history.starts[turn]
        return None

    def _pending(self, first: int, end: int, point: int) -> int:
        """The newest turn that may be cut at: one of the last two that waits for a result."""
        history = self.history
        for turn in range(max(first, end - 2), end):
            if history.waits[turn] or history.last_answer[turn] >= point:
                return turn
        return end

    def standing(self, cut: int, budget_bytes: float) -> list[int]:
        """Indices of older items that must stand whole between the block and the newest turns.

        Load-bearing turns: the newest result that loads each deferred tool, with its call; the
        newest compaction state of the provider. And an anchor: many models think only once, at the
        start of a tool loop of any length, and with thinking `enabled` a provider refuses a loop
        that does not begin with a thought. What follows the block is one loop to it, as long as
        results follow each turn.
        """
        history, thinks = self.history, self.history.begins_with_thought
        newest = history.turn_at(cut)
        turns = sorted({self._turn_of(index) for index in self._wanted(cut)})
        joined = len(turns)  # from here on results follow each turn: the newest loop begins here
        while joined and history.has_results[turns[joined - 1]]:
            joined -= 1
        first = turns[joined] if joined < len(turns) else newest
        must_think = history.thinking_required and thinks[history.loop_start[newest]]
        if must_think and not thinks[first]:
            turns[joined:joined] = self._anchor(first, newest, budget_bytes)
        return [index for turn in turns for index in self._whole(turn)]

    def _wanted(self, cut: int) -> set[int]:
        wanted = set([index for index in self._provider_state if index < cut][-1:])
        missing = set(self.history.deferred_tools)
        for index, names in reversed(self._loads):
            if not missing:
                break
            if index < cut and missing & names:
                missing -= names
                wanted.add(index)
        return wanted

    def _anchor(self, first: int, newest: int, budget_bytes: float) -> list[int]:
        """The newest small turn before `first` that begins with a thought, else the smallest.

        Where thinking was switched on later than that, one behind it that uses no deferred tool.
        """
        for turns in (range(first - 1, -1, -1), range(newest - 1, first, -1)):
            smallest: list[tuple[int, int]] = []
            for turn in turns:
                goes_on = self.history.begins_with_thought[turn] and self.history.has_results[turn]
                if not goes_on or (turn > first and self._uses(turn)):
                    continue
                size = sum(self.history.items[i].size.text_bytes for i in self._whole(turn))
                if size <= budget_bytes * ANCHOR_SHARE:
                    return [turn]
                smallest.append((size, turn))
            if smallest:
                return [min(smallest)[1]]
        return []

    def _uses(self, turn: int) -> bool:
        parts = (part for item in self.history.turn(turn) for part in item.parts)
        return any(isinstance(p, Call) and p.name in self.history.deferred_tools for p in parts)

    def _find_load_bearing(self) -> tuple[list[tuple[int, frozenset[str]]], list[int]]:
        loads, states = [], []
        for index in range(self.history.head, len(self.history)):
            for part in self.history.items[index].parts:
                match part:
                    case Result(loads=names) if names:
                        loads.append((index, frozenset(names) & self.history.deferred_tools))
                    case Other(is_load_bearing=True):
                        states.append(index)
                    case _:
                        pass
        return loads, states

    def _turn_of(self, index: int) -> int:
        return self.history.turn_at(index + 1) - 1

    def _whole(self, turn: int) -> list[int]:
        items: Sequence[int] = range(self.history.starts[turn], self.history.turn_end(turn))
        return [index for index in items if self.history.items[index].role != "system"]
