"""A screen that a terminal program can be watched on: tmux, on a server of its own."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

WAIT_S = 90


@dataclass(frozen=True, kw_only=True)
class Screen:
    """A window of 160 x 50 characters; `text` holds what scrolled out of it too."""

    server: str

    async def text(self) -> str:
        return await asyncio.to_thread(self._tmux, "capture-pane", "-p", "-J", "-S", "-")

    async def type(self, text: str) -> None:
        await asyncio.to_thread(self._tmux, "send-keys", "-l", text)
        await asyncio.sleep(0.5)
        await self.press("Enter")

    async def press(self, key: str) -> None:
        await asyncio.to_thread(self._tmux, "send-keys", key)

    async def wait_for(self, pattern: str, timeout_s: float = WAIT_S) -> str:
        """Wait until a pattern is on the screen; all that is there then."""
        end = time.monotonic() + timeout_s
        while True:
            text = await self.text()
            if re.search(pattern, text):
                return text
            assert time.monotonic() < end, f"{pattern!r} did not come:\n{text.rstrip()}"
            await asyncio.sleep(0.25)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.server, *words], capture_output=True, text=True, check=True
        )
        return done.stdout


@asynccontextmanager
async def screen(
    argv: Sequence[str], *, environ: Mapping[str, str], cwd: Path, server: str
) -> AsyncIterator[Screen]:
    """Show a command; the screen stays when it has ended."""
    start = ["new-session", "-d", "-x", "160", "-y", "50", *argv]
    options = ["set-option", "-g", "remain-on-exit", "on", ";"]
    subprocess.run(
        ["tmux", "-L", server, "-f", "/dev/null", "start-server", ";", *options, *start],
        env=environ,
        cwd=cwd,
        check=True,
    )
    try:
        yield Screen(server=server)
    finally:
        subprocess.run(["tmux", "-L", server, "kill-server"], capture_output=True, check=False)
