"""Second processes for the tests of a shared state file: what they run, and how they are told to.

Each reads its orders from arguments and standard input and prints one line when it is ready.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMPORTS = """
import asyncio, json, os, sqlite3, sys
from pathlib import Path
from clifftop.core.block import Placement
from clifftop.memory.base import Remembered
from clifftop.memory.sqlite import open_sqlite

def remembered(cut):
    return Remembered(placement=Placement(1, cut, 0), budget_tokens=45_000, rules=b"rulesrul")
"""

HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA locking_mode = {sys.argv[2]}")
connection.execute("BEGIN EXCLUSIVE")
print("ready", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
connection.close()
"""

PUT_AND_HANG = (
    IMPORTS
    + """
async def main():
    store = open_sqlite(Path(sys.argv[1]), wait_s=10)
    for number in range(50):
        await store.put("local", b"link %d" % number, remembered(5 + number))
    print("ready", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""
)

RACE = (
    IMPORTS
    + """
async def main():
    store = open_sqlite(Path(sys.argv[1]), wait_s=10)
    print("ready", flush=True)
    sys.stdin.readline()
    ours = remembered(int(sys.argv[2]))
    winners = []
    for number in range(500):
        winner = await store.put("local", b"link %d" % number, ours)
        winners.append(winner.placement.cut)
    assert store.counts.late == 0 and store.notes == [], (store.counts, store.notes)
    await store.close()
    print(json.dumps(winners), flush=True)

asyncio.run(main())
"""
)

OPEN_NEW = (
    IMPORTS
    + """
async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    store = open_sqlite(Path(sys.argv[1]), wait_s=10)
    await store.put("local", sys.argv[2].encode(), remembered(int(sys.argv[2])))
    await store.close()
    print(json.dumps([store.notes, store.counts.late]), flush=True)

asyncio.run(main())
"""
)

OVERWRITE = """
import os, sqlite3, sys
# After another's write a connection reads its pages again, and finds those that are damaged.
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE other (x)")
descriptor = os.open(sys.argv[1], os.O_WRONLY)
for offset in range(100, os.fstat(descriptor).st_size, 64):
    os.pwrite(descriptor, os.urandom(64), offset)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def second_process(code: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run code in a process of its own, once it says that it is ready; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()
