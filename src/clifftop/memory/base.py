"""What is remembered between requests, and the store that lives and dies with its process.

Keys are digests, values a few integers: no text of a conversation and no credential may ever be put
here. What a placement means is `core.decide`'s; whether one still fits a history is tested there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from clifftop.core.block import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The last cliff of a stream, and under what it was rendered.

    `budget_tokens`: the configured budget of the stream; `rules`: `Profile.digest`.
    """

    placement: Placement
    budget_tokens: int
    rules: bytes


class Store(Protocol):
    """What every store offers. Lookups of what is not known give None and are no error.

    `tenant`: whose conversation it is. `link`: an entry of `History.chain` at a request point.
    """

    async def longest(self, tenant: str, links: Sequence[bytes]) -> tuple[int, Remembered] | None:
        """Find the deepest of `links` that is known: its index, and what is remembered there."""
        ...

    async def put(
        self,
        tenant: str,
        link: bytes,
        remembered: Remembered,
        *,
        instead_of: Remembered | None = None,
    ) -> Remembered:
        """Remember, unless another was first; give what is remembered now.

        `instead_of`: replace exactly this. A provider that refuses a placement makes it worthless,
        and whoever else saw the refusal may have replaced it already.
        """
        ...

    async def rate(self, upstream: str, model: str) -> float | None:
        """Give the tokens per byte that an upstream counts for a model."""
        ...

    async def set_rate(self, upstream: str, model: str, rate: float) -> None:
        """Set the tokens per byte; the last writer wins."""
        ...

    async def window(self, upstream: str, model: str) -> int | None:
        """Give a model's window in tokens, where an upstream has told it."""
        ...

    async def set_window(self, upstream: str, model: str, tokens: int) -> None:
        """Set a model's window; the last writer wins."""
        ...

    async def close(self) -> None:
        """Let go of whatever the store holds open."""
        ...


ENTRY_BYTES = 512
"""What one placement takes in memory beside its tenant's name, rounded up."""

MODELS = 1_000
"""Model names come from clients: more than this many are not remembered."""


class InProcessStore:
    """Remembers in memory, the least recently used forgotten first."""

    def __init__(self, *, max_entries: int = 100_000, max_bytes: int = 64 << 20) -> None:
        self._placements: Lru[tuple[str, bytes], Remembered] = Lru(
            max_entries, max_bytes, lambda key: ENTRY_BYTES + len(key[0])
        )
        self._rates: Lru[tuple[str, str], float] = Lru(MODELS, max_bytes, _model_bytes)
        self._windows: Lru[tuple[str, str], int] = Lru(MODELS, max_bytes, _model_bytes)

    def __len__(self) -> int:
        return len(self._placements)

    async def longest(self, tenant: str, links: Sequence[bytes]) -> tuple[int, Remembered] | None:
        """Find the deepest of `links` that is known: its index, and what is remembered there."""
        for index in range(len(links) - 1, -1, -1):
            found = self._placements.get((tenant, links[index]))
            if found is not None:
                return index, found
        return None

    async def put(
        self,
        tenant: str,
        link: bytes,
        remembered: Remembered,
        *,
        instead_of: Remembered | None = None,
    ) -> Remembered:
        """Remember, unless another was first; give what is remembered now."""
        # No await between look and write: within one process nobody can come in between.
        known = self._placements.get((tenant, link))
        if known is not None and known != instead_of:
            return known
        self._placements.set((tenant, link), remembered)
        return remembered

    def adopt(self, tenant: str, link: bytes, remembered: Remembered) -> None:
        """Remember what a shared store says, whatever was known here."""
        self._placements.set((tenant, link), remembered)

    def adopt_model(
        self, upstream: str, model: str, *, rate: float | None, window_tokens: int | None
    ) -> None:
        """Remember what a shared store says of a model, as far as it knows."""
        if rate is not None:
            self._rates.set((upstream, model), rate)
        if window_tokens is not None:
            self._windows.set((upstream, model), window_tokens)

    async def rate(self, upstream: str, model: str) -> float | None:
        """Give the tokens per byte that an upstream counts for a model."""
        return self._rates.get((upstream, model))

    async def set_rate(self, upstream: str, model: str, rate: float) -> None:
        """Set the tokens per byte; the last writer wins."""
        self._rates.set((upstream, model), rate)

    async def window(self, upstream: str, model: str) -> int | None:
        """Give a model's window in tokens, where an upstream has told it."""
        return self._windows.get((upstream, model))

    async def set_window(self, upstream: str, model: str, tokens: int) -> None:
        """Set a model's window; the last writer wins."""
        self._windows.set((upstream, model), tokens)

    async def close(self) -> None:
        """Do nothing: memory goes with the process."""


K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A dict that forgets what was not used for longest once it holds too much."""

    def __init__(self, max_entries: int, max_bytes: int, cost_bytes: Callable[[K], int]) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._max_entries, self._max_bytes, self._cost_bytes = max_entries, max_bytes, cost_bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def set(self, key: K, value: V) -> None:
        if key not in self._values:
            self._bytes += self._cost_bytes(key)
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._max_entries or self._bytes > self._max_bytes:
            oldest, _ = self._values.popitem(last=False)
            self._bytes -= self._cost_bytes(oldest)


def _model_bytes(key: tuple[str, str]) -> int:
    return ENTRY_BYTES + sum(map(len, key))
