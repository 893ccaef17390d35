"""What a step of the demo's session is, and the pen that writes one after the other.

No story (that is `scenes`), no HTTP, no clock, no budget.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from clifftop.demo.project import Project

Json = dict[str, Any]
"""One JSON object of the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of the provider (`assistant`: content blocks) and the user content behind it.

    `user` is a list of results, a person's text, or None after the last step.
    """

    assistant: list[Json]
    user: list[Json] | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call with its result: text, or blocks for an image."""

    name: str
    input: Json
    result: str | list[Json]
    failed: bool = False


@dataclass(slots=True, kw_only=True)
class Script:
    """The steps so far, and the project as they left it."""

    random: Random
    project: Project
    steps: list[Step] = field(default_factory=list)

    def act(self, text: str, calls: Sequence[Call], *, thought: str = "") -> None:
        """Add a step that calls tools; the results come back in one user item."""
        number = len(self.steps)
        ids = [f"toolu_{number:04d}_{k}" for k in range(len(calls))]
        blocks = self._spoken(text, thought)
        results: list[Json] = []
        for name, call in zip(ids, calls, strict=True):
            blocks.append({"type": "tool_use", "id": name, "name": call.name, "input": call.input})
            result: Json = {"tool_use_id": name, "type": "tool_result", "content": call.result}
            if call.failed or call.name == "Bash":
                result["is_error"] = call.failed
            results.append(result)
        self.steps.append(Step(assistant=blocks, user=results))

    def say(self, text: str, *, then: str | None, thought: str = "") -> None:
        """Add a step without calls; a person answers it, or nobody."""
        self.steps.append(Step(assistant=self._spoken(text, thought), user=then))

    def _spoken(self, text: str, thought: str) -> list[Json]:
        blocks: list[Json] = []
        if thought:
            signature = base64.b64encode(self.random.randbytes(120)).decode()
            blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
        if text:
            blocks.append({"type": "text", "text": text})
        return blocks


def bash(command: str, description: str, result: str, *, failed: bool = False) -> Call:
    """Run a command."""
    return Call(
        name="Bash",
        input={"command": command, "description": description},
        result=result,
        failed=failed,
    )


def todo(done: list[str], left: list[str]) -> Call:
    """Write the list of tasks, one a module."""
    todos = [{"content": f"Convert {name} to Money", "status": "completed"} for name in done]
    todos += [
        {"content": f"Convert {name} to Money", "status": "pending" if number else "in_progress"}
        for number, name in enumerate(left)
    ]
    return Call(name="TodoWrite", input={"todos": todos}, result="The list has been updated.")
