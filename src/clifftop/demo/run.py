"""The demo from start to end: provider, proxy, agent, drawing, reckoning, promises.

Wiring only. The proxy comes as a parameter, so that this room imports none and a test can put
another one (or none) in its place.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from clifftop.demo.agent import Call, play
from clifftop.demo.bill import PRICE, add_up, full_context
from clifftop.demo.draw import Drawing, Point
from clifftop.demo.provider import Provider
from clifftop.demo.session import make_session
from clifftop.demo.verify import Outgoing, find_cliffs, read_outgoing, verify

DEFAULT_BUDGET_TOKENS = 45_000
DEFAULT_SEED = 7
NOTE = "same actions, not an experiment"

StartProxy = Callable[[str], Awaitable[tuple[str, Callable[[], Awaitable[None]]]]]
"""Takes the provider's URL; gives the proxy's own URL and what stops it."""


async def run_demo(
    *,
    start_proxy: StartProxy,
    draw: Drawing,
    seed: int = DEFAULT_SEED,
    budget_tokens: int = DEFAULT_BUDGET_TOKENS,
    pause_s: float = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Play a session through the proxy and give the report, ready for JSON.

    *Raises* ClifftopError when a request is refused or an answer does not arrive whole.
    """
    began = clock()
    session = make_session(seed)
    provider = Provider(session=session)
    watch = _Watch(provider=provider, draw=draw)
    draw.open(requests=len(session.steps), budget_tokens=budget_tokens)
    report: dict[str, Any] | None = None
    try:
        async with provider.serve() as provider_url:
            proxy_url, stop_proxy = await start_proxy(provider_url)
            try:
                played = await play(
                    proxy_url=proxy_url,
                    provider=provider,
                    session=session,
                    on_call=watch.see,
                    pause_s=pause_s,
                )
            finally:
                await stop_proxy()
        spent = add_up(one.usage for one in provider.received)
        without = add_up(full_context(session))
        promises = verify(
            session=session,
            calls=played.calls,
            received=provider.received,
            budget_tokens=budget_tokens,
        )
        saving = 1 - spent.cost_usd / without.cost_usd
        report = {
            "seed": seed,
            "model": session.model,
            "requests": spent.requests,
            "cliffs": watch.cliffs,
            "budget_tokens": budget_tokens,
            "prompt_tokens": spent.prompt_tokens,
            "prompt_tokens_without": without.prompt_tokens,
            "peak_tokens": spent.peak_tokens,
            "peak_tokens_without": without.peak_tokens,
            "cached_tokens": spent.cached_tokens,
            "cache_hit_share": round(spent.cache_hit_share, 4),
            "cache_hit_share_without": round(without.cache_hit_share, 4),
            "output_tokens": spent.output_tokens,
            "cost_usd": float(round(spent.cost_usd, 6)),
            "cost_usd_without": float(round(without.cost_usd, 6)),
            "saving_share": float(round(saving, 4)),
            "prices": f"list prices of {PRICE.model}, {PRICE.as_of}",
            "note": NOTE,
            "promises": [
                {"name": one.name, "holds": one.holds, "detail": one.detail} for one in promises
            ],
            "seconds": round(clock() - began, 2),
        }
    finally:
        draw.close(report)
    return report


@dataclass(slots=True, kw_only=True)
class _Watch:
    provider: Provider
    draw: Drawing
    before: Outgoing | None = None
    cliffs: int = 0

    def see(self, call: Call) -> None:
        now = read_outgoing(self.provider.received[-1])
        is_cliff = self.before is not None and bool(find_cliffs([self.before, now]))
        self.cliffs += is_cliff
        self.before = now
        self.draw.add(
            Point(
                number=call.step + 1,
                prompt_tokens=call.usage.prompt_tokens,
                full_tokens=call.full_tokens,
                cached_tokens=call.usage.cache_read_tokens,
                is_cliff=is_cliff,
            )
        )
