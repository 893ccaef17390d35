"""The real Claude Code through `clifftop run`, against a scripted provider on loopback."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from clifftop.core.sizes import DEFAULT_RATE
from tests.clients.desk import Desk
from tests.clients.tmux import screen
from tests.clients.upstream import ScriptedProvider, cliffs_of, extends
from tests.messages_api import violations
from tests.proxy.scripted import serving

STEPS = 42


def desk_for(claude: Path, root: Path) -> Desk:
    desk = Desk(root=root, claude=claude)
    desk.set_up(files=STEPS + 20, file_chars=15_000)
    return desk


def assert_valid(provider: ScriptedProvider) -> None:
    for number, request in enumerate(provider.received):
        assert violations(request.body) == [], number


def summary_of(stderr: str) -> dict[str, int]:
    found = re.search(r"clifftop: (\d+) calls, (\d+) cliffs?", stderr)
    assert found, stderr
    return {"calls": int(found[1]), "cliffs": int(found[2])}


async def test_a_long_task_falls_off_cliffs_and_finishes(claude: Path, tmp_path: Path) -> None:
    desk, provider = desk_for(claude, tmp_path), ScriptedProvider()
    async with serving(provider.handle) as url:
        ended = await desk.run("-p", f"Play steps 1-{STEPS}.", ANTHROPIC_BASE_URL=url)
    assert (ended.status, ended.stdout.strip()) == (0, f"All {STEPS} steps are played.")
    bodies = [request.body for request in provider.session]
    assert [request.step for request in provider.session] == list(range(1, STEPS + 2))
    assert desk.result_chars() >= 600_000  # 150K tokens
    assert cliffs_of(bodies) >= 3
    assert max(request.prompt_tokens for request in provider.session) < 34_000
    assert provider.kinds("native") == []
    assert_valid(provider)
    assert summary_of(ended.stderr) == {"calls": STEPS + 1, "cliffs": cliffs_of(bodies)}


@pytest.mark.parametrize("tokens_per_byte", [DEFAULT_RATE, 0.25])
async def test_a_resumed_session_stays_on_its_cliff(
    claude: Path, tmp_path: Path, tokens_per_byte: float
) -> None:
    desk = desk_for(claude, tmp_path)
    provider = ScriptedProvider(tokens_per_byte=tokens_per_byte)
    async with serving(provider.handle) as url:
        first = await desk.run("-p", "Play steps 1-15.", ANTHROPIC_BASE_URL=url)
        assert first.stdout.strip() == "All 15 steps are played."
        played = [request.body for request in provider.session]
        assert cliffs_of(played) >= 2
        again = await desk.run("-c", "-p", "Play steps 16-18.", ANTHROPIC_BASE_URL=url)
        assert (again.status, again.stdout.strip()) == (0, "All 18 steps are played.")
    assert_valid(provider)
    resumed = [request.body for request in provider.session[len(played) :]]
    assert extends(played[-1], resumed[0])
    assert provider.kinds("native") == []


async def test_prompt_is_too_long_is_cured_and_the_client_never_knows(
    claude: Path, tmp_path: Path
) -> None:
    desk, provider = desk_for(claude, tmp_path), ScriptedProvider(refuse_at=6)
    async with serving(provider.handle) as url:
        ended = await desk.run("-p", "Play steps 1-12.", budget="200k", ANTHROPIC_BASE_URL=url)
    assert (ended.status, ended.stdout.strip()) == (0, "All 12 steps are played.")
    assert len(provider.kinds("refused")) == 1
    assert provider.kinds("native") == []
    assert [request.step for request in provider.session] == list(range(1, 14))
    assert cliffs_of([request.body for request in provider.session]) == 1
    assert_valid(provider)


async def test_a_base_url_in_settings_json_becomes_the_upstream(
    claude: Path, tmp_path: Path
) -> None:
    desk, provider, wrong = desk_for(claude, tmp_path), ScriptedProvider(), ScriptedProvider()
    async with serving(provider.handle) as url, serving(wrong.handle) as wrong_url:
        env = {"ANTHROPIC_BASE_URL": f"{url}/api/anthropic"}
        desk.write_settings("home/.claude/settings.json", env=env)
        ended = await desk.run("-p", "Play steps 1-14.", ANTHROPIC_BASE_URL=wrong_url)
    assert (ended.status, ended.stdout.strip()) == (0, "All 14 steps are played.")
    assert wrong.received == []
    assert {r.target for r in provider.session} == {"/api/anthropic/v1/messages?beta=true"}
    assert all("x-clifftop-run" in request.headers for request in provider.session)
    assert cliffs_of([request.body for request in provider.session]) >= 1
    assert summary_of(ended.stderr)["calls"] == len(provider.received)
    assert_valid(provider)


async def test_users_own_settings_are_kept_beside_ours(claude: Path, tmp_path: Path) -> None:
    desk, provider = desk_for(claude, tmp_path), ScriptedProvider()
    async with serving(provider.handle) as url:
        headers = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_CUSTOM_HEADERS": "x-team: blue"}
        desk.write_settings("own.json", env=headers)
        settings = str(desk.root / "own.json")
        ended = await desk.run("--settings", settings, "-p", "Play steps 1-2.")
    assert ended.status == 0
    assert {request.headers.get("x-team") for request in provider.session} == {"blue"}
    assert summary_of(ended.stderr)["calls"] == len(provider.received)
    assert list(desk.state.glob("**/*.settings.json")) == []


async def test_a_client_that_never_asks_is_told_in_the_summary(
    claude: Path, tmp_path: Path
) -> None:
    desk = Desk(root=tmp_path, claude=claude)
    desk.set_up(files=0, file_chars=0)
    ended = await desk.run("--version")
    assert (ended.status, ended.stdout.strip()) == (0, "2.1.332 (Claude Code)")
    assert "no request came through" in ended.stderr


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_on_a_terminal_nothing_of_ours_is_seen_until_the_end(
    claude: Path, tmp_path: Path
) -> None:
    desk, provider = desk_for(claude, tmp_path), ScriptedProvider(pauses_at=9)
    desk.skip_first_questions()
    async with serving(provider.handle) as url:
        argv = desk.argv("--model", "claude-opus-5-5", budget="32k")
        shell = ["sh", "-c", f"{shlex.join(argv)}; echo status=$?"]
        environ = desk.environ(ANTHROPIC_BASE_URL=url, ANTHROPIC_AUTH_TOKEN="tok-dummy")
        async with screen(
            shell, environ=environ, cwd=desk.repository, server=f"clifftop-{os.getpid()}"
        ) as shown:
            await shown.wait_for("bypass permissions on")
            await shown.type("Play steps 1-12.")
            await shown.wait_for("Now step 9")
            assert cliffs_of([request.body for request in provider.session]) >= 1
            await shown.press("C-c")
            await shown.wait_for("(?i)interrupted")
            await shown.type("Play steps 10-12.")
            text = await shown.wait_for("All 12 steps are played")
            assert "clifftop" not in text.replace(str(tmp_path), "")
            await shown.type("/exit")
            text = await shown.wait_for(r"status=\d")
    assert "status=0" in text
    assert summary_of(text.replace("\n", " "))["calls"] == len(provider.received)
    assert provider.kinds("native") == []
    assert_valid(provider)
