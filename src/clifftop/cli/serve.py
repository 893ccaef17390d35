"""`clifftop serve`: the proxy in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from ipaddress import ip_address

import click

from clifftop import __version__
from clifftop.cli.options import budget_option, compaction_options, profile_of
from clifftop.errors import SettingsError
from clifftop.memory.base import Store
from clifftop.memory.files import default_state_path
from clifftop.memory.open import open_store
from clifftop.proxy.app import start_proxy
from clifftop.proxy.settings import ProxySettings


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, envvar="CLIFFTOP_HOST")
@click.option(
    "--port",
    type=int,
    default=8787,
    show_default=True,
    envvar="CLIFFTOP_PORT",
    help="0 picks a free one.",
)
@budget_option()
@click.option(
    "--anthropic-upstream",
    default="https://api.anthropic.com",
    show_default=True,
    envvar="CLIFFTOP_ANTHROPIC_UPSTREAM",
)
@click.option(
    "--openai-upstream",
    default="https://api.openai.com",
    show_default=True,
    envvar="CLIFFTOP_OPENAI_UPSTREAM",
    help="Relayed, not compacted yet.",
)
@click.option(
    "--gemini-upstream",
    default="https://generativelanguage.googleapis.com",
    show_default=True,
    envvar="CLIFFTOP_GEMINI_UPSTREAM",
    help="Relayed, not compacted yet.",
)
@click.option(
    "--state",
    default="sqlite:",
    show_default=True,
    envvar="CLIFFTOP_STATE",
    help="Where placements are remembered: sqlite: in your state folder, sqlite:///PATH, memory:.",
)
@click.option("--strict", is_flag=True, envvar="CLIFFTOP_STRICT", help="Refuse over the budget.")
@click.option("--shadow", is_flag=True, envvar="CLIFFTOP_SHADOW", help="Decide and log only.")
@click.option(
    "--lifeline",
    is_flag=True,
    hidden=True,
    envvar="CLIFFTOP_LIFELINE",
    help="End when standard input does; `run` sets it.",
)
@compaction_options
def command(
    host: str,
    port: int,
    budget: int | None,
    anthropic_upstream: str,
    openai_upstream: str,
    gemini_upstream: str,
    state: str,
    strict: bool,
    shadow: bool,
    lifeline: bool,
    profile: str,
    keep_recent: int,
    signatures: str | None,
    user_text: str | None,
) -> None:
    """Run the proxy between an agent and its provider.

    Point the agent's base URL at the address that is printed; its key passes through. Ctrl-C ends
    it.
    """
    if not _is_loopback(host):
        raise SettingsError(
            f"host {host}: whoever reaches it could use your upstream; only loopback is served "
            "without client keys, which this version does not have"
        )
    settings = ProxySettings(
        host=host,
        port=port,
        budget_tokens=budget,
        profile=profile_of(profile, keep_recent, signatures, user_text),
        anthropic_upstream=anthropic_upstream,
        openai_upstream=openai_upstream,
        gemini_upstream=gemini_upstream,
        state=state,
        is_strict=strict,
        is_shadow=shadow,
    )
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    store = open_store(
        settings.state,
        default_path=default_state_path(os.environ),
        secret=os.environ.get("CLIFFTOP_SECRET"),
    )
    try:
        asyncio.run(_serve(settings, store, ends_with_stdin=lifeline))
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}; try --port 0"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _serve(settings: ProxySettings, store: Store, *, ends_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if ends_with_stdin:
        # Nothing is ever written there: readable means that whoever started us is gone.
        loop.add_reader(sys.stdin.fileno(), stop.set)
    try:
        proxy = await start_proxy(settings, store=store)
        click.echo(f"clifftop {__version__} listening on {proxy.url}")
        sys.stdout.flush()
        await stop.wait()
        await proxy.stop()
    finally:
        await store.close()
