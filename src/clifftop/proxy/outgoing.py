"""What goes upstream for one request, of what it consists, and what is smaller.

A value and functions of it; deciding and remembering is `compaction`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clifftop.core.decide import Decider, Decision
from clifftop.core.sizes import Size
from clifftop.dialects.base import Request
from clifftop.dialects.overflow import Overflow
from clifftop.proxy.streams import Stream
from clifftop.proxy.summary import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What goes upstream for one request. `size` is of what is really sent.

    `is_remembered`: its cliffs are its stream's; else they are for this request alone. `spare`: the
    smaller prompt for a summary request whose full history is refused.
    """

    body: bytes
    request: Request
    stream: Stream
    decider: Decider
    decision: Decision
    size: Size
    notes: tuple[str, ...] = ()
    is_remembered: bool = True
    spare: Decision | None = None

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


def figures_of(decider: Decider, decision: Decision) -> str:
    """Say what an outgoing prompt consists of."""
    shares = decider.shares(decision)
    return (
        f"prompt {decision.size_tokens:.0f}, budget {decider.terms.threshold_tokens:.0f},"
        f" fixed part {shares.fixed_tokens:.0f}, block {shares.block_tokens:.0f},"
        f" recent {shares.recent_tokens:.0f}, smallest sensible budget"
        f" {shares.sensible_budget_tokens} tokens"
    )


def smaller(refused: Outgoing, overflow: Overflow) -> Decision | None:
    """Find a smaller prompt for a refused one.

    Rungs that the named sizes rule out are passed over: each try costs a round trip.
    """
    decision, chosen, rung = refused.decision, refused.spare, 0
    if chosen is not None and _fits(chosen, decision, overflow):
        return chosen
    while (found := refused.decider.replay(decision, rung=rung)) and found.placement:
        chosen, rung = found, found.placement.rung + 1
        if _fits(found, decision, overflow):
            break
    return chosen


def _fits(found: Decision, refused: Decision, overflow: Overflow) -> bool:
    """Is a smaller prompt within the limit, as far as the provider named its sizes?"""
    if not overflow.limit_tokens or not overflow.prompt_tokens:
        return True
    share = found.size_tokens / refused.size_tokens
    room = overflow.limit_tokens - (overflow.output_tokens or 0)
    return overflow.prompt_tokens * share <= room
