"""`clifftop demo`: wires session, embedded provider and the real proxy, and prints the figures."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

import click

from clifftop.cli.options import budget_option, compaction_options, profile_of
from clifftop.core.profile import Profile
from clifftop.demo.draw import make_drawing
from clifftop.demo.run import DEFAULT_BUDGET_TOKENS, DEFAULT_SEED, run_demo
from clifftop.proxy.app import start_proxy
from clifftop.proxy.settings import ProxySettings

PAUSE_S = 0.1
"""On a terminal the session takes some 20 s, so that its cliffs can be seen."""


@click.command("demo")
@budget_option(DEFAULT_BUDGET_TOKENS)
@click.option("--seed", type=int, default=DEFAULT_SEED, show_default=True, help="Of the session.")
@click.option("--json", "as_json", is_flag=True, help="Write the figures to stdout as JSON.")
@compaction_options
def command(
    budget: int,
    seed: int,
    as_json: bool,
    profile: str,
    keep_recent: int,
    signatures: str | None,
    user_text: str | None,
) -> None:
    """Watch a session of a coding agent fall off its cliffs.

    A seeded session of 152 requests is played through the real proxy against a provider inside this
    command that bills with a prefix-cache model. Needs no key, no agent and no network. Exit code 1
    if a promise did not hold.
    """
    from rich.console import Console

    console = Console(stderr=True)
    rules = profile_of(profile, keep_recent, signatures, user_text)
    report = asyncio.run(
        run_demo(
            seed=seed,
            budget_tokens=budget,
            start_proxy=_starter(budget, rules),
            draw=make_drawing(console),
            pause_s=PAUSE_S if console.is_terminal else 0,
        )
    )
    if as_json:
        click.echo(json.dumps(report, indent=2))
    if not all(promise["holds"] for promise in report["promises"]):
        sys.exit(1)


def _starter(
    budget_tokens: int, profile: Profile
) -> Callable[[str], Awaitable[tuple[str, Callable[[], Awaitable[None]]]]]:
    async def start(provider_url: str) -> tuple[str, Callable[[], Awaitable[None]]]:
        proxy = await start_proxy(
            ProxySettings(
                port=0,
                budget_tokens=budget_tokens,
                profile=profile,
                anthropic_upstream=provider_url,
                follows_proxy_environment=False,
            )
        )
        return proxy.url, proxy.stop

    return start
