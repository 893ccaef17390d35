"""From a `--state` value to a store. The environment is the caller's to read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from clifftop.errors import SettingsError
from clifftop.memory.base import InProcessStore, Store

State = Literal["memory", "default"] | Path
"""Where state lies: only in memory, at the default place, or in the file that was named."""

KNOWN = "give memory:, sqlite: (the default place) or sqlite:///PATH with an absolute path"


def parse_state(state: str) -> State:
    """Read a `--state` value; `sqlite:///a/b` and `sqlite:////a/b` both name `/a/b`.

    Raises:
        SettingsError: it is none that is known; the message names those.
    """
    if state == "memory:":
        return "memory"
    if state == "sqlite:":
        return "default"
    # Of others not even the rest is repeated: it may hold a password.
    scheme, _, rest = state.partition(":")
    if scheme != "sqlite":
        shown = scheme if SCHEME.fullmatch(scheme) else "..."
        raise SettingsError(f"state {shown}:...: {KNOWN}")
    path = "/" + rest.lstrip("/")
    if not rest.startswith("///") or path.endswith("/") or "\0" in path:
        raise SettingsError(f"state {state!r}: {KNOWN}")
    return Path(path)


SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")


def open_store(state: str, *, default_path: Path | None = None, secret: str | None = None) -> Store:
    """Open the store that a `--state` value names.

    `default_path`: where plain `sqlite:` lies (`files.default_state_path`); None where there is no
    such place. A file that cannot be used never stops a start: see `sqlite.open_sqlite`.

    Raises:
        SettingsError: an unknown state, or a secret that is too short.
    """
    place = parse_state(state)
    if place == "memory":
        return InProcessStore()
    from clifftop.memory.sqlite import no_file, open_sqlite  # 8 ms that `memory:` does not need

    if place == "default":
        if default_path is None:
            return no_file("there is no home folder to keep it in")
        place = default_path
    return open_sqlite(place, secret=secret)
