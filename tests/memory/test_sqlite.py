"""The store on a file: shared, survived, damaged, locked and slow, against real SQLite files."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clifftop.core.block import Placement
from clifftop.memory.base import InProcessStore, Remembered
from clifftop.memory.sqlite import WAIT_S, SqliteStore, open_sqlite
from clifftop.memory.statefile import Counts
from tests.memory.processes import (
    HOLD_LOCK,
    OPEN_NEW,
    OVERWRITE,
    PUT_AND_HANG,
    RACE,
    second_process,
)
from tests.memory.test_store import FIRST, SECOND, THIRD

"""What a loaded test machine may add to a limit."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@asynccontextmanager
async def opened(path: Path, wait_s: float = 10, flush_s: float = 5) -> AsyncIterator[SqliteStore]:
    store = open_sqlite(path, wait_s=wait_s, flush_s=flush_s)
    try:
        yield store
    finally:
        await store.close()


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not claim():
            await asyncio.sleep(0.005)


# What survives


async def test_all_is_remembered_by_the_next_process(path: Path) -> None:
    async with opened(path) as store:
        await store.put("local", b"a", FIRST)
        await store.put("local", b"a", SECOND, instead_of=FIRST)
        await store.set_rate("anthropic", "m", 0.2)
        await store.set_window("anthropic", "m\0n", 200_000)
    assert sorted(os.listdir(path.parent)) == ["state.db", "state.db.secret"]
    async with opened(path) as store:
        assert await store.longest("local", [b"x", b"a", b"y"]) == (1, SECOND)
        assert await store.rate("anthropic", "m") == 0.2
        assert await store.window("anthropic", "m\0n") == 200_000
        assert store.counts == Counts()
        assert store.notes == []


async def test_what_no_file_can_hold_leaves_the_file_in_peace(path: Path) -> None:
    async with opened(path) as store:
        huge = Remembered(placement=Placement(-1, 2**70, 0), budget_tokens=1, rules=b"r")
        await store.put("local", b"a", huge)
        await store.put("local", b"a", FIRST, instead_of=huge)
        await store.set_window("anthropic", "m", 10**400)
        await store.set_rate("anthropic", "\ud800", 0.2)
        await store.set_rate("anthropic", "n", float("nan"))
        await store.set_rate("anthropic", "sound", 0.2)
        await store.put("local", b"b", SECOND)
        assert store.is_durable
        assert store.counts == Counts()
        assert store._jobs == 0
    async with opened(path) as store:
        assert await store.longest("local", [b"a"]) == (0, FIRST)
        assert await store.rate("anthropic", "sound") == 0.2
        assert store.counts == Counts()


async def test_the_next_process_finds_the_deepest_of_a_long_chain(path: Path) -> None:
    links = [number.to_bytes(2, "big") for number in range(2_000)]
    for depth in (0, 3, 900, 1_488, 1_999):
        async with opened(path) as store:
            await store.put("local", links[depth], FIRST)
        async with opened(path) as store:
            assert await store.longest("local", links) == (depth, FIRST)


async def test_what_was_put_survives_a_kill(path: Path) -> None:
    with second_process(PUT_AND_HANG, path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    async with opened(path) as store:
        for number in range(50):
            found = await store.longest("local", [b"link %d" % number])
            assert found is not None
            assert found[1].placement == Placement(1, 5 + number, 0)
        assert store.notes == []


async def test_nothing_of_tenant_link_or_secret_is_in_the_state(path: Path) -> None:
    link, secret = b"\x9c\x1f\xe2link-plaintext"[:16], "s3cret-of-replicas"
    store = open_sqlite(path, secret=secret, wait_s=10)
    for number in range(300):
        await store.put("tenant-4711", link[:15] + bytes([number % 256]), FIRST)
        await store.longest("tenant-4711", [link])
    await store.set_rate("anthropic", "model-name", 0.2)
    await store.set_window("anthropic", "model-name", 9)
    await until(lambda: store._jobs == 0)
    for closed in (False, True):
        if closed:
            await store.close()
        found = b"".join(file.read_bytes() for file in path.parent.iterdir())
        assert b"model-name" in found
        assert not [x for x in (b"4711", link[:8], b"s3cret", b"local") if x in found]
    assert os.listdir(path.parent) == ["state.db"]


async def test_a_given_secret_decides_which_rows_are_seen(path: Path) -> None:
    for secret in ("a" * 16, "b" * 16):
        store = open_sqlite(path, secret=secret, wait_s=10)
        assert await store.longest("local", [b"a"]) is None
        await store.put("local", b"a", FIRST)
        await store.close()
    store = open_sqlite(path, secret="a" * 16, wait_s=10)
    assert await store.longest("local", [b"a"]) == (0, FIRST)
    await store.close()


# What is shared


async def test_what_one_process_puts_another_sees_at_once(path: Path) -> None:
    async with opened(path) as one, opened(path) as other:
        await one.put("local", b"a", FIRST)
        assert await other.longest("local", [b"a", b"b", b"c"]) == (0, FIRST)
        await one.put("local", b"b", SECOND)
        assert await other.longest("local", [b"a", b"b", b"c"]) == (1, SECOND)
        await one.put("local", b"b", THIRD, instead_of=SECOND)
        assert await other.longest("local", [b"a", b"b", b"c"]) == (1, THIRD)
        assert await other.put("local", b"b", FIRST, instead_of=SECOND) == THIRD


async def test_rates_of_another_process_arrive_with_a_flush(path: Path) -> None:
    async with opened(path, flush_s=0.01) as one, opened(path, flush_s=0.01) as other:
        for number in range(1, 5):
            # Each in turn sets what the other has to hear of.
            setter, hearer = (one, other) if number % 2 else (other, one)
            await setter.set_rate("anthropic", "m", number / 10)
            await setter.set_window("anthropic", "m", number)

            async def hears(hearer: SqliteStore, number: int) -> None:
                while await hearer.rate("anthropic", "m") != number / 10:
                    await hearer.longest("local", [b"a"])
                    await asyncio.sleep(0.005)

            await asyncio.wait_for(hears(hearer, number), 10)
            assert await hearer.window("anthropic", "m") == number


async def test_the_file_is_asked_only_for_what_is_deeper_than_memory_knows(path: Path) -> None:
    links = [number.to_bytes(2, "big") for number in range(1_000)]
    async with opened(path) as store:
        await store.put("local", links[990], FIRST)
        statements: list[str] = []
        assert store._file is not None
        assert store._file._connection is not None
        store._file._connection.set_trace_callback(statements.append)
        assert await store.longest("local", links) == (990, FIRST)
        assert [statement.lower().count("x'") for statement in statements] == [10]


async def test_a_rate_set_while_the_file_is_read_is_not_undone(path: Path) -> None:
    async with opened(path, flush_s=0.01) as one, opened(path) as other:
        await other.set_rate("anthropic", "m", 0.3)
        await until(lambda: other._jobs == 0)
        release = threading.Event()
        one._thread.submit(release.wait)
        await one.set_rate("anthropic", "n", 0.2)
        await until(lambda: one._is_flushing)
        await one.set_rate("anthropic", "m", 0.4)
        await asyncio.sleep(0.05)  # another flush is due, and has to wait for the first
        release.set()
        await until(lambda: one._jobs == 0)
        assert await one.rate("anthropic", "m") == 0.4
    async with opened(path) as store:
        assert await store.rate("anthropic", "m") == 0.4


async def test_the_first_writer_wins_across_processes(path: Path) -> None:
    with ExitStack() as stack:
        racers = [stack.enter_context(second_process(RACE, path, str(cut))) for cut in (5, 7)]
        winners = []
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            assert racer.stdout is not None
            winners.append(json.loads(racer.stdout.readline()))
    assert winners[0] == winners[1]
    assert set(winners[0]) <= {5, 7}
    async with opened(path) as store:
        for number, cut in enumerate(winners[0]):
            found = await store.longest("local", [b"link %d" % number])
            assert found is not None
            assert found[1].placement.cut == cut


async def test_many_processes_may_make_the_same_new_file(path: Path) -> None:
    with ExitStack() as stack:
        makers = [
            stack.enter_context(second_process(OPEN_NEW, path, str(number)))
            for number in range(2, 8)
        ]
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("go\n")
            maker.stdin.flush()
        for maker in makers:
            assert maker.stdout is not None
            assert json.loads(maker.stdout.readline()) == [[], 0]
    async with opened(path) as store:
        for number in range(2, 8):
            assert await store.longest("local", [b"%d" % number]) is not None


# What is slow


async def test_a_locked_file_costs_a_put_its_limit_once(path: Path) -> None:
    async with opened(path, wait_s=WAIT_S) as store:
        await store.put("local", b"known", FIRST)
        with second_process(HOLD_LOCK, path, "NORMAL"):
            assert await store.put("local", b"a", FIRST) == FIRST
            assert store.counts.late == 1
            for number in range(100):
                await store.put("local", b"%d" % number, FIRST)
                await store.longest("local", [b"a", b"%d" % number])
            assert store.counts.late >= 101
            assert await store.put("local", b"a", SECOND) == FIRST
            assert await store.put("local", b"known", SECOND) == FIRST
        assert len(store.notes) <= 1
    async with opened(path) as store:
        for link in (b"a", b"0", b"99", b"known"):
            assert await store.longest("local", [link]) == (0, FIRST)


async def test_the_event_loop_runs_on_while_the_file_is_locked(path: Path) -> None:
    async with opened(path, wait_s=1) as store:
        await store.longest("local", [b"a"])
        with second_process(HOLD_LOCK, path, "NORMAL"):
            waiting = asyncio.ensure_future(store.put("local", b"a", FIRST))
            ticks = 0
            while not waiting.done():
                await asyncio.sleep(0.01)
                ticks += 1
            assert ticks > 10


async def test_a_file_that_another_locks_for_itself_is_given_up_at_the_start(path: Path) -> None:
    async with opened(path):
        pass
    with second_process(HOLD_LOCK, path, "EXCLUSIVE"):
        async with opened(path, wait_s=WAIT_S) as store:
            assert await store.put("local", b"a", FIRST) == FIRST
            assert store.notes == [f"state {path}: database is locked; remembering in memory only"]


async def test_a_file_that_another_is_making_is_waited_for_at_the_start(path: Path) -> None:
    path.parent.mkdir()
    with second_process(HOLD_LOCK, path, "NORMAL") as maker:
        opening = asyncio.ensure_future(asyncio.to_thread(open_sqlite, path, wait_s=WAIT_S))
        await asyncio.sleep(0.2)
        assert maker.stdin is not None
        maker.stdin.close()
        store = await opening
        maker.stdin = None
    assert store.notes == []
    await store.close()


async def test_a_disk_that_hangs_is_waited_for_once(path: Path) -> None:
    async with opened(path, wait_s=WAIT_S) as store:
        await store.put("local", b"a", FIRST)
        release = threading.Event()
        store._thread.submit(release.wait)
        assert await store.longest("local", [b"a"]) == (0, FIRST)
        for number in range(50):
            assert await store.put("local", b"%d" % number, SECOND) == SECOND
            assert await store.longest("local", [b"%d" % number]) == (0, SECOND)
            await store.set_rate("anthropic", "m", 0.2)
        assert store.counts.late == 101
        assert store._jobs == 101  # what only asks is not queued: by then nobody waits for it
        release.set()
        await until(lambda: store._jobs == 0)
        assert store._late_jobs == 0
    async with opened(path) as store:
        assert await store.longest("local", [b"49"]) == (0, SECOND)
        assert await store.rate("anthropic", "m") == 0.2


async def test_what_was_first_in_the_file_is_learnt_late(path: Path) -> None:
    async with opened(path) as other, opened(path, wait_s=WAIT_S) as store:
        await other.put("local", b"a", FIRST)
        release = threading.Event()
        store._thread.submit(release.wait)
        assert await store.put("local", b"a", SECOND) == SECOND
        release.set()
        await until(lambda: store._jobs == 0)
        assert await store.longest("local", [b"a"]) == (0, FIRST)


async def test_what_hangs_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clifftop.memory.sqlite.JOBS", 5)
    async with opened(path, wait_s=WAIT_S) as store:
        release = threading.Event()
        store._thread.submit(release.wait)
        for number in range(20):
            assert await store.put("local", b"%d" % number, FIRST) == FIRST
            await store.set_rate("anthropic", "m", 0.2)
        assert store._jobs == 5
        assert store.counts.lost > 10
        release.set()


async def test_a_client_that_goes_away_leaves_no_hole(path: Path) -> None:
    async with opened(path) as store:
        release = threading.Event()
        store._thread.submit(release.wait)
        waiting = asyncio.ensure_future(store.put("local", b"a", FIRST))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        await until(lambda: store._jobs == 0)
    async with opened(path) as store:
        assert await store.longest("local", [b"a"]) == (0, FIRST)


# What is damaged


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(20_000))


def header_then_random_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100] + random.Random(1).randbytes(20_000))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9_000])


def text(path: Path) -> None:
    path.write_text("{}")


@pytest.mark.parametrize("damage", [random_bytes, header_then_random_bytes, cut_off, text])
async def test_a_damaged_file_falls_back_to_memory(
    damage: Callable[[Path], None], path: Path
) -> None:
    await fill(path, 500)
    damage(path)
    before = path.read_bytes()
    async with opened(path) as store:
        assert await store.longest("local", [b"1"]) is None
        assert await store.put("local", b"1", FIRST) == FIRST
        assert not store.is_durable
        assert len(store.notes) == 1
        assert store.notes[0].endswith("; remembering in memory only")
    assert path.read_bytes() == before


async def fill(path: Path, rows: int) -> None:
    async with opened(path) as store:
        for number in range(rows):
            await store.put("local", b"%d" % number, FIRST)


async def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    async with opened(path) as store:
        assert store.is_durable


async def test_a_file_damaged_under_way_falls_back_to_memory(path: Path) -> None:
    await fill(path, 500)
    async with opened(path) as store:
        assert await store.longest("local", [b"1"]) == (0, FIRST)
        with second_process(OVERWRITE, path):
            pass
        for number in range(500):
            await store.longest("local", [b"%d" % number])
            await store.put("local", b"%d" % number, FIRST)
        assert not store.is_durable
        assert await store.longest("local", [b"1"]) == (0, FIRST)
        assert await store.longest("local", [b"499"]) == (0, FIRST)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A state file of 150 rows under the secret `s` * 16."""
    path = tmp_path_factory.mktemp("filled") / "state.db"

    async def fill_it() -> None:
        store = open_sqlite(path, secret="s" * 16, wait_s=10)
        for number in range(150):
            await store.put("local", b"%d" % number, FIRST)
        await store.set_rate("anthropic", "m", 0.1)
        await store.close()

    asyncio.run(fill_it())
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(100))
async def test_no_damage_raises_or_gives_what_was_never_put(
    seed: int, filled: bytes, path: Path
) -> None:
    rng = random.Random(seed)
    content = bytearray(filled)
    for _ in range(rng.choice([1, 3, 30, 1_000])):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.parent.mkdir()
    path.write_bytes(content)
    store = open_sqlite(path, secret="s" * 16, wait_s=10)
    try:
        for number in range(0, 200, 20):
            links = [b"%d" % (number + n) for n in range(20)]
            found = await store.longest("local", links)
            assert found is None or isinstance(found[1], Remembered)
            assert isinstance(await store.put("local", links[0], SECOND), Remembered)
        await store.set_rate("anthropic", "m", 0.2)
        assert await store.rate("anthropic", "m") == 0.2
        assert all(note.isprintable() for note in store.notes)
        assert len(store.notes) <= 1
    finally:
        await store.close()


# What is equal


class Put(NamedTuple):
    tenant: str
    link: bytes
    remembered: Remembered
    instead_of: Remembered | None


class Longest(NamedTuple):
    tenant: str
    links: list[bytes]


class SetModel(NamedTuple):
    model: str
    rate: float
    window_tokens: int


class Reopen(NamedTuple):
    pass


TENANTS = st.sampled_from(["local", "", "other\0", "\ud800"])
LINKS = st.sampled_from([bytes([number]) * 16 for number in range(6)])
REMEMBERED = st.sampled_from([FIRST, SECOND, THIRD])
OPERATIONS = st.one_of(
    st.builds(Put, TENANTS, LINKS, REMEMBERED, st.none() | REMEMBERED),
    st.builds(Longest, TENANTS, st.lists(LINKS, max_size=8)),
    st.builds(SetModel, st.text(max_size=3), st.floats(0.01, 10), st.integers(1, 10**9)),
    st.just(Reopen()),
)


@settings(max_examples=settings().max_examples // 6)  # each one opens real files
@given(
    steps=st.lists(st.tuples(st.integers(0, 1), OPERATIONS), max_size=40),
    handles=st.sampled_from([1, 2]),
)
async def test_both_stores_answer_alike(
    steps: list[tuple[int, Put | Longest | SetModel | Reopen]], handles: int
) -> None:
    """One store in memory is the model of any number of processes on one file."""
    model = InProcessStore()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"

        def make() -> SqliteStore:
            # Memory holds two placements, so that most answers come from the file.
            return open_sqlite(path, wait_s=10, max_entries=2)

        stores = [make() for _ in range(handles)]
        for number, step in steps:
            store = stores[number % handles]
            match step:
                case Put(tenant, link, remembered, instead_of):
                    answers = [
                        await x.put(tenant, link, remembered, instead_of=instead_of)
                        for x in (store, model)
                    ]
                    assert answers[0] == answers[1]
                case Longest(tenant, links):
                    assert await store.longest(tenant, links) == await model.longest(tenant, links)
                case SetModel(name, rate, window_tokens):
                    for known in (stores[0], model):  # others hear of it later
                        await known.set_rate("u", name, rate)
                        await known.set_window("u", name, window_tokens)
                    assert await stores[0].rate("u", name) == rate
                case Reopen():
                    await store.close()
                    stores[number % handles] = make()
        for store in stores:
            await store.close()
            assert store.notes == []
            assert store.counts == Counts()
        last = make()
        for name in {step.model for _, step in steps if isinstance(step, SetModel)}:
            assert await last.rate("u", name) == await model.rate("u", name)
            assert await last.window("u", name) == await model.window("u", name)
        await last.close()
