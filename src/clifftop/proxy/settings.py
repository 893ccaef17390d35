"""What the proxy is told: one value, checked when it is made.

The only file of `proxy` that may look at the environment, and it does so for the outbound HTTP
proxy alone. How flags and files become this value is the command line's.
"""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from clifftop.core.profile import DEFAULT, Profile
from clifftop.errors import SettingsError
from clifftop.memory.open import parse_state

MIB = 1 << 20
SMALLEST_BUDGET_TOKENS = 1_000
LARGEST_BUDGET_TOKENS = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of anything is held at once.

    `body_bytes`: larger requests are relayed as a stream, uncompacted. `error_bytes`: how much of
    an error answer is read before it is judged. `headers`, `header_bytes`: their number, and the
    length of one. `hold_s`, `hold_bytes`: how long and how much of an answer waits for its first
    content. `streams`: conversations whose counters are kept. `stop_s`: patience with open calls.
    """

    body_bytes: int = 64 * MIB
    error_bytes: int = MIB
    headers: int = 256
    header_bytes: int = 64 * 1024
    hold_s: float = 15
    hold_bytes: int = 64 * 1024
    streams: int = 10_000
    connect_s: float = 10
    stop_s: float = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """All that one proxy is told.

    `budget_tokens`: None chooses it for each stream from its first request. `keep_recent`: None is
    the profile's. `is_strict`: refuse what stays over the budget instead of widening it.
    `is_shadow`: decide and count, but send the client's bytes. `follows_proxy_environment`: reach
    upstreams through `HTTPS_PROXY` and its kin.

    Raises:
        SettingsError: a value that is out of range; the message names what is allowed.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    budget_tokens: int | None = None
    profile: Profile = DEFAULT
    keep_recent: int | None = None
    anthropic_upstream: str = "https://api.anthropic.com"
    openai_upstream: str = "https://api.openai.com"
    gemini_upstream: str = "https://generativelanguage.googleapis.com"
    state: str = "memory:"
    is_strict: bool = False
    is_shadow: bool = False
    follows_proxy_environment: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise SettingsError(f"port {self.port}: give 0 (any free one) to 65535")
        if self.budget_tokens is not None and self.budget_tokens < 1:
            raise SettingsError(f"budget {self.budget_tokens}: give a positive number of tokens")
        if self.keep_recent is not None and self.keep_recent < 1:
            raise SettingsError(f"keep-recent {self.keep_recent}: give 1 or more turns")
        parse_state(self.state)
        for name in ("anthropic", "openai", "gemini"):
            _check_upstream(name, self.upstream(name))

    def upstream(self, name: str) -> str:
        """Give the base URL of an upstream by its name."""
        bases = {
            "anthropic": self.anthropic_upstream,
            "openai": self.openai_upstream,
            "gemini": self.gemini_upstream,
        }
        return bases[name]

    @property
    def rules(self) -> Profile:
        """The profile with `keep_recent` applied."""
        if self.keep_recent is None:
            return self.profile
        return replace(self.profile, keep_recent=self.keep_recent)


BUDGET = re.compile(r"([0-9][0-9_]*)([km]?)", re.IGNORECASE)


def parse_budget(text: str) -> int:
    """Read a number of tokens: `200000`, `16k`, `45K`, `1m`.

    Raises:
        SettingsError: it is none, or under 1,000; the message says how budgets are written.
    """
    found = BUDGET.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"budget {text!r}: write tokens as 200000, 45k or 1m")
    tokens = int(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2].lower()]
    if not SMALLEST_BUDGET_TOKENS <= tokens <= LARGEST_BUDGET_TOKENS:
        raise SettingsError(
            f"budget {text!r} is {tokens:,} tokens: give {SMALLEST_BUDGET_TOKENS:,} to"
            f" {LARGEST_BUDGET_TOKENS:,}, written as 200000, 45k or 1m"
        )
    return tokens


def environment_proxy(url: str) -> str | None:
    """Give the outbound HTTP proxy that the environment names for a URL.

    aiohttp's `trust_env` would do this too, but it also reads ~/.netrc and puts what it finds there
    into requests that have a credential of their own.
    """
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _check_upstream(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        has_place = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        has_place = False
    if not has_place:
        raise SettingsError(f"{name}-upstream {url!r}: give an http:// or https:// URL")
    if parts.username is not None or parts.query or parts.fragment:
        # The value itself may hold a password: it is not repeated.
        raise SettingsError(
            f"{name}-upstream: give scheme, host, port and path only; credentials travel in headers"
        )
