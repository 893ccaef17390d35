"""The rules of the Anthropic Messages API on one request body, as a table, and what breaks them.

For tests only: `violations(body)` is the strict reading of what the provider refuses with a 400.
A rule is one row of `RULES`; a new rule needs a request in `test_messages_api.py` that breaks only
it. Rules of sending (headers, sizes, models) do not belong here. Nothing of clifftop is imported.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from typing import Any, NamedTuple, Union, get_args, get_type_hints

Body = dict[str, Any]
Block = dict[str, Any]

THOUGHTS = ("thinking", "redacted_thinking")
ASSISTANT_ONLY = (*THOUGHTS, "tool_use", "server_tool_use", "mcp_tool_use")
USER_ONLY = ("tool_result", "image", "document", "search_result")
SYSTEM_BLOCKS = ("text", "tool_addition", "tool_removal")
IMAGE_KINDS = ("image/jpeg", "image/png", "image/gif", "image/webp")
MARKERS_MAX = 4
THINKING_TOKENS_MIN = 1_024


class Placed(NamedTuple):
    """A block and where it stands: `$.messages[3].content[0]`."""

    place: str
    block: Block


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent messages of one role, which the API reads as one message."""

    role: str
    blocks: tuple[Placed, ...]

    def of_kind(self, *kinds: str) -> Iterator[Placed]:
        return (p for p in self.blocks if p.block["type"] in kinds)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `check` yields the places that break it."""

    id: str
    sentence: str
    source: str
    check: Callable[[Body, Body | None], Iterator[str]]


def violations(body: Body, *, before: Body | None = None) -> list[str]:
    """List each broken rule as its id and the place, in the order of the table.

    `before`: the client's own request, for the rules on what may not change on the way.
    """
    return [f"{rule.id} {place}" for rule in RULES for place in rule.check(body, before)]


def introduced(body: Body, before: Body) -> list[str]:
    """List the violations of rules that the client's own request did not break already."""
    old = {v.split()[0] for v in violations(before)}
    return [v for v in violations(body, before=before) if v.split()[0] not in old]


def sdk_accepts(body: Body) -> str | None:
    """Return None if the SDK's own request types take the body, else their complaint.

    `SDK_GAPS` says what is left out before they are asked.
    """
    import pydantic

    try:
        shown = spelled_out(without_gaps(body))
        exhaust(sdk_type(streams=bool(body.get("stream"))).validate_python(shown))
    except pydantic.ValidationError as error:
        worst = error.errors(include_url=False, include_input=False)[0]
        return f"{worst['msg']} at {worst['loc']} ({error.error_count()} complaints)"
    return None


# What real clients and the API know and the SDK's types do not: (block kind or field, reason).
SDK_GAPS = (
    (
        "unknown block kinds",
        "the API grows kinds that an older SDK has no type for; a proxy relays",
    ),
    (
        "results of server tools whose content is an object (their errors)",
        "pydantic may take the object for the iterable of blocks that the union allows as well",
    ),
)


def messages_of(body: Body) -> Iterator[tuple[int, str, list[Placed]]]:
    """Yield index, role and blocks of each message, passing over what has no such shape."""
    messages = body.get("messages")
    for i, message in enumerate(messages if isinstance(messages, list) else []):
        if isinstance(message, dict):
            place = f"$.messages[{i}].content"
            yield i, str(message.get("role")), list(placed(message.get("content"), place))


def placed(content: object, place: str) -> Iterator[Placed]:
    if isinstance(content, str):
        yield Placed(place, {"type": "text", "text": content})
    for j, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict) and isinstance(block.get("type"), str):
            yield Placed(f"{place}[{j}]", block)


def runs_of(body: Body) -> list[Run]:
    """Merge adjacent messages of one role."""
    groups = groupby(messages_of(body), key=lambda m: m[1])
    return [Run(role, tuple(p for _, _, ps in group for p in ps)) for role, group in groups]


def blocks_of(body: Body) -> Iterator[tuple[str, Placed]]:
    """Yield every block of the messages with its role."""
    return ((role, p) for _, role, blocks in messages_of(body) for p in blocks)


def inside(result: Placed) -> Iterator[Placed]:
    """Yield the blocks inside a tool result's content list."""
    content = result.block.get("content")
    if result.block["type"] == "tool_result" and isinstance(content, list):
        yield from placed(content, f"{result.place}.content")


def tools_of(body: Body) -> list[Placed]:
    tools = body.get("tools")
    listed = enumerate(tools if isinstance(tools, list) else [])
    return [Placed(f"$.tools[{i}]", tool) for i, tool in listed if isinstance(tool, dict)]


def every_place(body: Body) -> Iterator[Placed]:
    """Yield all that may carry a cache marker, in the order of the cached prefix."""
    yield from tools_of(body)
    yield from placed(body.get("system"), "$.system")
    for _, p in blocks_of(body):
        yield from inside(p)
        yield p


def check_messages(body: Body, before: Body | None) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "$.messages"
        return
    yield from (f"$.messages[{i}]" for i, m in enumerate(messages) if not isinstance(m, dict))


def check_role(body: Body, before: Body | None) -> Iterator[str]:
    for i, role, _ in messages_of(body):
        if role not in ("user", "assistant", "system"):
            yield f"$.messages[{i}].role"


def check_first_user(body: Body, before: Body | None) -> Iterator[str]:
    for _, role, _ in messages_of(body):
        if role == "assistant":
            yield "$.messages[0].role"
        return


def check_system_place(body: Body, before: Body | None) -> Iterator[str]:
    roles = [role for _, role, _ in messages_of(body)]
    for i, role in enumerate(roles):
        follows_user = i > 0 and roles[i - 1] == "user"
        leads = i + 1 == len(roles) or roles[i + 1] == "assistant"
        if role == "system" and not (follows_user and leads):
            yield f"$.messages[{i}]"


def check_content_shape(body: Body, before: Body | None) -> Iterator[str]:
    messages = body.get("messages")
    for i, message in enumerate(messages if isinstance(messages, list) else []):
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        if content is None and message.get("role") == "system" and message.get("output_config"):
            continue
        if not isinstance(content, str | list) or content == []:
            yield f"$.messages[{i}].content"
        elif isinstance(content, list):
            yield from untyped(content, f"$.messages[{i}].content")


def untyped(content: list[Any], place: str) -> Iterator[str]:
    for j, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            yield f"{place}[{j}]"


def check_block_shape(body: Body, before: Body | None) -> Iterator[str]:
    for _, (place, block) in blocks_of(body):
        match block["type"]:
            case "text":
                whole = isinstance(block.get("text"), str)
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                whole = isinstance(block.get("input"), dict) and all(
                    isinstance(block.get(k), str) and block[k] for k in ("id", "name")
                )
            case "tool_result":
                content = block.get("content", "")
                whole = isinstance(block.get("tool_use_id"), str)
                whole = whole and isinstance(content, str | list)
                if isinstance(content, list):
                    yield from untyped(content, f"{place}.content")
            case _:
                continue
        if not whole:
            yield place


def check_blank_text(body: Body, before: Body | None) -> Iterator[str]:
    for place, block in every_place(body):
        if block.get("type") == "text" and not str(block.get("text", "x")).strip():
            yield place


def check_block_role(body: Body, before: Body | None) -> Iterator[str]:
    for role, (place, block) in blocks_of(body):
        kind = block["type"]
        served = kind.endswith("_tool_result")
        if (
            (role != "assistant" and (kind in ASSISTANT_ONLY or served))
            or (role == "assistant" and kind in USER_ONLY)
            or (role == "system" and kind not in SYSTEM_BLOCKS)
        ):
            yield place


def check_call_answered(body: Body, before: Body | None) -> Iterator[str]:
    for run, later in pairwise([*runs_of(body), Run("", ())]):
        results = later.of_kind("tool_result") if later.role == "user" else ()
        answered = {p.block.get("tool_use_id") for p in results}
        for place, block in run.of_kind("tool_use") if run.role == "assistant" else ():
            if block.get("id") not in answered:
                yield place


def check_result_called(body: Body, before: Body | None) -> Iterator[str]:
    for earlier, run in pairwise([Run("", ()), *runs_of(body)]):
        calls = earlier.of_kind("tool_use") if earlier.role == "assistant" else ()
        asked = {p.block.get("id") for p in calls}
        for place, block in run.of_kind("tool_result") if run.role == "user" else ():
            if block.get("tool_use_id") not in asked:
                yield place


def check_results_first(body: Body, before: Body | None) -> Iterator[str]:
    for run in runs_of(body):
        others = False
        for place, block in run.blocks if run.role == "user" else ():
            if block["type"] == "tool_result" and others:
                yield place
            others = others or block["type"] != "tool_result"


def check_call_unique(body: Body, before: Body | None) -> Iterator[str]:
    for run in runs_of(body):
        if run.role == "assistant":
            yield from repeated(run.of_kind("tool_use", "server_tool_use", "mcp_tool_use"), "id")


def check_result_once(body: Body, before: Body | None) -> Iterator[str]:
    for run in runs_of(body):
        served = (p for p in run.blocks if p.block["type"].endswith("tool_result"))
        yield from repeated(served, "tool_use_id")


def repeated(blocks: Iterable[Placed], key: str) -> Iterator[str]:
    seen = set()
    for place, block in blocks:
        if block.get(key) in seen:
            yield place
        seen.add(block.get(key))


def check_server_answered(body: Body, before: Body | None) -> Iterator[str]:
    runs = runs_of(body)
    for n, run in enumerate(runs):
        answered = {p.block.get("tool_use_id") for p in run.blocks}
        for place, block in run.of_kind("server_tool_use", "mcp_tool_use"):
            paused = n == len(runs) - 1 and block is run.blocks[-1].block
            if block.get("id") not in answered and not paused:
                yield place


def check_server_called(body: Body, before: Body | None) -> Iterator[str]:
    for run in runs_of(body):
        asked = set()
        for place, block in run.blocks if run.role == "assistant" else ():
            if block["type"] in ("server_tool_use", "mcp_tool_use"):
                asked.add(block.get("id"))
            elif block["type"].endswith("_tool_result") and block.get("tool_use_id") not in asked:
                yield place


def check_id_shape(body: Body, before: Body | None) -> Iterator[str]:
    for _, (place, block) in blocks_of(body):
        key = block.get("tool_use_id" if block["type"].endswith("tool_result") else "id", "x")
        if isinstance(key, str) and not re.fullmatch(r"[a-zA-Z0-9_-]+", key):
            yield place


def check_thought_sealed(body: Body, before: Body | None) -> Iterator[str]:
    for _, (place, block) in blocks_of(body):
        needs = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
        for field in needs.get(block["type"], ()):
            value = block.get(field)
            if not isinstance(value, str) or not (value or field == "thinking"):
                yield place


def check_loop_thinks(body: Body, before: Body | None) -> Iterator[str]:
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    runs = [run for run in runs_of(body) if run.role in ("user", "assistant")]
    spoke = [
        n for n, r in enumerate(runs) if r.role == "user" and not any(r.of_kind("tool_result"))
    ]
    for run in runs[spoke[-1] + 1 :][:1] if spoke else ():
        if any(run.of_kind("tool_use")) and run.blocks[0].block["type"] not in THOUGHTS:
            yield run.blocks[0].place


def check_thinking_budget(body: Body, before: Body | None) -> Iterator[str]:
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        tokens, room = thinking.get("budget_tokens"), body.get("max_tokens")
        most = room - 1 if type(room) is int and room > 0 else float("inf")
        if not isinstance(tokens, int) or not THINKING_TOKENS_MIN <= tokens <= most:
            yield "$.thinking.budget_tokens"


def check_thoughts_kept(body: Body, before: Body | None) -> Iterator[str]:
    if before is None:
        return
    originals = iter([p.block for _, p in blocks_of(before) if p.block["type"] in THOUGHTS])
    for _, (place, block) in blocks_of(body):
        if block["type"] in THOUGHTS and not any(block == original for original in originals):
            yield place
            return


def check_latest_untouched(body: Body, before: Body | None) -> Iterator[str]:
    if before is None:
        return
    latest, original = (
        [run for run in runs_of(b) if run.role == "assistant"][-1:] for b in (body, before)
    )
    if latest and original and any(original[0].of_kind(*THOUGHTS)):
        was, now = ([unmarked(p.block) for p in r[0].blocks] for r in (original, latest))
        if was != now:
            yield latest[0].blocks[0].place if latest[0].blocks else "$.messages"


def unmarked(block: Block) -> Block:
    return {k: v for k, v in block.items() if k != "cache_control"}


def markers_of(body: Body) -> list[Placed]:
    """List the cache markers in prefix order; the automatic one of the body comes last."""
    owners = [*every_place(body), Placed("$", body)]
    return [Placed(f"{p.place}.cache_control", c) for p in owners if (c := marker(p.block))]


def marker(block: Block) -> Any:
    return block.get("cache_control")


def check_marker_count(body: Body, before: Body | None) -> Iterator[str]:
    yield from (p.place for p in markers_of(body)[MARKERS_MAX:])


def check_marker_shape(body: Body, before: Body | None) -> Iterator[str]:
    for place, mark in markers_of(body):
        known = isinstance(mark, dict) and mark.get("type") == "ephemeral"
        if not known or mark.get("ttl", "5m") not in ("5m", "1h"):
            yield place


def check_marker_order(body: Body, before: Body | None) -> Iterator[str]:
    short = False
    for place, mark in markers_of(body):
        long = isinstance(mark, dict) and mark.get("ttl") == "1h"
        if long and short:
            yield place
        short = short or not long


def check_marker_place(body: Body, before: Body | None) -> Iterator[str]:
    for place, block in every_place(body):
        blank = block.get("type") == "text" and not block.get("text")
        if marker(block) and (block.get("type") in THOUGHTS or blank):
            yield place


def deferred_names(body: Body) -> set[Any]:
    return {t.block.get("name") for t in tools_of(body) if t.block.get("defer_loading")}


def check_deferred_loaded(body: Body, before: Body | None) -> Iterator[str]:
    deferred = deferred_names(body)
    loaded: set[Any] = set()
    for _, p in blocks_of(body):
        loaded.update(references_in(p))
        name = p.block.get("name")
        if p.block["type"] == "tool_use" and name in deferred and name not in loaded:
            yield p.place


def references_in(p: Placed) -> Iterator[Any]:
    """Yield the tools that a block makes known: of a client's search, a server's, an addition."""
    yield from (c.block.get("tool_name") for c in inside(p) if c.block["type"] == "tool_reference")
    match p.block:
        case {"type": "tool_search_tool_result", "content": {"tool_references": list(found)}}:
            yield from (c.get("tool_name") for c in found if isinstance(c, dict))
        case {"type": "tool_addition", "tool": {"name": name}}:
            yield name


def check_reference_known(body: Body, before: Body | None) -> Iterator[str]:
    names = {t.block.get("name") for t in tools_of(body)}
    for _, p in blocks_of(body):
        if not set(references_in(p)) <= names:
            yield p.place


def check_reference_alone(body: Body, before: Body | None) -> Iterator[str]:
    for _, p in blocks_of(body):
        kinds = {c.block["type"] for c in inside(p)}
        if "tool_reference" in kinds and len(kinds) > 1:
            yield p.place


def check_some_tool_loaded(body: Body, before: Body | None) -> Iterator[str]:
    tools = tools_of(body)
    if tools and all(t.block.get("defer_loading") for t in tools):
        yield "$.tools"


def check_deferred_unmarked(body: Body, before: Body | None) -> Iterator[str]:
    for place, tool in tools_of(body):
        if tool.get("defer_loading") and marker(tool):
            yield place


def check_media_source(body: Body, before: Body | None) -> Iterator[str]:
    for place, block in every_place(body):
        if block.get("type") not in ("image", "document"):
            continue
        match block.get("source"):
            case {"type": "base64", "media_type": kind, "data": str(data)}:
                known = IMAGE_KINDS if block["type"] == "image" else ("application/pdf",)
                good = kind in known and is_base64(data)
            case {"type": "url", "url": str(url)}:
                good = bool(re.match(r"https?://", url))
            case {"type": "file", "file_id": str(key)}:
                good = bool(key)
            case {"type": "text", "media_type": "text/plain", "data": str(data)}:
                good = block["type"] == "document" and bool(data)
            case {"type": "content", "content": str() | list()}:
                good = block["type"] == "document"
            case _:
                good = False
        if not good:
            yield f"{place}.source"


def is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except binascii.Error:
        return False


def check_end_whitespace(body: Body, before: Body | None) -> Iterator[str]:
    runs = runs_of(body)
    if runs and runs[-1].role == "assistant" and runs[-1].blocks:
        place, block = runs[-1].blocks[-1]
        text = str(block.get("text", ""))
        if block["type"] == "text" and text.strip() and text != text.rstrip():
            yield place


def check_tool_unique(body: Body, before: Body | None) -> Iterator[str]:
    yield from repeated((t for t in tools_of(body) if "name" in t.block), "name")


def check_tool_shape(body: Body, before: Body | None) -> Iterator[str]:
    for place, tool in tools_of(body):
        name = str(tool.get("name", "x"))
        custom = tool.get("type") in (None, "custom")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name) or (
            custom and not (tool.get("name") and isinstance(tool.get("input_schema"), dict))
        ):
            yield place


def check_max_tokens(body: Body, before: Body | None) -> Iterator[str]:
    # The SDK's reference allows 0: "Set to `0` to populate the prompt cache".
    tokens = body.get("max_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        yield "$.max_tokens"


def check_model(body: Body, before: Body | None) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "$.model"


REFERENCE = "Messages reference"
TOOL_USE = "Anthropic docs, tool use"
THINKING = "Anthropic docs, extended thinking"
CACHING = "Anthropic docs, prompt caching"
SEARCH = "Anthropic docs, tool search"

RULES = (
    Rule("messages", "messages is a non-empty list of objects", REFERENCE, check_messages),
    Rule("role", "a role is user, assistant or system", REFERENCE, check_role),
    Rule("first-user", "the first message is the user's", REFERENCE, check_first_user),
    Rule(
        "system-place",
        "a system message follows a user message and is last or before an assistant message",
        "Anthropic docs, mid-conversation system messages",
        check_system_place,
    ),
    Rule(
        "content-shape",
        "content is a string or a non-empty list of typed blocks",
        REFERENCE,
        check_content_shape,
    ),
    Rule(
        "block-shape",
        "text, calls and results have their fields, each of its type",
        REFERENCE,
        check_block_shape,
    ),
    Rule(
        "blank-text",
        "no text block is blank, in messages, results or system",
        'API error "text content blocks must contain non-whitespace text"',
        check_blank_text,
    ),
    Rule(
        "block-role",
        "calls, thoughts and served results stand in assistant messages only; "
        "results, images and documents in user messages only; system messages hold text",
        REFERENCE,
        check_block_role,
    ),
    Rule(
        "call-answered",
        "each tool_use has its result in the next message",
        'API error "tool_use ids were found without tool_result blocks immediately after"',
        check_call_answered,
    ),
    Rule(
        "result-called",
        "each tool_result has its tool_use in the message before",
        'API error "unexpected tool_use_id found in tool_result blocks"',
        check_result_called,
    ),
    Rule(
        "results-first",
        "tool results come before all other blocks of a (merged) user message",
        TOOL_USE,
        check_results_first,
    ),
    Rule(
        "call-unique",
        "call ids are unique within one assistant message",
        'API error "tool_use ids must be unique"',
        check_call_unique,
    ),
    Rule(
        "result-once",
        "a call has one result",
        'API error "each tool_use must have a single result"',
        check_result_once,
    ),
    Rule("id-shape", "ids match [a-zA-Z0-9_-]+", REFERENCE, check_id_shape),
    Rule(
        "server-answered",
        "a server tool's call is answered in the same message, or ends a paused turn",
        "Anthropic docs, server tools",
        check_server_answered,
    ),
    Rule(
        "server-called",
        "a server tool's result follows its call in the same message",
        "Anthropic docs, server tools",
        check_server_called,
    ),
    Rule(
        "thought-sealed",
        "thinking has text and signature, redacted thinking has data",
        THINKING,
        check_thought_sealed,
    ),
    Rule(
        "loop-thinks",
        "with thinking enabled the last tool loop begins with a thinking block",
        'API error "Expected `thinking` or `redacted_thinking`, but found `tool_use`"',
        check_loop_thinks,
    ),
    Rule(
        "thinking-budget",
        "budget_tokens is at least 1,024 and below max_tokens",
        THINKING,
        check_thinking_budget,
    ),
    Rule(
        "thoughts-kept",
        "each thinking block is one of the client's own, unchanged and in its order",
        THINKING,
        check_thoughts_kept,
    ),
    Rule(
        "latest-untouched",
        "the latest assistant message that thinks is the client's, block for block",
        'API error "blocks in the latest assistant message cannot be modified"',
        check_latest_untouched,
    ),
    Rule("marker-count", "there are at most 4 cache markers", CACHING, check_marker_count),
    Rule("marker-shape", "a marker is ephemeral, its ttl 5m or 1h", CACHING, check_marker_shape),
    Rule("marker-order", "no 1h marker comes after a 5m one", CACHING, check_marker_order),
    Rule(
        "marker-place",
        "no marker stands on thinking or on empty text",
        'API error "cache_control cannot be set for empty text blocks"',
        check_marker_place,
    ),
    Rule(
        "deferred-loaded",
        "a deferred tool is called only after a reference to it",
        SEARCH,
        check_deferred_loaded,
    ),
    Rule("reference-known", "a referenced tool is declared", SEARCH, check_reference_known),
    Rule(
        "reference-alone",
        "a result with a tool_reference holds nothing else",
        SEARCH,
        check_reference_alone,
    ),
    Rule("some-tool-loaded", "not all tools are deferred", SEARCH, check_some_tool_loaded),
    Rule("deferred-unmarked", "no marker on a deferred tool", SEARCH, check_deferred_unmarked),
    Rule(
        "media-source",
        "images and documents have a source of a known shape",
        "Anthropic docs, vision",
        check_media_source,
    ),
    Rule(
        "end-whitespace",
        "a last assistant message does not end in whitespace",
        'API error "final assistant content cannot end with trailing whitespace"',
        check_end_whitespace,
    ),
    Rule("tool-unique", "tool names are unique", TOOL_USE, check_tool_unique),
    Rule("tool-shape", "a tool has a legal name and a schema", TOOL_USE, check_tool_shape),
    Rule("max-tokens", "max_tokens is a whole number, not negative", REFERENCE, check_max_tokens),
    Rule("model", "a model is named", REFERENCE, check_model),
)


@cache
def sdk_type(*, streams: bool) -> Any:
    import pydantic
    from anthropic.types.beta import message_create_params as params

    kind = (
        params.MessageCreateParamsStreaming if streams else params.MessageCreateParamsNonStreaming
    )
    return pydantic.TypeAdapter(kind)


@cache
def request_blocks() -> tuple[Any, ...]:
    """Return the SDK's types of the blocks of a request."""
    from anthropic.types.beta import BetaContentBlockParam
    from typing_extensions import is_typeddict

    return tuple(member for member in get_args(BetaContentBlockParam) if is_typeddict(member))


@cache
def request_block_type() -> Any:
    import pydantic

    union: Any = Union[request_blocks()]  # noqa: UP007
    return pydantic.TypeAdapter(union)


@cache
def sdk_kinds() -> frozenset[str]:
    """Return the block kinds that the SDK has a request type for."""
    hints = (get_type_hints(block)["type"] for block in request_blocks())
    return frozenset(kind for hint in hints for kind in get_args(hint))


def without_gaps(body: Body) -> Body:
    """Leave out what `SDK_GAPS` names."""

    def known(content: Any) -> Any:
        if not isinstance(content, list):
            return content
        kinds = sdk_kinds()
        return [
            b
            for b in content
            if not isinstance(b, dict)
            or (b.get("type") in kinds and not isinstance(b.get("content"), dict))
        ]

    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    shown = [
        {**m, "content": known(m["content"])} if isinstance(m, dict) and "content" in m else m
        for m in messages
    ]
    return {**body, "messages": shown}


def spelled_out(value: Any) -> Any:
    """Write content that is a string as its list of one text block.

    `typing` gives one object for `Union[str, Iterable[X]]` and `Union[Iterable[X], str]`, in the
    order of whoever asked first in this process. In the second order pydantic takes a string for an
    iterable of blocks, and its first letter for a wrong one.
    """
    if isinstance(value, list):
        return [spelled_out(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    spelled = {key: spelled_out(inner) for key, inner in value.items()}
    holds_blocks = spelled.get("type") in (None, "tool_result", "content")
    for key in ("system", "content"):
        if holds_blocks and isinstance(spelled.get(key), str):
            spelled[key] = [{"type": "text", "text": spelled[key]}]
    return spelled


def exhaust(value: Any) -> None:
    """Read pydantic's lazy iterators to their ends: an unread item is an unchecked item.

    The SDK also lets its answer types stand for blocks. Those pass over a wrong cache marker, so a
    block taken for one is read again as a block of a request.
    """
    import pydantic

    if isinstance(value, pydantic.BaseModel):
        block = value.model_dump(exclude_unset=True, by_alias=True)
        value = request_block_type().validate_python(block)
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return
    for item in value:
        exhaust(item)
