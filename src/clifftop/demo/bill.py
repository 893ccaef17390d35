"""What a run's calls cost, with clifftop and without, at one model's list prices.

Sums over `Usage` values only: no session is played here and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

import msgspec

from clifftop.demo.prefix import (
    BYTES_PER_TOKEN,
    PrefixCache,
    Prompt,
    Usage,
    normal_message,
    read_prompt,
)
from clifftop.demo.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """List prices of one model, in USD per million tokens."""

    model: str
    input_usd: Decimal
    cache_read_usd: Decimal
    cache_write_usd: Decimal
    output_usd: Decimal
    as_of: str
    source: str


PRICE = Price(
    model="claude-opus-5-5",
    input_usd=Decimal("4.0"),
    cache_read_usd=Decimal("0.2"),
    cache_write_usd=Decimal("5.0"),
    output_usd=Decimal("20.0"),
    as_of="2026-11-30",
    source="litellm 1.110.2 model_prices_and_context_window_backup.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Tokens and money of all calls of one run."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    peak_tokens: int
    cost_usd: Decimal

    @property
    def cache_hit_share(self) -> float:
        """Divide the tokens read from the cache by all prompt tokens; 0 for no calls."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def add_up(usages: Iterable[Usage], *, price: Price = PRICE) -> Bill:
    """Sum calls and price them."""
    calls = list(usages)
    return Bill(
        requests=len(calls),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        cached_tokens=sum(call.cache_read_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        peak_tokens=max((call.prompt_tokens for call in calls), default=0),
        cost_usd=sum((_cost(call, price) for call in calls), Decimal(0)),
    )


def full_context(session: Session) -> list[Usage]:
    """Reckon the same steps with the whole history in every request, under the same cache model.

    The actions are the recorded ones: same actions, not an experiment.
    """
    cache = PrefixCache()
    fixed = {"tools": session.tools, "system": session.system, "messages": session.head}
    data = read_prompt(fixed).data
    usages = []
    for step in session.steps:
        # The client moves its marker to the newest block each time, so all of the prompt is cached.
        counted = cache.account(session.model, Prompt(data=data, marked_bytes=len(data)))
        usages.append(
            Usage(
                input_tokens=counted.input_tokens,
                cache_read_tokens=counted.cache_read_tokens,
                cache_write_tokens=counted.cache_write_tokens,
                output_tokens=-(-len(msgspec.json.encode(step.assistant)) // BYTES_PER_TOKEN),
            )
        )
        data += normal_message({"role": "assistant", "content": step.assistant})
        if step.user is not None:
            data += normal_message({"role": "user", "content": step.user})
    return usages


def _cost(call: Usage, price: Price) -> Decimal:
    total = (
        call.input_tokens * price.input_usd
        + call.cache_read_tokens * price.cache_read_usd
        + call.cache_write_tokens * price.cache_write_usd
        + call.output_tokens * price.output_usd
    )
    return total / 1_000_000
