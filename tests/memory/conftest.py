"""The stores that every test of the protocol runs against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clifftop.memory.base import InProcessStore, Store
from clifftop.memory.sqlite import open_sqlite


@pytest.fixture(params=["in-process", "sqlite", "sqlite without a file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    match request.param:
        case "in-process":
            store: Store = InProcessStore()
        case "sqlite":
            store = open_sqlite(tmp_path / "state.db", wait_s=10)
        case _:
            (tmp_path / "file").touch()
            store = open_sqlite(tmp_path / "file" / "state.db")
    yield store
    await store.close()
