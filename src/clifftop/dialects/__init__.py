"""How a conversation looks on the wire: bytes to views and spans, plans to bytes."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from clifftop.errors import SettingsError

if TYPE_CHECKING:
    from clifftop.dialects.base import Dialect

DIALECT_NAMES = ("anthropic",)


def get_dialect(name: str) -> Dialect:
    """Give a dialect by its name.

    Raises:
        SettingsError: there is none; the message names the nearest.
    """
    from clifftop.dialects.anthropic import AnthropicMessages

    if name == "anthropic":
        return AnthropicMessages()
    near = get_close_matches(name, DIALECT_NAMES, n=1, cutoff=0)
    raise SettingsError(f"unknown dialect {name!r}; did you mean {near[0]!r}?")
