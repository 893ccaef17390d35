"""The in-process store: nothing without bounds, and what a shared store tells it."""

from __future__ import annotations

from clifftop.memory.base import ENTRY_BYTES, InProcessStore
from tests.memory.test_store import FIRST, SECOND


async def test_the_least_recently_used_is_forgotten_first() -> None:
    store = InProcessStore(max_entries=2)
    await store.put("local", b"a", FIRST)
    await store.put("local", b"b", FIRST)
    await store.longest("local", [b"a"])
    await store.put("local", b"c", FIRST)
    assert await store.longest("local", [b"b"]) is None
    assert await store.longest("local", [b"a"]) == (0, FIRST)
    assert len(store) == 2


async def test_bytes_are_bounded_too() -> None:
    store = InProcessStore(max_bytes=10 * (ENTRY_BYTES + 5))
    for number in range(1_000):
        await store.put("local", number.to_bytes(16, "big"), FIRST)
        await store.put("local", number.to_bytes(16, "big"), SECOND)
    assert len(store) == 10


async def test_model_names_of_clients_do_not_fill_the_memory() -> None:
    store = InProcessStore()
    for number in range(3_000):
        await store.set_rate("anthropic", f"model-{number}", 0.2)
    assert await store.rate("anthropic", "model-0") is None
    assert await store.rate("anthropic", "model-2999") == 0.2
    await store.close()


async def test_what_a_shared_store_says_replaces_what_was_known() -> None:
    store = InProcessStore()
    await store.put("local", b"a", FIRST)
    store.adopt("local", b"a", SECOND)
    assert await store.longest("local", [b"a"]) == (0, SECOND)
    await store.set_rate("anthropic", "m", 0.2)
    store.adopt_model("anthropic", "m", rate=None, window_tokens=200_000)
    assert await store.rate("anthropic", "m") == 0.2
    assert await store.window("anthropic", "m") == 200_000
