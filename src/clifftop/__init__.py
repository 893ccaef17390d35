"""clifftop: bound a coding agent's context without a model call (CliffCompaction).

Public names are loaded when first used, so that `import clifftop` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clifftop.core.plan import Insert, Keep, Plan, check
    from clifftop.core.policy import Cliff
    from clifftop.core.profile import DEFAULT, PAPER, PROFILES, REFERENCE, Profile
    from clifftop.core.turns import History, Item
    from clifftop.dialects import get_dialect

__version__ = "0.1.0"

_HOMES = {
    "Cliff": "clifftop.core.policy",
    "DEFAULT": "clifftop.core.profile",
    "History": "clifftop.core.turns",
    "Insert": "clifftop.core.plan",
    "Item": "clifftop.core.turns",
    "Keep": "clifftop.core.plan",
    "PAPER": "clifftop.core.profile",
    "PROFILES": "clifftop.core.profile",
    "Plan": "clifftop.core.plan",
    "Profile": "clifftop.core.profile",
    "REFERENCE": "clifftop.core.profile",
    "check": "clifftop.core.plan",
    "get_dialect": "clifftop.dialects",
}

__all__ = [
    "DEFAULT",
    "PAPER",
    "PROFILES",
    "REFERENCE",
    "Cliff",
    "History",
    "Insert",
    "Item",
    "Keep",
    "Plan",
    "Profile",
    "check",
    "get_dialect",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clifftop' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
