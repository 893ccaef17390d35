"""The demo's session: what a coding agent says in each step, and what answers it.

A pure function of the seed. No HTTP, no clock, no budget: how the session is sent is `agent`, who
answers is `provider`. The agent of the demo is a playback, so each step is fixed beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from clifftop.demo import prompt
from clifftop.demo.project import NOUNS, make_project
from clifftop.demo.scenes import change_module, finish, hear_person, investigate
from clifftop.demo.script import Json, Script, Step

DIRECTIVES = (
    "From now on never touch the migrations folder: Ines is moving it to another repository this "
    "week.",
    "Good. One more rule: every new test needs the ticket number QUAY-418 in its docstring.",
    "Please keep the old float helpers in units.py until Friday, the nightly batch still imports "
    "them.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything that a playback needs; step n's results name it in their ids (`toolu_0042_1`)."""

    seed: int
    model: str
    system: list[Json]
    tools: list[Json]
    head: list[Json]
    steps: tuple[Step, ...]
    directives: tuple[str, ...]

    def messages(self, step: int) -> list[Json]:
        """Give the client's own history in front of step `step`, without cache markers."""
        history = list(self.head)
        for past in self.steps[:step]:
            history.append({"role": "assistant", "content": past.assistant})
            history.append({"role": "user", "content": past.user})
        return history


def make_session(seed: int = 7) -> Session:
    """Write a session of about 150 steps: a cent that gets lost, twelve modules changed for it."""
    random = Random(seed)
    project = make_project(random)
    system = prompt.system_blocks(project)
    script = Script(random=random, project=project)
    investigate(script)
    modules = list(NOUNS)
    for number, module in enumerate(modules):
        change_module(script, module, done=modules[:number], left=modules[number + 1 :])
        if number in (2, 5, 9):
            hear_person(script, module, DIRECTIVES[(2, 5, 9).index(number)])
    finish(script)
    return Session(
        seed=seed,
        model=prompt.MODEL,
        system=system,
        tools=prompt.tools(),
        head=prompt.opening_messages(),
        steps=tuple(script.steps),
        directives=DIRECTIVES,
    )
