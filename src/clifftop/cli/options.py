"""Options that several commands share, with one name for flag and environment.

Only declarations: what an option means is written where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from clifftop.core.profile import PROFILES, Profile
from clifftop.errors import SettingsError

Command = TypeVar("Command", bound=Callable[..., Any])


class Budget(click.ParamType[int]):
    """A budget option."""

    name = "tokens"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        from clifftop.proxy.settings import parse_budget

        if isinstance(value, int):
            return value
        try:
            return parse_budget(str(value))
        except SettingsError as error:
            self.fail(str(error), param, ctx)


BUDGET_HELP = "Size of the whole prompt at which a cliff is made: 16k, 45K, 200000, 1m."
AUTOMATIC = " [default: 45k, or 2.5 times the fixed part of a stream if that is more]"


def budget_option(default: int | None = None) -> Callable[[Command], Command]:
    """Make the `--budget` option; without a default each stream's is chosen from its requests."""
    return click.option(
        "--budget",
        type=Budget(),
        default=default,
        show_default=default is not None,
        envvar="CLIFFTOP_BUDGET",
        help=BUDGET_HELP + (AUTOMATIC if default is None else ""),
    )


def compaction_options(command: Command) -> Command:
    """Add the options that choose how to compact."""
    for option in reversed(
        (
            click.option(
                "--profile",
                type=click.Choice(sorted(PROFILES)),
                default="default",
                show_default=True,
                envvar="CLIFFTOP_PROFILE",
                help="Rules: recommended, the paper's, or the authors' proxy's.",
            ),
            click.option(
                "--keep-recent",
                type=click.IntRange(1, 50),
                default=3,
                show_default=True,
                envvar="CLIFFTOP_KEEP_RECENT",
                help="Newest turns kept byte for byte.",
            ),
            click.option(
                "--signatures",
                type=click.Choice(["tools", "generic", "openhands"]),
                envvar="CLIFFTOP_SIGNATURES",
                help="What stays of a tool call. [default: the profile's]",
            ),
            click.option(
                "--user-text",
                type=click.Choice(["pin", "window", "drop"]),
                envvar="CLIFFTOP_USER_TEXT",
                help="What happens to text that people typed. [default: the profile's]",
            ),
        )
    ):
        command = option(command)
    return command


def profile_of(
    profile: str, keep_recent: int, signatures: str | None, user_text: str | None
) -> Profile:
    """Build a profile from the options above."""
    changes: dict[str, Any] = {"keep_recent": keep_recent}
    if signatures is not None:
        changes["signatures"] = signatures
    if user_text is not None:
        changes["user_text"] = user_text
    return replace(PROFILES[profile], **changes)
