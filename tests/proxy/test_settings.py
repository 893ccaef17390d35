"""Settings: budgets as people write them, and values that are refused with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from clifftop.core.profile import DEFAULT, PAPER
from clifftop.errors import SettingsError
from clifftop.proxy.settings import ProxySettings, environment_proxy, parse_budget


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("16k", 16_000),
        ("45K", 45_000),
        ("200000", 200_000),
        ("1m", 1_000_000),
        ("2M", 2_000_000),
        (" 45_000 ", 45_000),
    ],
)
def test_budgets_are_read_as_people_write_them(text: str, tokens: int) -> None:
    assert parse_budget(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "16kb", "-16k", "1.5m", "0", "16", "١٦k", "1e6", "999m"])
def test_no_budget_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(SettingsError, match="45k or 1m"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"port": 70_000}, "65535"),
        ({"budget_tokens": 0}, "positive"),
        ({"keep_recent": 0}, "1 or more"),
        ({"state": "valkey://x"}, "memory:"),
        ({"anthropic_upstream": "api.anthropic.com"}, "http"),
        ({"anthropic_upstream": "ftp://x"}, "http"),
        ({"openai_upstream": "http://x:port"}, "http"),
        ({"gemini_upstream": "https://x/?key=1"}, "headers"),
    ],
)
def test_what_is_out_of_range_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ProxySettings(**changes)


def test_a_password_in_an_upstream_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        ProxySettings(anthropic_upstream="https://me:hunter2@host")
    assert "hunter2" not in str(caught.value)


def test_keep_recent_changes_the_rules() -> None:
    assert ProxySettings().rules is DEFAULT
    rules = ProxySettings(profile=PAPER, keep_recent=5).rules
    assert (rules.name, rules.rungs[0].keep_recent) == ("paper", 5)
    assert rules.digest != PAPER.digest


def test_the_outbound_proxy_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://outbound:3128")
    assert environment_proxy("https://api.anthropic.com/v1/messages") == "http://outbound:3128"
    assert environment_proxy("http://localhost:8000/") is None
    monkeypatch.setenv("NO_PROXY", "api.anthropic.com")
    assert environment_proxy("https://api.anthropic.com/v1/messages") is None
