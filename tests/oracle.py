"""Algorithm 1 of the paper (arXiv 2609.26779) over plain Anthropic messages, read a second time.

The paper's line numbers stand on the right. Nothing of clifftop may be imported here. What the
paper leaves open follows the column `paper` of the table of excerpts in the design.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal

Message = dict[str, Any]
Part = tuple[str, str]


def compact(
    messages: list[Message],
    keep_recent: int,
    *,
    user_text: Literal["drop", "window"],
    block: str | None = None,
) -> tuple[list[Part], list[Message]]:
    """Return the excerpts of the older turns, as (kind, text) in order, and the newest turns.

    `messages` begins behind the head (line 20: `messages[2:]`). The paper's 2K messages are K
    turns here: an assistant message and all up to the next one, so that parallel results and
    mid-run text stay with their turn. `block` is the text of the prior compaction, if any.
    `user_text`: `drop` is the literal algorithm, `window` the paper's prose.
    """
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    kept = turns[-keep_recent:] if keep_recent else []  # line 2
    cut = kept[0] if kept else len(messages)
    old, recent = messages[:cut], messages[cut:]
    parts: list[Part] = []  # line 3
    for message in old:  # line 4
        blocks = blocks_of(message)
        if block is not None and [b.get("text") for b in blocks] == [block]:  # line 5
            continue  # line 6
        if message["role"] == "assistant":  # line 7
            parts += [part for b in blocks for part in said_or_done(b)]  # line 8
        elif any(b["type"] == "tool_result" for b in blocks):
            parts += [part for b in blocks for part in answered(b, user_text)]  # 9, 10
        elif user_text == "window":
            parts += [("person", t) for b in blocks if (t := text_of(b)).strip()]
    return parts, recent  # line 13


def said_or_done(block: Message) -> list[Part]:
    match block:
        case {"type": "thinking", "thinking": thinking} if thinking.strip():
            return [("thought", truncate(thinking, 300))]
        case {"type": "text", "text": text} if text.strip():
            return [("said", truncate(text, 300))]
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use"}:
            return [("call", truncate(signature(block["name"], block["input"]), 150))]
        case {"type": kind} if kind.endswith("tool_result"):  # a server tool's stands here too
            return answered(block, "drop")
    return []


def answered(block: Message, user_text: str) -> list[Part]:
    """Lines 9 and 10; a scaffold's reminder beside results counts as a person's text."""
    text = text_of(block)
    if block["type"] == "text" and re.match(
        r"\s*(<(system-reminder|task-n|new-diag)|\[Request inter)", text
    ):
        return [("person", text)] if user_text == "window" else []
    return [("result", text.strip())] if 0 < len(text.strip()) <= 500 else []


def signature(name: str, arguments: dict[str, Any]) -> str:
    """Write a call as `name(k=v, k2=v2)`, arguments in the order of the call, strings raw."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    shown = (f"{k}={v if isinstance(v, str) else encode(v)}" for k, v in arguments.items())
    return f"{name}({', '.join(shown)})"


def truncate(text: str, limit_chars: int) -> str:
    return text if len(text) <= limit_chars else text[:limit_chars] + "…"


def blocks_of(message: Message) -> list[Message]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def text_of(block: Message) -> str:
    """Return the text of a text block or of a tool result; images and documents have none."""
    if not block["type"].endswith("tool_result"):
        return block["text"] if block["type"] == "text" else ""
    content = block.get("content") or []
    pieces = content if isinstance(content, list) else [content]
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    silent = ("image", "document", "tool_reference")
    return "\n".join(
        piece
        if isinstance(piece, str)
        else piece["text"]
        if piece["type"] == "text"
        else encode(piece)
        for piece in pieces
        if isinstance(piece, str) or piece["type"] not in silent
    )
