"""From the client's body to the body that goes upstream, and what an answer teaches.

Knows the store, the streams and the algorithm, but no HTTP. Whatever fails here is raised; that the
client's own bytes then go out is `app`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from clifftop.core.block import Placement
from clifftop.core.decide import BLOCK_ENVELOPE, Decider, Decision, Stored, Terms
from clifftop.core.plan import check
from clifftop.core.policy import DEFAULT_BUDGET_TOKENS
from clifftop.core.sizes import DEFAULT_RATE, Size, calibrate, usage_prompt_tokens
from clifftop.dialects.base import Dialect, Request
from clifftop.dialects.overflow import Overflow
from clifftop.errors import OverBudgetError
from clifftop.memory.base import Remembered, Store
from clifftop.proxy.settings import ProxySettings
from clifftop.proxy.streams import Stream, Streams
from clifftop.proxy.summary import Counts

TENANT = "local"
"""The only tenant while there are no client keys."""

FIXED_PARTS = 2.5
"""An automatic budget holds the fixed part this many times."""

RACES = 3
"""How often others may place first before we take our own decision as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What goes upstream for one request. `size` is of what is really sent."""

    body: bytes
    request: Request
    stream: Stream
    decider: Decider
    decision: Decision
    size: Size
    notes: tuple[str, ...] = ()

    def count(self, counts: Counts, usage: Mapping[str, object]) -> None:
        """Add this request and its answer's usage to what is counted."""
        terms = self.decider.terms
        counts.add(
            sent_tokens=self.size.tokens(terms.rate),
            full_tokens=self.decider.full_tokens,
            planned_tokens=self.decision.size_tokens,
            usage=usage,
            window_tokens=terms.window_tokens,
        )


class Figures(NamedTuple):
    """What a prompt consists of, in tokens. `fixed`: what no cliff can touch, the head included."""

    total: int
    budget: int
    fixed: int
    block: int
    recent: int

    @property
    def smallest_budget(self) -> int:
        """The smallest budget that makes sense: twice the fixed part, in whole thousands."""
        return math.ceil(2 * self.fixed / 1_000) * 1_000

    def __str__(self) -> str:
        return (
            f"prompt {self.total}, budget {self.budget}, fixed part {self.fixed},"
            f" block {self.block}, recent {self.recent}, smallest sensible budget"
            f" {self.smallest_budget} tokens"
        )


class Compactor:
    """Compacts the requests of one dialect for one upstream."""

    def __init__(
        self,
        *,
        settings: ProxySettings,
        store: Store,
        streams: Streams,
        dialect: Dialect,
        upstream: str,
    ) -> None:
        self.settings = settings
        self.store = store
        self.streams = streams
        self.dialect = dialect
        self.upstream = upstream
        self.rules = settings.rules

    def read(self, body: bytes) -> Request:
        """Read a body.

        Raises:
            RequestError: it is no request.
        """
        return self.dialect.read(body)

    async def prepare(self, request: Request) -> Outgoing:
        """Decide what goes upstream, and remember what was decided before it goes.

        Raises:
            OverBudgetError: strict mode, and nothing brings the prompt under the budget.
            PlanError: a plan that would break a promise.
        """
        history = request.history
        stream = self.streams.of(TENANT, history)
        points = history.points()
        found = await self.store.longest(TENANT, [history.chain[point] for point in points])
        remembered = found[1] if found else None
        rate = await self.store.rate(self.upstream, request.model) or DEFAULT_RATE
        terms = Terms(
            budget_tokens=self._budget_tokens(request, stream, remembered, rate),
            profile=self.rules,
            rate=rate,
            window_tokens=await self.store.window(self.upstream, request.model),
            answer_tokens=request.answer_tokens,
            is_strict=self.settings.is_strict,
        )
        decider = Decider(history, terms)
        stored = Stored(points[found[0]], found[1].placement) if found else None
        notes = self._differences(stream, stored, remembered, decider)
        decision = await self._settle(decider, stored)
        stream.cliffs += len(decision.placed)
        if decision.placement is not None:
            stream.cliffs = max(stream.cliffs, 1)
        outgoing = self._render(request, stream, decider, decision)
        return replace(outgoing, notes=(*notes, *self._over_budget(outgoing)))

    async def harder(self, refused: Outgoing, overflow: Overflow) -> Outgoing | None:
        """Make a cliff because the provider refused a prompt as too long; None if none helps."""
        if overflow.limit_is_window and overflow.limit_tokens:
            await self.store.set_window(self.upstream, refused.request.model, overflow.limit_tokens)
        if self.settings.is_shadow:
            return None
        decider, decision = refused.decider, refused.decision
        end, placement = len(decider.history), decision.placement
        is_made_here = placement is not None and decision.point == end
        chosen: Decision | None = None
        rung = 0
        # Rungs that the named sizes rule out are passed over: each try costs a round trip.
        while (found := decider.replay(decision, rung=rung)) and found.placement:
            chosen, rung = found, found.placement.rung + 1
            if _fits(found, decision, overflow):
                break
        if chosen is None:
            return None
        chosen = await self._replace(decider, chosen, refused if is_made_here else None)
        refused.stream.cliffs += 0 if is_made_here else 1
        return replace(
            self._render(refused.request, refused.stream, decider, chosen), notes=refused.notes
        )

    async def learn(self, outgoing: Outgoing, usage: Mapping[str, object]) -> None:
        """Let an answer's usage move the tokens-per-byte rate of its model."""
        reported = usage_prompt_tokens(usage)
        if reported is None:
            return
        model = outgoing.request.model
        rate = await self.store.rate(self.upstream, model) or DEFAULT_RATE
        seen = calibrate(rate, size=outgoing.size, reported_tokens=reported)
        if seen != rate:
            await self.store.set_rate(self.upstream, model, seen)

    def _budget_tokens(
        self, request: Request, stream: Stream, remembered: Remembered | None, rate: float
    ) -> int:
        """Choose the stream's budget: as configured, as fixed earlier, or from this request."""
        if self.settings.budget_tokens is not None:
            return self.settings.budget_tokens
        known = stream.budget_tokens or (remembered.budget_tokens if remembered else None)
        fixed_tokens = request.history.fixed.tokens(rate)
        chosen = known or max(DEFAULT_BUDGET_TOKENS, math.ceil(FIXED_PARTS * fixed_tokens))
        # A title request has a session's head but neither tools nor a turn: it fixes nothing.
        if request.history.starts:
            stream.budget_tokens = chosen
        return chosen

    def _differences(
        self, stream: Stream, stored: Stored | None, remembered: Remembered | None, decider: Decider
    ) -> tuple[str, ...]:
        """Say why a remembered cliff is ignored, or is rendered in another way than before."""
        if stored is None or remembered is None:
            return ()
        kind = ""
        if not decider.is_usable(stored):
            kind = "stored cliff ignored: it does not fit this history"
        elif remembered.rules != self.rules.digest:
            kind = "block rendered anew: the profile has changed"
        elif remembered.budget_tokens != decider.terms.budget_tokens:
            kind = "block rendered anew: the budget has changed"
        return (kind,) if kind and stream.say_once(kind) else ()

    async def _settle(self, decider: Decider, stored: Stored | None) -> Decision:
        """Decide, and remember each placement; where another was first, decide from there."""
        chain = decider.history.chain
        decision = decider.decide(stored)
        for _ in range(RACES):
            for placed in decision.placed:
                ours = self._remembered(placed.placement, decider)
                winner = (await self.store.put(TENANT, chain[placed.point], ours)).placement
                stored = Stored(placed.point, winner)
                if winner != placed.placement and decider.is_usable(stored):
                    break
            else:
                return decision
            decision = decider.decide(stored)
        return decision

    async def _replace(
        self, decider: Decider, chosen: Decision, refused: Outgoing | None
    ) -> Decision:
        """Remember a replay's cliff at the end of the request, instead of the refused one if any.

        Where somebody else has cured the same refusal, theirs is sent.
        """
        assert chosen.placement is not None
        link = decider.history.chain[chosen.point]
        known = await self.store.longest(TENANT, [link])
        instead_of = None
        if known and refused is not None and known[1].placement == refused.decision.placement:
            instead_of = known[1]
        ours = self._remembered(chosen.placement, decider)
        winner = (await self.store.put(TENANT, link, ours, instead_of=instead_of)).placement
        theirs = Stored(chosen.point, winner)
        if winner == chosen.placement or not decider.is_usable(theirs):
            return chosen
        size_tokens = decider.size_tokens(winner, chosen.point)
        if size_tokens > chosen.size_tokens:
            return chosen
        return Decision(winner, chosen.point, size_tokens, (theirs,))

    def _remembered(self, placement: Placement, decider: Decider) -> Remembered:
        return Remembered(
            placement=placement,
            budget_tokens=decider.terms.budget_tokens,
            rules=self.rules.digest,
        )

    def _render(
        self, request: Request, stream: Stream, decider: Decider, decision: Decision
    ) -> Outgoing:
        """Render a decision; in shadow mode the client's own bytes."""
        history, placement = request.history, decision.placement
        plan = decider.plan(placement)
        check(plan, history)
        size, body = history.fixed + history.size(0, len(history)), request.body
        if placement is not None and not self.settings.is_shadow:
            body = request.render(plan)
            block_bytes = decider.blocks.json_bytes(placement) + BLOCK_ENVELOPE
            size = history.fixed + Size(text_bytes=block_bytes, media_tokens=0)
            for index in plan.kept():
                size += history.items[index].size
        return Outgoing(
            body=body,
            request=request,
            stream=stream,
            decider=decider,
            decision=decision,
            size=size,
        )

    def _over_budget(self, outgoing: Outgoing) -> tuple[str, ...]:
        """Say once per stream that its prompt stays over the budget; in strict mode refuse it."""
        decider, decision = outgoing.decider, outgoing.decision
        if decision.size_tokens <= decider.terms.threshold_tokens:
            return ()
        figures = figures_of(decider, decision)
        if self.settings.is_strict and not self.settings.is_shadow:
            raise OverBudgetError(f"the prompt stays over the budget: {figures}")
        notice = f"over budget: {figures}"
        return (notice,) if outgoing.stream.say_once("over budget") else ()


def figures_of(decider: Decider, decision: Decision) -> Figures:
    """Measure what an outgoing prompt consists of."""
    history, rate = decider.history, decider.terms.rate
    cut = decision.placement.cut if decision.placement else history.head
    fixed = (history.fixed + history.size(0, history.head)).tokens(rate)
    recent = history.size(cut, len(history)).tokens(rate)
    total = decision.size_tokens
    budget = decider.terms.threshold_tokens
    return Figures(*(round(x) for x in (total, budget, fixed, total - fixed - recent, recent)))


def _fits(found: Decision, refused: Decision, overflow: Overflow) -> bool:
    """Is a smaller prompt within the limit, as far as the provider named its sizes?"""
    if not overflow.limit_tokens or not overflow.prompt_tokens:
        return True
    share = found.size_tokens / refused.size_tokens
    room = overflow.limit_tokens - (overflow.output_tokens or 0)
    return overflow.prompt_tokens * share <= room
