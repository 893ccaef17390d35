"""One state file: its rows, what cannot be written yet, and what happens when SQLite fails.

Plain calls that may block for `busy_s`, all made by one thread; `sqlite` keeps that thread and the
event loop apart. No text of a conversation comes here: a key is a digest under a secret. A row is
untrusted input: whatever is odd counts as absent.
"""

from __future__ import annotations

import hmac
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from clifftop.memory import rows as sql
from clifftop.memory.base import MODELS, Remembered
from clifftop.memory.connection import (
    DEFAULT_LIMITS,
    FILE_ERRORS,
    OPEN_S,
    PASSING,
    Limits,
    connect,
    reason_of,
    transaction,
)
from clifftop.memory.migrations import MIGRATIONS, Migration
from clifftop.memory.rows import ModelRow, columns_of, is_sound_model, remembered_in

PAUSE_S = 1.0
"""After a failure the file is left alone for this long: a broken disk is not asked each time."""

KEEP_S = 90 * 86_400
TOUCH_S = 86_400
"""How old a last-use time may be before it is written again."""

PRUNE_S = 3_600
PRUNE_ROWS = 1_000
"""Rows that one transaction deletes, so that nobody waits long for its lock."""

UNWRITTEN = 1_000
"""Placements that are kept for a file which cannot be written now."""

log = logging.getLogger("clifftop.memory")
T = TypeVar("T")


class Known(NamedTuple):
    """What is remembered at a link. `is_written`: the file has it, or had another first."""

    remembered: Remembered
    is_written: bool


@dataclass(slots=True, kw_only=True)
class Counts:
    """What went otherwise than it should.

    `late`: calls that did not wait for the file any longer; `failed`: errors of SQLite; `odd`: rows
    that were ignored; `lost`: placements that are in no file because it could not be written for
    too long.
    """

    late: int = 0
    failed: int = 0
    odd: int = 0
    lost: int = 0


class StateFile:
    """An open state file. After an error that does not pass it is closed and knows nothing.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        secret: bytes,
        counts: Counts,
        notes: list[str],
        busy_s: float,
        limits: Limits = DEFAULT_LIMITS,
        migrations: Sequence[Migration] = MIGRATIONS,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.counts = counts
        self._notes = notes
        self._secret = secret
        self._limits = limits
        self._now, self._clock = now, clock
        self._claims: dict[bytes, _Claim] = {}
        self._models: dict[tuple[str, str], ModelRow] = {}
        self._used: set[bytes] = set()
        self._read_again_at = self._write_again_at = self._prune_at = -math.inf
        self._seen_version = -1
        self._connection: sqlite3.Connection | None = connect(
            path, limits=limits, migrations=migrations, busy_s=busy_s
        )
        self._identity = _identity(path)

    @property
    def is_open(self) -> bool:
        """Is there still a file behind it?"""
        return self._connection is not None

    def deepest(self, tenant: str, links: Sequence[bytes]) -> tuple[int, Known] | None:
        """Find the deepest of `links` that is known: its index, and what is remembered there."""
        return self._attempt(lambda connection: self._deepest(connection, tenant, links))

    def put(
        self,
        tenant: str,
        link: bytes,
        remembered: Remembered,
        *,
        instead_of: Remembered | None,
        known: Remembered | None,
    ) -> Known:
        """Remember, unless another was first, and give the winner.

        `known`: who was first as far as the caller has seen, which counts while the file is out of
        reach. What cannot be written now is kept, and written before anything later is.
        """
        key = self._key(tenant, link)
        earlier = self._claims.get(key)
        if earlier is None:
            self._claims[key] = _Claim(remembered, instead_of)
        elif earlier.remembered == instead_of:
            self._claims[key] = _Claim(remembered, earlier.instead_of)
        winner = self._write_claims().get(key)
        if winner is not None:
            self._used.add(key)
            return Known(winner, True)
        if earlier is None and known is not None and known != instead_of:
            self._claims.pop(key, None)
            return Known(known, False)
        first = self._claims.get(key, _Claim(remembered, instead_of)).remembered
        self._bound_claims()
        return Known(first, False)

    def set_model(self, row: ModelRow) -> None:
        """Set what `row` knows of a model; the last writer wins."""
        key = row[:2]
        earlier = self._models.pop(key, None)
        if earlier is not None:
            rate = earlier.rate if row.rate is None else row.rate
            window = earlier.window_tokens if row.window_tokens is None else row.window_tokens
            row = ModelRow(*key, rate, window)
        self._models[key] = row
        while len(self._models) > MODELS:
            del self._models[next(iter(self._models))]
        self._write_models()

    def models(self) -> list[ModelRow]:
        """Read what is known of models, oldest first; empty where nothing can have changed."""
        return self._attempt(self._changed_models) or []

    def flush(self) -> list[ModelRow]:
        """Write what waits, forget what is old, and give `models()`."""
        if self.is_open and _identity(self.path) != self._identity:
            self._give_up("was removed while it was in use")
        self._write_claims()
        self._write_models()
        self._write_used()
        self._prune()
        return self.models()

    def close(self) -> None:
        """Write what waits, whatever failed before, and close the file."""
        self._read_again_at = self._write_again_at = -math.inf
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute(f"PRAGMA busy_timeout = {round(OPEN_S * 1_000)}")
        self._write_claims()
        self._write_models()
        self._write_used()
        self.counts.lost += len(self._claims)
        self._claims.clear()
        self._disconnect()

    def _key(self, tenant: str, link: bytes) -> bytes:
        # The length comes first, or ("ab", b"c") and ("a", b"bc") would be one.
        name = tenant.encode("utf-8", "surrogatepass")
        text = len(name).to_bytes(4, "big") + name + link
        return hmac.digest(self._secret, text, "sha256")[:16]

    def _deepest(
        self, connection: sqlite3.Connection, tenant: str, links: Sequence[bytes]
    ) -> tuple[int, Known] | None:
        for end in range(len(links), 0, -ASKED_AT_ONCE):
            start = max(0, end - ASKED_AT_ONCE)
            keys = [self._key(tenant, link) for link in links[start:end]]
            found = self._known(connection, keys)
            for index in range(len(keys) - 1, -1, -1):
                known = found.get(keys[index])
                if known is not None:
                    self._used.add(keys[index])
                    return start + index, known
        return None

    def _known(self, connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, Known]:
        # Few sizes of query, so that SQLite compiles each once. No key equals NULL.
        size = next(x for x in QUERY_SIZES if x >= len(keys))
        padded = [*keys, *[None] * (size - len(keys))]
        found = {}
        for key, *row in connection.execute(
            f"{sql.SELECT} WHERE key IN ({', '.join('?' * size)})", padded
        ):
            remembered = remembered_in(row)
            if remembered is None:
                self.counts.odd += 1
            else:
                found[key] = Known(remembered, True)
        # What could not be written yet was first as far as we know.
        for key in self._claims.keys() & set(keys):
            found[key] = Known(self._claims[key].remembered, False)
        return found

    def _write_claims(self) -> dict[bytes, Remembered]:
        """Write what was put; who won each, or nothing where it could not be written."""
        claims = self._claims
        if not claims:
            return {}

        def write(connection: sqlite3.Connection) -> dict[bytes, Remembered]:
            with transaction(connection):
                return {key: self._claim(connection, key, claims[key]) for key in claims}

        winners = self._attempt(write, writes=True)
        if winners is None:
            return {}
        claims.clear()
        return winners

    def _claim(self, connection: sqlite3.Connection, key: bytes, claim: _Claim) -> Remembered:
        now = int(self._now())
        row = (*columns_of(claim.remembered), now, now)
        if claim.instead_of is not None:
            connection.execute(sql.REPLACE, (*row, key, *columns_of(claim.instead_of)))
        connection.execute(sql.INSERT, (key, *row))
        found = connection.execute(f"{sql.SELECT} WHERE key = ?", (key,)).fetchone()
        winner = remembered_in(found[1:])
        if winner is None:
            self.counts.odd += 1
            connection.execute(sql.OVERWRITE, (key, *row))
            return claim.remembered
        return winner

    def _bound_claims(self) -> None:
        while len(self._claims) > UNWRITTEN:
            del self._claims[next(iter(self._claims))]
            self.counts.lost += 1

    def _write_models(self) -> None:
        rows = self._models
        if not rows:
            return

        def write(connection: sqlite3.Connection) -> bool:
            now = int(self._now())
            with transaction(connection):
                connection.executemany(sql.SET_MODEL, [(*row, now) for row in rows.values()])
            return True

        if self._attempt(write, writes=True):
            rows.clear()

    def _changed_models(self, connection: sqlite3.Connection) -> list[ModelRow]:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._seen_version:
            return []
        rows = connection.execute(sql.SELECT_MODELS, (self._limits.models,)).fetchall()
        self._seen_version = version
        sound = [row for row in (ModelRow(*row) for row in reversed(rows)) if is_sound_model(row)]
        self.counts.odd += len(rows) - len(sound)
        return [row for row in sound if row[:2] not in self._models]

    def _write_used(self) -> None:
        used = self._used
        if not used:
            return
        now = int(self._now())

        def write(connection: sqlite3.Connection) -> bool:
            # Looked up first: nearly always all are of today, and nothing needs the lock.
            since = now - TOUCH_S
            old = [key for key in used if connection.execute(sql.IS_OLD, (key, since)).fetchone()]
            if old:
                with transaction(connection):
                    connection.executemany(sql.TOUCH, [(now, key) for key in old])
            return True

        self._attempt(write, writes=True)
        # A last-use time that is lost costs nothing for ninety days.
        used.clear()

    def _prune(self) -> None:
        now = self._now()
        if now < self._prune_at:
            return

        def prune(connection: sqlite3.Connection) -> int:
            (rows,) = connection.execute("SELECT count(*) FROM placement").fetchone()
            excess = min(PRUNE_ROWS, max(0, rows - self._limits.placements))
            with transaction(connection):
                old = connection.execute(sql.DELETE_OLD, (int(now - KEEP_S), PRUNE_ROWS)).rowcount
                more = connection.execute(sql.DELETE_EXCESS, (max(0, excess - old),)).rowcount
                connection.execute(sql.DELETE_MODELS, (self._limits.models,))
            return old + more

        pruned = self._attempt(prune, writes=True)
        if pruned is not None and pruned < PRUNE_ROWS:
            self._prune_at = now + PRUNE_S

    def _attempt(
        self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False
    ) -> T | None:
        """Do work on the file; None where it fails, or has failed a moment ago."""
        again_at = self._write_again_at if writes else self._read_again_at
        if self._connection is None or self._clock() < again_at:
            return None
        try:
            return work(self._connection)
        except FILE_ERRORS as error:
            self.counts.failed += 1
            self._note_failure(error, writes=writes)
            return None

    def _note_failure(self, error: Exception, *, writes: bool) -> None:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None or code & 0xFF not in PASSING:
            self._give_up(f"is broken ({reason_of(error)})")
            return
        # A full disk can still be read.
        again_at = self._clock() + PAUSE_S
        if writes:
            self._write_again_at = again_at
        else:
            self._read_again_at = again_at
        say(self._notes, self.path, f"is out of reach for now ({reason_of(error)})")

    def _give_up(self, reason: str) -> None:
        say(self._notes, self.path, f"{reason}; {IN_MEMORY}")
        self.counts.lost += len(self._claims)
        self._claims.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None


IN_MEMORY = "remembering in memory only"


def say(notes: list[str], path: Path | None, what: str) -> None:
    """Note and log something about a state file, once."""
    note = f"state {path}: {what}" if path is not None else f"state: {what}"
    note = "".join(letter if letter.isprintable() else "?" for letter in note)
    if note not in notes:
        notes.append(note)
        log.warning("%s", note)


class _Claim(NamedTuple):
    """A placement that was put and is in no file yet."""

    remembered: Remembered
    instead_of: Remembered | None


ASKED_AT_ONCE = 512
QUERY_SIZES = (8, 64, ASKED_AT_ONCE)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
