"""A client in the foreground and its proxy beside it: processes, signals and the terminal.

The client owns the terminal: nothing is written there while it runs. What it is told is `clients`',
what is said at the end is `summary`'s.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from clifftop.errors import SettingsError

START_S = 30.0
"""How long a proxy may take to listen; a busy computer needs seconds."""

STOP_S = 8.0
STEADY_S = 30.0
"""A proxy that lived this long has not failed at its start."""

PAUSES_S = (0.0, 0.1, 0.3, 1.0, 2.0, 5.0, 5.0, 5.0)
"""Before each restart in a row; behind the last one it stays down."""

LIFELINE = {"CLIFFTOP_LIFELINE": "1"}
"""`serve` ends when its standard input does: also a killed `run` leaves no proxy behind."""

LOGS_KEPT = 30


def state_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Name the folder for what outlives a process."""
    named = Path(environ.get("XDG_STATE_HOME", ""))
    return (named if named.is_absolute() else home / ".local" / "state") / "clifftop"


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner may enter.

    Raises:
        OSError: it cannot be made, or is somebody else's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    folder.chmod(0o700)
    return folder


def private_file(path: Path) -> int:
    """Make a new file that only its owner may read; a descriptor to write it."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def forget_old_logs(folder: Path) -> None:
    """Delete all but the newest logs of runs, and what a killed run left beside them.

    Their names sort by time.
    """
    for path in sorted(folder.glob("run-*.log"))[:-LOGS_KEPT]:
        path.unlink(missing_ok=True)
        path.with_suffix(".settings.json").unlink(missing_ok=True)


class ProxyProcess:
    """A proxy as a process of its own, which is started again on its port when it dies.

    It is in a session of its own, so that no key that is pressed reaches it.
    """

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], log: int) -> None:
        self.restarts = 0
        self.has_given_up = False
        self.url = ""
        self._command = list(command)
        self._environ = {**environ, **LIFELINE}
        self._log = log
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        self._stdin, self._lifeline = os.pipe()

    @property
    def pid(self) -> int:
        """The process that listens now, or did last."""
        return self._process.pid

    def start(self) -> None:
        """Start it on a free port, and wait until it listens there.

        Raises:
            SettingsError: it does not start; why stands in its log.
        """
        out, out_end = os.pipe()
        try:
            self._process = self._popen("0", out_end)
            os.close(out_end)
            line = _first_line(out, START_S)
        finally:
            os.close(out)
        *_, self.url = line.split() or [""]
        if not self.url.startswith("http://"):
            self.stop()
            raise SettingsError("the proxy did not start")
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._stopping.set()
        with self._lock:
            process = self._process
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._watcher is not None:
            self._watcher.join(STOP_S)
        for descriptor in (self._stdin, self._lifeline):
            os.close(descriptor)

    def ask(self, path: str, *, timeout_s: float = 3) -> dict[str, object] | None:
        """Get one of the proxy's own JSON answers; None where there is none."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            value = json.loads(answer.read()) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()
        return value if isinstance(value, dict) else None

    def _popen(self, port: str, stdout: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._command, "--port", port],
            env=self._environ,
            stdin=self._stdin,
            stdout=stdout,
            stderr=self._log,
            start_new_session=True,
        )

    def _watch(self) -> None:
        failures, port = 0, str(urlsplit(self.url).port)
        while True:
            began = time.monotonic()
            self._process.wait()
            if time.monotonic() - began > STEADY_S:
                failures = 0
            if failures == len(PAUSES_S):
                self.has_given_up = True
                return
            if self._stopping.wait(PAUSES_S[failures]):
                return
            failures += 1
            with self._lock:
                if self._stopping.is_set():
                    return
                self._process = self._popen(port, self._log)
            self.restarts += 1


def run_client(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a client in the foreground until it ends; its exit status, 128 + n for signal n.

    Ctrl-C, Ctrl-\\ and Ctrl-Z are the client's. When it stops we stop too, so that the shell takes
    the terminal back, and it goes on when we do. SIGTERM and SIGHUP to us are passed on to it.

    Raises:
        OSError: the command cannot be started.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def leave_alone(_number: int, _frame: FrameType | None) -> None:
        """Do nothing. Unlike an ignored signal this is not inherited by the client."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif process.returncode is None:
            os.kill(process.pid, number)

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        signal.SIGINT: leave_alone,
        signal.SIGQUIT: leave_alone,
        signal.SIGTSTP: leave_alone,
        signal.SIGTERM: pass_on,
        signal.SIGHUP: pass_on,
    }
    with _handled(handlers):
        process = subprocess.Popen(argv, env=environ)
        for number in early:
            os.kill(process.pid, number)
        status = _wait(process.pid)
        process.returncode = status
    return status if status >= 0 else 128 - status


def _wait(pid: int) -> int:
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if _has_terminal():
            _stop_here()
            os.kill(pid, signal.SIGCONT)


def _has_terminal() -> bool:
    """Is there a shell that could let us go on? Without one, who stopped the client wakes it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _stop_here() -> None:
    """Stop this process until it is continued.

    SIGTSTP and not SIGSTOP: the kernel drops it where no shell is left that could continue us.
    """
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


@contextmanager
def _handled(handlers: Mapping[int, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Handle signals, except those that we were started to ignore (nohup)."""
    before = {number: signal.getsignal(number) for number in handlers}
    try:
        for number, handler in handlers.items():
            if before[number] != signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            with suppress(TypeError):  # a handler that was not set from Python
                signal.signal(number, old)


def _first_line(descriptor: int, timeout_s: float) -> str:
    """Read a line; what there is of it when the writer ends or time is up."""
    read, end = b"", time.monotonic() + timeout_s
    while not read.endswith(b"\n"):
        left = max(0.0, end - time.monotonic())
        if not select.select([descriptor], [], [], left)[0]:
            break
        piece = os.read(descriptor, 4_096)
        if not piece:
            break
        read += piece
    return read.decode(errors="replace")
