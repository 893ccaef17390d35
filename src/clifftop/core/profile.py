"""The constants of the algorithm, gathered into profiles. No behaviour beyond looking them up.

`DEFAULT` is what we recommend to people, `PAPER` is the paper, `REFERENCE` renders what the
authors' own proxy renders. A changed value changes blocks: `Profile.digest` is stored with each
placement.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from typing import Literal

from clifftop.core.signature import Style

UserText = Literal["drop", "window", "pin"]

RENDERING_VERSION = 1
"""Raised whenever the same values render another text, so that stored placements tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """How much of each kind of content an excerpt keeps, in characters (code points).

    `result_chars` is None where results are left out altogether, holes included.
    """

    thought_chars: int
    signature_chars: int
    result_chars: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """How hard one cliff cuts. `share`: part of the budget that excerpts may fill, None = all."""

    keep_recent: int
    caps: Caps
    share: float | None = None


FULL = Caps(thought_chars=300, signature_chars=150, result_chars=500)  # paper 2.2
LEAN = Caps(thought_chars=100, signature_chars=80, result_chars=None)
WHOLE_THOUGHTS = Caps(thought_chars=1 << 31, signature_chars=150, result_chars=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way to compact.

    `failure_chars`: what stays of the end of a long failed result; 0 drops it.
    `note_chars`, `pin_share`: caps on injected text and on all that outlives its window.
    `has_guard`: wait until a cliff pays, with harder rungs if need be; without it, as in the paper,
    every crossing is a cliff of rung 0. `rungs`: the ladder, mildest first.
    """

    name: str
    keep_recent: int = 3
    caps: Caps = FULL
    failure_chars: int = 500
    names_holes: bool = True
    results_on_call_line: bool = True
    user_text: UserText = "pin"
    note_chars: int = 2_000
    pin_share: float = 0.10
    signatures: Style = "tools"
    has_guard: bool = True
    layout: Literal["lines", "reference"] = "lines"
    rungs: tuple[Rung, ...] = field(init=False)

    def __post_init__(self) -> None:
        ladder = [Rung(keep_recent=self.keep_recent, caps=self.caps)]
        if self.has_guard:
            ladder += [
                Rung(keep_recent=1, caps=self.caps),
                Rung(keep_recent=1, caps=LEAN),
                *(Rung(keep_recent=1, caps=LEAN, share=0.10 / 2**halved) for halved in range(3)),
            ]
        object.__setattr__(self, "rungs", tuple(ladder))

    @property
    def digest(self) -> bytes:
        """Identity of the rendering rules, 8 bytes."""
        return blake2b(repr((RENDERING_VERSION, astuple(self))).encode(), digest_size=8).digest()


DEFAULT = Profile(name="default")
PAPER = Profile(
    name="paper",
    failure_chars=0,
    names_holes=False,
    results_on_call_line=False,
    user_text="window",
    signatures="generic",
    has_guard=False,
)
REFERENCE = Profile(
    name="reference",
    caps=WHOLE_THOUGHTS,
    failure_chars=0,
    names_holes=False,
    results_on_call_line=False,
    user_text="window",
    signatures="generic",
    has_guard=False,
    layout="reference",
)
PROFILES = {profile.name: profile for profile in (DEFAULT, PAPER, REFERENCE)}
