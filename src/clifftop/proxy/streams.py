"""What is known of each stream while the process runs: its budget, its cliffs, what was said.

Losing a record costs a repeated notice and a count that starts again; what must outlive it is in
`memory`. No text of a conversation lives here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clifftop.core.turns import History
from clifftop.memory.base import Lru

ID_BYTES = 6


@dataclass(slots=True, kw_only=True)
class Stream:
    """The counters of one stream.

    `budget_tokens`: fixed at the first request that has a turn; None before.
    """

    id: str
    budget_tokens: int | None = None
    cliffs: int = 0
    said: set[str] = field(default_factory=set)

    def say_once(self, kind: str) -> bool:
        """Is this the first time that a kind of notice is due?"""
        if kind in self.said:
            return False
        self.said.add(kind)
        return True


class Streams:
    """The streams seen lately. One is known by its tenant and its head."""

    def __init__(self, max_entries: int) -> None:
        self._streams: Lru[tuple[str, bytes], Stream] = Lru(
            max_entries, max_entries << 10, lambda key: 512 + len(key[0])
        )

    def of(self, tenant: str, history: History) -> Stream:
        """Give the record of a history's stream, a new one if need be."""
        head = history.chain[history.head]
        stream = self._streams.get((tenant, head))
        if stream is None:
            stream = Stream(id=head[:ID_BYTES].hex())
            self._streams.set((tenant, head), stream)
        return stream
