"""The command line as people meet it: help, mistakes, exit codes. Real processes throughout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from clifftop import __version__
from clifftop.cli.main import COMMANDS
from tests.long_sessions import TASK, body_of, tool_turn
from tests.messages_api import violations

HEAVY = ("aiohttp", "asyncio", "rich", "msgspec", "dataclasses")


def clifftop(
    *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "clifftop", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        timeout=120,
        check=False,
    )


def long_body() -> bytes:
    return body_of([TASK, *(message for n in range(30) for message in tool_turn(n, 2_000))])


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom clifftop.cli.main import main\nsys.argv = ['clifftop', '--help']\n"
        "try:\n    main()\nfinally:\n"
        f"    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr.decode().strip() == "[]"
    for command in COMMANDS:
        assert command in done.stdout.decode()


def test_import_clifftop_is_light() -> None:
    code = f"import sys, clifftop; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    done = clifftop(command, "--help")
    assert done.returncode == 0
    assert b"Usage: clifftop " + command.encode() in done.stdout


def test_version() -> None:
    assert clifftop("--version").stdout.decode() == f"clifftop {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serv"], "Did you mean 'serve'?"),
        (["compact", "--budgett", "16k", "-"], "No such option"),
        (["compact", "--budget", "lots", "-"], "write tokens as 200000, 45k or 1m"),
        (["compact", "--budget", "5", "-"], "give 1,000 to"),
        (["compact", "/nowhere/at/all.json"], "No such file"),
        (["compact", "--profile", "papr", "-"], "'papr' is not one of"),
        (["compact", "--dialect", "openai", "-"], "'openai' is not one of"),
        (["serve", "--port", "99999"], "port 99999"),
        (["serve", "--anthropic-upstream", "localhost:1"], "http:// or https:// URL"),
        (["serve", "--state", "redis:"], "give memory:, sqlite:"),
        (["serve", "--host", "0.0.0.0"], "client keys"),
    ],
)
def test_wrong_use_exits_with_2_and_says_what_to_do(arguments: list[str], says: str) -> None:
    done = clifftop(*arguments)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"),
        (b"hello", "no JSON"),
        (long_body()[:5_000], "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"model":"m"}', "$.messages is missing"),
        (b'{"messages":[{"role":"tool","content":"x"}]}', "$.messages[0].role is 'tool'"),
        (b'{"messages":' + b"[" * 200_000, "nested too deeply"),
    ],
)
def test_input_that_is_no_request_exits_with_1_and_the_place(body: bytes, says: str) -> None:
    done = clifftop("compact", "-", stdin=body)
    assert done.returncode == 1
    assert says in done.stderr.decode()
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


def test_below_the_budget_the_same_bytes_come_out() -> None:
    body = long_body().replace(b'"stream":true', b'"stream" : true ,"x":1E5')
    done = clifftop("compact", "-", "--budget", "1m", stdin=body)
    assert (done.returncode, done.stdout) == (0, body)
    assert b"unchanged" in done.stderr


def test_above_the_budget_a_valid_smaller_request_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(long_body())
    done = clifftop("compact", str(path), "--budget", "8k")
    assert done.returncode == 0
    assert violations(json.loads(done.stdout), before=json.loads(long_body())) == []
    assert len(done.stdout) < len(long_body()) / 2
    assert b"became one block" in done.stderr


def test_a_budget_below_the_fixed_part_is_said_with_a_sensible_one() -> None:
    tools = ({"name": "Read", "description": "x" * 40_000, "input_schema": {"type": "object"}},)
    body = body_of([TASK, *(m for n in range(9) for m in tool_turn(n, 400))], tools)
    done = clifftop("compact", "-", "--budget", "2k", stdin=body)
    assert done.returncode == 0
    assert b"still over the budget" in done.stderr
    assert b"smallest sensible budget here is 25,000" in done.stderr


def test_force_makes_a_cliff_below_the_budget() -> None:
    done = clifftop("compact", "-", "--force", stdin=long_body())
    assert done.returncode == 0
    assert b"[clifftop]" in done.stdout


def test_diff_shows_what_stayed_what_went_and_the_block() -> None:
    done = clifftop("compact", "-", "--budget", "8k", "--diff", stdin=long_body())
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("= [0] user")
    assert any(line.startswith("- [1] assistant") and "calls Read" in line for line in lines)
    assert any("+ call: Read(file_path=/workspace/file_" in line for line in lines)


def test_profile_paper_leaves_no_holes() -> None:
    done = clifftop("compact", "-", "--budget", "8k", "--profile", "paper", stdin=long_body())
    assert b"dropped (" not in done.stdout
    literal = clifftop(
        "compact", "-", "--profile", "paper", "--user-text", "drop", "--force", stdin=long_body()
    )
    assert b"person: " not in literal.stdout


def test_options_come_from_the_environment_and_flags_win() -> None:
    env = {"CLIFFTOP_BUDGET": "8k"}
    assert b"became one block" in clifftop("compact", "-", stdin=long_body(), env=env).stderr
    done = clifftop("compact", "-", "--budget", "1m", stdin=long_body(), env=env)
    assert b"unchanged" in done.stderr


def test_serve_says_where_it_listens_answers_and_ends_on_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "clifftop", "serve", "--port", "0", "--state", f"sqlite://{path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith(f"clifftop {__version__} listening on http://127.0.0.1:")
        with urllib.request.urlopen(line.split()[-1] + "/_clifftop/health") as answer:
            assert json.load(answer)["status"] == "ok"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()


def test_a_port_that_is_taken_is_said() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = clifftop("serve", "--port", str(taken.getsockname()[1]), "--state", "memory:")
    assert done.returncode == 2
    assert b"cannot listen on 127.0.0.1" in done.stderr


def test_demo_falls_off_cliffs_and_keeps_its_promises() -> None:
    done = clifftop("demo", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert report["cliffs"] >= 6
    assert report["requests"] >= 120
    assert report["prompt_tokens_without"] > 4 * report["prompt_tokens"]
    assert report["saving_share"] > 0.3
    assert all(promise["holds"] for promise in report["promises"])
    assert b"cliff 6" in done.stderr
