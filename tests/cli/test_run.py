"""`clifftop run` with a small client: real processes, sockets and terminals throughout."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import clifftop
from tests.clients import fake
from tests.clients.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_Z, terminal
from tests.proxy.scripted import GOOD

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc"
)

KEY = "sk-ant-secret-key"
SUMMARY = re.compile(r"clifftop: (\d+) calls?, (\d+) cliffs?; ")


@dataclass(kw_only=True)
class Provider:
    """A provider in a thread: says the same to everybody, keeps what it got."""

    url: str
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def a_provider() -> Iterator[Provider]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            provider.got.append((self.path, headers, body))
            answer = json.dumps(GOOD).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = Provider(url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with a_provider() as provider:
        yield provider


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Home, working folder and a client named `claude`."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def cwd(self) -> Path:
        return self.root / "work"

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "clifftop"

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(clifftop.__file__).parent.parent),
            "ANTHROPIC_API_KEY": KEY,
            **more,
        }

    def argv(self, *words: str, options: tuple[str, ...] = (), client: str = "claude") -> list[str]:
        run = [sys.executable, "-P", "-m", "clifftop", "run", "--budget", "8k", *options]
        return [*run, "--", client, *words]

    def run(
        self,
        *words: str,
        options: tuple[str, ...] = (),
        client: str = "claude",
        **environ: str,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*words, options=options, client=client),
            env=self.environ(**environ),
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(root=tmp_path)
    for folder in (desk.home / ".claude", desk.cwd, tmp_path / "bin"):
        folder.mkdir(parents=True)
    for name in ("claude", "agent"):
        client = tmp_path / "bin" / name
        client.write_text(f"#!{sys.executable}\n" + Path(fake.__file__).read_text())
        client.chmod(0o755)
    return desk


def children_of(pid: int) -> list[int]:
    done = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in done.stdout.split()]


def proxy_of(pid: int) -> int:
    """The proxy among the children of a `clifftop run`."""
    for child in children_of(pid):
        if b"\0serve\0" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    raise AssertionError("no proxy")


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> None:
    for _ in range(200):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} lives")


# What comes through and what is told


def test_a_session_is_compacted_and_summed_up(desk: Desk, provider: Provider) -> None:
    done = desk.run("call", "30", ANTHROPIC_BASE_URL=provider.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == f"answers {[200] * 30}"
    found = SUMMARY.search(done.stderr)
    assert found
    assert int(found[1]) == len(provider.got) == 30
    assert int(found[2]) >= 2
    assert "prompt tokens sent" in done.stderr
    assert "without clifftop (estimated)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert provider.got[0][2] == fake.body(0)
    assert len(provider.got[-1][2]) < len(fake.body(29)) / 2


def test_shadow_sends_the_clients_bytes_and_says_what_it_would(
    desk: Desk, provider: Provider
) -> None:
    done = desk.run("call", "20", options=("--shadow",), ANTHROPIC_BASE_URL=provider.url)
    assert [body for _, _, body in provider.got] == [fake.body(n) for n in range(20)]
    assert re.search(
        r"shadow: \d+K prompt tokens sent, \d+K with cliffs \(estimated\)", done.stderr
    )


def test_only_the_client_writes_to_stdout(desk: Desk) -> None:
    assert desk.run("say", "hello").stdout.splitlines()[1:] == ["hello"]


def test_that_no_request_came_through_is_said_with_what_it_may_be(desk: Desk) -> None:
    done = desk.run("exit", "0")
    assert "no request came through (it ended before it asked, or" in done.stderr


def test_credentials_pass_and_stay_nowhere(desk: Desk, provider: Provider) -> None:
    done = desk.run(
        "call",
        "12",
        ANTHROPIC_BASE_URL=provider.url,
        ANTHROPIC_CUSTOM_HEADERS="x-team: hunter2",
    )
    for _, headers, _ in provider.got:
        assert headers["x-api-key"] == KEY
        assert headers["x-team"] == "hunter2"
        assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", headers["x-clifftop-run"])
    kept = [path.read_bytes() for path in desk.state.glob("**/*") if path.is_file()]
    assert kept
    for text in (*kept, done.stdout.encode(), done.stderr.encode()):
        assert KEY.encode() not in text
        assert b"hunter2" not in text


def test_the_log_is_the_owners_alone_and_old_ones_go(desk: Desk, provider: Provider) -> None:
    runs = desk.state / "runs"
    runs.mkdir(parents=True, mode=0o755)
    for number in range(40):
        (runs / f"run-20200101-0000{number:02}-aaaaaa.log").touch()
    done = desk.run("call", "1", ANTHROPIC_BASE_URL=provider.url)
    log = Path(done.stderr.split("log ")[-1].strip())
    assert log.read_text().count("INFO request ") == 1
    assert [log.stat().st_mode & 0o777, runs.stat().st_mode & 0o777] == [0o600, 0o700]
    assert len(list(runs.iterdir())) == 31


def test_a_state_folder_that_cannot_be_made_is_no_obstacle(desk: Desk, provider: Provider) -> None:
    (desk.home / ".local").write_text("a file where a folder should be")
    done = desk.run("call", "1", ANTHROPIC_BASE_URL=provider.url)
    assert done.returncode == 0
    log = Path(done.stderr.split("log ")[-1].strip())
    assert log.stat().st_mode & 0o777 == 0o600
    log.unlink()
    log.parent.rmdir()


def test_what_lies_in_the_working_folder_is_not_imported(desk: Desk, provider: Provider) -> None:
    for name in ("logging", "aiohttp", "clifftop"):
        (desk.cwd / f"{name}.py").write_text("raise SystemExit('mine')")
    done = desk.run("call", "1", ANTHROPIC_BASE_URL=provider.url)
    assert (done.returncode, len(provider.got)) == (0, 1)


# Whom requests go to


def test_the_base_url_of_the_environment_keeps_its_path(desk: Desk, provider: Provider) -> None:
    desk.run("call", "1", ANTHROPIC_BASE_URL=f"{provider.url}/api/anthropic/")
    assert provider.got[0][0] == "/api/anthropic/v1/messages"


def test_settings_json_beats_the_environment_and_upstream_beats_both(
    desk: Desk, provider: Provider
) -> None:
    with a_provider() as other:
        settings = {"env": {"ANTHROPIC_BASE_URL": provider.url}}
        (desk.home / ".claude" / "settings.json").write_text(json.dumps(settings))
        done = desk.run("call", "1", ANTHROPIC_BASE_URL=other.url)
        assert (len(provider.got), len(other.got)) == (1, 0)
        assert f"upstream {provider.url} (from {desk.home}/.claude/settings.json)" in done.stderr
        desk.run("call", "1", options=("--upstream", other.url))
        assert (len(provider.got), len(other.got)) == (1, 1)


def test_a_settings_file_of_the_user_is_merged_in_private(desk: Desk, provider: Provider) -> None:
    own = desk.cwd / "own.json"
    text = json.dumps({"env": {"ANTHROPIC_BASE_URL": provider.url, "TOKEN": "hunter2"}, "x": [1]})
    own.write_text(text)
    process = subprocess.Popen(
        desk.argv("--settings", "own.json", "env", "TOKEN", "call", "1", "line"),
        env=desk.environ(),
        cwd=desk.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    given = Path(process.stdout.readline().split()[1])
    assert given.parent == desk.state / "runs"
    assert given.stat().st_mode & 0o777 == 0o600
    assert json.loads(given.read_text())["x"] == [1]
    assert process.stdout.readline() == "TOKEN hunter2\n"
    for pid in (process.pid, *children_of(process.pid)):
        assert b"hunter2" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    _, err = process.communicate("\n", timeout=60)
    assert SUMMARY.search(err)
    assert len(provider.got) == 1
    assert not given.exists()
    assert own.read_text() == text


@pytest.mark.parametrize("where", ["environment", "settings.json", "--upstream"])
def test_an_upstream_with_a_password_is_refused_and_not_repeated(desk: Desk, where: str) -> None:
    url = "https://me:hunter2@gateway.example"
    options: tuple[str, ...] = ()
    environ = {}
    match where:
        case "environment":
            environ["ANTHROPIC_BASE_URL"] = url
        case "settings.json":
            settings = {"env": {"ANTHROPIC_BASE_URL": url}}
            (desk.home / ".claude" / "settings.json").write_text(json.dumps(settings))
        case _:
            options = ("--upstream", url)
    done = desk.run("call", "1", options=options, **environ)
    assert done.returncode == 2
    assert "credentials travel in headers" in done.stderr
    assert where in done.stderr or where == "--upstream"
    assert "hunter2" not in done.stdout + done.stderr


def test_a_command_that_is_not_known_gets_the_base_url_and_a_note(
    desk: Desk, provider: Provider
) -> None:
    done = desk.run("call", "1", client="agent", ANTHROPIC_BASE_URL=provider.url)
    assert done.stdout == "answers [200]\n"
    assert done.stderr.startswith("clifftop: agent is not known here, only ANTHROPIC_BASE_URL is")
    assert len(provider.got) == 1


def test_our_address_is_reached_without_a_proxy(desk: Desk) -> None:
    done = desk.run("env", "NO_PROXY", "env", "no_proxy", NO_PROXY="corp.example")
    assert done.stdout.splitlines()[1:] == [
        "NO_PROXY corp.example,127.0.0.1",
        "no_proxy corp.example,127.0.0.1",
    ]


# Exit codes


@pytest.mark.parametrize(
    ("words", "status"),
    [(("exit", "0"), 0), (("exit", "7"), 7), (("die", "SIGKILL"), 137), (("die", "SIGINT"), 130)],
)
def test_the_exit_code_is_the_clients(desk: Desk, words: tuple[str, ...], status: int) -> None:
    assert desk.run(*words).returncode == status


def test_a_command_that_cannot_run_gives_what_a_shell_gives(desk: Desk) -> None:
    missing = desk.run(client="no-such-agent")
    assert (missing.returncode, missing.stderr) == (127, "clifftop: no-such-agent: not found\n")
    (desk.cwd / "text").write_text("hello")
    assert desk.run(client="./text").returncode == 126
    (desk.cwd / "odd").write_bytes(b"\x7fELF")
    (desk.cwd / "odd").chmod(0o755)
    odd = desk.run(client="./odd")
    assert odd.returncode == 126
    assert "Traceback" not in odd.stderr


def test_options_behind_the_dashes_are_the_clients(desk: Desk) -> None:
    done = desk.run("--budget", "--", "--json")
    assert done.stdout.splitlines()[1:] == ["word --budget", "word --", "word --json"]


def test_wrong_use_starts_nothing(desk: Desk) -> None:
    done = desk.run("say", "hello", options=("--state", "redis:"))
    assert done.returncode == 2
    assert done.stderr.startswith("clifftop: the proxy did not start: state redis:")
    assert done.stdout == ""
    assert "Usage" in subprocess.run(desk.argv()[:-1], capture_output=True, text=True).stderr


# Signals and the terminal


def test_ctrl_c_and_ctrl_backslash_are_the_clients_alone(desk: Desk, provider: Provider) -> None:
    argv = desk.argv(
        *("hear", "SIGINT", "hear", "SIGQUIT", "say", "ready", "line", "call", "3", "exit", "5")
    )
    environ = desk.environ(ANTHROPIC_BASE_URL=provider.url)
    with terminal(argv, environ=environ, cwd=desk.cwd) as screen:
        screen.wait_for("ready")
        before = screen.seen
        screen.type(CTRL_C)
        screen.wait_for("heard 2")
        screen.type(CTRL_BACKSLASH)
        screen.wait_for("heard 3")
        screen.type("on\r")
        screen.wait_for(r"answers \[200, 200, 200\]")
        assert "clifftop" not in before
        end = screen.rest()
    assert end.strip().startswith("clifftop: 3 calls, 0 cliffs")
    assert screen.process.returncode == 5


def test_a_client_that_ctrl_c_ends_is_summed_up(desk: Desk, provider: Provider) -> None:
    argv = desk.argv("call", "2", "sleep")
    environ = desk.environ(ANTHROPIC_BASE_URL=provider.url)
    with terminal(argv, environ=environ, cwd=desk.cwd) as screen:
        screen.wait_for("answers")
        screen.type(CTRL_C)
        assert "clifftop: 2 calls, 0 cliffs" in screen.rest()
    assert screen.process.returncode in (1, 130)  # a KeyboardInterrupt of Python's


@pytest.mark.parametrize("by", ["key", "itself"])
def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(desk: Desk, by: str) -> None:
    environ = desk.environ(PS1="PROMPT> ", TERM="dumb")
    words = ["stop"] if by == "itself" else []
    command = " ".join(desk.argv("hear", "SIGCONT", "say", "ready", *words, "line", "exit", "3"))
    shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    with terminal(shell, environ=environ, cwd=desk.cwd) as screen:
        screen.wait_for("PROMPT> ")
        screen.type(f"{command}\r")
        screen.wait_for("ready\r")
        for _ in range(2 if by == "key" else 1):
            if by == "key":
                screen.type(CTRL_Z)
            screen.wait_for("Stopped")
            screen.wait_for("PROMPT> ")
            screen.type("echo $((40 + 2))\r")
            screen.wait_for("\n42")
            screen.type("fg\r")
            screen.wait_for(f"heard {signal.SIGCONT.value}")
        screen.type("on\r")
        screen.wait_for("line on")
        screen.wait_for("clifftop: no request came through")
        screen.wait_for("PROMPT> ")
        screen.type("echo status=$?\r")
        screen.wait_for("status=3")
        screen.type("exit\r")
        screen.rest()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_to_us_is_passed_on(desk: Desk, name: str) -> None:
    process = subprocess.Popen(
        desk.argv("say", "ready", "sleep"),
        env=desk.environ(),
        cwd=desk.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.Signals[name]
    assert "no request came through" in err


# When processes die


def test_a_proxy_that_is_killed_comes_back_on_its_port(desk: Desk, provider: Provider) -> None:
    process = subprocess.Popen(
        desk.argv("call", "12", "line", "call", "12"),
        env=desk.environ(ANTHROPIC_BASE_URL=provider.url),
        cwd=desk.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdout.readline() == f"answers {[200] * 12}\n"
    os.kill(proxy_of(process.pid), signal.SIGKILL)
    out, err = process.communicate("\n", timeout=60)
    assert f"answers {[200] * 12}\n" in out
    assert process.returncode == 0
    assert "12 calls since then" in err
    assert "the proxy was restarted once" in err
    assert len(provider.got) == 24


def test_no_proxy_outlives_a_killed_run(desk: Desk) -> None:
    process = subprocess.Popen(
        desk.argv("say", "ready", "line"),
        env=desk.environ(),
        cwd=desk.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    proxy = proxy_of(process.pid)
    process.kill()
    process.communicate()
    wait_until_gone(proxy)


def test_no_proxy_outlives_its_client(desk: Desk) -> None:
    process = subprocess.Popen(
        desk.argv("say", "ready", "line"),
        env=desk.environ(),
        cwd=desk.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    proxy = proxy_of(process.pid)
    process.communicate("\n", timeout=60)
    assert not is_alive(proxy)
