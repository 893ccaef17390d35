"""`clifftop doctor`: what it finds and when it exits with 1."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clifftop


def doctor(
    home: Path, *options: str, **environ: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    (home / "bin").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "clifftop", "doctor", "--json", *options],
        env={
            "HOME": str(home),
            "PATH": f"{home / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": str(Path(clifftop.__file__).parent.parent),
            **environ,
        },
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, json.loads(done.stdout)


def command(home: Path, name: str, script: str) -> None:
    path = home / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def client(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(client for client in report["clients"] if client["name"] == name)


def test_a_sound_place_has_no_problems(tmp_path: Path) -> None:
    command(tmp_path, "claude", "echo '2.1.332 (Claude Code)'")
    done, report = doctor(tmp_path)
    assert (done.returncode, report["problems"], report["notes"]) == (0, [], [])
    assert report["clifftop"] == clifftop.__version__
    assert report["state"] == {
        "folder": str(tmp_path / ".local/state/clifftop"),
        "is_writable": True,
    }
    found = client(report, "claude")
    assert found["version"] == "2.1.332 (Claude Code)"
    assert (found["upstream"], found["source"]) == ("https://api.anthropic.com", "default")
    assert "25k" in found["budget"]


def test_it_writes_for_people_too(tmp_path: Path) -> None:
    command(tmp_path, "claude", "echo 2.1.332")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "clifftop", "doctor"],
        env={
            "HOME": str(tmp_path),
            "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(Path(clifftop.__file__).parent.parent),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"claude: 2.1.332 at {tmp_path}/bin/claude" in done.stdout
    assert "upstream https://api.anthropic.com (from default)" in done.stdout
    assert done.stdout.endswith("no problems found\n")


def test_a_client_that_hangs_or_fails_has_no_version(tmp_path: Path) -> None:
    command(tmp_path, "codex", "exit 3")
    done, report = doctor(tmp_path)
    assert client(report, "codex")["version"] is None
    assert done.returncode == 0


def test_settings_that_beat_the_environment_are_named(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    settings = {"env": {"ANTHROPIC_BASE_URL": "https://glm.example/api/anthropic"}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    command(tmp_path, "claude", "echo 2")
    done, report = doctor(tmp_path, ANTHROPIC_BASE_URL="https://other.example")
    found = client(report, "claude")
    assert found["upstream"] == "https://glm.example/api/anthropic"
    assert found["source"] == f"{tmp_path}/.claude/settings.json"
    assert "beats the environment" in report["notes"][0]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"ANTHROPIC_API_KEY": "hunter2", "ANTHROPIC_AUTH_TOKEN": "hunter2"}, "both are set"),
        ({"ANTHROPIC_BASE_URL": "http://gateway.example/x"}, "not encrypted"),
        ({"ANTHROPIC_BASE_URL": "gateway"}, "give an http:// or https:// URL"),
        ({"NODE_EXTRA_CA_CERTS": "/ca.pem"}, "SSL_CERT_FILE"),
        ({"CLAUDE_CODE_USE_VERTEX": "true"}, "CLAUDE_CODE_USE_VERTEX is on"),
        ({"XDG_STATE_HOME": "/dev/null"}, "/dev/null is not writable"),
    ],
)
def test_what_is_wrong_is_a_problem(tmp_path: Path, environ: dict[str, str], says: str) -> None:
    done, report = doctor(tmp_path, **environ)
    assert done.returncode == 1
    assert [says in problem for problem in report["problems"]] == [True]
    assert "hunter2" not in done.stdout + done.stderr


def test_an_outbound_proxy_is_a_note(tmp_path: Path) -> None:
    done, report = doctor(tmp_path, HTTPS_PROXY="http://me:hunter2@corp.example:3128")
    assert "HTTPS_PROXY" in report["notes"][0]
    assert "hunter2" not in done.stdout


def test_the_network_is_asked_with_online_only(tmp_path: Path) -> None:
    command(tmp_path, "claude", "echo 2")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        _, report = doctor(tmp_path, ANTHROPIC_BASE_URL=url)
        with pytest.raises(BlockingIOError):
            listener.accept()
        done, report = doctor(tmp_path, "--online", ANTHROPIC_BASE_URL=url)
        assert (done.returncode, client(report, "claude")["answers"]) == (0, "answers")
        listener.accept()[0].close()
    done, report = doctor(tmp_path, "--online", ANTHROPIC_BASE_URL=url)
    assert done.returncode == 1
    assert "does not answer at 127.0.0.1" in report["problems"][0]


def test_nothing_is_made(tmp_path: Path) -> None:
    doctor(tmp_path)
    assert os.listdir(tmp_path) == ["bin"]
