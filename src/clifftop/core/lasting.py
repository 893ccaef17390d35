"""What outlives its window: words of people, newest notes of the scaffold, running tasks.

A cliff forgets all turns before its live session. Three things are taken from the original items
each time again, back to the head, so that no block is ever built from a block. All of it depends on
the items before the cut alone and is bounded by the pin cap (running tasks by a quarter of it
more).

Source: ours (the paper keeps a person's text for two windows at most).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from clifftop.core.cliff import Excerpt, truncate
from clifftop.core.profile import Profile
from clifftop.core.signature import signature
from clifftop.core.turns import Call, History, Note, Result, Typed

BYTES_PER_TOKEN = 4
"""Caps inside a block never follow a measured rate, else the same cliff would change its text."""

SHORT_CHARS = 300
LONG_HEAD_CHARS, LONG_TAIL_CHARS = 2_000, 500
LINE_BYTES = 12
"""What a line costs beside its text: label, line break."""

COUNT_BYTES = 48
"""Room kept free for the line that counts what was left out."""


def utf8_bytes(text: str) -> int:
    """Length in UTF-8; half surrogates, which JSON bodies may hold, count as three bytes."""
    return len(text.encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class Lasting:
    """Where in a history the lasting things stand. Built once per request, queried per cut."""

    history: History
    profile: Profile
    budget_tokens: int
    _typed: list[tuple[int, str]] = field(default_factory=list)
    _notes: list[tuple[int, str, str]] = field(default_factory=list)
    _tasks: list[_Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        items = self.history.items
        started: dict[str, _Task] = {}
        for index in range(self.history.head, len(items)):
            for part in items[index].parts:
                match part:
                    case Typed(text=text) if text.strip():
                        self._typed.append((index, text))
                    case Note(text=text) if text.strip():
                        self._notes.append((index, kind_of_note(text), text))
                        self._end_tasks(ended_in(text), index)
                    case Call() if runs_in_background(part):
                        started[part.id] = _Task(call=part, started_at=index)
                    case Call(arguments=arguments) if self._tasks and STOPS_TASK.search(part.name):
                        self._end_tasks(frozenset(map(str, values_of(arguments))), index)
                    case Result(call_id=call_id, text=text) if call_id in started:
                        task = started.pop(call_id)
                        task.started_at, task.text = index, text.strip()
                        task.ids = frozenset(TASK_ID.findall(text))
                        self._tasks.append(task)
                    case _:
                        pass

    def _end_tasks(self, ids: frozenset[str], index: int) -> None:
        for task in self._tasks:
            if task.ended_at is None and task.ids & ids:
                task.ended_at = index

    def excerpts(self, cut: int) -> list[Excerpt]:
        """Give all lasting excerpts for a cut: people first, then notes, then running tasks."""
        if self.profile.user_text != "pin":
            return []
        room = int(self.budget_tokens * BYTES_PER_TOKEN * self.profile.pin_share)
        people, used = self._people(cut, room)
        tasks = self._running(cut, room // 4)
        return [*people, *self._newest_notes(cut, room - used), *tasks]

    def _people(self, cut: int, cap: int) -> tuple[list[Excerpt], int]:
        """Every text a person typed since the head: whole, then 300 characters, then a count.

        The newest are served first, so that past the cap the oldest give way.
        """
        count = bisect_left(self._typed, (cut, ""))
        room, is_whole, kept = cap - COUNT_BYTES, True, []
        while count:
            text = self._typed[count - 1][1]
            if utf8_bytes(text) > cap // 2 and len(text) > LONG_HEAD_CHARS + LONG_TAIL_CHARS:
                left_out = len(text) - LONG_HEAD_CHARS - LONG_TAIL_CHARS
                head, tail = text[:LONG_HEAD_CHARS], text[-LONG_TAIL_CHARS:]
                text = f"{head}… ({left_out:,} chars left out) …{tail}"
            is_whole = is_whole and utf8_bytes(text) + LINE_BYTES <= room
            text = text if is_whole else truncate(text, SHORT_CHARS)
            if utf8_bytes(text) + LINE_BYTES > room:
                break
            room -= utf8_bytes(text) + LINE_BYTES
            kept.append(Excerpt("person", text))
            count -= 1
        if count:
            kept.append(Excerpt("person", f"({count:,} earlier texts left out)"))
        return kept[::-1], cap - room

    def _newest_notes(self, cut: int, room: int) -> list[Excerpt]:
        """The newest note of each kind, newest kinds first into the room that people left."""
        seen: set[str] = set()
        kept = []
        for index in range(bisect_left(self._notes, (cut, "", "")) - 1, -1, -1):
            _, kind, text = self._notes[index]
            if kind in seen:
                continue
            seen.add(kind)
            text = truncate(text.strip(), self.profile.note_chars)
            if utf8_bytes(text) + LINE_BYTES > room:
                break
            room -= utf8_bytes(text) + LINE_BYTES
            kept.append(Excerpt("note", text))
        return kept[::-1]

    def _running(self, cut: int, room: int) -> list[Excerpt]:
        """Tasks in the background whose end was not reported before the cut, newest first."""
        kept = []
        for task in reversed(self._tasks):
            if task.started_at >= cut or (task.ended_at is not None and task.ended_at < cut):
                continue
            call = signature(
                task.call.name,
                task.call.arguments,
                style=self.profile.signatures,
                limit_chars=TASK_CHARS,
            )
            text = f"{call} -> {truncate(task.text, TASK_CHARS)}"
            room -= utf8_bytes(text) + LINE_BYTES
            if room < 0:
                break
            kept.append(Excerpt("task", text))
        return kept[::-1]


TASK_CHARS = 100
STOPS_TASK = re.compile("stop|kill", re.IGNORECASE)


TASK_ID = re.compile(r"\b(?:[a-z]*ID|[a-z_-]*id)\b\W{1,3}([\w-]{4,})")
"""`Command running in background with ID: b7f3a1`, `agentId: ac1d27ad92de2705f`."""

ENDED_TASK = re.compile(
    r"<task-id>([\w-]+)</task-id>.*?<status>(?:completed|failed|killed|stopped)</status>", re.DOTALL
)


@dataclass(slots=True, kw_only=True)
class _Task:
    call: Call
    started_at: int
    text: str = ""
    ids: frozenset[str] = frozenset()
    ended_at: int | None = None


def runs_in_background(call: Call) -> bool:
    """Does this call start something that reports later? (Claude Code; Qwen Code)"""
    arguments = call.arguments
    return not isinstance(arguments, str) and any(
        arguments.get(flag) is True for flag in ("run_in_background", "is_background")
    )


def ended_in(note: str) -> frozenset[str]:
    """Ids of the tasks whose end a note reports (`<task-notification>` of Claude Code)."""
    return frozenset(ENDED_TASK.findall(note)) if "<task-id>" in note else frozenset()


def values_of(arguments: object) -> list[object]:
    """The argument values of a call, for looking up an id among them."""
    return list(arguments.values()) if isinstance(arguments, dict) else [arguments]


LEADING_TAG = re.compile(r"\s*<([\w-]+)>\s*")
KIND_WORDS = 4


def kind_of_note(text: str) -> str:
    """Say which notes replace each other: same leading tag, same first words, digits aside."""
    tag = LEADING_TAG.match(text)
    start = text[tag.end() :] if tag else text.lstrip()
    words = re.sub(r"\d+", "#", start[:200]).lower().split(maxsplit=KIND_WORDS)[:KIND_WORDS]
    return f"{tag[1] if tag else ''}|{' '.join(words)}"
