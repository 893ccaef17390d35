"""Long sessions written by hand: one shape each, no randomness. For claims with figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

READ = {
    "name": "Read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
}
TASK: Message = {"role": "user", "content": "Please refactor the ingestion pipeline."}


def tool_turn(number: int, result_chars: int) -> list[Message]:
    """One call and its result."""
    lines = (
        f"{number * 7919 + n * 104729:016x} line {n} of file_{number}.py" for n in range(99_999)
    )
    text = ""
    while len(text) < result_chars:
        text += next(lines) + "\n"
    call = {
        "type": "tool_use",
        "id": f"toolu_{number:05d}",
        "name": "Read",
        "input": {"file_path": f"/workspace/file_{number}.py"},
    }
    said = {"type": "text", "text": f"Step {number}: reading file_{number}.py."}
    result = {
        "type": "tool_result",
        "tool_use_id": f"toolu_{number:05d}",
        "content": text[:result_chars],
    }
    return [{"role": "assistant", "content": [said, call]}, {"role": "user", "content": [result]}]


def body_of(messages: list[Message], tools: tuple[Message, ...] = (READ,)) -> bytes:
    """The request that ends with these messages."""
    fields = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1_000,
        "system": "You are a coding agent.",
        "tools": list(tools),
        "messages": messages,
        "stream": True,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def directives(count: int) -> list[str]:
    """Orders that a person might type, each unlike the others."""
    topics = ("migrations", "public API", "test data", "log format", "release notes")
    return [
        f"Order {n}: from now on never touch the {topics[n % 5]} of module_{n * 37 % 101} again."
        for n in range(count)
    ]


def session_with_directives(
    orders: list[str], *, turns_between: int, chars: int, turns_after: int = 5
) -> Iterator[bytes]:
    """Requests of a session in which a person speaks between stretches of tool turns."""
    messages, number = [TASK], 0
    for order in orders:
        for _ in range(turns_between):
            messages += tool_turn(number, chars)
            number += 1
            yield body_of(messages)
        done = {
            "role": "assistant",
            "content": [{"type": "text", "text": f"Part {number} is done."}],
        }
        messages += [done, {"role": "user", "content": order}]
        yield body_of(messages)
        noted = {"role": "assistant", "content": [{"type": "text", "text": "Noted."}]}
        messages += [noted, {"role": "user", "content": "Go on."}]
    for _ in range(turns_after):
        messages += tool_turn(number, chars)
        number += 1
        yield body_of(messages)
