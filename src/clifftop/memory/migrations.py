"""How the tables of a state file came to be: an append-only list, never edited once released.

A file's `user_version` is the number of migrations it has seen. Nothing here reads or writes rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress

Migration = Callable[[sqlite3.Connection], None]

APPLICATION_ID = 0x636C6666  # "clff", so that `file` and we know whose database it is


def m001_placements_and_models(connection: sqlite3.Connection) -> None:
    """Create the tables of the first release."""
    connection.execute(
        "CREATE TABLE placement (key BLOB PRIMARY KEY NOT NULL, prev_cut INTEGER NOT NULL,"
        " cut INTEGER NOT NULL, rung INTEGER NOT NULL, budget_tokens INTEGER NOT NULL,"
        " rules BLOB NOT NULL, made_at INTEGER NOT NULL, used_at INTEGER NOT NULL) WITHOUT ROWID"
    )
    connection.execute("CREATE INDEX placement_by_use ON placement (used_at)")
    connection.execute(
        "CREATE TABLE model (upstream TEXT NOT NULL, model TEXT NOT NULL, rate REAL,"
        " window_tokens INTEGER, set_at INTEGER NOT NULL, PRIMARY KEY (upstream, model))"
        " WITHOUT ROWID"
    )


MIGRATIONS: tuple[Migration, ...] = (m001_placements_and_models,)


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a file to the newest version, in one transaction, whoever else tries the same.

    Raises:
        sqlite3.DatabaseError: it is of a newer version, or another program's.
    """
    if _version(connection, migrations) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in migrations[_version(connection, migrations) :]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (version or tables) and owner != APPLICATION_ID:
        raise sqlite3.NotSupportedError("is another program's database")
    if not 0 <= version <= len(migrations):
        raise sqlite3.NotSupportedError(
            f"is of version {version}, written by a newer clifftop (known: {len(migrations)})"
        )
    return int(version)
