"""The whole demo through a relay: one report, ready for JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable

import pytest
from rich.console import Console

from clifftop.demo.draw import make_drawing
from clifftop.demo.run import run_demo
from clifftop.errors import ClifftopError
from tests.demo.relay import start_relay


async def test_the_report_has_every_figure_and_holds_its_promises() -> None:
    file = io.StringIO()
    ticks = iter([10.0, 13.5])
    report = await run_demo(
        start_proxy=start_relay(45_000),
        draw=make_drawing(Console(file=file, width=100)),
        clock=lambda: next(ticks),
    )
    assert json.loads(json.dumps(report)) == report
    assert report["requests"] >= 120
    assert report["cliffs"] >= 6
    assert report["budget_tokens"] == 45_000
    assert report["peak_tokens"] <= 45_000 < report["peak_tokens_without"]
    assert report["prompt_tokens"] < report["prompt_tokens_without"] / 4
    assert report["cached_tokens"] / report["prompt_tokens"] == pytest.approx(
        report["cache_hit_share"], abs=1e-4
    )
    assert 0 < report["cost_usd"] < report["cost_usd_without"]
    assert report["saving_share"] == pytest.approx(
        1 - report["cost_usd"] / report["cost_usd_without"], abs=1e-4
    )
    assert [promise["name"] for promise in report["promises"] if not promise["holds"]] == []
    assert report["note"] == "same actions, not an experiment"
    assert report["seconds"] == 3.5
    assert file.getvalue().count(": cliff ") == report["cliffs"]


async def test_a_failure_stops_the_proxy_and_closes_the_drawing() -> None:
    stopped: list[str] = []

    async def start(upstream: str) -> tuple[str, Callable[[], Awaitable[None]]]:
        async def stop() -> None:
            stopped.append(upstream)

        return upstream + "/nowhere", stop

    file = io.StringIO()
    with pytest.raises(ClifftopError, match="request 1 was answered 404"):
        await run_demo(start_proxy=start, draw=make_drawing(Console(file=file)))
    assert len(stopped) == 1
    assert "with clifftop" not in file.getvalue()
