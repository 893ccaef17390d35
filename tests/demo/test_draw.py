"""The drawing in both modes, without colour as its only sign."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from clifftop.demo.draw import Chart, LiveDrawing, PlainDrawing, Point, make_drawing

POINTS = [
    Point(
        number=number,
        prompt_tokens=5_000 + 2_000 * (number % 20),
        full_tokens=5_000 + 2_000 * number,
        cached_tokens=4_000,
        is_cliff=number % 20 == 0,
    )
    for number in range(1, 91)
]
REPORT: dict[str, Any] = {
    "requests": 90,
    "cliffs": 4,
    "prompt_tokens": 2_000_000,
    "prompt_tokens_without": 9_000_000,
    "peak_tokens": 43_000,
    "peak_tokens_without": 185_000,
    "cache_hit_share": 0.91,
    "cache_hit_share_without": 0.987,
    "cost_usd": 4.5,
    "cost_usd_without": 8.25,
    "saving_share": 0.4545,
    "note": "same actions, not an experiment",
    "prices": "list prices of m, 2026-11-30",
    "promises": [
        {"name": "untouched", "holds": True, "detail": "19 requests"},
        {"name": "bounded", "holds": False, "detail": "60,000 tokens at the peak"},
    ],
}


def draw(*, terminal: bool, width: int = 100) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, legacy_windows=False)
    drawing = make_drawing(console)
    assert isinstance(drawing, LiveDrawing if terminal else PlainDrawing)
    drawing.open(requests=90, budget_tokens=45_000)
    for point in POINTS:
        drawing.add(point)
    drawing.close(REPORT)
    return file.getvalue()


def render(points: list[Point], *, width: int = 100, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, color_system=None)
    console.print(Chart(points=points, requests=90, budget_tokens=45_000))
    file.seek(0)
    return file.read().rstrip("\n").split("\n")


def test_plain_lines_are_one_a_cliff_and_one_every_20_requests() -> None:
    lines = [line for line in draw(terminal=False).split("\n") if line.startswith("request ")]
    assert len(lines) == 4
    assert lines[0] == ("request 20/90: cliff 1, 43,000 -> 5,000 tokens (without clifftop 45,000)")


def test_plain_lines_between_cliffs_come_every_20_requests() -> None:
    file = io.StringIO()
    drawing = PlainDrawing(console=Console(file=file))
    drawing.open(requests=90, budget_tokens=45_000)
    for number in range(1, 46):
        drawing.add(
            Point(
                number=number,
                prompt_tokens=1_000 * number,
                full_tokens=1_000 * number,
                cached_tokens=500,
                is_cliff=False,
            )
        )
    drawing.close(None)
    assert file.getvalue().split("\n")[1:] == [
        "request 20/90: 20,000 tokens, 500 from the cache (without clifftop 20,000)",
        "request 40/90: 40,000 tokens, 500 from the cache (without clifftop 40,000)",
        "",
    ]


def test_plain_output_has_no_control_codes() -> None:
    assert "\x1b" not in draw(terminal=False)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_table_and_the_promises_close_both_modes(terminal: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", draw(terminal=terminal))
    for word in ("2,000,000", "9,000,000", "$4.50", "$8.25", "45.5%", "91.0%", "98.7%"):
        assert word in text
    assert "same actions, not an experiment" in " ".join(text.split())
    assert "holds   untouched" in text
    assert "BROKEN  bounded" in text


def test_the_chart_marks_each_cliff_under_its_column() -> None:
    lines = render(POINTS)
    marks = next(line for line in lines if line.strip().startswith("cliffs"))
    assert [match.start() - 8 for match in re.finditer("▲", marks)] == [19, 39, 59, 79]
    assert any(line.startswith("   45K ┤") and "┄" in line for line in lines)
    assert lines[-1] == (
        "request 90/90, prompt 25,000 tokens, full context 185,000, 4 cliffs, 17% from the cache"
    )


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_chart_keeps_to_the_width(width: int) -> None:
    lines = render(POINTS, width=width)
    assert max(map(len, lines)) <= width
    marks = next(line for line in lines if line.strip().startswith("cliffs"))
    assert marks.count("▲") == 4


def test_the_chart_does_without_unicode() -> None:
    text = "\n".join(render(POINTS, encoding="ascii"))
    assert text.isascii()
    assert "^" in text
    assert "#" in text


def test_an_empty_chart_waits() -> None:
    assert render([])[-1] == "waiting for the first answer"


def test_a_failed_run_leaves_no_table() -> None:
    file = io.StringIO()
    drawing = LiveDrawing(console=Console(file=file, force_terminal=True, width=80))
    drawing.open(requests=3, budget_tokens=45_000)
    drawing.close(None)
    assert "with clifftop" not in file.getvalue()
