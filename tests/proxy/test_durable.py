"""What a stream was cut at outlives the process: real `clifftop serve` processes, real files."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from aiohttp import ClientSession

from tests.long_sessions import TASK, body_of, tool_turn
from tests.promises import items_of
from tests.proxy.scripted import Upstream, a_client, serving
from tests.proxy.test_app import BUDGET


@asynccontextmanager
async def served(
    upstream: str, state: Path
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A proxy process on a free port over one state file; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clifftop", "serve", "--port", "0", "--budget", str(BUDGET)),
        *("--anthropic-upstream", upstream, "--state", f"sqlite://{state}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[-1], process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def send(client: ClientSession, url: str, body: bytes) -> None:
    async with client.post(url + "/v1/messages", data=body) as answer:
        assert answer.status == 200
        await answer.read()


def bodies(turns: int) -> list[bytes]:
    """Requests of a growing session."""
    messages, requests = [TASK], []
    for number in range(turns):
        messages = [*messages, *tool_turn(number, 2_000)]
        requests.append(body_of(messages))
    return requests


def broken_prefixes(upstream: Upstream) -> int:
    """How many outgoing requests do not extend the one before."""
    items = [items_of(body) for body in upstream.bodies]
    return sum(later[: len(earlier)] != earlier for earlier, later in pairwise(items))


async def test_a_killed_proxy_goes_on_where_it_was(tmp_path: Path) -> None:
    upstream, requests = Upstream(), bodies(40)
    async with serving(upstream.handle) as url, a_client() as client:
        for start in range(0, 40, 8):
            async with served(url, tmp_path / "s" / "state.db") as (proxy, process):
                for body in requests[start : start + 8]:
                    await send(client, proxy, body)
                process.send_signal(signal.SIGKILL)
    with_one_process = Upstream()
    async with (
        serving(with_one_process.handle) as url,
        a_client() as client,
        served(url, tmp_path / "t" / "state.db") as (proxy, _),
    ):
        for body in requests:
            await send(client, proxy, body)
    assert upstream.bodies == with_one_process.bodies
    assert 3 <= broken_prefixes(upstream) <= 8


async def test_two_processes_on_one_file_send_one_prefix(tmp_path: Path) -> None:
    upstream, state = Upstream(), tmp_path / "s" / "state.db"
    async with (
        serving(upstream.handle) as url,
        a_client() as client,
        served(url, state) as (one, _),
        served(url, state) as (other, _),
    ):
        for number, body in enumerate(bodies(40)):
            await send(client, (one, other)[number % 2], body)
    assert 3 <= broken_prefixes(upstream) <= 8
