"""A terminal with a real shell in it: keys go in, what is on the screen comes out."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"
WAIT_S = 30

TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


@dataclass(kw_only=True)
class Terminal:
    """A pseudo terminal and the process that leads its session."""

    process: subprocess.Popen[bytes]
    master: int
    seen: str = ""

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def wait_for(self, pattern: str, timeout_s: float = WAIT_S) -> re.Match[str]:
        """Wait until a pattern is on the screen behind what was waited for before."""
        end = time.monotonic() + timeout_s
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end() :]
                return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"{pattern!r} did not come; screen: {self.seen!r}")
            try:
                piece = os.read(self.master, 65_536)
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"{pattern!r} did not come before the end: {self.seen!r}")
            self.seen += piece.decode(errors="replace")

    def rest(self) -> str:
        """Read to the end, and wait for the process."""
        try:
            while piece := os.read(self.master, 65_536):
                self.seen += piece.decode(errors="replace")
        except OSError:
            pass
        self.process.wait(WAIT_S)
        return self.seen


@contextmanager
def terminal(argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path) -> Iterator[Terminal]:
    """Run a command in a terminal of its own."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, *argv],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environ,
        cwd=cwd,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process=process, master=master)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(master)
