"""When cliffs happen: claims with figures, each on one hand-written session."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cliffcompaction.config import Config
from cliffcompaction.dialects.anthropic import DIALECT
from cliffcompaction.engine import Engine

from clifftop.core.block import Placement
from clifftop.core.decide import Decider, Stored, Terms
from clifftop.core.profile import DEFAULT, PAPER
from clifftop.dialects.anthropic import AnthropicMessages
from tests.long_sessions import READ, TASK, body_of, directives, session_with_directives, tool_turn
from tests.promises import Sent, Stream, cache_friendly, whole

BUDGET = 16_000


def play(stream: Stream, bodies: list[bytes]) -> list[Sent]:
    sent: list[Sent] = []
    for body in bodies:
        sent.append(stream.send(body))
        cache_friendly(sent[-1], sent[-2] if len(sent) > 1 else None)
    whole(sent[-1])
    return sent


def cliffs(sent: list[Sent]) -> int:
    return sum(len(one.decision.placed) for one in sent)


def test_twenty_of_twenty_directives_outlive_eight_cliffs() -> None:
    orders = directives(20)
    bodies = list(session_with_directives(orders, turns_between=5, chars=4_000, turns_after=40))
    sent = play(Stream(BUDGET), bodies)
    last = sent[-1].outgoing.decode()
    assert len(bodies) >= 120
    assert cliffs(sent) >= 8
    assert [order for order in orders if order not in last] == []
    assert max(one.decision.size_tokens for one in sent) <= BUDGET


def test_the_authors_package_keeps_none_of_the_twenty() -> None:
    orders, last = directives(20), ""
    engine = Engine(Config(threshold_tokens=BUDGET))
    for body in session_with_directives(orders, turns_between=5, chars=4_000, turns_after=40):
        context = engine.prepare(json.loads(body), DIALECT)
        last = json.dumps(context.outgoing_body(), ensure_ascii=False)
    assert [order for order in orders if order in last] == []


@pytest.mark.parametrize("share", [0.7, 0.9, 0.97, 1.05])
def test_tools_near_the_budget_do_not_thrash(share: float) -> None:
    tools = (dict(READ, description="x" * int(share * BUDGET * 4 - 300)),)
    messages, bodies = [TASK], []
    for number in range(120):
        messages = [*messages, *tool_turn(number, 600)]
        bodies.append(body_of(messages, tools))
    sent = play(Stream(BUDGET), bodies)
    assert cliffs(sent) <= 8
    fixed = sent[-1].decider.shares(sent[-1].decision).fixed_tokens
    assert max(one.decision.size_tokens for one in sent) <= max(2 * BUDGET, fixed / 0.7)


def test_results_over_half_the_budget_cost_one_cliff_each_and_each_cliff_pays() -> None:
    messages, bodies = [TASK], []
    for number in range(40):
        messages = [*messages, *tool_turn(number, int(0.6 * BUDGET * 4))]
        bodies.append(body_of(messages))
    sent = play(Stream(BUDGET), bodies)
    growth = sent[-1].decider.full_tokens - sent[0].decider.full_tokens
    assert cliffs(sent) <= growth / (0.25 * BUDGET)
    assert max(one.decision.size_tokens for one in sent) <= BUDGET


def test_the_budget_narrows_again_once_a_huge_result_has_left() -> None:
    messages, sizes, stream = [TASK], [], Stream(BUDGET)
    for number in range(60):
        messages = [*messages, *tool_turn(number, 3 * BUDGET * 4 if number == 20 else 1_500)]
        sizes.append(stream.send(body_of(messages)).decision.size_tokens)
    assert max(sizes[:20]) <= BUDGET
    assert max(sizes[20:24]) > 2 * BUDGET
    assert max(sizes[30:]) <= BUDGET


@pytest.mark.parametrize("head_chars", [99, BUDGET * 4 + 4_000, 3 * BUDGET * 4])
def test_a_long_history_that_arrives_at_once_is_decided_in_linear_work(head_chars: int) -> None:
    work = []
    for turns in (500, 2_000):
        messages = [{"role": "user", "content": "y" * head_chars}]
        for number in range(turns):
            messages += tool_turn(number, 200)
        request = AnthropicMessages().read(body_of(messages))
        decider = Decider(request.history, Terms(budget_tokens=BUDGET, rate=0.25))
        decider.decide()
        work.append(decider.blocks.work + decider.weighed)
        assert decider.blocks.work <= 2 * turns
    assert work[1] <= 4.5 * work[0] + 100


def test_a_late_attach_gives_what_watching_from_the_start_gave() -> None:
    bodies = list(session_with_directives(directives(8), turns_between=5, chars=3_000))
    watched = play(Stream(BUDGET), bodies)
    assert Stream(BUDGET).send(bodies[-1]).outgoing == watched[-1].outgoing


def test_the_paper_compacts_at_every_crossing_without_a_guard() -> None:
    messages, stream, rungs = [TASK], Stream(8_000, PAPER), []
    for number in range(40):
        messages = [*messages, *tool_turn(number, 6_000)]
        sent = stream.send(body_of(messages))
        rungs += [placement.rung for _, placement in sent.decision.placed]
    assert set(rungs) == {0}
    assert len(rungs) > 10


@pytest.mark.parametrize(
    ("point", "placement"),
    [
        (9, Placement(1, 5, 99)),
        (9, Placement(0, 5, 0)),
        (9, Placement(1, 4, 0)),
        (9, Placement(5, 5, 0)),
        (3, Placement(1, 5, 0)),
        (99, Placement(1, 5, 0)),
        (9, Placement(-3, 5, -1)),
    ],
)
def test_a_stored_placement_that_does_not_fit_is_ignored(point: int, placement: Placement) -> None:
    messages = [TASK]
    for number in range(6):
        messages += tool_turn(number, 100)
    history = AnthropicMessages().read(body_of(messages)).history
    decider = Decider(history, Terms(budget_tokens=BUDGET))
    assert decider.decide(Stored(point, placement)).placement is None
    assert decider.decide(Stored(9, Placement(1, 5, 0))).placement == Placement(1, 5, 0)


def test_the_window_less_the_answer_bounds_the_budget() -> None:
    terms = Terms(budget_tokens=45_000, window_tokens=32_000, answer_tokens=4_000)
    assert terms.threshold_tokens == 28_000
    assert replace(terms, answer_tokens=128_000).threshold_tokens == 24_000
    assert replace(terms, window_tokens=None).threshold_tokens == 45_000


def test_strict_takes_any_rung_that_fits_the_budget() -> None:
    messages = [TASK, *tool_turn(0, 500), *tool_turn(1, 3_500)]
    history = AnthropicMessages().read(body_of(messages)).history
    loose = Decider(history, Terms(budget_tokens=1_200, rate=0.25)).decide()
    strict = Decider(history, Terms(budget_tokens=1_200, rate=0.25, is_strict=True)).decide()
    assert loose.placement is None
    assert strict.placement is not None
    assert strict.size_tokens <= 1_200


def test_keep_recent_is_the_number_of_newest_turns() -> None:
    messages = [TASK]
    for number in range(10):
        messages += tool_turn(number, 400)
    history = AnthropicMessages().read(body_of(messages)).history
    profile = replace(DEFAULT, keep_recent=2)
    decision = Decider(history, Terms(budget_tokens=1_200, rate=0.25, profile=profile)).decide()
    assert decision.placement is not None
    kept = len(history.starts) - history.turn_at(decision.placement.cut)
    assert kept >= 2
