"""`clifftop run`: a client in the foreground, with a proxy that lives as long as it does."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from clifftop.cli.options import budget_option, compaction_options
from clifftop.errors import SettingsError
from clifftop.proxy.clients import (
    BASE_URL,
    Place,
    client_of,
    launch_of,
    obstacles,
    proxy_environ,
    upstream_of,
)
from clifftop.proxy.launch import (
    ProxyProcess,
    forget_old_logs,
    private_file,
    private_folder,
    run_client,
    state_folder,
)
from clifftop.proxy.settings import ProxySettings
from clifftop.proxy.summary import SUMMARY_PATH, Summary, told

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""What a shell would say."""


@click.command(
    "run", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False}
)
@click.argument("cmd", metavar="-- CMD ...", nargs=-1, required=True, type=click.UNPROCESSED)
@budget_option()
@click.option(
    "--upstream",
    envvar="CLIFFTOP_UPSTREAM",
    help="Where requests go. [default: the base URL that CMD would use by itself]",
)
@click.option("--state", envvar="CLIFFTOP_STATE", help="Where placements are remembered.")
@click.option("--strict", is_flag=True, envvar="CLIFFTOP_STRICT", help="Refuse over the budget.")
@click.option("--shadow", is_flag=True, envvar="CLIFFTOP_SHADOW", help="Decide and log only.")
@compaction_options
def command(
    cmd: tuple[str, ...],
    budget: int | None,
    upstream: str | None,
    state: str | None,
    strict: bool,
    shadow: bool,
    profile: str,
    keep_recent: int,
    signatures: str | None,
    user_text: str | None,
) -> None:
    """Run a coding agent with a private proxy between it and its provider.

    CMD is started as it is, with its base URL pointing at the proxy; its key or login passes
    through. It owns the terminal. When it has ended, a summary is written to stderr. The exit code
    is CMD's.
    """
    place = Place(environ=os.environ, home=Path.home(), cwd=Path.cwd())
    if shutil.which(cmd[0]) is None:
        found = Path(cmd[0]).exists()
        _fail(f"{cmd[0]}: {'cannot be run' if found else 'not found'}", found=found)
    named = upstream_of(cmd, place) if upstream is None else None
    target = upstream or (named.value if named else None)
    options = {
        "--budget": budget,
        "--anthropic-upstream": target,
        "--state": state,
        "--profile": profile,
        "--keep-recent": keep_recent,
        "--signatures": signatures,
        "--user-text": user_text,
    }
    if target is not None:
        ProxySettings(anthropic_upstream=target)  # says what is wrong with it, before any start
    flags = [flag for flag, is_on in (("--strict", strict), ("--shadow", shadow)) if is_on]
    arguments = [x for k, v in options.items() if v is not None for x in (k, str(v))]
    hindered = obstacles(cmd, place)
    for sentence in hindered:
        click.echo(f"clifftop: {sentence}", err=True)
    if client_of(cmd[0]) is None:
        click.echo(f"clifftop: {cmd[0]} is not known here, only {BASE_URL} is set", err=True)
    elif named is not None and named.source.endswith(("settings.json", "settings.local.json")):
        # Such a file may have come with a repository; keys go to whom it names.
        click.echo(f"clifftop: upstream {named.value} (from {named.source})", err=True)
    sys.exit(_run(cmd, place, [*arguments, *flags], hindered))


def _run(
    cmd: tuple[str, ...], place: Place, arguments: Sequence[str], hindered: Sequence[str]
) -> int:
    """Start proxy and client, end both, tell what it came to; the client's exit status."""
    run = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    folder = _log_folder(place)
    log_path, settings_file = folder / f"run-{run}.log", folder / f"run-{run}.settings.json"
    log = private_file(log_path)
    # -P: a `logging.py` in the user's project is not ours to import.
    proxy = ProxyProcess(
        [sys.executable, "-P", "-m", "clifftop", "serve", "--host", "127.0.0.1", *arguments],
        environ=proxy_environ(cmd, place),
        log=log,
    )
    try:
        proxy.start()
    except SettingsError as error:
        lines = log_path.read_text(errors="replace").splitlines()
        why = lines[-1].removeprefix("clifftop: ") if lines else f"its log {log_path} is empty"
        raise SettingsError(f"{error}: {why}") from error
    try:
        launch = launch_of(cmd, place, base_url=proxy.url, run=run, settings_file=settings_file)
        if launch.private_settings is not None:
            with os.fdopen(private_file(settings_file), "w") as file:
                file.write(launch.private_settings)
        try:
            status = run_client(launch.argv, launch.environ)
        except OSError as error:
            _fail(f"{cmd[0]}: {error.strerror}", found=not isinstance(error, FileNotFoundError))
        answer = proxy.ask(SUMMARY_PATH)
    finally:
        settings_file.unlink(missing_ok=True)
        proxy.stop()
        os.close(log)
    summary = None if answer is None else Summary.of(answer)
    text = told(summary, restarts=proxy.restarts, obstacles=hindered, log=str(log_path))
    with suppress(OSError):  # the terminal was closed
        click.echo(text, err=True)
    return status


def _log_folder(place: Place) -> Path:
    """Make the folder for logs; a temporary one where the state folder cannot be used."""
    folder = state_folder(place.environ, place.home) / "runs"
    try:
        private_folder(folder.parent)
        private_folder(folder)
        forget_old_logs(folder)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="clifftop-"))


def _fail(message: str, *, found: bool) -> NoReturn:
    click.echo(f"clifftop: {message}", err=True)
    sys.exit(NOT_RUNNABLE if found else NOT_FOUND)
