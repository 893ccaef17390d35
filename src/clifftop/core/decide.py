"""When to fall off a cliff, and which one applies now.

A stream's whole memory is its last `Placement`. Everything else is found again from the history:
the crossings of the budget are tested at each request point, in order, so that a history which
arrives at once is cut where one watched from its start was cut. How a turn is excerpted is not
decided here.

Source: paper 2.3 and Algorithm 1 line 18; rungs, guard and folding are ours (docs/how-it-works.md).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from clifftop.core.block import Blocks, Placement
from clifftop.core.cuts import Cuts
from clifftop.core.lasting import BYTES_PER_TOKEN
from clifftop.core.plan import Insert, Keep, Plan
from clifftop.core.profile import DEFAULT, Profile
from clifftop.core.sizes import DEFAULT_RATE, Size
from clifftop.core.turns import History

PAYS = 0.75
"""A cliff leaves at most this part of the budget, so that a quarter is there to grow."""

REPLAY_PAYS = 0.9
"""A cliff after a refusal must save a tenth of what was refused."""

HARD_BUDGETS, HARD_WINDOW = 2.0, 0.9
HARDEST = 3
"""The last rung that a crossing takes; those behind it are for refusals only."""

BLOCK_ENVELOPE = 64
"""Bytes of the block's item beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Under which terms prompts are sized and cut.

    `budget_tokens`: B as configured; caps inside the block follow it and nothing else.
    `rate`: tokens per byte of the outgoing prompt. `window_tokens`: the model's window, if known;
    `answer_tokens`: the room that the answer asked for. `is_strict`: B may not be widened.
    """

    budget_tokens: int
    profile: Profile = DEFAULT
    rate: float = DEFAULT_RATE
    window_tokens: int | None = None
    answer_tokens: int = 0
    is_strict: bool = False

    @property
    def threshold_tokens(self) -> float:
        """B, but never more than the window less the answer's room (up to a quarter of it)."""
        if self.window_tokens is None:
            return self.budget_tokens
        answer = min(self.answer_tokens, self.window_tokens / 4)
        return min(self.budget_tokens, self.window_tokens - answer)


class Stored(NamedTuple):
    """A placement that was remembered, and the request point it was made at."""

    point: int
    placement: Placement


class Decision(NamedTuple):
    """What to send. `placement` None means the request as it is.

    `point`: where the placement was made; `size_tokens`: of the outgoing prompt; `placed`: what
    this call placed (a fold may place several), oldest first.
    """

    placement: Placement | None
    point: int
    size_tokens: float
    placed: tuple[Stored, ...] = ()


class Shares(NamedTuple):
    """Parts of an outgoing prompt, in tokens.

    `fixed_tokens` includes the head. Below `sensible_budget_tokens` every cliff is a hard one.
    """

    fixed_tokens: float
    block_tokens: float
    recent_tokens: float
    sensible_budget_tokens: int


class Decider:
    """Decides for one history under given terms. Holds measurements, no state between requests."""

    def __init__(self, history: History, terms: Terms) -> None:
        self.history = history
        self.terms = terms
        self.blocks = Blocks(history, profile=terms.profile, budget_tokens=terms.budget_tokens)
        self.weighed = 0
        """Candidates weighed so far; each costs constant work beside what `blocks.work` counts."""
        self._head_tokens = (history.fixed + history.size(0, history.head)).tokens(terms.rate)
        self._cuts: Cuts | None = None
        self._standing: dict[Placement, Size] = {}

    def decide(self, stored: Stored | None = None) -> Decision:
        """Find the placement that applies at the end of the history.

        `stored` wins over anything computed. It is untrusted: one that does not fit is ignored.
        """
        end = len(self.history)
        threshold = self.terms.threshold_tokens
        placement, point = None, 0
        if stored is not None and self.is_usable(stored):
            placement, point = stored.placement, stored.point
        placed: list[Stored] = []
        if self.size_tokens(placement, end) > threshold:
            points = self.history.points()
            for at in points[bisect_left(points, point + 1) :]:
                size = self.size_tokens(placement, at)
                if size <= threshold:
                    continue
                found = self._place(self._live(placement), at, size)
                if found is not None:
                    placement, point = found, at
                    placed.append(Stored(at, found))
        return Decision(placement, point, self.size_tokens(placement, end), tuple(placed))

    def replay(self, refused: Decision, *, rung: int) -> Decision | None:
        """Make a cliff at the end because the provider refused `refused` as too long.

        The first rung from `rung` on that saves a tenth; None when there is none. A cliff that was
        made for the refused request itself is made again from the same live session.
        """
        end = len(self.history)
        live = self._live(refused.placement)
        if refused.placement is not None and refused.point == end:
            live = refused.placement.prev_cut
        for higher in range(rung, len(self.terms.profile.rungs)):
            found = self._candidate(live, end, higher)
            if found is None:
                continue
            size = self.size_tokens(found, end)
            if size <= REPLAY_PAYS * refused.size_tokens:
                return Decision(found, end, size, (Stored(end, found),))
        return None

    def force(self) -> Decision | None:
        """Make a first cliff at the end whether it pays or not; None when nothing can go."""
        end = len(self.history)
        for rung in range(len(self.terms.profile.rungs)):
            found = self._candidate(self.history.head, end, rung)
            if found is not None:
                return Decision(found, end, self.size_tokens(found, end), (Stored(end, found),))
        return None

    @property
    def full_tokens(self) -> float:
        """Size of the request as the client sent it, in tokens."""
        return self.size_tokens(None, len(self.history))

    def shares(self, decision: Decision) -> Shares:
        """Say what an outgoing prompt consists of, for people who are over their budget."""
        fixed, block = self._head_tokens, 0.0
        if decision.placement is not None:
            block = self._standing_size(decision.placement).tokens(self.terms.rate)
        return Shares(
            fixed_tokens=fixed,
            block_tokens=block,
            recent_tokens=decision.size_tokens - fixed - block,
            sensible_budget_tokens=ceil(2 * fixed / 1_000) * 1_000,
        )

    def plan(self, placement: Placement | None) -> Plan:
        """Turn a placement into the steps that make the outgoing items."""
        end, head = len(self.history), self.history.head
        if placement is None:
            return Plan((Keep(0, end),))
        seat = self._seat()
        return Plan(
            (
                Keep(0, seat),
                Insert(self.blocks.text(placement)),
                *Keep.runs(range(seat, head)),
                *Keep.runs(self._standing_items(placement.cut)),
                Keep(placement.cut, end),
            )
        )

    def size_tokens(self, placement: Placement | None, point: int) -> float:
        """Size of the outgoing prompt for items[:point], in tokens."""
        if placement is None:
            return self._bare_tokens(self.history.head, point)
        standing = self._standing_size(placement)
        return self._bare_tokens(placement.cut, point) + standing.tokens(self.terms.rate)

    def is_usable(self, stored: Stored) -> bool:
        """Does a remembered placement fit this history: whole numbers, in order, at a legal cut?"""
        history, (point, (prev_cut, cut, rung)) = self.history, stored
        starts = history.starts
        if not 0 <= rung < len(self.terms.profile.rungs):
            return False
        if not history.head <= prev_cut < cut < point <= len(history):
            return False
        first, turn = history.turn_at(prev_cut), history.turn_at(cut)
        if starts[first] != prev_cut or turn >= len(starts) or starts[turn] != cut:
            return False
        return self.cuts.is_legal(turn)

    @property
    def cuts(self) -> Cuts:
        """Legal cuts of the history, found at first use."""
        if self._cuts is None:
            self._cuts = Cuts(self.history)
        return self._cuts

    def _live(self, placement: Placement | None) -> int:
        return placement.cut if placement else self.history.head

    def _place(self, live: int, point: int, size: float) -> Placement | None:
        """The next placement at a crossing, or None: wait until a cliff pays."""
        newest_turn = self.history.turn_at(point) - 1
        if newest_turn < 0 or self.history.starts[newest_turn] <= live:
            return None
        if not self.terms.profile.has_guard:
            return self._candidate(live, point, 0)
        threshold = self.terms.threshold_tokens
        most = threshold if self.terms.is_strict else PAYS * size
        least = self._bare_tokens(self.history.starts[newest_turn], point)
        if least > most:
            return None  # not even an empty block would pay
        limits = [(rung, PAYS * threshold) for rung in range(HARDEST + 1)]
        if self.terms.is_strict:
            limits += [(rung, threshold) for rung in range(HARDEST + 1)]
        elif self._is_hard(size):
            limits += [(rung, min(threshold, PAYS * size)) for rung in range(1, HARDEST)]
            limits += [(HARDEST, PAYS * size)]
        else:
            limits += [(1, PAYS * size)]
        for rung, limit in limits:
            if limit < least:
                continue
            if (found := self._within(live, point, rung, limit)) is not None:
                return found
        return None

    def _is_hard(self, size: float) -> bool:
        """Is waiting for the milder rungs over?"""
        window = self.terms.window_tokens
        limit = HARD_BUDGETS * self.terms.threshold_tokens
        return size > (min(limit, HARD_WINDOW * window) if window else limit)

    def _within(self, live: int, point: int, rung: int, limit: float) -> Placement | None:
        found = self._candidate(live, point, rung)
        if found is None or self._bare_tokens(found.cut, point) > limit:
            return None  # too large before anything is rendered
        return found if self.size_tokens(found, point) <= limit else None

    def _candidate(self, live: int, point: int, rung: int) -> Placement | None:
        self.weighed += 1
        profile = self.terms.profile
        keep = profile.rungs[rung].keep_recent
        cut = self.cuts.choose(live, point, keep, lookback=3 * profile.keep_recent)
        return None if cut is None else Placement(live, cut, rung)

    def _bare_tokens(self, cut: int, point: int) -> float:
        """Size of head and items[cut:point] with nothing between."""
        return self._head_tokens + self.history.tokens(cut, point, self.terms.rate)

    def _standing_size(self, placement: Placement) -> Size:
        """What stands between head and newest turns: the block, and older turns kept whole."""
        size = self._standing.get(placement)
        if size is None:
            size = Size(text_bytes=self.blocks.json_bytes(placement) + BLOCK_ENVELOPE)
            for index in self._standing_items(placement.cut):
                size += self.history.items[index].size
            self._standing[placement] = size
        return size

    def _standing_items(self, cut: int) -> list[int]:
        return self.cuts.standing(cut, self.terms.budget_tokens * BYTES_PER_TOKEN)

    def _seat(self) -> int:
        """Where the block goes: behind the last user item of the head.

        Role `system` items may follow: providers want an assistant item after those.
        """
        seat = self.history.head
        while seat and self.history.items[seat - 1].role == "system":
            seat -= 1
        return seat or self.history.head
