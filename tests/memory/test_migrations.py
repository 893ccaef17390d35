"""Schema history is append-only: old files are brought up, newer and foreign ones left alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from clifftop.memory.migrations import MIGRATIONS, migrate
from clifftop.memory.sqlite import open_sqlite
from tests.memory.test_store import FIRST

RELEASED = {1: "ae2c0171"}
"""First digits of each released version's schema: what is released is never edited."""


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def m_next_adds_a_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE placement ADD COLUMN hits INTEGER NOT NULL DEFAULT 0")


def m_next_fails_halfway(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE placement")
    connection.execute("ALTER TABLE no_such_table ADD COLUMN x")


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_released_schemas_stay(version: int, tmp_path: Path) -> None:
    with database(tmp_path / "state.db") as connection:
        migrate(connection, MIGRATIONS[:version])
        schema = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")]
    assert sha256("\n".join(filter(None, schema)).encode()).hexdigest()[:8] == RELEASED[version]


async def test_a_file_of_version_1_is_brought_up_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = open_sqlite(path, migrations=MIGRATIONS[:1])
    await store.put("local", b"a", FIRST)
    await store.close()
    store = open_sqlite(path, migrations=(*MIGRATIONS, m_next_adds_a_column))
    assert await store.longest("local", [b"a"]) == (0, FIRST)
    await store.close()
    with database(path) as connection:
        assert connection.execute("SELECT hits FROM placement").fetchall() == [(0,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)


async def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = open_sqlite(path)
    await store.put("local", b"a", FIRST)
    await store.close()
    store = open_sqlite(path, migrations=(*MIGRATIONS, m_next_adds_a_column, m_next_fails_halfway))
    assert not store.is_durable
    store = open_sqlite(path)
    assert store.notes == []
    assert await store.longest("local", [b"a"]) == (0, FIRST)
    await store.close()


async def test_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await open_sqlite(path).close()
    with database(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    store = open_sqlite(path)
    assert await store.put("local", b"a", FIRST) == FIRST
    assert not store.is_durable
    assert "is of version 99, written by a newer clifftop (known: 1)" in store.notes[0]
    assert path.read_bytes() == before


@pytest.mark.parametrize(("tables", "version"), [(1, 0), (1, 1), (1, -5), (0, 1)])
async def test_another_programs_database_is_left_alone(
    tables: int, version: int, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    with database(path) as connection:
        for number in range(tables):
            connection.execute(f"CREATE TABLE bookmarks{number} (url TEXT)")
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    store = open_sqlite(path)
    assert "is another program's database" in store.notes[0]
    assert path.read_bytes() == before
