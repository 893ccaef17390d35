"""Where the recorded data lies, how golden files are refreshed, hypothesis profiles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
    "database": None,
}
# Sessions are large: shrinking one takes minutes. `CLIFFTOP_HYPOTHESIS=shrink` is for the desk.
PHASES = (Phase.explicit, Phase.generate)
settings.register_profile("quick", max_examples=30, phases=PHASES, **COMMON)
settings.register_profile("ci", max_examples=300, derandomize=True, phases=PHASES, **COMMON)
settings.register_profile("full", max_examples=10_000, phases=PHASES, **COMMON)
settings.register_profile("shrink", max_examples=300, **COMMON)
settings.load_profile(os.environ.get("CLIFFTOP_HYPOTHESIS", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*")


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of recorded requests and sessions that is too large to commit."""
    folder = os.environ.get("CLIFFTOP_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("CLIFFTOP_TEST_DATA names no folder of recorded data")
    return Path(folder)
