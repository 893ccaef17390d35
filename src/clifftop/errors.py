"""Every error that clifftop raises on purpose.

One file, so that a caller can see all that may go wrong. Each class says whether the proxy fails
open on it (the client's own bytes go out unchanged) and also derives from the matching built-in.
No other module defines an exception.
"""

from __future__ import annotations

from typing import ClassVar


class ClifftopError(Exception):
    """Base of all errors raised by clifftop."""

    fail_open: ClassVar[bool] = True


class RequestError(ClifftopError, ValueError):
    """A body that is no request of its dialect; the message names the place."""


class PlanError(ClifftopError, ValueError):
    """A plan that would break one of the nine promises (docs/how-it-works.md)."""


class OverBudgetError(ClifftopError, ValueError):
    """A prompt that no rung brings under the budget, raised in strict mode only."""

    fail_open = False


class SettingsError(ClifftopError, ValueError):
    """A setting that is unknown or out of range; the message names the nearest known one."""

    fail_open = False


class MissingExtraError(ClifftopError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""

    fail_open = False
