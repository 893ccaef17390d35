"""One session and its two recordings (straight, and through a compacting relay), made once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from clifftop.demo.agent import Call, play
from clifftop.demo.provider import Provider, Received
from clifftop.demo.session import Session, make_session
from tests.demo.relay import Relay

BUDGET_TOKENS = 45_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    session: Session
    calls: list[Call]
    received: list[Received]


@pytest.fixture(scope="session")
def session() -> Session:
    return make_session(7)


@pytest.fixture(scope="session")
def straight(session: Session) -> Recording:
    """Every request reaches the provider as it was sent."""
    return asyncio.run(_record(session, budget_tokens=None))


@pytest.fixture(scope="session")
def cliffed(session: Session) -> Recording:
    """A relay drops to [head, block, newest turns] at 45,000 tokens."""
    return asyncio.run(_record(session, budget_tokens=BUDGET_TOKENS))


async def _record(session: Session, *, budget_tokens: int | None) -> Recording:
    provider = Provider(session=session)
    calls: list[Call] = []
    async with provider.serve() as url:
        if budget_tokens is None:
            await play(proxy_url=url, provider=provider, session=session, on_call=calls.append)
        else:
            async with Relay(upstream=url, budget_tokens=budget_tokens).serve() as relay:
                await play(
                    proxy_url=relay, provider=provider, session=session, on_call=calls.append
                )
    return Recording(session=session, calls=calls, received=provider.received)
