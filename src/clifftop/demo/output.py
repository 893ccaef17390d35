"""What the demo project's commands print: test runs, linters, logs, tables, one screenshot.

Only text (and one PNG) made from a seeded `Random` and the project; nothing here runs a command.
"""

from __future__ import annotations

import base64
import struct
import zlib
from random import Random

from clifftop.demo.project import check_path, source_path

SCREENSHOT_PX = (1_456, 816)


def pytest_verbose(random: Random, module: str, names: list[str]) -> str:
    """Print a green `pytest -v` run of one module."""
    head = [
        "============================= test session starts ==============================",
        "platform linux -- Python 3.12.7, pytest-9.0.1, pluggy-1.6.0",
        "rootdir: /home/mara/quayside\nconfigfile: pyproject.toml",
        f"collected {2 * len(names)} items\n",
    ]
    cases = [(name, k) for name in names for k in (0, 1)]
    for i, (name, k) in enumerate(cases, 1):
        case = f"{name}_nights[{k + 1}-{random.randrange(100, 9_999) / 10}]"
        head.append(f"tests/test_{module}.py::test_{case} PASSED [{100 * i // len(cases):>3}%]")
    seconds = random.randrange(40, 900) / 100
    head.append(
        f"\n============================== {len(cases)} passed in {seconds:.2f}s "
        "=============================="
    )
    return "\n".join(head)


def pytest_failure(random: Random, module: str, name: str, source: str) -> str:
    """Print a failing run: long, with the line that matters at its very end."""
    want, got = random.randrange(10_000, 99_999), random.randrange(1, 9)
    body = "\n".join("    " + line for line in source.split("\n"))
    stack = "\n".join(
        f"src/quayside/{where}.py:{random.randrange(20, 300)}: in {what}\n    {what}(ctx, *args, "
        "**options)"
        for where, what in (("api", "post_booking"), ("scheduler", "confirm"), (module, name))
    )
    return (
        "Exit code 1\n=================================== FAILURES "
        "===================================\n"
        f"____________________________ test_{name}_nights[2] ____________________________\n\n"
        f"{stack}\n\n{body}\n"
        "----------------------------- Captured log call -----------------------------\n"
        + _log_lines(random, 6)
        + f"\n=========================== short test summary info ===========================\n"
        f"FAILED tests/test_{module}.py::test_{name}_nights[2] - AssertionError: "
        f"{want / 100:.2f} != {(want + got) / 100:.2f} (off by {got} cents)"
    )


def pytest_quiet(random: Random, count: int) -> str:
    """Print a green quiet run."""
    return "." * count + f"\n{count} passed in {random.randrange(30, 500) / 100:.2f}s"


def type_errors(random: Random, module: str, names: list[str]) -> str:
    """Print what the type checker says about a half-done change."""
    path = source_path(module).removeprefix("/home/mara/quayside/")
    kinds = (
        'Argument 1 to "to_cents" has incompatible type "float"; expected "Money"  [arg-type]',
        'Incompatible return value type (got "float", expected "Money")  [return-value]',
        'Unsupported operand types for * ("Money" and "float")  [operator]',
        'List item 0 has incompatible type "float"; expected "Money"  [list-item]',
    )
    lines = [f"{path}:{random.randrange(20, 330)}: error: {random.choice(kinds)}" for _ in names]
    callers = ("api", "reports", "invoices", "scheduler")
    lines += [
        f"src/quayside/{random.choice(callers)}.py:{random.randrange(10, 300)}: note: "
        f'"{name}" is called here with float'
        for name in names
    ]
    return "\n".join(lines) + f"\nFound {len(names)} errors in 1 file (checked 31 source files)"


def server_log(random: Random, count: int) -> str:
    """Print lines of the service's log."""
    return _log_lines(random, count)


def ledger_rows(random: Random, count: int) -> str:
    """Print a query's result: invoices whose parts do not sum to their total."""
    head = "invoice     booked      berth   parts      total      drift\n" + "-" * 58
    rows = []
    for _ in range(count):
        total, drift = random.randrange(5_000, 99_999), random.choice((-2, -1, 1, 2))
        rows.append(
            f"Q-{random.randrange(10_000, 99_999)}     "
            f"2026-0{random.randrange(1, 10)}-{random.randrange(10, 29)}  "
            f"{random.choice('ABCD')}{random.randrange(10, 60)}     {(total + drift) / 100:<9.2f} "
            f" {total / 100:<9.2f}  {drift / 100:+.2f}"
        )
    return "\n".join([head, *rows, f"({count} rows)"])


def git_log(random: Random, count: int) -> str:
    """Print one line a commit."""
    subjects = (
        "invoices: print the tax line",
        "tides: read the new gauge",
        "api: page the booking list",
        "fuel: quote in litres",
        "notify: retry once – the gateway drops the first",
        "ledger: index by day",
    )
    return "\n".join(
        f"{random.getrandbits(28):07x} {random.choice(subjects)}" for _ in range(count)
    )


def file_list(modules: list[str]) -> str:
    """Print the paths that a Glob call finds."""
    return "\n".join(
        path for module in modules for path in (source_path(module), check_path(module))
    )


def page_about_rounding() -> str:
    """Give the text of a fetched page: how the harbour office rounds."""
    rules = (
        "Amounts are carried with four decimals until the invoice is printed.",
        "Rounding happens once, half up, on the total of a document; never on its lines.",
        "When a document is split, every part is rounded down and the first part takes the "
        "remainder.",
        "Credits repeat the rounding of the document that they reverse, digit for digit.",
        "A deposit is an amount of its own and is never scaled by a season.",
        "Exchange rates come with six decimals and are applied before the surcharge.",
    )
    parts = [f"## {i}. {rule}\n\n" + _why(i) for i, rule in enumerate(rules, 1)]
    return "# Harbour office: rules for amounts\n\n" + "\n\n".join(parts)


def screenshot_png() -> str:
    """Draw a printed invoice as a 1-bit PNG; base64."""
    width, height = SCREENSHOT_PX
    rows = bytearray()
    for y in range(height):
        inked = y % 34 in (0, 1) or (y % 34 in range(12, 22) and (y // 34) % 5)
        rows += (
            b"\0" + (b"\xff\x0f\xe1\x87" * 46)[: width // 8]
            if inked
            else b"\0" + b"\xff" * (width // 8)
        )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(rows), 9)),
        (b"IEND", b""),
    )
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return base64.b64encode(png).decode()


def _log_lines(random: Random, count: int) -> str:
    lines: list[str] = []
    second = random.randrange(3_600)
    for _ in range(count):
        second += random.randrange(1, 9)
        stamp = f"2026-05-11T0{second // 3600 % 10}:{second // 60 % 60:02}:{second % 60:02}Z"
        request, status = (
            f"{random.getrandbits(32):08x}",
            random.choice((200, 200, 200, 201, 409, 422)),
        )
        route = random.choice(
            ("/v2/bookings", "/v2/invoices/split", "/v2/berths/free", "/v2/tides/next")
        )
        took = random.randrange(3, 900)
        lines.append(
            f"{stamp} INFO  quayside.api request={request} route={route} status={status} ms={took}"
        )
        if status == 422:
            lines.append(
                f"{stamp} WARN  quayside.invoices request={request} parts differ from total by 0.01"
            )
    return "\n".join(lines)


def _why(rule: int) -> str:
    reasons = (
        "The accounts are closed by a batch that adds lines in no fixed order, so each line must "
        "carry more than it shows.",
        "Boat owners compare the document with their bank statement; one cent off is a call to "
        "the office.",
        "The office tried to round parts by themselves in 2019 and spent a spring looking for "
        "eleven euros.",
    )
    return " ".join(reasons[(rule + i) % 3] for i in range(3))
