"""The promises, checked on what the provider received against what the agent holds.

It trusts neither the proxy's word nor its counters: bodies in, findings out. No network, no money.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import msgspec

from clifftop.demo.agent import Call
from clifftop.demo.prefix import (
    BYTES_PER_TOKEN,
    blocks_of,
    count_markers,
    normal_message,
    read_prompt,
)
from clifftop.demo.provider import Received
from clifftop.demo.script import Json
from clifftop.demo.session import Session

MAX_MARKERS = 4
BUDGET_SLACK = 0.10
"""The proxy counts bytes, and moves its rate only when the provider's count differs by a tenth."""
BLOCK_SHARE = 0.10
FLOOR_SHARE = 0.75
"""A cliff lands at this share of the budget; the budget widens where head, a block of a tenth of
it and the newest turn do not fit in (promise 8)."""
LEAST_DROP = 0.20
"""Share of the budget that a cliff must free: a quarter (promise 8), less the slack of its rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise, whether it holds on what arrived, and the figures or the first breach."""

    name: str
    holds: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One received request, digested.

    `items[i]`: digest of message i without cache markers; `sizes[i]`: its bytes in the prompt.
    `fixed`, `fixed_size`: digest and bytes of the system prompt and the tools.
    """

    received: Received
    items: tuple[bytes, ...]
    sizes: tuple[int, ...]
    fixed: bytes
    fixed_size: int
    markers: int

    @property
    def body(self) -> Json:
        """Decode the request again; a session's bodies are too large to be kept decoded."""
        decoded: Json = msgspec.json.decode(self.received.body)
        return decoded

    def extends(self, before: Outgoing) -> bool:
        """Tell whether this request's messages begin with all of those of `before`."""
        return self.items[: len(before.items)] == before.items


def read_outgoing(received: Received) -> Outgoing:
    """Digest one received request."""
    body = msgspec.json.decode(received.body)
    items = [normal_message(message) for message in body["messages"]]
    fixed = read_prompt({**body, "messages": []}).data
    return Outgoing(
        received=received,
        items=tuple(sha256(item).digest() for item in items),
        sizes=tuple(map(len, items)),
        fixed=sha256(fixed).digest(),
        fixed_size=len(fixed),
        markers=count_markers(body),
    )


def find_cliffs(outgoing: Sequence[Outgoing]) -> list[int]:
    """Give the indices of the requests whose messages do not extend the ones before."""
    return [i for i, (a, b) in enumerate(pairwise(outgoing), 1) if not b.extends(a)]


def verify(
    *, session: Session, calls: Sequence[Call], received: Sequence[Received], budget_tokens: int
) -> list[Promise]:
    """Check every promise; a broken one names its first breach."""
    outgoing = [read_outgoing(one) for one in received]
    history = [normal_message(message) for message in session.messages(len(session.steps) - 1)]
    own = tuple(sha256(item).digest() for item in history)
    opening = len(session.head)
    cliffs = find_cliffs(outgoing)
    first = cliffs[0] if cliffs else len(outgoing)
    sizes = [len(item) for item in history]
    peak = max((one.usage.prompt_tokens for one in received), default=0)
    most = max((one.markers for one in outgoing), default=0)
    return [
        _promise(
            "untouched",
            _touched(outgoing[:first], calls, len(outgoing)),
            f"{first} requests before the first cliff are the agent's own bytes",
        ),
        _promise(
            "verbatim",
            (
                _breach(i, text)
                for i, one in enumerate(outgoing)
                for text in _changed(one, own, opening, may_have_block=i >= first)
            ),
            "every kept message is the agent's own, in order",
        ),
        _promise(
            "cache-friendly",
            _broken_prefixes(outgoing, sizes, opening, budget_tokens),
            f"{len(cliffs)} cliffs; every other request extends the one before",
        ),
        _promise(
            "whole",
            (_breach(i, text) for i, one in enumerate(outgoing) for text in _unpaired(one.body)),
            "every call is answered in the next message, every answer has its call",
        ),
        _promise(
            "bounded",
            _unbounded(outgoing, sum(sizes[:opening]), budget_tokens),
            f"peak {peak:,}, budget {budget_tokens:,} tokens; {BUDGET_SLACK:.0%} slack",
        ),
        _promise(
            "nobody-forgotten",
            _forgotten(outgoing, session),
            f"{len(session.directives)} directives are in the last request",
        ),
        _promise(
            "markers",
            [f"{most} cache markers in one request"] if most > MAX_MARKERS else [],
            f"at most {most} cache markers in a request, {MAX_MARKERS} allowed",
        ),
    ]


def _promise(name: str, breaches: Iterator[str] | list[str], detail: str) -> Promise:
    breach = next(iter(breaches), None)
    return Promise(name=name, holds=breach is None, detail=detail if breach is None else breach)


def _breach(index: int, text: str) -> str:
    return f"request {index + 1}: {text}"


def _touched(untouched: list[Outgoing], calls: Sequence[Call], received: int) -> Iterator[str]:
    if received != len(calls):
        yield f"{received} requests arrived, {len(calls)} were sent"
    for i, (one, call) in enumerate(zip(untouched, calls, strict=False)):
        if sha256(one.received.body).hexdigest() != call.sent_sha256:
            yield _breach(i, "not the bytes that the agent sent")


def _changed(
    one: Outgoing, own: tuple[bytes, ...], opening: int, *, may_have_block: bool
) -> Iterator[str]:
    """Find messages that are neither the agent's next one nor the one block."""
    mine = own[: _history_length(one, opening)]
    places = {item: place for place, item in enumerate(mine)}
    if one.items[:1] != mine[:1] or one.items[-2:] != mine[-2:]:
        yield "the first message or the newest turn is not the agent's"
    place, blocks = -1, 0
    for i, item in enumerate(one.items):
        found = places.get(item, -1)
        if found > place:
            place = found
        elif found >= 0:
            yield f"message {i} is out of order"
        elif not may_have_block or not _is_block(one.body["messages"][i]):
            yield f"message {i} is not the agent's"
        else:
            blocks += 1
            if blocks > 1:
                yield f"message {i} is a second block or a changed message"
    if any(item not in one.items for item in mine[:opening]):
        yield "a message of the head is missing"


def _is_block(message: Json) -> bool:
    blocks = blocks_of(message["content"])
    return message["role"] == "user" and all(block["type"] == "text" for block in blocks)


def _history_length(one: Outgoing, opening: int) -> int:
    return opening + 2 * one.received.step


def _broken_prefixes(
    outgoing: list[Outgoing], own_sizes: list[int], opening: int, budget_tokens: int
) -> Iterator[str]:
    least = round(budget_tokens * LEAST_DROP)
    for i, (before, after) in enumerate(pairwise(outgoing), 1):
        if before.fixed != after.fixed:
            yield _breach(i, "the system prompt or the tools changed")
        if after.extends(before):
            continue
        fresh = own_sizes[_history_length(before, opening) : _history_length(after, opening)]
        dropped = (sum(before.sizes) + sum(fresh) - sum(after.sizes)) // BYTES_PER_TOKEN
        if dropped < least:
            yield _breach(
                i, f"a new prefix that frees {dropped:,} tokens; a cliff frees {least:,} or more"
            )


def _unbounded(outgoing: list[Outgoing], head_size: int, budget_tokens: int) -> Iterator[str]:
    """Find prompts over the budget, or over what head, block and newest turn need."""
    for i, one in enumerate(outgoing):
        tokens = one.received.usage.prompt_tokens
        newest_size = sum(one.sizes[-2:]) if one.received.step else 0
        floor = (one.fixed_size + head_size + newest_size) / BYTES_PER_TOKEN
        floor += budget_tokens * BLOCK_SHARE
        limit = round(max(budget_tokens, floor / FLOOR_SHARE) * (1 + BUDGET_SLACK))
        if tokens > limit:
            yield _breach(i, f"{tokens:,} tokens, {limit:,} allowed")


def _unpaired(body: Json) -> Iterator[str]:
    """Find calls without a result in the next message, results without a call, a wrong start."""
    messages = [message for message in body["messages"] if message["role"] != "system"]
    if messages[0]["role"] != "user":
        yield "the first message is not a user's"
    open_ids: list[str] = []
    for i, message in enumerate(messages):
        blocks = blocks_of(message["content"])
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(open_ids):
            odd = sorted(set(answered) ^ set(open_ids)) or answered
            yield f"message {i}: {odd[0]} has no partner next to it"
        open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if open_ids:
        yield f"{open_ids[0]} is not answered"


def _forgotten(outgoing: list[Outgoing], session: Session) -> Iterator[str]:
    if not outgoing:
        yield "no request arrived"
        return
    texts = "\n".join(_texts(outgoing[-1].body["messages"]))
    for directive in session.directives:
        if directive not in texts:
            yield f"the last request lacks {json.dumps(directive)}"


def _texts(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        for block in blocks_of(message["content"]):
            if block["type"] == "text":
                yield block["text"]
