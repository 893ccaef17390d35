"""From the client's body to the body that goes upstream.

Knows the store, the streams and the algorithm, but no HTTP. Whatever fails here is raised; that the
client's own bytes then go out is `app`'s.
"""

from __future__ import annotations

import math
from dataclasses import replace

from clifftop.core.block import Placement
from clifftop.core.decide import BLOCK_ENVELOPE, Decider, Decision, Stored, Terms
from clifftop.core.plan import check
from clifftop.core.policy import DEFAULT_BUDGET_TOKENS
from clifftop.core.sizes import DEFAULT_RATE, Size
from clifftop.dialects.base import Dialect, Request
from clifftop.dialects.overflow import Overflow
from clifftop.errors import OverBudgetError
from clifftop.memory.base import Remembered, Store
from clifftop.proxy.outgoing import Outgoing, figures_of, smaller
from clifftop.proxy.settings import ProxySettings
from clifftop.proxy.streams import Last, Stream, Streams

TENANT = "local"
"""The only tenant while there are no client keys."""

FIXED_PARTS = 2.5
"""An automatic budget holds the fixed part this many times."""

RACES = 3
"""How often others may place first before we take our own decision as it is."""


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
        stream = self.streams.of(TENANT, request.history)
        stream.answer_tokens = request.answer_tokens
        decider, stored, remembered = await self._decider(request, stream)
        # A title request has a session's head but neither tools nor a turn: it fixes nothing.
        if request.history.starts and self.settings.budget_tokens is None:
            stream.budget_tokens = decider.terms.budget_tokens
        notes = self._differences(stream, stored, remembered, decider)
        decision = await self._settle(decider, stored)
        if stream.is_cut_due and not self.settings.is_shadow:
            stream.is_cut_due = False
            decision = await self._cut(decider, decision)
        stream.cliffs += len(decision.placed)
        if decision.placement is not None:
            stream.cliffs = max(stream.cliffs, 1)
        outgoing = self._render(request, stream, decider, decision)
        if decision.placement is not None:
            stream.last = Last(
                stored=Stored(decision.point, decision.placement),
                link=request.history.chain[decision.point],
                terms=decider.terms,
            )
        return replace(outgoing, notes=(*notes, *self._over_budget(outgoing)))

    async def resume(self, request: Request) -> Outgoing | None:
        """Apply its stream's last good plan to a request that could not be decided.

        None where there is no such plan, or it does not fit. Asks no store.
        """
        stream = self.streams.seen(TENANT, request.history)
        last, history = stream.last, request.history
        if last is None or len(history) < last.stored.point:
            return None
        decider = Decider(history, last.terms)
        if history.chain[last.stored.point] != last.link or not decider.is_usable(last.stored):
            return None
        point, placement = last.stored
        size_tokens = decider.size_tokens(placement, len(history))
        return self._render(request, stream, decider, Decision(placement, point, size_tokens))

    async def is_over_window(self, request: Request) -> bool:
        """Would the client's own bytes exceed the window that its stream last knew?"""
        last = self.streams.seen(TENANT, request.history).last
        window = last.terms.window_tokens if last else None
        if last is None or window is None:
            return False
        return Decider(request.history, last.terms).full_tokens > window

    async def preview(self, request: Request) -> Outgoing:
        """Decide what would go upstream. Remembers nothing: no stream, no placement."""
        stream = self.streams.seen(TENANT, request.history)
        decider, stored, _ = await self._decider(request, stream)
        decision = decider.decide(stored)
        if stream.is_cut_due and not decision.placed and not self.settings.is_shadow:
            decision = decider.replay(decision, rung=0) or decision
        outgoing = self._render(request, stream, decider, decision)
        return replace(outgoing, is_remembered=False)

    async def prepare_summary(self, request: Request) -> Outgoing:
        """Give a client's own summary request its full history, where the window holds it.

        What it writes replaces the history for good. Remembers nothing: see `preview`.
        """
        compacted = await self.preview(request)
        decider, decision = compacted.decider, compacted.decision
        terms = decider.terms
        room = terms.window_tokens and replace(terms, budget_tokens=terms.window_tokens)
        if decision.placement is None:
            return compacted
        if room and decider.full_tokens > room.threshold_tokens:
            return replace(compacted, notes=("summary request: full history over the window",))
        full = Decision(None, 0, decider.full_tokens)
        return replace(
            self._render(request, compacted.stream, decider, full),
            notes=("summary request: full history",),
            is_remembered=False,
            spare=decision,
        )

    async def harder(self, refused: Outgoing, overflow: Overflow) -> Outgoing | None:
        """Make a cliff because the provider refused a prompt as too long; None if none helps."""
        if overflow.limit_is_window and overflow.limit_tokens:
            await self.store.set_window(self.upstream, refused.request.model, overflow.limit_tokens)
        if self.settings.is_shadow:
            return None
        chosen = smaller(refused, overflow)
        if chosen is None:
            return None
        if refused.is_remembered:
            decider, decision = refused.decider, refused.decision
            is_made_here = decision.placement is not None and decision.point == len(decider.history)
            chosen = await self._replace(decider, chosen, refused if is_made_here else None)
            refused.stream.cliffs += 0 if is_made_here else 1
        return replace(
            self._render(refused.request, refused.stream, refused.decider, chosen),
            notes=refused.notes,
            is_remembered=refused.is_remembered,
        )

    async def _decider(
        self, request: Request, stream: Stream
    ) -> tuple[Decider, Stored | None, Remembered | None]:
        """Look up what is known of a request, and give what decides about it."""
        history = request.history
        points = history.points()
        found = await self.store.longest(TENANT, [history.chain[point] for point in points])
        remembered = found[1] if found else None
        rate = await self.store.rate(self.upstream, request.model) or DEFAULT_RATE
        terms = Terms(
            budget_tokens=self._budget_tokens(request, stream, remembered, rate),
            profile=self.rules,
            rate=rate,
            window_tokens=await self.store.window(self.upstream, request.model),
            # A count of tokens names no room: what its stream asked for last is asked for again.
            answer_tokens=request.answer_tokens or stream.answer_tokens,
            is_strict=self.settings.is_strict,
        )
        stored = Stored(points[found[0]], found[1].placement) if found else None
        return Decider(history, terms), stored, remembered

    def _budget_tokens(
        self, request: Request, stream: Stream, remembered: Remembered | None, rate: float
    ) -> int:
        """Choose the stream's budget: as configured, as fixed earlier, or from this request."""
        if self.settings.budget_tokens is not None:
            return self.settings.budget_tokens
        known = stream.budget_tokens or (remembered.budget_tokens if remembered else None)
        fixed_tokens = request.history.fixed.tokens(rate)
        return known or max(DEFAULT_BUDGET_TOKENS, math.ceil(FIXED_PARTS * fixed_tokens))

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

    async def _cut(self, decider: Decider, decision: Decision) -> Decision:
        """Make the cliff that an answer asked for, unless one was made just now or none helps."""
        found = None if decision.placed else decider.replay(decision, rung=0)
        return decision if found is None else await self._replace(decider, found, None)

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
