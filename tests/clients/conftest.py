"""Real clients are started only where CLIFFTOP_CLIENTS=1 asks for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.clients.install import Unavailable, claude_code


@pytest.fixture(scope="session")
def claude() -> Path:
    """The command of a real Claude Code."""
    if os.environ.get("CLIFFTOP_CLIENTS") != "1":
        pytest.skip("CLIFFTOP_CLIENTS is not 1: no real client is installed and run")
    try:
        return claude_code()
    except Unavailable as reason:
        pytest.skip(str(reason))
