"""What is known of each stream while the process runs: its budget, its cliffs, what was said.

Losing a record costs a repeated notice and a count that starts again; what must outlive it is in
`memory`. No text of a conversation lives here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clifftop.core.decide import Stored, Terms
from clifftop.core.turns import History
from clifftop.memory.base import Lru

ID_BYTES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The last good plan of a stream: its cliff, the chain's link there, the terms it had."""

    stored: Stored
    link: bytes
    terms: Terms


@dataclass(slots=True, kw_only=True)
class Stream:
    """The counters of one stream.

    `budget_tokens`: fixed at the first request that has a turn; None before. `answer_tokens`: the
    room that its last request asked for. `is_cut_due`: an answer told that its prompt was about too
    long, so the next one gets a cliff. `kept_tokens`: what a server kept of a prompt that it cut.
    `last`: what to send by if deciding fails.
    """

    id: str
    budget_tokens: int | None = None
    answer_tokens: int = 0
    cliffs: int = 0
    is_cut_due: bool = False
    kept_tokens: int | None = None
    last: Last | None = None
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

    def __len__(self) -> int:
        return len(self._streams)

    def of(self, tenant: str, history: History) -> Stream:
        """Give the record of a history's stream, a new one if need be."""
        stream = self.seen(tenant, history)
        self._streams.set((tenant, history.chain[history.head]), stream)
        return stream

    def seen(self, tenant: str, history: History) -> Stream:
        """Give the record of a history's stream; an empty one that is not kept if there is none."""
        head = history.chain[history.head]
        return self._streams.get((tenant, head)) or Stream(id=head[:ID_BYTES].hex())
