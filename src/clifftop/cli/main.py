"""The `clifftop` command: names, one line of help each, and what errors look like.

Commands are imported when they run, so that `--help` stays quick. No command's work lives here.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click

from clifftop import __version__
from clifftop.errors import ClifftopError, SettingsError

COMMANDS = {
    "compact": "Compact one request from a file.",
    "demo": "Watch a session fall off its cliffs; needs no key, agent or network.",
    "doctor": "Say what is installed, which agents were found, and what is misconfigured.",
    "run": "Run a coding agent with a private proxy.",
    "serve": "Run the proxy in front of a provider.",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"clifftop.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="clifftop", message="%(prog)s %(version)s")
def group() -> None:
    """Bound a coding agent's context without a model call.

    The context grows untouched until a budget, then drops to its head, one block of verbatim
    excerpts and the newest turns.
    """


def main() -> NoReturn:
    """Run the command line. Exit codes: 0 fine, 1 the work failed, 2 wrong use."""
    try:
        group(prog_name="clifftop", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2 if isinstance(error, click.UsageError) else 1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except ClifftopError as error:
        click.echo(f"clifftop: {error}", err=True)
        sys.exit(2 if isinstance(error, SettingsError) else 1)
    sys.exit(0)
