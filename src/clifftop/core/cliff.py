"""Algorithm 1 of the paper: one compaction of a live session.

Old turns become excerpts, the newest K stay byte for byte. Nothing is rephrased: an excerpt is the
original text, or a marked prefix or suffix of it. The rules that decide *when* this happens are in
`decide`, what outlives its window is in `lasting`, how excerpts become one text is in `block`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clifftop.core.profile import Caps, Profile
from clifftop.core.signature import signature
from clifftop.core.turns import Call, Item, Media, Note, Other, Result, Said, Thought, Typed


class Excerpt(NamedTuple):
    """What is left of one part. `kind` is the label that the block shows."""

    kind: str
    text: str


class Compaction(NamedTuple):
    """Excerpts of the old turns, and the newest turns untouched."""

    parts: list[Excerpt]
    recent: list[Sequence[Item]]


def compact(turns: Sequence[Sequence[Item]], *, profile: Profile, rung: int = 0) -> Compaction:
    """Compact a live session.

    `turns` holds original turns only, never an earlier block: a cliff is flat. `block` makes the
    same excerpts turn by turn, so that a long history is measured without being rendered again.

    Source: paper, Algorithm 1, lines 1-14.
    """
    keep, caps = profile.rungs[rung].keep_recent, profile.rungs[rung].caps
    old, recent = turns[:-keep], turns[-keep:]
    parts = [excerpt for turn in old for excerpt in excerpts(turn, profile=profile, caps=caps)]
    return Compaction(parts, list(recent))


def excerpts(turn: Sequence[Item], *, profile: Profile, caps: Caps) -> list[Excerpt]:
    """Give what stays of one turn, in the order of the originals."""
    kept: list[Excerpt] = []
    parts = [part for item in turn for part in item.parts]
    results = {part.call_id: part for part in parts if isinstance(part, Result) and part.call_id}
    calls = {part.id for part in parts if isinstance(part, Call)}
    for part in parts:
        match part:
            case Thought(text=text) if text.strip():
                kept.append(Excerpt("thought", truncate(text, caps.thought_chars)))
            case Said(text=text) if text.strip():
                kept.append(Excerpt("said", truncate(text, caps.thought_chars)))
            case Call(id=call_id, name=name, arguments=arguments):
                line = signature(
                    name, arguments, style=profile.signatures, limit_chars=caps.signature_chars
                )
                if profile.results_on_call_line and call_id in results:
                    outcome = outcome_of(results[call_id], profile=profile, caps=caps)
                    line = f"{line} -> {outcome}" if outcome else line
                if line:
                    kept.append(Excerpt("call", line))
            case Result(call_id=call_id):
                is_shown = profile.results_on_call_line and call_id in calls
                outcome = "" if is_shown else outcome_of(part, profile=profile, caps=caps)
                if outcome:
                    kept.append(Excerpt("result", outcome))
            case Typed(text=text) | Note(text=text) if profile.user_text == "window":
                if text.strip():
                    kept.append(Excerpt("person", text))
            case Media(kind=kind) | Other(kind=kind) if profile.names_holes:
                kept.append(Excerpt("note", f"{kind} dropped"))
            case _:
                pass
    return kept


def outcome_of(result: Result, *, profile: Profile, caps: Caps) -> str:
    """Give what stays of a result: all of it when short, else at most a trace of it."""
    if caps.result_chars is None:
        return ""
    text = result.text.strip()
    if len(text) > caps.result_chars:
        if result.is_error and profile.failure_chars:
            tail = text[-profile.failure_chars :]
            text = f"failed, last {len(tail):,} of {len(text):,} chars: …{tail}"
        else:
            text = hole(len(text)) if profile.names_holes else ""
    elif profile.names_holes:
        text = f"failed: {text}" if result.is_error else text or ("" if result.media else "empty")
    dropped = [f"{kind} dropped" for kind in result.media] if profile.names_holes else []
    return " ".join(filter(None, [text, *dropped]))


def hole(chars: int, handle: str | None = None) -> str:
    """Name what was dropped: its length in characters, and the handle that fetches it back."""
    recall = f"; clifftop recall {handle}" if handle else ""
    return f"dropped ({chars:,} chars{recall})"


def truncate(text: str, chars: int) -> str:
    """Keep the first `chars` code points, and mark the cut."""
    return text if len(text) <= chars else text[:chars] + "…"
