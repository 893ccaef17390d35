"""How the demo is shown while it runs: a context line with its cliffs, or plain lines.

Only drawing: figures arrive as values, nothing is counted or judged here. Every meaning has a
sign or a word of its own; colour only repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

PLAIN_EVERY = 20
_ROWS = 8
_LABEL_CHARS = 7
_HEADROOM = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One answered request; `full_tokens`: what its prompt would have been without clifftop."""

    number: int
    prompt_tokens: int
    full_tokens: int
    cached_tokens: int
    is_cliff: bool


class Drawing(Protocol):
    """What shows a run; one `open`, one `add` a request, one `close`, also after a failure."""

    def open(self, *, requests: int, budget_tokens: int) -> None:
        """Begin with how many requests there will be."""

    def add(self, point: Point) -> None:
        """Show one more request."""

    def close(self, report: Mapping[str, Any] | None) -> None:
        """End with the figures and the promises, or without when the run failed."""


def make_drawing(console: Console) -> Drawing:
    """Choose the live chart for a terminal, plain lines for all else."""
    return LiveDrawing(console=console) if console.is_terminal else PlainDrawing(console=console)


@dataclass(slots=True, kw_only=True)
class PlainDrawing:
    """One line a cliff and one every 20 requests."""

    console: Console
    requests: int = 0
    before_tokens: int = 0
    cliffs: int = 0

    def open(self, *, requests: int, budget_tokens: int) -> None:
        """Print what is to come."""
        self.requests = requests
        self._print(f"demo: {requests} requests, budget {budget_tokens:,} tokens")

    def add(self, point: Point) -> None:
        """Print a line if there is something to say."""
        if point.is_cliff:
            self.cliffs += 1
            self._print(
                f"request {point.number}/{self.requests}: cliff {self.cliffs}, "
                f"{self.before_tokens:,} -> {point.prompt_tokens:,} tokens "
                f"(without clifftop {point.full_tokens:,})"
            )
        elif point.number % PLAIN_EVERY == 0:
            self._print(
                f"request {point.number}/{self.requests}: {point.prompt_tokens:,} tokens, "
                f"{point.cached_tokens:,} from the cache (without clifftop {point.full_tokens:,})"
            )
        self.before_tokens = point.prompt_tokens

    def close(self, report: Mapping[str, Any] | None) -> None:
        """Print the table."""
        if report is not None:
            print_report(self.console, report)

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


@dataclass(slots=True, kw_only=True)
class LiveDrawing:
    """A chart that is drawn anew after each request."""

    console: Console
    live: Live | None = None
    points: list[Point] = field(default_factory=list)
    requests: int = 0
    budget_tokens: int = 0

    def open(self, *, requests: int, budget_tokens: int) -> None:
        """Take over the lower part of the terminal."""
        self.requests, self.budget_tokens = requests, budget_tokens
        self.live = Live(self._chart(), console=self.console, auto_refresh=False)
        self.live.start()

    def add(self, point: Point) -> None:
        """Draw one more request."""
        self.points.append(point)
        if self.live is not None:
            self.live.update(self._chart(), refresh=True)

    def close(self, report: Mapping[str, Any] | None) -> None:
        """Leave the last chart in place and print the table under it."""
        if self.live is not None:
            self.live.stop()
        if report is not None:
            print_report(self.console, report)

    def _chart(self) -> Chart:
        return Chart(points=self.points, requests=self.requests, budget_tokens=self.budget_tokens)


class _Glyphs(NamedTuple):
    levels: str
    budget: str
    axis: str
    tick: str
    corner: str
    line: str
    cliff: str


_BLOCKS = _Glyphs(" ▁▂▃▄▅▆▇█", "┄", "│", "┤", "└", "─", "▲")
_ASCII = _Glyphs(" ....::##", "-", "|", "+", "+", "-", "^")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The context line as bars, the budget as a dashed line, cliffs as marks under the axis."""

    points: Sequence[Point]
    requests: int
    budget_tokens: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width at hand."""
        glyphs = _ASCII if options.ascii_only else _BLOCKS
        columns = max(8, min(self.requests, options.max_width - _LABEL_CHARS - 1))
        buckets = self._buckets(columns)
        top = max([self.budget_tokens * _HEADROOM, *(point.prompt_tokens for point in self.points)])
        budget_row = min(_ROWS - 1, int(self.budget_tokens / top * _ROWS))
        for row in reversed(range(_ROWS)):
            is_budget = row == budget_row
            line = Text(no_wrap=True, overflow="crop")
            label = _short(self.budget_tokens) if is_budget else ""
            line.append(f"{label:>{_LABEL_CHARS - 1}} {glyphs.tick if is_budget else glyphs.axis}")
            row_glyphs = ""
            for point in buckets:
                level = 0.0 if point is None else point.prompt_tokens / top * _ROWS - row
                glyph = glyphs.levels[max(0, min(8, round(level * 8)))]
                row_glyphs += glyphs.budget if glyph == " " and is_budget else glyph
            line.append(row_glyphs, style="yellow" if is_budget else "cyan")
            yield line
        zero = f"{'0':>{_LABEL_CHARS - 1}}"
        yield Text(f"{zero} {glyphs.corner}{glyphs.line * columns}", no_wrap=True)
        marks = "".join(glyphs.cliff if point and point.is_cliff else " " for point in buckets)
        yield Text.assemble(f"{'cliffs':>{_LABEL_CHARS - 1}}  ", (marks.rstrip(), "bold magenta"))
        most = max([1, *(point.full_tokens for point in self.points)])
        ramp = "".join(
            glyphs.levels[max(1, round(point.full_tokens / most * 8))] if point else " "
            for point in buckets
        )
        yield Text.assemble(f"{'full':>{_LABEL_CHARS - 1}}  ", (ramp.rstrip(), "dim"))
        yield Text(self._caption())

    def _buckets(self, columns: int) -> list[Point | None]:
        """Give one request a column; a cliff wins over its neighbours, then the larger prompt."""
        buckets: list[Point | None] = [None] * columns
        for point in self.points:
            column = min(columns - 1, (point.number - 1) * columns // max(1, self.requests))
            held = buckets[column]
            if held is None or (point.is_cliff, point.prompt_tokens) > (
                held.is_cliff,
                held.prompt_tokens,
            ):
                buckets[column] = point
        return buckets

    def _caption(self) -> str:
        if not self.points:
            return "waiting for the first answer"
        last = self.points[-1]
        cached = sum(point.cached_tokens for point in self.points)
        prompts = sum(point.prompt_tokens for point in self.points)
        return (
            f"request {last.number}/{self.requests}, prompt {last.prompt_tokens:,} tokens, "
            f"full context {last.full_tokens:,}, {sum(p.is_cliff for p in self.points)} cliffs, "
            f"{cached / max(1, prompts):.0%} from the cache"
        )


def _short(tokens: int) -> str:
    return f"{tokens / 1000:g}K" if tokens >= 1_000 else str(tokens)


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """Print the figures of both arms and each promise in a line."""
    table = Table(caption=f"{report['note']}; {report['prices']}", caption_justify="left")
    table.add_column("")
    table.add_column("with clifftop", justify="right")
    table.add_column("without", justify="right")
    table.add_row("requests", f"{report['requests']:,}", f"{report['requests']:,}")
    table.add_row("cliffs", f"{report['cliffs']:,}", "-")
    for label, key in (("prompt tokens", "prompt_tokens"), ("peak prompt", "peak_tokens")):
        table.add_row(label, f"{report[key]:,}", f"{report[key + '_without']:,}")
    key = "cache_hit_share"
    table.add_row("from the cache", f"{report[key]:.1%}", f"{report[key + '_without']:.1%}")
    table.add_row("cost", f"${report['cost_usd']:.2f}", f"${report['cost_usd_without']:.2f}")
    table.add_row("saving", f"{report['saving_share']:.1%}", "")
    console.print(table)
    for promise in report["promises"]:
        word = "holds " if promise["holds"] else "BROKEN"
        console.print(
            Text.assemble(
                (word, "green" if promise["holds"] else "bold red"),
                f"  {promise['name']:<17} {promise['detail']}",
            ),
            highlight=False,
            soft_wrap=True,
        )
