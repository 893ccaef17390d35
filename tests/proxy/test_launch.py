"""The proxy as a process: restarts, its end, and the files around it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clifftop.errors import SettingsError
from clifftop.proxy import launch
from clifftop.proxy.launch import (
    ProxyProcess,
    forget_old_logs,
    private_file,
    private_folder,
    state_folder,
)
from clifftop.proxy.summary import SUMMARY_PATH

SERVE = [sys.executable, "-m", "clifftop", "serve"]
HEALTH = "/_clifftop/health"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ProxyProcess]:
    log = private_file(tmp_path / "log")
    process = ProxyProcess(SERVE, environ=os.environ, log=log)
    process.start()
    try:
        yield process
    finally:
        process.stop()
        os.close(log)


def answer_of(proxy: ProxyProcess, path: str) -> dict[str, object]:
    for _ in range(200):
        answer = proxy.ask(path)
        if answer is not None:
            return answer
        time.sleep(0.05)
    raise AssertionError("no answer")


def test_it_listens_when_start_returns_and_its_port_is_free_behind_stop(tmp_path: Path) -> None:
    log = private_file(tmp_path / "log")
    proxy = ProxyProcess(SERVE, environ=os.environ, log=log)
    proxy.start()
    assert proxy.ask(HEALTH) is not None
    assert proxy.ask(SUMMARY_PATH) is not None
    assert proxy.ask("/_clifftop/nothing") is None
    assert os.getsid(proxy.pid) == proxy.pid != os.getsid(0)
    proxy.stop()
    assert proxy.ask(HEALTH) is None
    assert (proxy.restarts, proxy.has_given_up) == (0, False)
    os.close(log)


def test_killed_again_and_again_it_comes_back_at_the_same_address(proxy: ProxyProcess) -> None:
    url = proxy.url
    for times in (1, 2, 3):
        old = proxy.pid
        os.kill(old, signal.SIGKILL)
        while proxy.pid == old:
            time.sleep(0.01)
        answer_of(proxy, HEALTH)
        assert (proxy.url, proxy.restarts) == (url, times)


def test_a_proxy_that_cannot_live_is_left_alone_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "PAUSES_S", (0.0, 0.01, 0.01))
    log = private_file(tmp_path / "log")
    once = f"echo x listening on http://127.0.0.1:1; echo >> {tmp_path / 'starts'}; exit 1; "
    proxy = ProxyProcess(["sh", "-c", once], environ=os.environ, log=log)
    proxy.start()
    for _ in range(500):
        if proxy.has_given_up:
            break
        time.sleep(0.01)
    assert (proxy.has_given_up, proxy.restarts) == (True, 3)
    proxy.stop()
    assert (tmp_path / "starts").read_text() == "\n" * 4
    os.close(log)


def test_one_that_does_not_start_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = private_file(tmp_path / "log")
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    proxy = ProxyProcess([*SERVE, "--state", "redis:"], environ=os.environ, log=log)
    with pytest.raises(SettingsError, match="did not start"):
        proxy.start()
    assert "redis:" in (tmp_path / "log").read_text()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    os.close(log)


def test_it_ends_when_whoever_started_it_is_gone() -> None:
    process = subprocess.Popen(
        [*SERVE, "--port", "0"],
        env={**os.environ, **launch.LIFELINE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(30) == 0


def test_the_state_folder_follows_xdg_when_that_is_absolute(tmp_path: Path) -> None:
    default = tmp_path / ".local" / "state" / "clifftop"
    assert state_folder({}, tmp_path) == default
    assert state_folder({"XDG_STATE_HOME": "relative"}, tmp_path) == default
    assert state_folder({"XDG_STATE_HOME": "/x"}, tmp_path) == Path("/x/clifftop")


def test_private_means_owner_only_and_no_link_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700
    os.close(private_file(folder / "file"))
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o600
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            private_file(folder / name)
    assert not (tmp_path / "elsewhere").exists()


def test_the_newest_logs_are_kept(tmp_path: Path) -> None:
    for day in range(10, 10 + launch.LOGS_KEPT + 5):
        (tmp_path / f"run-202601{day}-000000-aaaaaa.log").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "run-20260110-000000-aaaaaa.settings.json").touch()
    forget_old_logs(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == launch.LOGS_KEPT + 1
    assert left[:2] == ["notes.txt", "run-20260115-000000-aaaaaa.log"]
