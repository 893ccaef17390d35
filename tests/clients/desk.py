"""A throw-away place for a real client: home, repository, environment, and `clifftop run` in it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clifftop

RUN_S = 400
PACKAGES = Path(clifftop.__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run that has ended."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One user's computer, as far as a client sees it."""

    root: Path
    claude: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def state(self) -> Path:
        return self.root / "state" / "clifftop"

    def set_up(self, *, files: int, file_chars: int) -> None:
        """Make home and repository; the files' text repeats nowhere."""
        (self.home / ".claude").mkdir(parents=True)
        data = self.repository / "data"
        data.mkdir(parents=True)
        for number in range(1, files + 1):
            noise = random.Random(number)
            lines = [f"{number:03d} {noise.getrandbits(256):064x}" for _ in range(file_chars // 69)]
            (data / f"{number:03d}.txt").write_text("\n".join(lines) + "\n")
        subprocess.run(["git", "init", "-q", str(self.repository)], check=True)

    def write_settings(self, path: str, **settings: Any) -> None:
        """Write a settings file of the client, below home or repository."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(settings))

    def skip_first_questions(self) -> None:
        """Answer what the client asks on its first start on a terminal."""
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "bypassPermissionsModeAccepted": True,
            "projects": {str(self.repository): trusted},
        }
        (self.home / ".claude.json").write_text(json.dumps(known))
        self.write_settings("home/.claude/settings.json", skipDangerousModePermissionPrompt=True)

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PACKAGES),
            "XDG_STATE_HOME": str(self.root / "state"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "IS_SANDBOX": "1",  # as root the client refuses to skip permissions without it
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **more,
        }

    def argv(self, *arguments: str, budget: str, options: tuple[str, ...] = ()) -> list[str]:
        run = [sys.executable, "-P", "-m", "clifftop", "run", "--budget", budget, *options]
        return [*run, "--", str(self.claude), "--dangerously-skip-permissions", *arguments]

    async def run(
        self, *arguments: str, budget: str = "32k", options: tuple[str, ...] = (), **environ: str
    ) -> Ended:
        """Run the client in print mode on a 5.x model."""
        process = await asyncio.create_subprocess_exec(
            *self.argv("--model", "claude-opus-5-5", *arguments, budget=budget, options=options),
            cwd=self.repository,
            env=self.environ(ANTHROPIC_API_KEY="sk-ant-dummy", **environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), RUN_S)
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        assert process.returncode is not None
        return Ended(status=process.returncode, stdout=out.decode(), stderr=err.decode())

    def result_chars(self) -> int:
        """Count the characters of all tool results in the client's own transcripts."""
        total = 0
        for path in self.home.glob(".claude/projects/*/*.jsonl"):
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                content = entry.get("message", {}).get("content")
                if entry.get("type") != "user" or not isinstance(content, list):
                    continue
                for block in content:
                    if block.get("type") == "tool_result":
                        total += len(str(block.get("content")))
        return total
