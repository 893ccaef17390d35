"""One state file: what may be in it, what is forgotten, and what waits while SQLite fails."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from clifftop.core.block import Placement
from clifftop.memory import statefile
from clifftop.memory.base import Remembered
from clifftop.memory.connection import Limits
from clifftop.memory.files import make_private
from clifftop.memory.rows import ModelRow
from clifftop.memory.statefile import KEEP_S, PAUSE_S, Counts, Known, StateFile
from tests.memory.processes import HOLD_LOCK, second_process
from tests.memory.test_store import FIRST, SECOND, THIRD

DAY_S = 86_400
SMALL = Limits(placements=10, models=3, file_bytes=64 << 10)
Open = Callable[..., StateFile]


class Times:
    """Both clocks of a state file, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_000.0 * DAY_S

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_private(tmp_path / "state.db")
    return tmp_path / "state.db"


@pytest.fixture
def opened(path: Path, times: Times) -> Iterator[Open]:
    files: list[StateFile] = []

    def opened(limits: Limits = SMALL) -> StateFile:
        file = StateFile(
            path,
            secret=b"s" * 32,
            counts=Counts(),
            notes=[],
            busy_s=0.03,
            limits=limits,
            now=times,
            clock=times,
        )
        files.append(file)
        return file

    yield opened
    for file in files:
        file.close()


def put(file: StateFile, number: int, remembered: Remembered = FIRST) -> Known:
    return file.put("local", link(number), remembered, instead_of=None, known=None)


def has(file: StateFile, number: int) -> bool:
    return file.deepest("local", [link(number)]) is not None


def link(number: int) -> bytes:
    return number.to_bytes(16, "big")


def sql(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


# What may be in it


@pytest.mark.parametrize(
    "odd",
    [
        "cut = 'x'",
        "cut = 2.5",
        "cut = x'00'",
        "cut = prev_cut",
        "cut = 9223372036854775807",
        "prev_cut = -1",
        "rung = 256",
        "rung = -1",
        "budget_tokens = 0",
        "budget_tokens = 1000000001",
        "rules = 'rulesrul'",
        "rules = x''",
        "rules = zeroblob(65)",
        "rules = zeroblob(3000000)",
        "rules = CAST(x'ff' AS TEXT)",
    ],
)
def test_odd_rows_are_ignored_counted_and_replaced(odd: str, path: Path, opened: Open) -> None:
    file = opened(limits=Limits())
    put(file, 1)
    sql(path, f"UPDATE placement SET {odd}")
    assert not has(file, 1)
    assert file.counts == Counts(odd=1)
    assert put(file, 1, SECOND) == Known(SECOND, True)
    assert file.deepest("local", [link(1)]) == (0, Known(SECOND, True))
    assert file.is_open


def test_an_odd_row_does_not_hide_a_shallower_one(path: Path, opened: Open) -> None:
    file = opened()
    put(file, 1)
    put(file, 2, SECOND)
    sql(path, "UPDATE placement SET prev_cut = 9 WHERE cut = 7")
    assert file.deepest("local", [link(1), link(2)]) == (0, Known(FIRST, True))


@pytest.mark.parametrize(
    "odd",
    [
        *("rate = 'x'", "rate = -1.0", "rate = 1e999", "window_tokens = 0", "window_tokens = 1.5"),
        *("model = CAST(x'ff' AS TEXT)", "model = x'00'", "upstream = printf('%.300c', 'x')"),
    ],
)
def test_odd_model_rows_are_ignored_and_counted(odd: str, path: Path, opened: Open) -> None:
    file = opened()
    file.set_model(ModelRow("anthropic", "m", 0.2, 200_000))
    sql(path, f"UPDATE model SET {odd}")
    assert file.models() == []
    assert file.counts == Counts(odd=1)


# What is forgotten


def test_placements_unused_for_ninety_days_are_forgotten(times: Times, opened: Open) -> None:
    file = opened()
    put(file, 1)
    put(file, 2)
    file.flush()
    times.seconds += KEEP_S - DAY_S
    assert has(file, 1)
    file.flush()
    times.seconds += 2 * DAY_S
    file.flush()
    assert has(file, 1)
    assert not has(file, 2)


def test_the_least_recently_used_are_forgotten_beyond_the_limit(
    path: Path, times: Times, opened: Open
) -> None:
    file = opened()
    for number in range(30):
        put(file, number)
        times.seconds += 10
    file._prune_at = times.seconds + DAY_S
    file.flush()
    times.seconds += 2 * DAY_S
    assert has(file, 3)
    file.flush()
    assert sql(path, "SELECT count(*) FROM placement") == [(10,)]
    assert [number for number in range(30) if has(file, number)] == [3, *range(21, 30)]


def test_what_is_too_old_counts_towards_what_is_too_many(
    path: Path, times: Times, opened: Open
) -> None:
    file = opened()
    for number in range(20):
        put(file, number)
        times.seconds += KEEP_S + DAY_S if number == 4 else 0
    file._used.clear()
    file.flush()
    assert sql(path, "SELECT count(*) FROM placement") == [(10,)]


def test_many_are_forgotten_in_slices(
    path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statefile, "PRUNE_ROWS", 15)
    file = opened()
    for number in range(30):
        put(file, number)
    file.flush()
    assert sql(path, "SELECT count(*) FROM placement") == [(15,)]
    file.flush()
    file.flush()
    assert sql(path, "SELECT count(*) FROM placement") == [(10,)]


def test_last_use_is_written_once_a_day(path: Path, times: Times, opened: Open) -> None:
    file = opened()
    put(file, 1)
    file.flush()
    started = int(times.seconds)
    for hours, expected in ((1, 0), (23, 0), (25, 25), (26, 25), (50, 50)):
        times.seconds = started + hours * 3_600
        assert has(file, 1)
        file.flush()
        assert sql(path, "SELECT used_at FROM placement") == [(started + expected * 3_600,)]
    assert sql(path, "SELECT made_at FROM placement") == [(started,)]


def test_models_beyond_the_limit_are_forgotten(path: Path, times: Times, opened: Open) -> None:
    file = opened()
    for number in range(6):
        file.set_model(ModelRow("anthropic", f"m{number}", 0.2, None))
        times.seconds += 1
    file.flush()
    assert sql(path, "SELECT model FROM model ORDER BY 1") == [("m3",), ("m4",), ("m5",)]


def test_rate_and_window_of_a_model_do_not_erase_each_other(opened: Open) -> None:
    file = opened()
    file.set_model(ModelRow("anthropic", "m", 0.2, None))
    file.set_model(ModelRow("anthropic", "m", None, 200_000))
    file.set_model(ModelRow("anthropic", "m", 0.3, None))
    assert file.models() == [ModelRow("anthropic", "m", 0.3, 200_000)]


def test_what_another_process_set_is_read_at_the_next_flush(opened: Open) -> None:
    one, other = opened(), opened()
    one.models()
    assert one.flush() == []
    other.set_model(ModelRow("anthropic", "m", 0.2, None))
    assert one.flush() == [ModelRow("anthropic", "m", 0.2, None)]
    assert one.flush() == []


# What waits while SQLite fails


def fill(file: StateFile) -> int:
    """Put until the file has no page left: which number could not be written?"""
    return next(number for number in range(10_000) if not put(file, number).is_written)


def test_a_full_file_keeps_what_it_has_and_what_waits(
    path: Path, times: Times, opened: Open
) -> None:
    file = opened(limits=Limits(file_bytes=32 << 10))
    refused = fill(file)
    assert refused > 20
    assert file.counts == Counts(failed=1)
    assert "out of reach for now (database or disk is full)" in file._notes[0]
    assert has(file, 0)
    assert put(file, 0, SECOND) == Known(SECOND, False)
    assert file.deepest("local", [link(refused)]) == (0, Known(FIRST, False))
    assert file.counts.failed == 1
    times.seconds += PAUSE_S
    put(file, refused + 1)
    assert file.counts.failed == 2
    assert len(file._notes) == 1
    sql(path, "DELETE FROM placement")
    times.seconds += PAUSE_S
    file.flush()
    assert opened().deepest("local", [link(refused)]) == (0, Known(FIRST, True))


def test_a_lock_is_waited_for_briefly_and_not_again_for_a_while(
    path: Path, times: Times, opened: Open
) -> None:
    file = opened()
    put(file, 1)
    with second_process(HOLD_LOCK, path, "NORMAL"):
        assert put(file, 2) == Known(FIRST, False)
        assert put(file, 2, SECOND) == Known(FIRST, False)
        assert (
            file.put("local", link(2), SECOND, instead_of=FIRST, known=FIRST).remembered == SECOND
        )
        assert file.put("local", link(3), SECOND, instead_of=None, known=FIRST).remembered == FIRST
        file.set_model(ModelRow("anthropic", "m", 0.2, None))
        file.set_model(ModelRow("anthropic", "m", None, 200_000))
        assert file.counts == Counts(failed=1)
        assert has(file, 1)
        times.seconds += PAUSE_S
        file.flush()
        assert file.counts == Counts(failed=2)
    times.seconds += PAUSE_S
    assert put(file, 4) == Known(FIRST, True)
    file.flush()
    other = opened()
    assert other.deepest("local", [link(2)]) == (0, Known(SECOND, True))
    assert other.deepest("local", [link(3)]) is None
    assert other.models() == [ModelRow("anthropic", "m", 0.2, 200_000)]
    assert len(file._notes) == 1


def test_a_replacement_that_waits_hides_what_it_replaces(path: Path, opened: Open) -> None:
    file = opened()
    put(file, 1)
    with second_process(HOLD_LOCK, path, "NORMAL"):
        file.put("local", link(1), SECOND, instead_of=FIRST, known=FIRST)
        assert file.deepest("local", [link(1)]) == (0, Known(SECOND, False))


def test_a_file_that_cannot_be_read_is_not_asked_each_time(times: Times, opened: Open) -> None:
    file = opened()
    put(file, 1)
    assert file._connection is not None
    file._connection.set_progress_handler(lambda: 1, 1)  # each statement is interrupted
    assert [has(file, 1) for _ in range(5)] == [False] * 5
    assert file.counts == Counts(failed=1)
    file._connection.set_progress_handler(None, 1)
    assert not has(file, 1)
    times.seconds += PAUSE_S
    assert has(file, 1)


def test_who_was_first_in_the_file_wins_over_what_waited(
    path: Path, times: Times, opened: Open
) -> None:
    file, other = opened(), opened()
    with second_process(HOLD_LOCK, path, "NORMAL"):
        put(file, 1, SECOND)
    put(other, 1, THIRD)
    times.seconds += PAUSE_S
    file.flush()
    assert file.deepest("local", [link(1)]) == (0, Known(THIRD, True))


def test_a_rate_that_waits_is_newer_than_the_files(path: Path, times: Times, opened: Open) -> None:
    file, other = opened(), opened()
    with second_process(HOLD_LOCK, path, "NORMAL"):
        file.set_model(ModelRow("anthropic", "m", 0.3, None))
    other.set_model(ModelRow("anthropic", "m", 0.2, None))
    assert file.flush() == []
    times.seconds += PAUSE_S
    file.flush()
    assert other.flush() == [ModelRow("anthropic", "m", 0.3, None)]


def test_closing_writes_what_waits_even_right_after_a_failure(path: Path, opened: Open) -> None:
    file = opened()
    with second_process(HOLD_LOCK, path, "NORMAL"):
        put(file, 1)
    file.close()
    assert file.counts == Counts(failed=1)
    assert has(opened(), 1)


def test_what_waits_is_bounded_and_counted(
    path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statefile, "UNWRITTEN", 5)
    file = opened()
    with second_process(HOLD_LOCK, path, "NORMAL"):
        for number in range(8):
            put(file, number)
            file.set_model(ModelRow("anthropic", f"m{number}", 0.2, None))
    assert file.counts.lost == 3
    file.close()
    assert [number for number in range(8) if has(opened(), number)] == [3, 4, 5, 6, 7]


def test_a_read_only_file_can_still_be_read(opened: Open) -> None:
    file = opened()
    put(file, 1)
    assert file._connection is not None
    file._connection.execute("PRAGMA query_only = ON")
    assert put(file, 2) == Known(FIRST, False)
    assert has(file, 1)
    assert "readonly" in file._notes[0]


def test_a_table_that_is_gone_ends_the_file(path: Path, opened: Open) -> None:
    file = opened()
    sql(path, "DROP TABLE placement")
    assert put(file, 1) == Known(FIRST, False)
    assert not file.is_open
    assert file.counts == Counts(failed=1, lost=1)
    assert file._notes == [
        f"state {path}: is broken (no such table: placement); remembering in memory only"
    ]
    assert not has(file, 1)
    file.flush()
    assert len(file._notes) == 1


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_was_removed_is_noticed(how: str, path: Path, opened: Open) -> None:
    file = opened()
    put(file, 1)
    path.unlink()
    if how == "replaced":
        path.touch()
    file.flush()
    assert not file.is_open
    assert "was removed while it was in use" in file._notes[0]


def test_the_file_is_opened_as_decided(opened: Open) -> None:
    connection = opened()._connection
    assert connection is not None
    for pragma, value in (
        ("journal_mode", "wal"),
        ("synchronous", 1),  # NORMAL
        ("busy_timeout", 30),
        ("trusted_schema", 0),
        ("max_page_count", SMALL.file_bytes // 4_096),
    ):
        assert connection.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_keys_are_digests_under_the_secret(path: Path, opened: Open) -> None:
    file = opened()
    file.put("ab", b"c" * 16, FIRST, instead_of=None, known=None)
    ((key,),) = sql(path, "SELECT key FROM placement")
    assert isinstance(key, bytes)
    assert len(key) == 16
    assert file._key("ab", b"c") != file._key("a", b"bc")
    with closing_file(path, secret=b"t" * 32) as other:
        assert other.deepest("ab", [b"c" * 16]) is None


def closing_file(path: Path, *, secret: bytes) -> closing[StateFile]:
    return closing(StateFile(path, secret=secret, counts=Counts(), notes=[], busy_s=0.03))


def test_replacing_needs_exactly_what_is_there(opened: Open) -> None:
    file = opened()
    put(file, 1)
    for other in (
        replace(FIRST, placement=Placement(0, 5, 0)),
        replace(FIRST, placement=Placement(1, 6, 0)),
        replace(FIRST, placement=Placement(1, 5, 1)),
        replace(FIRST, budget_tokens=1),
        replace(FIRST, rules=os.urandom(8)),
    ):
        known = file.put("local", link(1), SECOND, instead_of=other, known=None)
        assert known == Known(FIRST, True)
    assert file.put("local", link(1), SECOND, instead_of=FIRST, known=None) == Known(SECOND, True)
