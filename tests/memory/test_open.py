"""From a `--state` value to a store: what is known, what is refused, and what is never repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from clifftop.errors import SettingsError
from clifftop.memory.base import InProcessStore
from clifftop.memory.files import default_state_path
from clifftop.memory.open import open_store, parse_state
from clifftop.memory.sqlite import SqliteStore


def test_states_are_read() -> None:
    assert parse_state("memory:") == "memory"
    assert parse_state("sqlite:") == "default"
    assert parse_state("sqlite:///a/b.db") == Path("/a/b.db")
    assert parse_state("sqlite:////a/b.db") == Path("/a/b.db")
    assert parse_state("sqlite:///a %20?b#c") == Path("/a %20?b#c")


@pytest.mark.parametrize(
    "state",
    [
        *("", "memory", "sqlite", "sqlite:a.db", "sqlite://a.db", "sqlite:///", "sqlite:///a/"),
        *("sqlite:///a\0b", "valkey://:hunter2@h/0", "hunter2 is no scheme", "SQLITE:///a"),
    ],
)
def test_other_states_are_refused_with_what_is_known(state: str) -> None:
    with pytest.raises(SettingsError, match=r"memory:, sqlite: .* or sqlite:///PATH") as caught:
        parse_state(state)
    assert "hunter2" not in str(caught.value)


async def test_memory_needs_no_file(tmp_path: Path) -> None:
    assert isinstance(open_store("memory:"), InProcessStore)


async def test_a_named_file_and_the_default_place_are_opened(tmp_path: Path) -> None:
    named = open_store(f"sqlite://{tmp_path}/a/b/named.db")
    default = open_store("sqlite:", default_path=tmp_path / "default.db")
    for store, path in ((named, "a/b/named.db"), (default, "default.db")):
        assert isinstance(store, SqliteStore)
        assert store.is_durable
        assert (tmp_path / path).exists()
        await store.close()


async def test_no_home_is_no_failure() -> None:
    store = open_store("sqlite:", default_path=None)
    assert isinstance(store, SqliteStore)
    assert not store.is_durable
    assert store.notes == [
        "state: there is no home folder to keep it in; remembering in memory only"
    ]
    await store.close()


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="16 or more") as caught:
        open_store(f"sqlite://{tmp_path}/state.db", secret="hunter2")
    assert "hunter2" not in str(caught.value)


def test_the_default_place_follows_xdg() -> None:
    assert default_state_path({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path(
        "/s/clifftop/state.db"
    )
    home = Path("/h/.local/state/clifftop/state.db")
    assert default_state_path({"HOME": "/h"}) == home
    assert default_state_path({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == home
    without = default_state_path({})
    assert without is None or without.is_absolute()
