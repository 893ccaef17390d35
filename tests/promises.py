"""The nine promises, each as a judge of one request: what came in against what went out.

`Stream` plays the proxy's part without HTTP: it remembers placements and nothing else. Judges read
the outgoing bytes with the standard library, not with our readers, wherever that is possible.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from clifftop.core.block import HEADER, Placement
from clifftop.core.decide import Decider, Decision, Stored, Terms
from clifftop.core.plan import Insert, Plan, check
from clifftop.core.profile import DEFAULT, Profile
from clifftop.core.turns import Call, Note, Result, Said, Thought, Typed
from clifftop.dialects.anthropic import AnthropicMessages
from clifftop.dialects.base import Request
from clifftop.dialects.splice import locate
from tests.messages_api import violations

BREAKS = "\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]"
LABELS = ("thought", "said", "call", "result", "person", "note", "task")
MEDIA = r"(?: ?\w+ dropped)*"
HOLE = re.compile(r"dropped \(([\d,]+) chars\)" + MEDIA)
FAILURE = re.compile(r"failed, last [\d,]+ of [\d,]+ chars: …(.*?)" + MEDIA, re.DOTALL)
OURS = re.compile(
    r"empty|(?:empty)?"
    + MEDIA
    + r"|\([\d,]+ earlier texts left out\)|excerpts of [\d,]+ older turns left out"
)
SHORTENED = re.compile(r"(.*)… \([\d,]+ chars left out\) …(.*)", re.DOTALL)


@dataclass
class Sent:
    """One request and what became of it."""

    body: bytes
    request: Request
    decider: Decider
    decision: Decision
    plan: Plan
    outgoing: bytes
    known: Stored | None = None

    @property
    def placement(self) -> Placement | None:
        return self.decision.placement

    @property
    def block(self) -> str:
        return next((step.text for step in self.plan.steps if isinstance(step, Insert)), "")


@dataclass
class Stream:
    """A conversation's memory: link of the chain -> placement."""

    budget_tokens: int
    profile: Profile = DEFAULT
    window_tokens: int | None = None
    rate: float = 0.25
    memory: dict[bytes, Placement] = field(default_factory=dict)

    def decider(self, request: Request) -> Decider:
        terms = Terms(
            budget_tokens=self.budget_tokens,
            profile=self.profile,
            rate=self.rate,
            window_tokens=self.window_tokens,
        )
        return Decider(request.history, terms)

    def known(self, request: Request) -> Stored | None:
        chain = request.history.chain
        for point in range(len(chain) - 1, 0, -1):
            if chain[point] in self.memory:
                return Stored(point, self.memory[chain[point]])
        return None

    def send(self, body: bytes) -> Sent:
        request = AnthropicMessages().read(body)
        decider = self.decider(request)
        known = self.known(request)
        return self._sent(body, request, decider, decider.decide(known), known)

    def refuse(self, sent: Sent, rung: int) -> Sent | None:
        """The provider refused: fall off a harder cliff."""
        decision = sent.decider.replay(sent.decision, rung=rung)
        if decision is None:
            return None
        return self._sent(sent.body, sent.request, sent.decider, decision)

    def _sent(
        self,
        body: bytes,
        request: Request,
        decider: Decider,
        decision: Decision,
        known: Stored | None = None,
    ) -> Sent:
        plan = decider.plan(decision.placement)
        if not violations(json.loads(body)):
            check(plan, request.history)
        for point, placement in decision.placed:
            self.memory[request.history.chain[point]] = placement
        return Sent(body, request, decider, decision, plan, request.render(plan), known)


def untouched(sent: Sent) -> None:
    if sent.placement is None:
        assert sent.outgoing == sent.body


def verbatim(sent: Sent) -> None:
    """Head and newest turns occur byte for byte, in order; all beside the items is unchanged."""
    if sent.placement is None:
        return
    spans, history = sent.request.layout.items, sent.request.history
    at = 0
    for index in [*range(history.head), *range(sent.placement.cut, len(history))]:
        start, stop = spans[index]
        at = sent.outgoing.find(sent.body[start:stop], at)
        assert at >= 0, f"item {index} is not there"
        at += stop - start
    before, after = sent.request.layout.fields["messages"]
    out_before, out_after = locate(sent.outgoing, "messages").fields["messages"]
    assert sent.body[:before] == sent.outgoing[:out_before]
    assert sent.body[after:] == sent.outgoing[out_after:]


def faithful(sent: Sent) -> None:
    """Every excerpt is the original text, or a marked prefix or suffix of it."""
    if sent.placement is None:
        return
    items = sent.request.history.items[: sent.placement.cut]
    parts = [part for item in items for part in item.parts]
    texts = [p.text for p in parts if isinstance(p, Thought | Said | Typed | Note | Result)]
    names = {p.name for p in parts if isinstance(p, Call)}
    first, *lines = re.split("\n(?!  )", sent.block)
    assert first.startswith(HEADER)
    for line in lines:
        label, _, text = line.partition(": ")
        assert label in LABELS, line[:80]
        text = re.sub(f"({BREAKS})  ", r"\1", text)
        if label in ("call", "task"):
            assert any(text.startswith(name[:60]) for name in names), text[:80]
            _, arrow, text = text.partition(" -> ")
            if not arrow:
                continue
        assert is_from(text, texts), line[:200]


def is_from(text: str, originals: list[str]) -> bool:
    if any(text.removesuffix("…") in original for original in originals) or OURS.fullmatch(text):
        return True
    if hole := HOLE.fullmatch(text):
        length = int(hole[1].replace(",", ""))
        return any(len(original.strip()) == length for original in originals)
    if failure := FAILURE.fullmatch(text):
        return any(original.strip().endswith(failure[1]) for original in originals)
    if cut := SHORTENED.fullmatch(text):
        return any(o.startswith(cut[1]) and o.endswith(cut[2]) for o in originals)
    text = re.sub(MEDIA + "$", "", text.removeprefix("failed: "))
    return any(text in original for original in originals)


def flat(sent: Sent) -> None:
    """The block is a function of the original items before the cut, and of nothing else."""
    if sent.placement is None:
        return
    blocks = sent.decider.blocks
    history, cut = sent.request.history, sent.placement.cut
    shorter = type(history)(
        history.items[:cut],
        fixed=history.fixed,
        thinking_required=history.thinking_required,
        deferred_tools=history.deferred_tools,
    )
    again = type(blocks)(shorter, profile=blocks.profile, budget_tokens=blocks.budget_tokens)
    assert again.text(sent.placement) == sent.block
    assert sent.block.count("\n" + HEADER) == 0


def whole(sent: Sent) -> None:
    """The provider accepts what goes out if it accepted what came in."""
    before = json.loads(sent.body)
    if not violations(before):
        found = violations(json.loads(sent.outgoing), before=before)
        assert not found, found


def cache_friendly(sent: Sent, previous: Sent | None) -> None:
    """Between two cliffs the outgoing items extend the ones before."""
    if previous is None:
        return
    if sent.placement == previous.placement:
        old, new = items_of(previous.outgoing), items_of(sent.outgoing)
        assert new[: len(old)] == old
    else:
        is_known = sent.known is not None and sent.known.placement == sent.placement
        assert sent.decision.placed or is_known, "a cliff that nobody placed"


def items_of(body: bytes) -> list[Any]:
    return [plain(message) for message in json.loads(body)["messages"]]


def plain(value: Any) -> Any:
    """Without cache markers; a list of one text block counts as its string."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    value = {key: plain(inner) for key, inner in value.items() if key != "cache_control"}
    match value.get("content"):
        case [{"type": "text", "text": text, **rest}] if not rest and "role" in value:
            value["content"] = text
    return value


def forgetful(sent: Sent, stream: Stream) -> None:
    """Losing the store gives the same prompt."""
    fresh = Stream(stream.budget_tokens, stream.profile, stream.window_tokens, stream.rate)
    assert fresh.send(sent.body).outgoing == sent.outgoing


def bounded(sent: Sent) -> None:
    """Never over B for longer than it takes until a cliff pays; each cliff drops a quarter of B."""
    decider, size = sent.decider, sent.decision.size_tokens
    budget = decider.terms.threshold_tokens
    history = decider.history
    live = sent.placement.cut if sent.placement else history.head
    if sent.decision.point != len(history):
        for rung, floor_budget in ((1, budget), (3, 2 * budget)):
            found = decider._candidate(live, len(history), rung)
            if found is not None:
                floor = decider.size_tokens(found, len(history))
                assert size <= max(floor_budget, floor / 0.75) + 1
    before: Placement | None = None
    for point, placement in sent.decision.placed:
        drop = decider.size_tokens(before, point) - decider.size_tokens(placement, point)
        if before is not None or sent.decision.placed[0].placement.prev_cut == history.head:
            assert drop >= 0.25 * budget - 1
        before = placement


def nobody_is_forgotten(sent: Sent, directives: list[str]) -> None:
    """All that people typed is in the outgoing prompt, within the pin cap."""
    terms = sent.decider.terms
    cap = terms.budget_tokens * 4 * terms.profile.pin_share
    if sum(len(text.encode()) + 12 for text in directives) + 48 > cap:
        return
    shortened = [len(text) > 2_500 and len(text.encode()) > cap // 2 for text in directives]
    wanted = [t[:2_000] if cut else t for t, cut in zip(directives, shortened, strict=True)]
    spoken = [re.sub(f"({BREAKS})  ", r"\1", text) for text in texts_in(json.loads(sent.outgoing))]
    for directive in wanted:
        assert any(directive in text for text in spoken), directive[:40]


def texts_in(body: dict[str, Any]) -> list[str]:
    found = []
    for message in body["messages"]:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            found.append(str(block.get("text", "")))
    return found


def judge(
    sent: Sent,
    previous: Sent | None,
    stream: Stream,
    directives: list[str],
    *,
    forgets: bool = True,
) -> None:
    """All promises of the default profile at once.

    `forgets`: was every crossing so far measured at the same rate, with the same fixed part?
    """
    untouched(sent)
    verbatim(sent)
    if previous is None or sent.placement != previous.placement:
        faithful(sent)
        flat(sent)
    whole(sent)
    cache_friendly(sent, previous)
    if forgets:
        forgetful(sent, stream)
    bounded(sent)
    nobody_is_forgotten(sent, directives)
