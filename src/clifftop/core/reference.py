"""The authors' own layout, kept apart so that the rest reads without it.

Renders a block as their package 0.1.0 does: same header, same parts, same separators, no
placeholder for what was dropped. For differential tests and for people who migrate. Nothing else
may live here.

Source: `cliffcompaction` 0.1.0 from PyPI (MIT), its behaviour only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from clifftop.core.profile import Caps
from clifftop.core.turns import Call, Item, Note, Result, Said, Thought, Typed

HEADER = "The following is a summary of your previous actions (long observations omitted):"
SEPARATOR = "\n\n---\n\n"
PERSON_CHARS = 20_000
TASK_NOTIFICATION = re.compile(r"<task-notification>.*?</task-notification>\s*", re.DOTALL)


def block(items: Sequence[Item], *, caps: Caps) -> str:
    """Render items as one text: one part per assistant step, result and text of a user."""
    parts = [part for item in items for part in parts_of(item, caps)]
    return f"{HEADER}\n\n{SEPARATOR.join(parts)}" if parts else HEADER


def parts_of(item: Item, caps: Caps) -> list[str]:
    """Give the parts of one item."""
    if item.role == "assistant":
        lines = _joined("thinking", [p.text for p in item.parts if isinstance(p, Thought)], caps)
        lines += _joined("assistant", [p.text for p in item.parts if isinstance(p, Said)], caps)
        lines += [_call(p, caps) for p in item.parts if isinstance(p, Call)]
        return ["\n".join(lines)] if lines else []
    if item.role == "system":
        text = "\n".join(p.text for p in item.parts if isinstance(p, Note)).strip()
        return [f"system: {cut(text, PERSON_CHARS)}"] if text else []
    parts = []
    for part in item.parts:
        match part:
            case Result(call_id="", text=text) | Typed(text=text) | Note(text=text):
                text = TASK_NOTIFICATION.sub("", text).strip()
                if text:
                    parts.append(f"user: {cut(text, PERSON_CHARS)}")
            case Result(text=text):
                text = text.strip()
                if text and len(text) <= (caps.result_chars or 0):
                    parts.append(f"result: {text}")
            case _:
                pass
    return parts


def cut(text: str, chars: int) -> str:
    """Keep the first characters and mark the cut with three dots, as the authors do."""
    return text if len(text) <= chars else text[:chars] + "..."


def _joined(label: str, texts: Sequence[str], caps: Caps) -> list[str]:
    text = "\n".join(text for text in texts if text.strip()).strip()
    return [f"{label}: {cut(text, caps.thought_chars)}"] if text else []


def _call(call: Call, caps: Caps) -> str:
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"[{call.name}] {cut(arguments, caps.signature_chars)}"
