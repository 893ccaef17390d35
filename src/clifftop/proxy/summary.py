"""What a run came to: counted per answer, told in one or two lines.

Numbers only. Which requests are counted is `app`'s, where lines are printed the command's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Self

from clifftop.core.sizes import usage_prompt_tokens

SUMMARY_PATH = "/_clifftop/summary"


@dataclass(slots=True, kw_only=True)
class Counts:
    """Sums over the answered requests that were read, in tokens.

    `sent`, `full` and `planned` are estimates of one kind: what went out, what the client had sent,
    and what goes out unless in shadow. `reported` and `cached` are the provider's figures.
    `outgrown_tokens`: the longest history that exceeded its model's window `window_tokens`; 0 where
    none did or no window is known.
    """

    answered: int = 0
    prompt_tokens_sent: int = 0
    prompt_tokens_full: int = 0
    prompt_tokens_planned: int = 0
    reported_prompt_tokens: int = 0
    cached_tokens: int = 0
    outgrown_tokens: int = 0
    window_tokens: int = 0

    def add(
        self,
        *,
        sent_tokens: float,
        full_tokens: float,
        planned_tokens: float,
        usage: Mapping[str, object],
        window_tokens: int | None,
    ) -> None:
        """Count one answered request. `usage`: as the provider gave it, empty where it did not."""
        self.answered += 1
        self.prompt_tokens_sent += round(sent_tokens)
        self.prompt_tokens_full += round(full_tokens)
        self.prompt_tokens_planned += round(planned_tokens)
        reported, cached = usage_prompt_tokens(usage), usage.get("cache_read_input_tokens")
        if reported is not None:
            self.reported_prompt_tokens += reported
            self.cached_tokens += cached if isinstance(cached, int) else 0
        if window_tokens and full_tokens > max(window_tokens, self.outgrown_tokens):
            self.outgrown_tokens, self.window_tokens = round(full_tokens), window_tokens


@dataclass(slots=True, kw_only=True)
class Summary(Counts):
    """What a proxy answers under `/_clifftop/summary`.

    `requests`: all that came; `compacted`: sent with a block; `passed_through`: sent as they came
    because something failed in us.
    """

    requests: int = 0
    compacted: int = 0
    cliffs: int = 0
    passed_through: int = 0
    is_shadow: bool = False

    @classmethod
    def of(cls, answer: Mapping[str, object]) -> Self:
        """Read an answer; fields that another version does not have are 0."""
        known = {f.name for f in fields(cls)}
        given = {name: value for name, value in answer.items() if isinstance(value, int)}
        return cls(**{name: value for name, value in given.items() if name in known})  # type: ignore[arg-type]

    def to_json(self) -> dict[str, object]:
        """Give the answer of `/_clifftop/summary`."""
        return asdict(self)


def told(summary: Summary | None, *, restarts: int, obstacles: Sequence[str], log: str) -> str:
    """Tell a run in one or two lines.

    `summary`: None where the proxy gives none any more; `restarts`: of the proxy, whose counts
    began anew each time; `obstacles`: why requests may have gone elsewhere.
    """
    end = f"log {log}"
    if restarts:
        end = f"the proxy was restarted {_times(restarts)}; {end}"
    if summary is None:
        return f"clifftop: no figures, the proxy is gone; {end}"
    if not summary.requests and not restarts:
        why = "; ".join(obstacles) or (
            "it ended before it asked, or its own settings name another base URL, "
            "or it does not read ANTHROPIC_BASE_URL (see: clifftop doctor)"
        )
        return f"clifftop: no request came through ({why}); {end}"
    lines = [f"clifftop: {'; '.join([*_figures(summary, is_part=restarts > 0), end])}"]
    notes = list(obstacles)
    if summary.passed_through:
        notes.append(
            f"{summary.passed_through:,} requests passed unchanged after a failure of ours"
        )
    if summary.outgrown_tokens:
        notes.append(
            f"the whole history ({short(summary.outgrown_tokens)} tokens, estimated) no longer fits"
            f" the model's window ({short(summary.window_tokens)}): without clifftop the client"
            " will compact it its own way"
        )
    if notes:
        lines.append(f"clifftop: {'; '.join(notes)}")
    return "\n".join(lines)


def _figures(summary: Summary, *, is_part: bool) -> list[str]:
    since = " since then" if is_part else ""
    figures = [f"{_count(summary.requests, 'call')}{since}, {_count(summary.cliffs, 'cliff')}"]
    if summary.answered:
        sent, full = short(summary.prompt_tokens_sent), short(summary.prompt_tokens_full)
        if summary.is_shadow:
            planned = short(summary.prompt_tokens_planned)
            figures.append(f"shadow: {sent} prompt tokens sent, {planned} with cliffs (estimated)")
        else:
            figures.append(f"{sent} prompt tokens sent, {full} without clifftop (estimated)")
    if summary.reported_prompt_tokens:
        share = summary.cached_tokens / summary.reported_prompt_tokens
        figures.append(f"{share:.0%} of the reported ones from the cache")
    return figures


def short(tokens: int) -> str:
    """Write a number of tokens as people do: 950, 45K, 1.2M."""
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens / 1_000:.0f}K" if tokens < 999_500 else f"{tokens / 1_000_000:.1f}M"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")
