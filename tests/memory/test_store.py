"""What every store promises: the deepest known link, the first writer, tenants apart."""

from __future__ import annotations

from dataclasses import replace

from clifftop.core.block import Placement
from clifftop.memory.base import Remembered, Store

FIRST = Remembered(placement=Placement(1, 5, 0), budget_tokens=45_000, rules=b"rulesrul")
SECOND = replace(FIRST, placement=Placement(1, 7, 1))
THIRD = replace(FIRST, placement=Placement(1, 9, 2))


async def test_the_deepest_known_link_is_found(store: Store) -> None:
    await store.put("local", b"b", FIRST)
    await store.put("local", b"d", SECOND)
    assert await store.longest("local", [b"a", b"b", b"c", b"d", b"e"]) == (3, SECOND)
    assert await store.longest("local", [b"a", b"b", b"c"]) == (1, FIRST)
    assert await store.longest("local", [b"a", b"x"]) is None
    assert await store.longest("local", []) is None


async def test_a_long_chain_is_searched_to_its_start(store: Store) -> None:
    links = [number.to_bytes(16, "big") for number in range(2_000)]
    await store.put("local", links[3], FIRST)
    assert await store.longest("local", links) == (3, FIRST)
    await store.put("local", links[900], SECOND)
    assert await store.longest("local", links) == (900, SECOND)


async def test_first_writer_wins(store: Store) -> None:
    assert await store.put("local", b"a", FIRST) == FIRST
    assert await store.put("local", b"a", SECOND) == FIRST
    assert await store.longest("local", [b"a"]) == (0, FIRST)


async def test_a_refused_placement_is_replaced_once(store: Store) -> None:
    await store.put("local", b"a", FIRST)
    assert await store.put("local", b"a", SECOND, instead_of=FIRST) == SECOND
    assert await store.put("local", b"a", THIRD, instead_of=FIRST) == SECOND
    assert await store.longest("local", [b"a"]) == (0, SECOND)
    assert await store.put("local", b"new", THIRD, instead_of=FIRST) == THIRD


async def test_all_that_was_put_comes_back(store: Store) -> None:
    whole = Remembered(placement=Placement(0, 10**9, 255), budget_tokens=10**9, rules=bytes(64))
    assert await store.put("local", b"a", whole) == whole
    assert await store.longest("local", [b"a"]) == (0, whole)


async def test_a_placement_out_of_range_is_no_failure(store: Store) -> None:
    huge = replace(FIRST, placement=Placement(-1, 2**70, 0))
    assert await store.put("local", b"a", huge) == huge
    assert await store.longest("local", [b"a"]) == (0, huge)
    assert await store.put("local", b"a", FIRST, instead_of=huge) == FIRST
    assert await store.longest("local", [b"a"]) == (0, FIRST)


async def test_tenants_do_not_see_each_other(store: Store) -> None:
    await store.put("a", b"link", FIRST)
    assert await store.longest("b", [b"link"]) is None
    assert await store.put("b", b"link", SECOND) == SECOND
    assert await store.longest("al", [b"ink"]) is None
    assert await store.put("\ud800\0", b"link", THIRD) == THIRD


async def test_rates_and_windows_belong_to_upstream_and_model(store: Store) -> None:
    assert await store.rate("anthropic", "m") is None
    await store.set_rate("anthropic", "m", 0.2)
    await store.set_window("anthropic", "m", 200_000)
    await store.set_rate("anthropic", "m", 0.3)
    assert await store.rate("anthropic", "m") == 0.3
    assert await store.rate("openai", "m") is None
    assert await store.window("anthropic", "m") == 200_000
    assert await store.window("anthropic", "n") is None


async def test_model_names_and_windows_that_no_file_can_hold_are_no_failure(store: Store) -> None:
    await store.set_window("anthropic", "m", 10**400)
    await store.set_rate("anthropic", "\ud800", 0.2)
    await store.set_rate("anthropic", "x" * 100_000, 0.2)
    assert await store.window("anthropic", "m") == 10**400
    assert await store.rate("anthropic", "\ud800") == 0.2


async def test_a_closed_store_still_answers(store: Store) -> None:
    await store.put("local", b"a", FIRST)
    await store.close()
    await store.close()
    assert await store.longest("local", [b"a"]) == (0, FIRST)
    assert await store.put("local", b"b", SECOND) == SECOND
    await store.set_rate("anthropic", "m", 0.2)
