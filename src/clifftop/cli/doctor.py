"""`clifftop doctor`: what is here, what would be used, and what is wrong with it.

Nothing is changed, and nothing is sent anywhere. `--online` opens a connection to each upstream and
closes it again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from clifftop import __version__
from clifftop.errors import SettingsError
from clifftop.proxy.clients import (
    BASE_URL,
    ENVIRONMENT,
    PROXY_VARIABLES,
    VENDOR,
    Place,
    obstacles,
    setting_of,
    upstream_of,
)
from clifftop.proxy.launch import state_folder

CLIENTS = ("claude", "codex", "opencode", "pi", "qwen")
"""Agents that are looked for; `run` knows how to set up the first."""

EXTRAS = {"speed": "uvloop"}
VERSION_S, CONNECT_S = 15, 10
FIXED_TOKENS = {"claude": (12_500, 22_000)}
"""The first request of a session, measured with 2.1.332: 5.x models, 4.x models."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found. `problems` are wrong, `notes` are good to know."""

    clifftop: str = __version__
    python: str = field(default_factory=platform.python_version)
    sqlite: str = sqlite3.sqlite_version
    extras: dict[str, bool] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    clients: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@click.command("doctor")
@click.option("--online", is_flag=True, help="Also connect to the upstreams (nothing is sent).")
@click.option("--json", "as_json", is_flag=True, help="Write the report to stdout as JSON.")
def command(online: bool, as_json: bool) -> None:
    """Say what is installed, which agents were found, and what is misconfigured.

    Exit code 1 if something is wrong.
    """
    place = Place(environ=os.environ, home=Path.home(), cwd=Path.cwd())
    report = examine(place, is_online=online)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        click.echo("\n".join(lines_of(report)))
    sys.exit(1 if report.problems else 0)


def examine(place: Place, *, is_online: bool) -> Report:
    """Look at everything."""
    report = Report(extras={name: find_spec(module) is not None for name, module in EXTRAS.items()})
    _look_at_state(report, place)
    for name in CLIENTS:
        path = shutil.which(name, path=place.environ.get("PATH"))
        if path is not None:
            report.clients.append({"name": name, "path": path, "version": version_of(path)})
    _look_at_claude(report, place)
    if is_online:
        _connect(report, place)
    return report


def lines_of(report: Report) -> list[str]:
    """Write a report for people."""
    extras = ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in report.extras.items())
    lines = [
        f"clifftop {report.clifftop}, Python {report.python}, SQLite {report.sqlite}",
        f"extras: {extras}",
        f"state: {report.state['folder']}"
        f" ({'writable' if report.state['is_writable'] else 'not writable'})",
    ]
    for client in report.clients:
        lines.append(f"{client['name']}: {client['version'] or 'no version'} at {client['path']}")
        if "upstream" in client:
            lines.append(f"  upstream {client['upstream']} (from {client['source']})")
        if "answers" in client:
            lines.append(f"  upstream {client['answers']}")
        if "budget" in client:
            lines.append(f"  {client['budget']}")
        if "upstream" not in client:
            lines.append("  `clifftop run` does not set it up yet")
    if not report.clients:
        lines.append(f"agents: none found on PATH (looked for {', '.join(CLIENTS)})")
    lines += [f"note: {note}" for note in report.notes]
    lines += [f"problem: {problem}" for problem in report.problems] or ["no problems found"]
    return lines


def version_of(path: str) -> str | None:
    """Ask a command for its version; None where it does not say one in time."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_S,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.decode(errors="replace").split("\n")[0].strip()
    return words[:80] if done.returncode == 0 and words else None


def _look_at_state(report: Report, place: Place) -> None:
    folder = state_folder(place.environ, place.home)
    at = next(at for at in (folder, *folder.parents) if at.exists())
    is_writable = at.is_dir() and os.access(at, os.W_OK | os.X_OK)
    report.state = {"folder": str(folder), "is_writable": is_writable}
    if not is_writable:
        report.problems.append(f"{at} is not writable: logs of runs go to a temporary folder")
    elif at == folder and folder.stat().st_mode & 0o077:
        report.notes.append(f"{folder} can be entered by others; `run` will close it")


def _look_at_claude(report: Report, place: Place) -> None:
    argv = ("claude",)
    found = next((client for client in report.clients if client["name"] == "claude"), {})
    upstream, source = VENDOR, "default"
    try:
        named = upstream_of(argv, place)
        if named is not None:
            upstream, source = named.value, named.source
    except SettingsError as error:
        report.problems.append(str(error))
    low, high = FIXED_TOKENS["claude"]
    found |= {
        "upstream": upstream,
        "source": source,
        "budget": f"smallest sensible budget about {2 * low // 1000}k ({2 * high // 1000}k with"
        " 4.x models); 45k is the default, MCP servers add to it",
    }
    if source not in ("default", ENVIRONMENT):
        report.notes.append(
            f"{source} sets {BASE_URL}; it beats the environment, so exporting {BASE_URL} does"
            " nothing for claude. `clifftop run -- claude` wins over it and uses it as upstream"
        )
    elif source == ENVIRONMENT and _is_loopback(upstream):
        report.notes.append(f"{BASE_URL} points at this computer: {upstream}")
    report.problems += obstacles(argv, place)
    _look_at_credentials(report, place)
    _look_at_ways(report, place, upstream)


def _look_at_credentials(report: Report, place: Place) -> None:
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    both = {name: setting_of(name, ("claude",), place) for name in names}
    given = {name: found for name, found in both.items() if found is not None and found.value}
    if len(given) == 2:
        where = " and ".join(f"{name} ({found.source})" for name, found in given.items())
        report.problems.append(f"both are set: {where}; claude sends two credentials, keep one")


def _look_at_ways(report: Report, place: Place, upstream: str) -> None:
    """Look at what lies between us and the upstream."""
    parts = urlsplit(upstream)
    if parts.scheme == "http" and not _is_loopback(upstream):
        report.problems.append(
            f"upstream {parts.scheme}://{parts.netloc} is not encrypted and not on this computer:"
            " keys and code travel in the clear"
        )
    set_ones = [name for name in PROXY_VARIABLES[:4] if setting_of(name, ("claude",), place)]
    if set_ones:
        report.notes.append(
            f"{', '.join(set_ones)}: `run` keeps the way from claude to clifftop off that proxy,"
            " and reaches the upstream through it"
        )
    environ = place.environ
    if setting_of("NODE_EXTRA_CA_CERTS", ("claude",), place) and "SSL_CERT_FILE" not in environ:
        report.problems.append(
            "NODE_EXTRA_CA_CERTS is read by Node only: if the upstream or the proxy to it needs"
            " that certificate, set SSL_CERT_FILE to a bundle that holds it too"
        )
    if setting_of("CLAUDE_CODE_CLIENT_CERT", ("claude",), place):
        report.problems.append("CLAUDE_CODE_CLIENT_CERT: clifftop sends no client certificates")


def _connect(report: Report, place: Place) -> None:
    for client in report.clients:
        if "upstream" not in client:
            continue
        said = reach(client["upstream"], place.environ)
        client["answers"] = said or "answers"
        if said:
            report.problems.append(f"upstream {client['upstream']} {said}")


def reach(url: str, environ: Mapping[str, str]) -> str | None:
    """Open and close a connection, with TLS where the URL says so; what failed, else None.

    It goes directly: with an outbound proxy in the environment, only the proxy's host is tried.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    by = environ.get(f"{parts.scheme}_proxy") or environ.get(f"{parts.scheme.upper()}_PROXY")
    if by and not _is_loopback(url):
        parts, is_tls = urlsplit(by), False
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    try:
        with socket.create_connection((host, port), CONNECT_S) as plain:
            if is_tls:
                context = ssl.create_default_context()
                with context.wrap_socket(plain, server_hostname=host):
                    pass
    except (OSError, ValueError) as error:
        return f"does not answer at {host}:{port} ({type(error).__name__})"
    return None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
