"""Which base URL a client would use, and what it is told instead (seen with 2.1.332)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clifftop.errors import SettingsError
from clifftop.proxy.clients import (
    Place,
    client_of,
    launch_of,
    managed_folder,
    obstacles,
    proxy_environ,
    upstream_of,
)

OURS = "http://127.0.0.1:4567"


def url(name: str) -> str:
    return f"https://{name}.example/api"


def settings(name: str, **env: str) -> str:
    return json.dumps({"env": {"ANTHROPIC_BASE_URL": url(name), **env}})


FILES = {
    "managed drop-in": "etc/managed-settings.d/20-b.json",
    "earlier drop-in": "etc/managed-settings.d/10-a.json",
    "managed": "etc/managed-settings.json",
    "local of the repository": "repository/.claude/settings.local.json",
    "local": "repository/sub/.claude/settings.local.json",
    "project": "repository/sub/.claude/settings.json",
    "user": "home/.claude/settings.json",
}
ORDER = (*list(FILES)[:3], "--settings", *list(FILES)[3:], "environment")


def place_of(root: Path, texts: dict[str, str], **environ: str) -> Place:
    (root / "repository" / ".git").mkdir(parents=True, exist_ok=True)
    (root / "repository" / "sub").mkdir(exist_ok=True)
    for path, text in texts.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    cwd = root / "repository" / "sub"
    return Place(environ=environ, home=root / "home", cwd=cwd, managed=root / "etc")


def launched(place: Place, *argv: str) -> tuple[tuple[str, ...], dict[str, str], Any]:
    file = place.home / "merged.json"
    launch = launch_of(argv, place, base_url=OURS, run="r1", settings_file=file)
    given = launch.private_settings if launch.private_settings is not None else launch.argv[2]
    return launch.argv, dict(launch.environ), json.loads(given)


@pytest.mark.parametrize("strongest", range(len(ORDER)))
def test_each_place_beats_those_behind_it(tmp_path: Path, strongest: int) -> None:
    names = ORDER[strongest:]
    texts = {FILES[name]: settings(name.replace(" ", "-")) for name in names if name in FILES}
    place = place_of(tmp_path, texts, ANTHROPIC_BASE_URL=url("environment"))
    argv = ("claude", "--settings", settings("flag")) if "--settings" in names else ("claude",)
    found = upstream_of(argv, place)
    name = names[0]
    assert found is not None
    assert found.value == url("flag" if name == "--settings" else name.replace(" ", "-"))
    assert found.beats_ours == (strongest < 3)
    path = str(tmp_path / FILES[name]) if name in FILES else name
    assert found.source == (f"managed settings {path}" if strongest < 3 else path)


def test_without_any_setting_it_is_the_vendors(tmp_path: Path) -> None:
    assert upstream_of(("claude",), place_of(tmp_path, {})) is None


def test_an_empty_value_covers_the_others(tmp_path: Path) -> None:
    texts = {
        FILES["local"]: '{"env": {"ANTHROPIC_BASE_URL": ""}}',
        FILES["user"]: settings("user"),
    }
    assert upstream_of(("claude",), place_of(tmp_path, texts)) is None


def test_of_two_flags_the_last_one_counts_and_none_behind_two_dashes(tmp_path: Path) -> None:
    place = place_of(tmp_path, {"repository/sub/own.json": "\ufeff" + settings("file")})
    found = upstream_of(
        ("claude", "--settings", settings("a"), f"--settings={settings('b')}", "-p", "x"), place
    )
    assert found == (url("b"), "--settings", False)
    found = upstream_of(("claude", "--settings", "own.json", "--", "--settings", "{}"), place)
    assert found == (url("file"), f"--settings {place.cwd}/own.json", False)


def test_setting_sources_and_the_config_folder_are_respected(tmp_path: Path) -> None:
    texts = {
        FILES["local"]: settings("local"),
        FILES["project"]: settings("project"),
        FILES["user"]: settings("user"),
        "config/settings.json": settings("config"),
    }
    place = place_of(tmp_path, texts)
    assert upstream_of(("claude", "--setting-sources", "user"), place)[0] == url("user")  # type: ignore[index]
    assert upstream_of(("claude", "--setting-sources=project"), place)[0] == url("project")  # type: ignore[index]
    moved = place_of(tmp_path, {}, CLAUDE_CONFIG_DIR=str(tmp_path / "config"))
    assert upstream_of(("claude", "--setting-sources=user"), moved)[0] == url("config")  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "{// no\n}", "[]", "7", '{"env": 7}', "\xff", "[" * 100_000])
def test_a_file_that_the_client_cannot_read_says_nothing(tmp_path: Path, text: str) -> None:
    place = place_of(tmp_path, {FILES["user"]: text}, ANTHROPIC_BASE_URL=url("environment"))
    assert upstream_of(("claude",), place) == (url("environment"), "environment", False)


def test_a_url_that_cannot_be_an_upstream_is_refused_with_its_place(tmp_path: Path) -> None:
    place = place_of(tmp_path, {}, ANTHROPIC_BASE_URL="https://me:hunter2@x.example")
    with pytest.raises(SettingsError) as caught:
        upstream_of(("claude",), place)
    assert str(caught.value) == (
        "ANTHROPIC_BASE_URL from environment: give scheme, host, port and path only; "
        "credentials travel in headers"
    )
    with pytest.raises(SettingsError, match="give an http:// or https:// URL"):
        upstream_of(("claude",), place_of(tmp_path, {}, ANTHROPIC_BASE_URL="localhost:8080"))


# What the client is told


def test_claude_gets_our_url_by_both_ways_in_front_of_its_arguments(tmp_path: Path) -> None:
    place = place_of(tmp_path, {}, ANTHROPIC_BASE_URL=url("x"), ANTHROPIC_AUTH_TOKEN="t", PATH="p")
    argv, environ, given = launched(place, "/opt/claude", "mcp", "list")
    assert argv == ("/opt/claude", "--settings", json.dumps(given), "mcp", "list")
    assert given == {"env": {"ANTHROPIC_BASE_URL": OURS}}
    assert environ == {
        "ANTHROPIC_BASE_URL": OURS,
        "ANTHROPIC_AUTH_TOKEN": "t",
        "ANTHROPIC_CUSTOM_HEADERS": "x-clifftop-run: r1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "PATH": "p",
    }


def test_inline_settings_of_the_user_stay_inline_and_whole(tmp_path: Path) -> None:
    own = json.dumps({"model": "x", "env": {"A": "1", "ANTHROPIC_BASE_URL": url("own")}})
    argv, _, given = launched(place_of(tmp_path, {}), "claude", "-p", f"--settings={own}", "hello")
    assert given == {"model": "x", "env": {"A": "1", "ANTHROPIC_BASE_URL": OURS}}
    assert argv == ("claude", "--settings", json.dumps(given), "-p", "hello")


def test_a_settings_file_is_merged_into_a_file_as_it_may_hold_tokens(tmp_path: Path) -> None:
    place = place_of(tmp_path, {"repository/sub/own.json": '{"env": {"T": "hunter2"}, "x": 1}'})
    argv, environ, given = launched(place, "claude", "--settings", "own.json", "-c")
    assert argv == ("claude", "--settings", str(place.home / "merged.json"), "-c")
    assert given == {"env": {"T": "hunter2", "ANTHROPIC_BASE_URL": OURS}, "x": 1}
    assert "hunter2" not in str(argv) + str(environ)


@pytest.mark.parametrize("own", ["nowhere.json", '{"env": }'])
def test_settings_that_cannot_be_read_are_left_for_the_client_to_complain(
    tmp_path: Path, own: str
) -> None:
    argv, _, given = launched(place_of(tmp_path, {}), "claude", "--settings", own)
    assert argv == ("claude", "--settings", json.dumps(given), "--settings", own)


def test_headers_of_the_environment_get_the_run_tag_behind_them(tmp_path: Path) -> None:
    place = place_of(tmp_path, {}, ANTHROPIC_CUSTOM_HEADERS="x-a: 1\nx-b: 2\n")
    _, environ, _ = launched(place, "claude")
    assert environ["ANTHROPIC_CUSTOM_HEADERS"] == "x-a: 1\nx-b: 2\nx-clifftop-run: r1"


def test_headers_of_a_settings_file_are_put_on_no_command_line(tmp_path: Path) -> None:
    secret = settings("user", ANTHROPIC_CUSTOM_HEADERS="authorization: hunter2")
    argv, environ, _ = launched(place_of(tmp_path, {FILES["user"]: secret}), "claude")
    assert "hunter2" not in str(argv)
    assert "ANTHROPIC_CUSTOM_HEADERS" not in environ


def test_our_address_joins_no_proxy_where_the_client_reads_it(tmp_path: Path) -> None:
    place = place_of(tmp_path, {}, no_proxy="a.example, b.example")
    _, environ, _ = launched(place, "claude")
    assert environ["no_proxy"] == environ["NO_PROXY"] == "a.example, b.example,127.0.0.1"
    place = place_of(tmp_path, {FILES["user"]: settings("user", NO_PROXY="c.example")})
    _, environ, given = launched(place, "claude")
    assert given["env"]["NO_PROXY"] == environ["no_proxy"] == "c.example,127.0.0.1"


def test_the_proxy_takes_the_way_out_that_the_client_would_have_taken(tmp_path: Path) -> None:
    texts = {FILES["user"]: settings("user", HTTPS_PROXY="http://corp.example:3128")}
    place = place_of(tmp_path, texts, HTTPS_PROXY="http://old.example", KEEP="1")
    assert proxy_environ(("claude",), place) == {
        "HTTPS_PROXY": "http://corp.example:3128",
        "KEEP": "1",
    }
    assert proxy_environ(("other",), place)["HTTPS_PROXY"] == "http://old.example"


def test_no_internal_variable_is_set(tmp_path: Path) -> None:
    _, environ, given = launched(place_of(tmp_path, {}), "claude")
    named = {*environ, *given["env"]}
    assert not [name for name in named if name.startswith(("_", "CLAUDE", "DISABLE"))]


def test_an_unknown_command_gets_the_environment_only(tmp_path: Path) -> None:
    place = place_of(tmp_path, {FILES["user"]: settings("user")}, ANTHROPIC_BASE_URL=url("env"))
    argv = ("npx", "agent", "--settings", "{}")
    launch = launch_of(argv, place, base_url=OURS, run="r", settings_file=tmp_path / "x")
    assert (launch.argv, launch.private_settings) == (argv, None)
    assert launch.environ["ANTHROPIC_BASE_URL"] == OURS
    assert upstream_of(argv, place) == (url("env"), "environment", False)


# What stands in the way


def test_managed_settings_and_other_providers_are_obstacles(tmp_path: Path) -> None:
    texts = {FILES["managed"]: settings("corp"), FILES["user"]: settings("user")}
    place = place_of(tmp_path, texts, CLAUDE_CODE_USE_BEDROCK="1", CLAUDE_CODE_USE_VERTEX="0")
    managed, bedrock = obstacles(("claude",), place)
    assert managed.startswith(f"managed settings {tmp_path}/etc/managed-settings.json sets")
    assert bedrock.startswith("CLAUDE_CODE_USE_BEDROCK is on (environment)")
    assert obstacles(("agent",), place) == []
    assert obstacles(("claude",), place_of(tmp_path / "other", {})) == []


def test_clients_are_known_by_the_name_of_their_command() -> None:
    assert client_of("/usr/local/bin/claude") == "claude"
    assert client_of("claude-old") is None
    assert managed_folder("linux") == Path("/etc/claude-code")
    assert managed_folder("darwin").name == "ClaudeCode"
