"""What a conversation is: parts, items, turns and the head.

Everything here is a small frozen value that a dialect made from the wire, in the client's own order
and index. No rule of compaction lives here, and nothing that knows a wire format.

    head   every item before the first assistant item; never touched
    turn   one model step (a run of assistant items) and everything up to the next one
    point  where a request ended: just before a turn, and the end
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Literal

from clifftop.core.sizes import Size

Role = Literal["assistant", "user", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Reasoning of the model; empty where the provider encrypted it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Text that the model wrote for people to read."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call. `arguments` is the parsed object, or the text of a free-form tool."""

    id: str
    name: str
    arguments: Mapping[str, object] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a tool answered.

    `call_id` is empty where the wire names no call. `media` are kinds of attachments ("image"),
    `loads` the names of deferred tools that this result made usable.
    """

    call_id: str
    text: str
    is_error: bool = False
    media: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """Text that a person typed, as far as the dialect can be sure of it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Text that the scaffold injected: reminders, environment notes, notifications."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An attachment outside a tool result; `kind` is "image", "document" and the like."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A kind of content that we do not read.

    `is_load_bearing`: later requests break without it (a provider's own compaction state).
    """

    kind: str
    is_load_bearing: bool = False


Part = Thought | Said | Call | Result | Typed | Note | Media | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One element of the request's history list.

    `key`: digest of the content without what may differ between two sendings of the same item
    (cache markers). `size`: what it costs, measured on the same content.
    """

    role: Role
    parts: tuple[Part, ...]
    size: Size
    key: bytes


class History:
    """The items of one request and what can be said about them in one pass.

    `fixed`: size of all that is sent beside the items (system, tools, envelope).
    `thinking_required`: a kept tool loop must begin with a thought if it did so originally.
    `deferred_tools`: tools that are usable only after a result that loads them.
    """

    def __init__(
        self,
        items: Sequence[Item],
        *,
        fixed: Size,
        thinking_required: bool = False,
        deferred_tools: frozenset[str] = frozenset(),
    ) -> None:
        self.items = items
        self.fixed = fixed
        self.thinking_required = thinking_required
        self.deferred_tools = deferred_tools
        self.starts: list[int] = []
        """`starts[t]`: index of the first item of turn t."""
        self._bytes, self._media = [0], [0]
        previous: Role = "user"
        for index, item in enumerate(items):
            if item.role == "assistant" and previous != "assistant":
                self.starts.append(index)
            previous = item.role
            self._bytes.append(self._bytes[-1] + item.size.text_bytes)
            self._media.append(self._media[-1] + item.size.media_tokens)
        self.head = self.starts[0] if self.starts else len(items)
        """Number of head items."""

    def __len__(self) -> int:
        return len(self.items)

    def size(self, start: int, stop: int) -> Size:
        """Size of items[start:stop], in constant time."""
        return Size(
            text_bytes=self._bytes[stop] - self._bytes[start],
            media_tokens=self._media[stop] - self._media[start],
        )

    def tokens(self, start: int, stop: int, rate: float) -> float:
        """Size of items[start:stop] in tokens: what `size` gives, for the hot path."""
        text = (self._bytes[stop] - self._bytes[start]) * rate
        return text + self._media[stop] - self._media[start]

    def points(self) -> list[int]:
        """Request points, oldest first; the last one is the end of this request."""
        return [*self.starts[1:], len(self.items)]

    def turn_at(self, index: int) -> int:
        """Number of the first turn that starts at or after item `index`."""
        return bisect_left(self.starts, index)

    def turn(self, number: int) -> Sequence[Item]:
        """The items of one turn."""
        return self.items[self.starts[number] : self.turn_end(number)]

    def turn_end(self, number: int) -> int:
        """Index behind the last item of a turn."""
        following = number + 1
        return self.starts[following] if following < len(self.starts) else len(self.items)

    @cached_property
    def chain(self) -> list[bytes]:
        """`chain[i]`: identity of items[:i] as a sequence, 16 bytes each."""
        link = bytes(16)
        links = [link]
        for item in self.items:
            link = blake2b(link + item.key, digest_size=16).digest()
            links.append(link)
        return links

    @cached_property
    def last_answer(self) -> list[int]:
        """`last_answer[t]`: index of the last result for a call of turn t, else its own start."""
        return self._answers[0]

    @cached_property
    def waits(self) -> list[bool]:
        """`waits[t]`: does a call of turn t have no result at all?"""
        return self._answers[1]

    @cached_property
    def _answers(self) -> tuple[list[int], list[bool]]:
        """Pair calls and results. An id used again means the newest call that has it."""
        last, waits = list(self.starts), [False] * len(self.starts)
        open_calls: dict[str, int] = {}
        for number in range(len(self.starts)):
            for index in range(self.starts[number], self.turn_end(number)):
                for part in self.items[index].parts:
                    match part:
                        case Call(id=call_id):
                            open_calls[call_id] = number
                        case Result(call_id=call_id) if call_id in open_calls:
                            last[open_calls.pop(call_id)] = index
                        case _:
                            pass
        for number in open_calls.values():
            waits[number] = True
        return last, waits

    @cached_property
    def begins_with_thought(self) -> list[bool]:
        """Per turn: is the first thing in it a thought?"""
        firsts = (self.items[start].parts[:1] for start in self.starts)
        return [bool(first) and isinstance(first[0], Thought) for first in firsts]

    @cached_property
    def loop_start(self) -> list[int]:
        """Per turn: the first turn of its tool loop.

        A turn goes on with the loop if results came before it, also where a person's text came
        beside or behind them: providers join user items in a row to one.
        """
        loop = list(range(len(self.starts)))
        for before, number in pairwise(range(len(self.starts))):
            if self.has_results[before]:
                loop[number] = loop[before]
        return loop

    @cached_property
    def has_results(self) -> list[bool]:
        """Per turn: do results of client tools follow it?"""
        return [
            any(
                isinstance(part, Result) and part.call_id
                for item in self.turn(number)
                if item.role == "user"
                for part in item.parts
            )
            for number in range(len(self.starts))
        ]
