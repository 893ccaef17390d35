"""One request on its way, the counters of all, and the line that is logged of each.

Logged are ids, names of ours and counts: no path, query, header or text that a client wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from clifftop.dialects.anthropic import Purpose
from clifftop.dialects.base import Request
from clifftop.proxy.outgoing import Outgoing
from clifftop.proxy.summary import Counts
from clifftop.proxy.upstream import COUNT_TOKENS, MESSAGES, Target, UpstreamName

ROUTES = {MESSAGES: "messages", COUNT_TOKENS: "count"}
USAGE = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)

log = logging.getLogger("clifftop.proxy")


@dataclass(slots=True, kw_only=True)
class Stats:
    """Counters since the start.

    `compacted`: requests sent with a block; `failures`: all that failed in us; then `resumed`: sent
    by the stream's last good plan, `passed_through`: sent as they came; `too_large`: not read for
    their size; `refused`: by strict mode; `broken`: answers that did not reach their end;
    `retries`: sent again because a kept connection was dead; `side_calls`, `summaries`, `counted`:
    requests that open no stream; `late_overflows`: answers that stood, but told that their prompt
    was too long.
    """

    requests: int = 0
    compacted: int = 0
    cliffs: int = 0
    passed_through: int = 0
    failures: int = 0
    too_large: int = 0
    over_budget: int = 0
    refused: int = 0
    replays: int = 0
    upstream_errors: int = 0
    broken: int = 0
    resumed: int = 0
    retries: int = 0
    side_calls: int = 0
    summaries: int = 0
    counted: int = 0
    late_overflows: int = 0
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True, kw_only=True)
class Call:
    """One request, and what became of it.

    `data`: what was read of its body, None where nothing was; `is_whole`: nothing follows that.
    `outgoing`: None where `data` goes upstream. `counted`: what a count of tokens is for.
    `turn`: the request, once it was read as one of a session. `failure`: the error that stopped us.
    `overflow`: its kind, where the answer stood all the same. `status` is 0 until there is one.
    """

    request: web.Request
    target: Target
    upstream: UpstreamName
    data: bytes | None = None
    is_whole: bool = False
    outgoing: Outgoing | None = None
    counted: Outgoing | None = None
    purpose: Purpose | None = None
    notes: list[str] = field(default_factory=list)
    turn: Request | None = None
    failure: str = ""
    replays: int = 0
    retries: int = 0
    usage: Mapping[str, object] = field(default_factory=dict)
    overflow: str = ""
    bytes_out: int = 0
    status: int = 0

    def ours(self) -> dict[str, str]:
        """Give the headers that we add to the answer."""
        headers: dict[str, str] = {}
        if self.outgoing is not None:
            headers["x-clifftop-stream"] = self.outgoing.stream.id
            headers["x-clifftop-cliffs"] = str(self.outgoing.stream.cliffs)
        if self.notes:
            headers["x-clifftop-note"] = "; ".join(self.notes)
        return headers

    def log(self) -> None:
        """Log the one line of this request."""
        facts: dict[str, object] = {
            "upstream": self.upstream,
            "route": ROUTES.get(self.target.path, "relay"),
            "purpose": self.purpose or "none",
            "status": self.status,
            "bytes_read": len(self.data or b""),
            "bytes_out": self.bytes_out,
            "retries": self.retries,
        }
        if self.outgoing is not None:
            decision, stream = self.outgoing.decision, self.outgoing.stream
            facts |= {
                "stream": stream.id,
                "cliffs": stream.cliffs,
                "placed": len(decision.placed),
                "rung": decision.placement.rung if decision.placement else "none",
                "bytes_sent": len(self.outgoing.body),
                "prompt_tokens": round(decision.size_tokens),
                "budget_tokens": self.outgoing.decider.terms.budget_tokens,
                "replays": self.replays,
            }
        for name in USAGE:
            if isinstance(tokens := self.usage.get(name), int):
                facts[name] = tokens
        if self.overflow:
            facts["overflow"] = self.overflow
        line = " ".join(f"{name}={value}" for name, value in facts.items())
        log.info("request %s%s", line, f' note="{"; ".join(self.notes)}"' if self.notes else "")
