"""Real agents from npm, pinned, in a throw-away folder that is kept between runs.

CLIFFTOP_CLIENTS_DIR names the folder; without it a temporary one is used. Install scripts do not
run. `python -m tests.clients.install` installs and prints the command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.332"
INSTALL_S = 600


class Unavailable(Exception):
    """Why a client cannot be had here."""


def claude_code() -> Path:
    """Give the native command of Claude Code, installed first if need be.

    With scripts off, `.bin/claude` is a stub: the platform's own package holds the program.
    """
    return installed(CLAUDE_CODE, "node_modules/@anthropic-ai/claude-code-*/claude")


def installed(package: str, command: str) -> Path:
    named = os.environ.get("CLIFFTOP_CLIENTS_DIR")
    root = Path(named) if named else Path(tempfile.gettempdir(), f"clifftop-clients-{os.getuid()}")
    folder = root / package.replace("/", "+")
    found = next(folder.glob(command), None)
    return found or _install(package, command, folder)


def _install(package: str, command: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            [npm, "install", *flags, package],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm install {package} took over {INSTALL_S} s") from None
    found = next(folder.glob(command), None)
    if done.returncode != 0 or found is None:
        last = (done.stderr.strip().splitlines() or ["no command for this platform"])[-1]
        raise Unavailable(f"npm install {package}: {last}")
    return found


if __name__ == "__main__":
    print(claude_code())
