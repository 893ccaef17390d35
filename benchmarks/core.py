"""CPU of the core and the command line, as ratios measured in one run where a ratio makes sense.

Run: .venv/bin/python benchmarks/core.py. Prints one JSON object; nothing is asserted.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from clifftop.core.decide import Decider, Terms
from clifftop.dialects.anthropic import AnthropicMessages
from tests.long_sessions import TASK, body_of, tool_turn

ROUNDS = 7


def cpu_ms(work: Callable[[], object]) -> float:
    """Median CPU of one call, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1e3


def child_cpu_ms(*arguments: str) -> float:
    """Median CPU of a child process, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times) * 1e3


def decided(head_chars: int, turns: int) -> dict[str, float]:
    """One request over a long history: reading, deciding, and parse-and-dump of the same body."""
    messages = [{"role": "user", "content": "y" * head_chars}]
    for number in range(turns):
        messages += tool_turn(number, 200)
    body = body_of(messages)
    dialect = AnthropicMessages()
    terms = Terms(budget_tokens=16_000, rate=0.25)

    def decide() -> None:
        Decider(dialect.read(body).history, terms).decide()

    read = cpu_ms(lambda: dialect.read(body))
    both = cpu_ms(decide)
    standard = cpu_ms(lambda: json.dumps(json.loads(body)))
    return {
        "body_mb": round(len(body) / 1e6, 2),
        "read_ms": round(read, 1),
        "decide_ms": round(both - read, 1),
        "read_and_decide_to_json": round(both / standard, 2),
    }


def main() -> None:
    messages = [TASK, *(message for n in range(400) for message in tool_turn(n, 2_300))]
    body = body_of(messages)
    dialect, terms = AnthropicMessages(), Terms(budget_tokens=45_000, rate=0.25)

    def whole() -> None:
        request = dialect.read(body)
        decider = Decider(request.history, terms)
        request.render(decider.plan(decider.decide().placement))

    print(
        json.dumps(
            {
                "help_ms": round(child_cpu_ms("-m", "clifftop", "--help"), 1),
                "bare_python_ms": round(child_cpu_ms("-c", "pass"), 1),
                "one_mb_request_to_json": round(
                    cpu_ms(whole) / cpu_ms(lambda: json.dumps(json.loads(body))), 2
                ),
                "head_small_2000_turns": decided(99, 2_000),
                "head_over_budget_2000_turns": decided(68_000, 2_000),
                "head_three_budgets_2000_turns": decided(192_000, 2_000),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
