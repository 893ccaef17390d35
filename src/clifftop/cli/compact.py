"""`clifftop compact`: one request in, the outgoing request out. No store, no network."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from clifftop.cli.options import budget_option, compaction_options, profile_of
from clifftop.core.decide import Decider, Decision, Terms
from clifftop.core.plan import Keep, Plan, check
from clifftop.core.policy import DEFAULT_BUDGET_TOKENS
from clifftop.core.turns import Call, History, Item, Result
from clifftop.dialects import DIALECT_NAMES, get_dialect
from clifftop.dialects.base import Request
from clifftop.errors import PlanError

PREVIEW_CHARS = 72


@click.command("compact")
@click.argument("file", type=click.File("rb"))
@budget_option(DEFAULT_BUDGET_TOKENS)
@click.option("--dialect", type=click.Choice(["auto", *DIALECT_NAMES]), default="auto")
@click.option("--force", is_flag=True, help="Make a cliff even below the budget.")
@click.option("--diff", "shows_diff", is_flag=True, help="Show what went instead of the request.")
@compaction_options
def command(
    file: BinaryIO,
    budget: int,
    dialect: str,
    force: bool,
    shows_diff: bool,
    profile: str,
    keep_recent: int,
    signatures: str | None,
    user_text: str | None,
) -> None:
    """Compact one request body from FILE (`-` reads standard input) and write it to stdout.

    Below the budget the same bytes come out. What was done is said on stderr. Exit code 1 only for
    input that is no request.
    """
    body = file.read()
    request = get_dialect("anthropic" if dialect == "auto" else dialect).read(body)
    terms = Terms(
        budget_tokens=budget, profile=profile_of(profile, keep_recent, signatures, user_text)
    )
    decider = Decider(request.history, terms)
    decision = decider.decide()
    if force and decision.placement is None:
        decision = decider.force() or decision
    plan = decider.plan(decision.placement)
    try:
        check(plan, request.history)
    except PlanError as error:
        click.echo(f"clifftop: sent as it is, no valid cut was found: {error}", err=True)
        decision, plan = Decision(None, 0, decider.full_tokens), decider.plan(None)
    click.echo(report(decider, decision), err=True)
    if shows_diff:
        click.echo(diff(request, plan))
    else:
        sys.stdout.buffer.write(request.render(plan))


def report(decider: Decider, decision: Decision) -> str:
    """Say in one line what was done, and in a second one if it was not enough."""
    full, budget = decider.full_tokens, decider.terms.budget_tokens
    if decision.placement is None:
        done = f"clifftop: {full:,.0f} tokens (estimated), budget {budget:,}: unchanged"
    else:
        cut = decision.placement.cut
        done = (
            f"clifftop: {full:,.0f} -> {decision.size_tokens:,.0f} tokens (estimated), budget "
            f"{budget:,}: items {decider.history.head}..{cut - 1} became one block"
        )
    if decision.size_tokens <= budget:
        return done
    shares = decider.shares(decision)
    return (
        f"{done}\nclifftop: still over the budget: fixed part {shares.fixed_tokens:,.0f}, "
        f"newest turns {shares.recent_tokens:,.0f}, block {shares.block_tokens:,.0f} tokens; "
        f"the smallest sensible budget here is {shares.sensible_budget_tokens:,}"
    )


def diff(request: Request, plan: Plan) -> str:
    """Show item by item what is kept (=), what went (-), and the block's lines (+)."""
    history, kept = request.history, set(plan.kept())
    lines = []
    for step in plan.steps:
        if isinstance(step, Keep):
            lines += [f"= {_title(history, index)}" for index in range(step.start, step.stop)]
        else:
            gone = (index for index in range(len(history)) if index not in kept)
            lines += [f"- {_title(history, index)}" for index in gone]
            lines += [f"+ {text}" for text in step.text.split("\n")]
    return "\n".join(lines)


def _title(history: History, index: int) -> str:
    item = history.items[index]
    size = item.size.text_bytes
    return f"[{index}] {item.role}, {size:,} bytes: {_preview(item)}"


def _preview(item: Item) -> str:
    words = []
    for part in item.parts:
        if isinstance(part, Call):
            words.append(f"calls {part.name}")
        elif isinstance(part, Result):
            words.append(f"result {part.text}")
        else:
            words.append(getattr(part, "text", type(part).__name__.lower()))
    text = " | ".join(" ".join(word[:200].split()) for word in words)
    return text[:PREVIEW_CHARS] + ("…" if len(text) > PREVIEW_CHARS else "")
