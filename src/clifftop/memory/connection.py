"""How a state file is opened, and what its errors mean. What is in it is `statefile`'s."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from clifftop.memory.base import MODELS
from clifftop.memory.migrations import Migration, migrate

OPEN_S = 1.0
"""Patience at the start, where another process may be making the same file."""


class Limits(NamedTuple):
    """How much a state file holds, in rows of each kind and in bytes."""

    placements: int = 200_000
    models: int = MODELS
    file_bytes: int = 256 << 20


DEFAULT_LIMITS = Limits()


def connect(
    path: Path, *, limits: Limits, migrations: Sequence[Migration], busy_s: float
) -> sqlite3.Connection:
    """Open a state file at the newest version.

    `busy_s`: patience with another process's lock, each time.

    Raises:
        sqlite3.Error: it cannot be used.
    """
    give_up_at = time.monotonic() + OPEN_S
    while True:
        connection = sqlite3.connect(
            path, timeout=busy_s, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, limits, migrations)
        except sqlite3.OperationalError as error:
            connection.close()
            # Going over to WAL does not wait for a lock by itself.
            is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _prepare(
    connection: sqlite3.Connection, limits: Limits, migrations: Sequence[Migration]
) -> None:
    # Whatever bytes a damaged row has, reading it must not raise.
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    connection.execute("PRAGMA trusted_schema = OFF")
    migrate(connection, migrations)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.NotSupportedError("does not do write-ahead logging here")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA max_page_count = {limits.file_bytes // PAGE_BYTES}")
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError("is damaged")


PAGE_BYTES = 4_096


PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
    }
)
"""Errors that may be gone in a second; all others mean that the file is damaged."""

FILE_ERRORS = (OSError, sqlite3.Error, UnicodeError)
"""What a state file may raise. sqlite3 quotes a damaged schema and then cannot decode its own
message: UnicodeDecodeError, from `SELECT count(*) FROM sqlite_master`."""


def reason_of(error: Exception) -> str:
    """Say why a state file failed."""
    match error:
        case UnicodeError():
            return "is damaged"
        case OSError(strerror=str(reason)):
            return reason
    return str(error)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself has rolled back where a disk is full.
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
