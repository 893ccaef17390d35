"""What every dialect offers: read a body to a history, render a plan to bytes.

A dialect holds all that is known about one wire format, and no rule of compaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clifftop.core.plan import Insert, Plan
from clifftop.core.turns import History
from clifftop.dialects.splice import Layout, splice


class Dialect(Protocol):
    """One wire format."""

    @property
    def name(self) -> str:
        """How settings and commands call it."""
        ...

    @property
    def items_key(self) -> str:
        """Top-level field that holds the history list."""
        ...

    def read(self, body: bytes) -> Request:
        """Read a request body.

        Raises:
            RequestError: it is no request of this dialect; the message names the place.
        """
        ...

    def block_item(self, request: Request, text: str, kept: list[int]) -> bytes:
        """Make the wire item that carries a block. `kept`: indices of the items sent with it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: its bytes, where its items lie in them, and views to decide with.

    `answer_tokens`: room that the answer asked for, 0 if unnamed. `stateful`: name of the field by
    which the provider, not the client, holds the history; empty for all others.
    `cache_marks`: per item the cache markers it carries; `fixed_marks`: those beside the items.
    """

    dialect: Dialect
    body: bytes
    layout: Layout
    history: History
    model: str
    answer_tokens: int
    is_stream: bool
    stateful: str = ""
    cache_marks: tuple[tuple[object, ...], ...] = ()
    fixed_marks: tuple[object, ...] = ()

    def render(self, plan: Plan) -> bytes:
        """Give the outgoing body: kept items are the client's bytes, the rest of the body too."""
        if plan.is_untouched:
            return self.body
        spans, kept = self.layout.items, plan.kept()
        pieces = [
            self.dialect.block_item(self, step.text, kept)
            if isinstance(step, Insert)
            else self.body[spans[step.start][0] : spans[step.stop - 1][1]]
            for step in plan.steps
            if isinstance(step, Insert) or step.start < step.stop
        ]
        return splice(self.body, self.layout, self.dialect.items_key, pieces)
