"""How to compact, as an object: history in, plan out. Stateless.

One policy so far: `Cliff`. What it is measured against will stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from clifftop.core.decide import Decider, Terms
from clifftop.core.plan import Plan, check
from clifftop.core.profile import DEFAULT, Profile
from clifftop.core.sizes import DEFAULT_RATE
from clifftop.core.turns import History

DEFAULT_BUDGET_TOKENS = 45_000  # paper 3.1, Claude Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """CliffCompaction of one history at a time.

    `budget_tokens`: size at which a cliff is made; `keep_recent`: newest turns kept as they are.
    """

    budget_tokens: int = DEFAULT_BUDGET_TOKENS
    keep_recent: int | None = None
    profile: Profile = DEFAULT
    rate: float = DEFAULT_RATE

    def plan(self, history: History) -> Plan:
        """Plan the outgoing items of a history that was never seen before.

        The plan keeps every item while the history is within the budget.

        Raises:
            PlanError: the history is so damaged that no valid plan was found.
        """
        profile = self.profile
        if self.keep_recent is not None:
            profile = replace(profile, keep_recent=self.keep_recent)
        terms = Terms(budget_tokens=self.budget_tokens, profile=profile, rate=self.rate)
        decider = Decider(history, terms)
        plan = decider.plan(decider.decide().placement)
        check(plan, history)
        return plan
