"""The real Claude Code through `clifftop run`, against a scripted provider on loopback."""

from __future__ import annotations

import re
from pathlib import Path

from tests.clients.desk import Desk
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


async def test_a_long_task_falls_off_cliffs_finishes_and_resumes_on_the_same_cliff(
    claude: Path, tmp_path: Path
) -> None:
    desk, provider = desk_for(claude, tmp_path), ScriptedProvider()
    async with serving(provider.handle) as url:
        first = await desk.run("-p", f"Play steps 1-{STEPS}.", ANTHROPIC_BASE_URL=url)
        assert (first.status, first.stdout.strip()) == (0, f"All {STEPS} steps are played.")
        played = [request.body for request in provider.session]
        assert len(played) == STEPS + 1
        assert desk.result_chars() >= 600_000  # 150K tokens
        assert cliffs_of(played) >= 3
        assert max(request.prompt_tokens for request in provider.session) < 36_000
        assert provider.kinds("native") == []
        assert_valid(provider)
        assert summary_of(first.stderr) == {"calls": STEPS + 1, "cliffs": cliffs_of(played)}
        again = await desk.run("-c", "-p", "Play steps 43-45.", ANTHROPIC_BASE_URL=url)
        assert (again.status, again.stdout.strip()) == (0, "All 45 steps are played.")
        resumed = provider.session[len(played)].body
        assert extends(played[-1], resumed)
        assert_valid(provider)


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
