"""What a row of a state file may hold, and the statements that read and write rows.

A row is untrusted input: types and ranges are checked, and what is odd is no value at all. What is
written passes the same checks first. No connection lives here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeGuard

from clifftop.core.block import Placement
from clifftop.memory.base import Remembered

LARGEST = 10**9
NAME_CHARS = 256
RULES_BYTES = 64
RATES = (0.0, 100.0)


class ModelRow(NamedTuple):
    """What is known of a model at an upstream; None is not known."""

    upstream: str
    model: str
    rate: float | None
    window_tokens: int | None


def is_sound(remembered: Remembered) -> bool:
    """May this be in a state file? What may not is remembered in memory alone."""
    return remembered_in(columns_of(remembered)) == remembered


def is_sound_model(row: ModelRow) -> bool:
    """May this be in a state file?"""
    names = row.upstream, row.model
    if not all(type(name) is str and len(name) <= NAME_CHARS for name in names):
        return False
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        return False
    low, high = RATES
    rate, window = row.rate, row.window_tokens
    is_rate = rate is None or (type(rate) is float and math.isfinite(rate) and low < rate <= high)
    return is_rate and (window is None or (type(window) is int and 0 < window <= LARGEST))


def columns_of(remembered: Remembered) -> tuple[object, ...]:
    return (*remembered.placement, remembered.budget_tokens, remembered.rules)


def remembered_in(row: Iterable[object]) -> Remembered | None:
    """Check a row; None where it is odd."""
    prev_cut, cut, rung, budget_tokens, rules = row
    if not (_is_count(prev_cut) and _is_count(cut) and _is_count(rung)):
        return None
    if not (_is_count(budget_tokens) and isinstance(rules, bytes)):
        return None
    if not (prev_cut < cut and rung < 256 and budget_tokens and 0 < len(rules) <= RULES_BYTES):
        return None
    placement = Placement(prev_cut, cut, rung)
    return Remembered(placement=placement, budget_tokens=budget_tokens, rules=rules)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= LARGEST


COLUMNS = "prev_cut, cut, rung, budget_tokens, rules"
SELECT = f"SELECT key, {COLUMNS} FROM placement"
VALUES = f"INTO placement (key, {COLUMNS}, made_at, used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
INSERT = f"INSERT {VALUES} ON CONFLICT DO NOTHING"
OVERWRITE = f"REPLACE {VALUES}"
REPLACE = (
    "UPDATE placement SET prev_cut = ?, cut = ?, rung = ?, budget_tokens = ?, rules = ?,"
    " made_at = ?, used_at = ? WHERE key = ?"
    " AND prev_cut = ? AND cut = ? AND rung = ? AND budget_tokens = ? AND rules = ?"
)
SET_MODEL = (
    "INSERT INTO model (upstream, model, rate, window_tokens, set_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (upstream, model) DO UPDATE SET rate = coalesce(excluded.rate, rate),"
    " window_tokens = coalesce(excluded.window_tokens, window_tokens), set_at = excluded.set_at"
)
SELECT_MODELS = (
    "SELECT upstream, model, rate, window_tokens FROM model ORDER BY set_at DESC LIMIT ?"
)
IS_OLD = "SELECT 1 FROM placement WHERE key = ? AND used_at < ?"
TOUCH = "UPDATE placement SET used_at = ? WHERE key = ?"
DELETE_OLD = (
    "DELETE FROM placement WHERE key IN (SELECT key FROM placement WHERE used_at < ? LIMIT ?)"
)
DELETE_EXCESS = (
    "DELETE FROM placement WHERE key IN (SELECT key FROM placement ORDER BY used_at LIMIT ?)"
)
DELETE_MODELS = (
    "DELETE FROM model WHERE (upstream, model) IN"
    " (SELECT upstream, model FROM model ORDER BY set_at DESC LIMIT -1 OFFSET ?)"
)
