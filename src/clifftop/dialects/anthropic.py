"""Anthropic Messages: what its items are, and how a block looks among them.

Nothing here decides what to keep. Facts are from the Messages API reference and from recorded
requests of Claude Code 2.1.332, pi 1.6.0 and opencode 1.18.33.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from clifftop.core.sizes import Size, base64_image_tokens, document_tokens
from clifftop.core.turns import (
    Call,
    History,
    Item,
    Media,
    Note,
    Other,
    Part,
    Result,
    Role,
    Said,
    Thought,
    Typed,
)
from clifftop.dialects.base import Request
from clifftop.dialects.splice import decode, locate
from clifftop.errors import RequestError

MAX_MARKS = 4  # "A maximum of 4 blocks with cache_control may be provided. Found 5."
HOSTED_MEDIA_TOKENS = 1_600
"""An attachment behind a URL or a file id: nothing to measure, about one megapixel."""

ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
BILLING_LINE = "x-anthropic-billing-header:"
MARK = b'"cache_control"'

INJECTED = re.compile(
    r"\s*(?:<(?:system-reminder|task-notification|total_tokens|command-(?:name|message|args|contents)"
    r"|local-command-(?:stdout|stderr|caveat)|bash-(?:input|stdout|stderr)|user-prompt-submit-hook"
    r"|session-start-hook|new-diagnostics|ide_(?:opened_file|selection|diagnostics)|environment_context"
    r"|environment_details|fork-boilerplate)\b"
    r"|Caveat: The messages below were generated|\[Request interrupted by user"
    r"|\[Subagent hand-back\]|\[SYSTEM NOTIFICATION|\[Your previous response had no visible output"
    r"|This session is being continued from a previous|CRITICAL: Respond with TEXT ONLY)"
)
"""How text of a scaffold begins. A person may begin so too: in doubt it is not a person's."""

THOUGHTS = {"thinking", "redacted_thinking"}
CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}
ATTACHMENTS = {"image", "document", "container_upload"}


class AnthropicMessages:
    """`POST /v1/messages` of Anthropic and of all who speak it."""

    name = "anthropic"
    items_key = "messages"

    def read(self, body: bytes) -> Request:
        """Read a Messages request.

        Raises:
            RequestError: it is none; the message names the place.
        """
        layout = locate(body, self.items_key)
        fields = {
            name: decode(body, span, f"$.{name}")
            for name, span in layout.fields.items()
            if name in FIELDS_READ
        }
        tools = fields.get("tools")
        tools = (
            [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        )
        deferred = {str(t.get("name")): t for t in tools if t.get("defer_loading") is True}
        reader = _Reader(
            has_tools=bool(tools),
            loaded_bytes={name: len(encode(unmark(tool))) for name, tool in deferred.items()},
        )
        items, marks = [], []
        for number, (start, stop) in enumerate(layout.items):
            place = f"$.messages[{number}]"
            message = decode(body, (start, stop), place)
            is_marked = body.find(MARK, start, stop) >= 0
            marks.append(tuple(marks_in(message)) if is_marked else ())
            items.append(reader.item(unmark(message) if is_marked else message, place))
        thinking = fields.get("thinking")
        fixed = [fields.get("system"), tools, {"cache_control": fields.get("cache_control")}]
        max_tokens = fields.get("max_tokens")
        return Request(
            dialect=self,
            body=body,
            layout=layout,
            history=History(
                items,
                fixed=fixed_size(fields.get("system"), tools),
                thinking_required=isinstance(thinking, dict) and thinking.get("type") == "enabled",
                deferred_tools=frozenset(deferred),
            ),
            model=str(fields.get("model", "")),
            answer_tokens=max_tokens if isinstance(max_tokens, int) else 0,
            is_stream=fields.get("stream") is True,
            stateful="thread" if "thread" in layout.fields else "",
            cache_marks=tuple(marks),
            fixed_marks=tuple(mark for mark in marks_in(fixed) if mark),
        )

    def block_item(self, request: Request, text: str, kept: list[int]) -> bytes:
        """Make the user message that carries a block.

        It gets a cache marker if the client sets markers at all and one of the four is free: all
        before it stays as it is until the next cliff.
        """
        item = b'{"role":"user","content":[{"type":"text","text":%b%b}]}'
        return item % (encode(text), self._mark(request, kept))

    def _mark(self, request: Request, kept: list[int]) -> bytes:
        head = request.history.head
        marks = [(index, mark) for index in kept for mark in request.cache_marks[index]]
        used = [*request.fixed_marks, *(mark for _, mark in marks)]
        if not used or len(used) >= MAX_MARKS:
            return b""
        following = [mark for index, mark in marks if index >= head]
        # A marker that lives longer may not stand behind a shorter one: take the one that follows.
        model = following[0] if following else used[-1]
        ttl = model.get("ttl") if isinstance(model, dict) else None
        mark = {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
        return b',"cache_control":' + encode(mark)


FIELDS_READ = frozenset(
    ("model", "system", "tools", "thinking", "max_tokens", "stream", "cache_control")
)


class _Reader:
    """Makes items of messages, in order: what a text is depends on what came before it."""

    def __init__(self, *, has_tools: bool, loaded_bytes: dict[str, int]) -> None:
        self.has_tools = has_tools
        self.loaded_bytes = loaded_bytes
        self.has_answer = False

    def item(self, message: Any, place: str) -> Item:
        if not isinstance(message, dict):
            raise RequestError(f"{place} is no object")
        role = ROLES.get(message.get("role", ""))
        if role is None:
            raise RequestError(f"{place}.role is {message.get('role')!r}")
        blocks = blocks_of(message.get("content"), place)
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            message = {**message, "content": blocks[0]["text"]}
        plain = encode(message)
        media_bytes, media_tokens = 0, 0
        for data_bytes, tokens in media_in(blocks):
            media_bytes += data_bytes
            media_tokens += tokens
        parts = tuple(self._parts(role, blocks))
        loads = [name for part in parts if isinstance(part, Result) for name in part.loads]
        # The provider writes a deferred tool's definition where a result loads it.
        loaded_bytes = sum(self.loaded_bytes.get(name, 0) for name in loads)
        self.has_answer = self.has_answer or role == "assistant"
        return Item(
            role=role,
            parts=parts,
            size=Size(
                text_bytes=len(plain) + 1 - media_bytes + loaded_bytes, media_tokens=media_tokens
            ),
            key=blake2b(plain, digest_size=16).digest(),
        )

    def _parts(self, role: Role, blocks: list[dict[str, Any]]) -> Iterator[Part]:
        has_result = any(block["type"].endswith("tool_result") for block in blocks)
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                yield self._text(role, text_of(block, "text"), has_result=has_result)
            elif kind in THOUGHTS:
                yield Thought(text=text_of(block, "thinking"))
            elif kind in CALLS:
                given = block.get("input")
                yield Call(
                    id=text_of(block, "id"),
                    name=text_of(block, "name"),
                    arguments=given if isinstance(given, dict) else encode(given).decode(),
                )
            elif kind.endswith("tool_result"):
                yield result_of(block)
            elif kind in ATTACHMENTS:
                yield Media(kind=kind)
            else:
                yield Other(kind=kind, is_load_bearing=kind == "compaction")

    def _text(self, role: Role, text: str, *, has_result: bool) -> Part:
        if role == "assistant":
            return Said(text=text)
        if role == "system" or INJECTED.match(text):
            return Note(text=text)
        # Beside a result, or where no tool is declared and terminal output comes as user text, we
        # cannot be sure of a person: a pin would make an injection last.
        is_observation = has_result or (not self.has_tools and self.has_answer)
        return Result(call_id="", text=text) if is_observation else Typed(text=text)


Purpose = Literal["turn", "side", "summary"]

SUMMARY_HEADS = (
    "CRITICAL: Respond with TEXT ONLY",  # Claude Code 2.1
    "Your task is to create a detailed summary of the conversation",  # Claude Code before
    "You are the component that summarizes",  # Qwen Code
    "You are performing a CONTEXT CHECKPOINT COMPACTION",  # Codex
)


def purpose_of(request: Request) -> Purpose:
    """Tell what a request is for: a turn, its client's own summary, or a call beside the session.

    Side calls have no turn: titles, probes, one question without tools. A summary request is the
    history with one more text at its end.
    """
    history = request.history
    if not history.starts:
        tools = _field(request, "tools")
        is_lone = sum(item.role != "system" for item in history.items) <= 1
        is_title = b'"title"' in encode(_field(request, "output_config"))
        is_side = not tools and (is_lone or is_title)
        return "side" if is_side or request.answer_tokens == 1 else "turn"
    last = history.items[-1]
    text = last.parts[-1].text if last.parts and isinstance(last.parts[-1], Texts) else ""
    is_summary = last.role == "user" and text.lstrip().startswith(SUMMARY_HEADS)
    return "summary" if is_summary else "turn"


Texts = (Typed, Note, Result)


def _field(request: Request, name: str) -> Any:
    span = request.layout.fields.get(name)
    return None if span is None else decode(request.body, span, f"$.{name}")


def blocks_of(content: Any, place: str) -> list[dict[str, Any]]:
    """Give the content blocks of a message; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RequestError(f"{place}.content is neither text nor a list")
    for number, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise RequestError(f"{place}.content[{number}] is no content block")
    return content


def result_of(block: Mapping[str, Any]) -> Result:
    """Read any kind of tool result: the client's, or one of a server tool."""
    content = block.get("content", "")
    texts, media, loads = [], [], []
    is_error = block.get("is_error") is True
    for piece in content if isinstance(content, list) else [content]:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        kind = str(piece.get("type", "")) if isinstance(piece, dict) else ""
        if kind == "text":
            texts.append(text_of(piece, "text"))
        elif kind in ATTACHMENTS:
            media.append(kind)
        elif kind == "tool_reference":
            loads.append(text_of(piece, "tool_name"))
        elif kind:
            is_error = is_error or kind.endswith("_error")
            found = piece.get("tool_references")
            for reference in found if isinstance(found, list) else ():
                loads.append(text_of(reference, "tool_name"))
            texts.append(encode(piece).decode())
    return Result(
        call_id=text_of(block, "tool_use_id"),
        text="\n".join(texts),
        is_error=is_error,
        media=tuple(media),
        loads=tuple(loads),
    )


def media_in(blocks: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Give (bytes of base64, tokens) of each attachment, in results too.

    Attachments are priced by what they show. Text sources stay in the bytes.
    """
    for block in blocks:
        kind = block.get("type")
        if kind in ("image", "document"):
            source = block.get("source")
            source = source if isinstance(source, dict) else {}
            data = text_of(source, "data")
            if source.get("type") == "base64":
                priced = base64_image_tokens if kind == "image" else document_tokens
                yield len(data), priced(data)
            elif source.get("type") == "content" and isinstance(source.get("content"), list):
                yield from media_in([x for x in source["content"] if isinstance(x, dict)])
            elif source.get("type") != "text":
                yield 0, HOSTED_MEDIA_TOKENS
        elif isinstance(block.get("content"), list):
            yield from media_in([x for x in block["content"] if isinstance(x, dict)])


def fixed_size(system: Any, tools: list[dict[str, Any]]) -> Size:
    """Size of what is sent beside the messages.

    Deferred tools are not: clients declare them once they are loaded, and a fixed part that grew
    would move older crossings. Nor is Claude Code's billing line: it differs between agents and,
    in some modes, between requests.
    """
    if isinstance(system, list):
        system = [
            block
            for block in system
            if not (isinstance(block, dict) and str(block.get("text")).startswith(BILLING_LINE))
        ]
    tools = [tool for tool in tools if tool.get("defer_loading") is not True]
    return Size(text_bytes=len(encode(unmark([system, tools]))))


def unmark(value: Any) -> Any:
    """Leave out cache markers, which clients move from message to message."""
    if isinstance(value, dict):
        return {key: unmark(inner) for key, inner in value.items() if key != "cache_control"}
    return [unmark(inner) for inner in value] if isinstance(value, list) else value


def marks_in(value: Any) -> Iterator[object]:
    """Give the cache markers of messages, system or tools, in order."""
    if isinstance(value, dict):
        if value.get("cache_control") is not None:
            yield value["cache_control"]
        if "content" in value:
            yield from marks_in(value["content"])
    elif isinstance(value, list):
        for inner in value:
            yield from marks_in(inner)


def text_of(block: Mapping[str, Any], key: str) -> str:
    """Give a field that should be text; anything else counts as empty."""
    value = block.get(key)
    return value if isinstance(value, str) else ""


def encode(value: Any) -> bytes:
    """Write JSON in one spelling: compact, UTF-8, half surrogates as escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")
