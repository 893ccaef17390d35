"""The store that outlives its process: memory in front, a SQLite file behind, one thread between.

The file has the last word, so that processes which share it send one prefix; memory answers while
the file does not. A request waits `WAIT_S` for it and then goes on without. The event loop itself
never touches the file: what does is in `statefile`, and runs in that thread, in order.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from clifftop.errors import SettingsError
from clifftop.memory.base import InProcessStore, Remembered
from clifftop.memory.connection import DEFAULT_LIMITS, FILE_ERRORS, Limits, reason_of
from clifftop.memory.files import MOUNTS, make_private, read_secret
from clifftop.memory.migrations import MIGRATIONS, Migration
from clifftop.memory.rows import ModelRow, is_sound, is_sound_model
from clifftop.memory.statefile import (
    IN_MEMORY,
    Counts,
    Known,
    StateFile,
    say,
)

WAIT_S = 0.05
"""What a request waits for the file, each time it asks."""

BUSY_PART = 0.6
"""Of that wait, what SQLite may spend on another process's lock."""

FLUSH_S = 5.0
CLOSE_S = 5.0
SECRET_CHARS = 16

JOBS = 1_000
"""Calls that may wait for the thread; while a disk hangs no more are queued."""

T = TypeVar("T")


class SqliteStore:
    """Remembers in a state file; in memory alone, with a note, where there is none to be had.

    `notes`: what went wrong with the file, each said once; free of content and credentials.
    """

    def __init__(
        self,
        file: StateFile | None,
        *,
        front: InProcessStore,
        counts: Counts,
        notes: list[str],
        wait_s: float = WAIT_S,
        flush_s: float = FLUSH_S,
    ) -> None:
        self.counts = counts
        self.notes = notes
        self._file = file
        self._front = front
        self._wait_s, self._flush_s = wait_s, flush_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clifftop-state")
        self._jobs = 0
        self._late_jobs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._set_since: set[tuple[str, str]] = set()

    @property
    def is_durable(self) -> bool:
        """Does what is remembered outlive this process?"""
        return self._file is not None and self._file.is_open

    async def longest(self, tenant: str, links: Sequence[bytes]) -> tuple[int, Remembered] | None:
        """Find the deepest of `links` that is known: its index, and what is remembered there.

        The file is asked for what is deeper than memory knows, and for that itself: another process
        may have replaced it.
        """
        held = await self._front.longest(tenant, links)
        file = self._open_file
        if file is None or not links:
            return held
        start = 0 if held is None else held[0]
        deeper = links[start:]

        def adopt(done: asyncio.Future[_Answer]) -> None:
            if (found := _result(done)) is not None:
                self._front.adopt(tenant, deeper[found[0]], found[1].remembered)

        found = await self._within_limit(lambda: file.deepest(tenant, deeper), then=adopt)
        self._arm()
        return held if found is None else (start + found[0], found[1].remembered)

    async def put(
        self,
        tenant: str,
        link: bytes,
        remembered: Remembered,
        *,
        instead_of: Remembered | None = None,
    ) -> Remembered:
        """Remember, unless another was first; give what is remembered now.

        What a request did not wait for is still written, and whoever was first then wins from the
        next request on.
        """
        file, front = self._open_file, self._front
        if file is None or not is_sound(remembered):
            return await front.put(tenant, link, remembered, instead_of=instead_of)
        held = await front.longest(tenant, [link])
        known = None if held is None else held[1]
        replaced = instead_of if instead_of is not None and is_sound(instead_of) else None

        def write() -> Known:
            return file.put(tenant, link, remembered, instead_of=replaced, known=known)

        def adopt(done: asyncio.Future[Known]) -> None:
            if (winner := _result(done)) is not None:
                front.adopt(tenant, link, winner.remembered)

        winner = await self._within_limit(write, then=adopt, must_run=True)
        self._arm()
        if winner is None:
            return await front.put(tenant, link, remembered, instead_of=instead_of)
        self.counts.late += not winner.is_written
        return winner.remembered

    async def rate(self, upstream: str, model: str) -> float | None:
        """Give the tokens per byte that an upstream counts for a model."""
        return await self._front.rate(upstream, model)

    async def set_rate(self, upstream: str, model: str, rate: float) -> None:
        """Set the tokens per byte; the last writer wins."""
        await self._front.set_rate(upstream, model, rate)
        self._write_model(ModelRow(upstream, model, rate, None))

    async def window(self, upstream: str, model: str) -> int | None:
        """Give a model's window in tokens, where an upstream has told it."""
        return await self._front.window(upstream, model)

    async def set_window(self, upstream: str, model: str, tokens: int) -> None:
        """Set a model's window; the last writer wins."""
        await self._front.set_window(upstream, model, tokens)
        self._write_model(ModelRow(upstream, model, None, tokens))

    async def close(self) -> None:
        """Write what waits and close the file; what is asked later is answered from memory."""
        file, self._file = self._file, None
        if self._timer is not None:
            self._timer.cancel()
        if file is not None:
            closing = asyncio.get_running_loop().run_in_executor(self._thread, file.close)
            await asyncio.wait({closing}, timeout=CLOSE_S)
        self._thread.shutdown(wait=False)

    async def _within_limit(
        self,
        job: Callable[[], T],
        *,
        then: Callable[[asyncio.Future[T]], None] | None = None,
        must_run: bool = False,
    ) -> T | None:
        """Run a job in the file's thread; None where a request has no time for it.

        `then`: called when the job is done, also if nobody waited. `must_run`: run it behind one
        that is late already; nobody waits for that.
        """
        is_behind = self._late_jobs > 0
        if self._jobs >= JOBS or (is_behind and not must_run):
            self.counts.late += 1
            self.counts.lost += must_run
            return None
        future = self._run(job)
        if then is not None:
            future.add_done_callback(then)
        if not is_behind:
            done, _ = await asyncio.wait({future}, timeout=self._wait_s)
            if done:
                return future.result()
        self.counts.late += 1
        if not future.done():
            self._late_jobs += 1
            future.add_done_callback(self._catch_up)
        return None

    def _run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        self._jobs += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, job)
        future.add_done_callback(self._count_down)
        return future

    def _count_down(self, _: asyncio.Future[T]) -> None:
        self._jobs -= 1

    def _catch_up(self, _: asyncio.Future[T]) -> None:
        self._late_jobs -= 1

    def _write_model(self, row: ModelRow) -> None:
        """Write a model's row when the thread comes to it."""
        file = self._open_file
        if file is not None and self._jobs < JOBS and is_sound_model(row):
            self._set_since.add(row[:2])
            self._run(lambda: file.set_model(row))
            self._arm()

    @property
    def _open_file(self) -> StateFile | None:
        return self._file if self.is_durable else None

    def _arm(self) -> None:
        """See to it that the file is looked after soon."""
        if self._timer is None and self._file is not None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._file is None:
            return
        # One at a time: what was set after the first may not be forgotten for the second.
        if self._is_flushing or self._jobs >= JOBS:
            self._arm()
            return
        self._is_flushing = True
        self._set_since.clear()
        self._run(self._file.flush).add_done_callback(self._learn)

    def _learn(self, done: asyncio.Future[list[ModelRow]]) -> None:
        self._is_flushing = False
        for row in _result(done) or []:
            # What was set while the file was read is newer.
            if row[:2] not in self._set_since:
                _adopt_model(self._front, row)


def open_sqlite(
    path: Path,
    *,
    secret: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    max_entries: int = 100_000,
    wait_s: float = WAIT_S,
    flush_s: float = FLUSH_S,
    mounts: Path = MOUNTS,
    migrations: Sequence[Migration] = MIGRATIONS,
    now: Callable[[], float] = time.time,
    new_secret: Callable[[int], bytes] = os.urandom,
) -> SqliteStore:
    """Open a state file, made first if there is none.

    `secret`: what keys are made under, shared by all who share the file; without one a file beside
    the state holds it. `max_entries`: placements that are kept in memory too. A file that cannot be
    used leaves a store that remembers in memory, and says so in its notes.

    Raises:
        SettingsError: a secret that is too short.
    """
    if secret is not None and len(secret) < SECRET_CHARS:
        raise SettingsError(f"secret: give {SECRET_CHARS} or more characters")
    front, counts, notes = InProcessStore(max_entries=max_entries), Counts(), list[str]()
    file: StateFile | None = None
    try:
        make_private(path, mounts=mounts)
        if secret is None:
            key = read_secret(path.with_name(f"{path.name}.secret"), new_secret)
        else:
            key = secret.encode("utf-8", "surrogateescape")
        file = StateFile(
            path,
            secret=key,
            counts=counts,
            notes=notes,
            busy_s=BUSY_PART * wait_s,
            limits=limits,
            migrations=migrations,
            now=now,
        )
        for row in file.models():
            _adopt_model(front, row)
    except FILE_ERRORS as error:
        say(notes, path, f"{reason_of(error)}; {IN_MEMORY}")
    return SqliteStore(
        file, front=front, counts=counts, notes=notes, wait_s=wait_s, flush_s=flush_s
    )


def no_file(reason: str) -> SqliteStore:
    """Make a store that remembers in memory and says why."""
    notes: list[str] = []
    say(notes, None, f"{reason}; {IN_MEMORY}")
    return SqliteStore(None, front=InProcessStore(), counts=Counts(), notes=notes)


_Answer = tuple[int, Known] | None


def _result(done: asyncio.Future[T]) -> T | None:
    """Give a job's result; where it has none, whoever waits for it gets to know."""
    return None if done.cancelled() or done.exception() is not None else done.result()


def _adopt_model(front: InProcessStore, row: ModelRow) -> None:
    front.adopt_model(row.upstream, row.model, rate=row.rate, window_tokens=row.window_tokens)
