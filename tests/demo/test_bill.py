"""The bill is exact, and the reckoned arm is the one that a provider would have billed."""

from __future__ import annotations

from decimal import Decimal

from clifftop.demo.bill import PRICE, add_up, full_context
from clifftop.demo.prefix import Usage
from clifftop.demo.prompt import MODEL
from tests.demo.conftest import Recording


def test_each_kind_of_token_has_its_price() -> None:
    million = 1_000_000
    usage = Usage(
        input_tokens=million,
        cache_read_tokens=million,
        cache_write_tokens=million,
        output_tokens=million,
    )
    bill = add_up([usage, usage])
    assert bill.cost_usd == 2 * (Decimal("4.0") + Decimal("0.2") + Decimal("5.0") + Decimal("20.0"))
    assert (bill.requests, bill.peak_tokens, bill.cached_tokens) == (2, 3 * million, 2 * million)
    assert bill.cache_hit_share == 1 / 3


def test_no_calls_cost_nothing() -> None:
    bill = add_up([])
    assert (bill.cost_usd, bill.peak_tokens, bill.cache_hit_share) == (Decimal(0), 0, 0.0)


def test_prices_belong_to_the_sessions_model() -> None:
    assert PRICE.model == MODEL


def test_reckoned_full_context_equals_what_the_provider_billed(straight: Recording) -> None:
    assert full_context(straight.session) == [one.usage for one in straight.received]
