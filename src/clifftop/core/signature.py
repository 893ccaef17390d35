"""What is kept of a tool call: one line that says which tool did what to which file.

Knows the argument names of the supported clients and two patch formats; may not know wire formats
(`dialects/`) or excerpts of other kinds. Linear in the call's size; no JSON value makes it raise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

Style = Literal["tools", "generic", "openhands"]
Arguments = Mapping[str, object] | str

# Argument names are compared without case, `_` and `-`: filePath is file_path.
# fmt: off
PATH_KEYS = (
    "filepath", "path", "notebookpath", "absolutepath", "relativepath", "targetfile", "filename",
    "file", "scriptpath", "oldpath", "newpath", "paths", "files",
)
COMMAND_KEYS = ("command", "cmd", "keystrokes", "chars", "bashcommand")
KEY_ORDER = (
    *PATH_KEYS, *COMMAND_KEYS, "pattern", "regex", "query", "q", "url", "uri", "glob", "include",
    "cellid", "offset", "limit", "pages", "viewrange", "insertline", "startline", "endline",
)
_RANKS = {key: rank for rank, key in enumerate(KEY_ORDER)}
BULK_KEYS = frozenset((
    "content", "contents", "filetext", "filecontent", "newcontent", "oldcontent", "newstr",
    "oldstr", "newstring", "oldstring", "newtext", "oldtext", "newsource", "oldsource",
    "replacement", "patch", "patchtext", "diff", "unifieddiff", "code", "codeedit", "edits",
))
FIELDS_READ = 1_000  # of one call: a hostile call of 500,000 fields took seconds
BULK_CHARS = 150  # a string longer than this that is no key argument is bulk
PATCH_KEYS = frozenset(("patch", "patchtext", "diff", "unifieddiff", "input"))
CODE_KEYS = frozenset(("code", "script", *COMMAND_KEYS))  # may hold a patch among other things

# Rows only where the names alone fail. Calls whose one point is a text: it stays, last.
SPOKEN_ARGUMENTS = {
    "spawn_agent": "message", "followup_task": "message", "send_message": "message",
    "think": "thought", "finish": "message",
}
# Qwen Code calls its deferred tools through this one: where the name and the arguments lie.
CARRIERS = {"tool_call": ("name", "arguments")}
# fmt: on
OPENHANDS_CAPS = {"command": 120, "old_str": 60}  # characters; paper, appendix
OPENHANDS_DROPPED_TOOLS = frozenset(("task_tracker",))
OPENHANDS_DROPPED_ARGUMENTS = frozenset(("security_risk", "summary"))


def signature(
    name: str, arguments: Arguments, *, style: Style = "tools", limit_chars: int = 150
) -> str:
    """Shorten a tool call to `Name(key=value, key2=value2)`.

    `limit_chars`: Unicode code points, the name included (paper 2.2: 150); `…` follows a cut end.
    `arguments` as text are read as a JSON object, or else as free-form input (a patch, a script).
    `tools` puts key arguments first, names bulk by its length, and keeps the path (if too long, its
    end) and the files of a patch. `generic` keeps the call's own order and values. `openhands`
    returns "" for a call that is to be dropped whole.

    Source: paper 2.2 (`generic`: its proxy) and its appendix (`openhands`); `tools` is ours.
    """
    fields = _fields(arguments)
    if style == "tools":
        return _key_arguments_first(*_carried_call(name, fields), limit_chars)
    if style == "openhands" and name in OPENHANDS_DROPPED_TOOLS:
        return ""
    return _in_call_order(name, _openhands(fields) if style == "openhands" else fields, limit_chars)


class _Path(NamedTuple):
    """A label and a path; where room is short the path gives way at its start."""

    label: str
    path: str


_Fields = list[tuple[str, object]] | str
_Part = str | _Path | list[_Path]


def _fields(arguments: object) -> _Fields:
    if isinstance(arguments, str):
        if not re.match(r"\s*\{", arguments):
            return arguments
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments)
    if isinstance(arguments, Mapping):
        return [(str(key), value) for key, value in arguments.items()]
    return "" if arguments is None else _compact(arguments, BULK_CHARS)


def _in_call_order(name: str, fields: _Fields, limit: int) -> str:
    if isinstance(fields, str):
        return _cut(f"{name}({fields[: limit + 1]})", limit)
    line, separator = f"{name}(", ""
    for key, value in fields:
        line += f"{separator}{key}={_text(value, limit)}"
        if len(line) > limit:
            return _cut(line, limit)
        separator = ", "
    return _cut(line + ")", limit)


def _openhands(fields: _Fields) -> _Fields:
    if isinstance(fields, str):
        return fields
    kept = [
        (key, _cut(value, OPENHANDS_CAPS.get(key, len(value))) if isinstance(value, str) else value)
        for key, value in fields
        if key not in OPENHANDS_DROPPED_ARGUMENTS
    ]
    return sorted(kept, key=lambda field: field[0] != "path")


def _carried_call(name: str, fields: _Fields) -> tuple[str, _Fields]:
    if name in CARRIERS and not isinstance(fields, str):
        inner, arguments = map(dict(fields).get, CARRIERS[name])
        if isinstance(inner, str) and isinstance(arguments, Mapping | str):
            return f"{name}:{inner}", _fields(arguments)
    return name, fields


def _key_arguments_first(name: str, fields: _Fields, limit: int) -> str:
    if isinstance(fields, str):
        return _assemble(name, _free_form_parts(fields), limit)
    spoken = SPOKEN_ARGUMENTS.get(name)
    files: list[_Path] = []
    paths, rest, bulk = list[_Part](), list[_Part](), list[_Part]()
    fields = fields[:FIELDS_READ]
    for key, given in sorted(fields, key=lambda field: _RANKS.get(_plain(field[0]), len(_RANKS))):
        plain = _plain(key)
        value = _joined(given, limit) if plain in COMMAND_KEYS else given
        files += (named := _named_files(plain, value))
        if key == spoken:
            bulk.append(f"{key}={_text(value, limit)}")
        elif (named and plain not in COMMAND_KEYS) or _is_bulk(plain, value, limit):
            bulk.append(f"{key}={_count(value, limit)}")
        elif plain in PATH_KEYS and isinstance(value, str):
            paths.append(_Path(f"{key}=", value))
        else:
            rest.append(f"{key}={_text(value, limit)}")
    return _assemble(name, [*paths, *([files] if files else []), *rest, *bulk], limit)


@lru_cache(maxsize=4_096)  # a session has few argument names and thousands of calls
def _plain(key: str) -> str:
    return key[:64].replace("_", "").replace("-", "").lower()


def _joined(command: object, limit: int) -> object:
    if isinstance(command, list | tuple):  # Codex's shell sends a vector: ["bash", "-lc", "ls"]
        return " ".join(word if isinstance(word, str) else _text(word, limit) for word in command)
    return command


def _is_bulk(plain: str, value: object, limit: int) -> bool:
    if plain in BULK_KEYS or not isinstance(value, str):
        return plain in BULK_KEYS
    if plain in PATH_KEYS:  # some tools hand a whole document to `file`; its end would be noise
        return len(value) > limit and "\n" in value
    return plain not in _RANKS and len(value) > BULK_CHARS


def _count(value: object, limit: int) -> str:
    if isinstance(value, list | tuple | Mapping):
        return f"<{len(value):,} items>"
    return f"<{len(value):,} chars>" if isinstance(value, str) else _text(value, limit)


def _text(value: object, limit: int) -> str:
    """Show a string as it is, else compact JSON; over `limit` characters only the start of it."""
    return value[: limit + 1] if isinstance(value, str) else _compact(value, limit)


# iterencode is lazy: a list of 5 MB costs no more than what is shown of it, and as each level of
# nesting yields a character first, the depth that is walked is bounded by the limit too.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: type(value).__name__
)


def _compact(value: object, limit: int) -> str:
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):
            text += piece[: limit + 1]
            if len(text) > limit:
                break
    except (ValueError, TypeError, RecursionError):  # such as an integer of 5,000 digits
        text += "…"
    return text


def _named_files(plain: str, value: object) -> list[_Path]:
    """Find the files inside a value: of a patch, or of a list of edits with a path each."""
    if isinstance(value, str):
        found = _envelope_files(value) if plain in PATCH_KEYS | CODE_KEYS else []
        return found or (_unified_files(value) if plain in PATCH_KEYS else [])
    if not isinstance(value, list | tuple):
        return []
    edits = [edit for edit in value if isinstance(edit, Mapping)]
    fields = [field for edit in edits for field in edit.items() if isinstance(field[1], str)]
    found = [_Path("", path) for key, path in fields if _plain(str(key)) in PATH_KEYS]
    return list(dict.fromkeys(found))


def _free_form_parts(text: str) -> list[_Part]:
    files = _envelope_files(text) or _unified_files(text)
    if not files:
        return [text]
    is_patch = re.match(r"\s*(\*\*\* Begin Patch|diff --git |--- |Index: )", text)
    return [files, f"patch={_count(text, 0)}" if is_patch else text]


_ENVELOPE = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): (.+)")
# Code mode writes a patch as JavaScript, "*** Begin Patch\n*** Update File: a.py", \n spelt out.
_QUOTED_ENVELOPE = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to): ([^\\\"'`\n]+)")


def _envelope_files(text: str) -> list[_Path]:
    # A literal start keeps the search fast; `^` under re.MULTILINE is ten times slower.
    lines = [m for m in _ENVELOPE.finditer(text) if text[m.start() - 1 : m.start()] in ("", "\n")]
    if not lines:
        before = ("\\n", '"', "'", "`")
        quoted = _QUOTED_ENVELOPE.finditer(text)
        lines = [match for match in quoted if text.endswith(before, 0, match.start())]
    found: list[_Path] = []
    for verb, path in (match.groups() for match in lines):
        if verb != "Move to":
            found.append(_Path(f"{verb.split()[0].lower()} ", path.strip()))
        elif found and " -> " not in found[-1].path:
            found[-1] = found[-1]._replace(path=f"{found[-1].path} -> {path.strip()}")
    return list(dict.fromkeys(found))


_NEW_SIDE = re.compile(r"\n\+\+\+ (.+)")


def _unified_files(text: str) -> list[_Path]:
    found: list[_Path] = []
    for line in _NEW_SIDE.finditer(text):
        old_side = text[text.rfind("\n", 0, line.start()) + 1 : line.start()]
        if not old_side.startswith("--- "):
            continue
        old, new = _diff_path(old_side[4:]), _diff_path(line[1])
        verb = "delete " if new == "/dev/null" else "add " if old == "/dev/null" else "update "
        found.append(_Path(verb, old if new == "/dev/null" else new))
    return list(dict.fromkeys(found))


def _diff_path(text: str) -> str:
    path = text.split("\t", 1)[0].strip().strip('"')
    return path[2:] if path.startswith(("a/", "b/")) else path


def _assemble(name: str, parts: list[_Part], limit: int) -> str:
    line, separator = f"{name}(", ""
    for index, part in enumerate(parts):
        line += separator
        following = parts[index + 1] if index + 1 < len(parts) else None
        # A path that touches the final ellipsis would look cut: leave room for `, ` or `)`.
        room = limit - len(line) - (1 if following is None else 2)
        match part:
            case str():
                line += part[: limit + 1]
            case _Path():
                line += _shown_path(part, room)
            case _:
                behind = min(len(following), 32) + 1 if isinstance(following, str) else 0
                line += _file_list(part, room, room - behind)
        if len(line) > limit:
            return _cut(line, limit)
        separator = "; " if isinstance(part, list) else ", "
    return _cut(line + ")", limit)


def _file_list(files: list[_Path], room: int, shared_room: int) -> str:
    """Name the first file and as many others as fit in `shared_room`, then how many are left."""
    line = _shown_path(files[0], room)
    for index, (label, path) in enumerate(files[1:], start=1):
        left = f", +{len(files) - index:,} more"
        longer = f"{line}, {label}{path}"
        if len(longer) + (len(left) if index + 1 < len(files) else 0) > shared_room:
            return line + left
        line = longer
    return line


def _shown_path(path: _Path, room: int) -> str:
    room -= len(path.label)
    fits = len(path.path) <= room or room < 2
    return path.label + (path.path if fits else "…" + path.path[1 - room :])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit, 0)] + "…"
