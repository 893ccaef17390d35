"""The in-process store: the deepest known link, the first writer, nothing without bounds."""

from __future__ import annotations

from dataclasses import replace

from clifftop.core.block import Placement
from clifftop.memory.base import ENTRY_BYTES, InProcessStore, Remembered

FIRST = Remembered(placement=Placement(1, 5, 0), budget_tokens=45_000, rules=b"rulesrul")
SECOND = replace(FIRST, placement=Placement(1, 7, 1))


async def test_the_deepest_known_link_is_found() -> None:
    store = InProcessStore()
    await store.put("local", b"b", FIRST)
    await store.put("local", b"d", SECOND)
    assert await store.longest("local", [b"a", b"b", b"c", b"d", b"e"]) == (3, SECOND)
    assert await store.longest("local", [b"a", b"b", b"c"]) == (1, FIRST)
    assert await store.longest("local", [b"a", b"x"]) is None
    assert await store.longest("local", []) is None


async def test_first_writer_wins() -> None:
    store = InProcessStore()
    assert await store.put("local", b"a", FIRST) == FIRST
    assert await store.put("local", b"a", SECOND) == FIRST
    assert await store.longest("local", [b"a"]) == (0, FIRST)


async def test_a_refused_placement_is_replaced_once() -> None:
    store = InProcessStore()
    third = replace(FIRST, placement=Placement(1, 9, 2))
    await store.put("local", b"a", FIRST)
    assert await store.put("local", b"a", SECOND, instead_of=FIRST) == SECOND
    assert await store.put("local", b"a", third, instead_of=FIRST) == SECOND
    assert await store.put("local", b"new", third, instead_of=FIRST) == third


async def test_tenants_do_not_see_each_other() -> None:
    store = InProcessStore()
    await store.put("a", b"link", FIRST)
    assert await store.longest("b", [b"link"]) is None
    assert await store.put("b", b"link", SECOND) == SECOND


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


async def test_rates_and_windows_belong_to_upstream_and_model() -> None:
    store = InProcessStore()
    assert await store.rate("anthropic", "m") is None
    await store.set_rate("anthropic", "m", 0.2)
    await store.set_window("anthropic", "m", 200_000)
    assert await store.rate("anthropic", "m") == 0.2
    assert await store.rate("openai", "m") is None
    assert await store.window("anthropic", "m") == 200_000
    assert await store.window("anthropic", "n") is None


async def test_model_names_of_clients_do_not_fill_the_memory() -> None:
    store = InProcessStore()
    for number in range(3_000):
        await store.set_rate("anthropic", f"model-{number}", 0.2)
    assert await store.rate("anthropic", "model-0") is None
    assert await store.rate("anthropic", "model-2999") == 0.2
    await store.close()
