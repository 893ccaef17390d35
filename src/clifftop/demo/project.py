"""The made-up project that the demo's session works on: source, tests and what its tools print.

Everything is generated from a seeded `Random`; the same seed gives the same bytes. No file system,
no clock, no real code of anybody, and nothing that knows of agents, requests or providers.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from random import Random

ROOT = "/home/mara/quayside"

NOUNS = {
    "tariffs": ("tariff", "surcharge", "season", "bracket"),
    "invoices": ("invoice", "line", "deposit", "credit"),
    "berths": ("berth", "mooring", "pontoon", "slot"),
    "tides": ("tide", "gauge", "forecast", "window"),
    "ledger": ("entry", "account", "posting", "balance"),
    "scheduler": ("booking", "arrival", "waitlist", "shift"),
    "pilots": ("pilot", "escort", "roster", "transit"),
    "fuel": ("bunker", "meter", "delivery", "quote"),
    "customs": ("manifest", "declaration", "permit", "duty"),
    "reports": ("report", "column", "digest", "period"),
    "notify": ("notice", "channel", "template", "receipt"),
    "storage": ("row", "batch", "snapshot", "cursor"),
}
_VERBS = (
    "settle",
    "apply",
    "merge",
    "split",
    "allocate",
    "resolve",
    "adjust",
    "reconcile",
    "project",
)
_TAILS = ("share", "total", "fee", "rate", "hold", "delta", "quota", "margin", "refund", "cap")
_FLAGS = ("is_visitor", "is_overdue", "is_shared", "is_seasonal", "is_exempt", "is_provisional")
_EXTRAS = ("base_fee", "carry", "night_extra", "handling", "opening", "levy")

_MONEY = (
    '''def {name}({noun}: {Noun}, *, nights: int = {n}) -> float:
    """Return what `{noun}` owes for `nights`, {extra} included."""
    if nights <= 0:
        raise ValueError(f"nights must be positive, got {{nights}}")
    base = {noun}.{extra} + {noun}.rate * nights
    if {noun}.{flag}:
        base = base * {factor}
    total = round(base, 2)
    logger.debug("{name} nights=%d base=%s total=%s", nights, base, total)
    return total
''',
    '''def {name}({noun}s: Sequence[{Noun}], amount: float) -> list[float]:
    """Divide `amount` over `{noun}s` by weight; the last one takes what is left."""
    weight = sum(item.weight for item in {noun}s)
    if not weight:
        return [0.0] * len({noun}s)
    parts: list[float] = []
    for item in {noun}s[:-1]:
        part = round(amount * item.weight / weight, 2)
        parts.append(part + item.{extra} if item.{flag} else part)
    parts.append(round(amount - sum(parts), 2))
    return parts
''',
    '''def {name}(store: Store, {noun}_id: int, *, day: date) -> float:
    """Sum the {noun}'s movements up to `day`, {n} days of grace counted in."""
    until = day + timedelta(days={n})
    rows = store.fetch(
        "SELECT amount, kind FROM {noun}_moves WHERE {noun}_id = ? AND booked <= ?",
        ({noun}_id, until.isoformat()),
    )
    due = 0.0
    for amount, kind in rows:
        sign = -1.0 if kind == "{tail}" else 1.0
        due += sign * float(amount)
    return round(due * {factor}, 2)
''',
    '''def {name}(current: {Noun}, previous: {Noun} | None) -> float:
    """Compare two readings of one {noun} and price the difference."""
    if previous is None or previous.{flag}:
        return round(current.{extra}, 2)
    step = current.{extra} - previous.{extra}
    if abs(step) < {factor}:
        return 0.0
    return round(step * current.rate, 2)
''',
)
_PLAIN = (
    '''def load_{name}(raw: Mapping[str, str]) -> {Noun}:
    """Build a {noun} from one CSV row; missing fields take the harbour's defaults."""
    code = raw.get("code", "").strip().upper()
    if len(code) != {n}:
        raise FormatError(f"{noun} code {{code!r}} is not {n} letters")
    return {Noun}(
        code=code,
        weight=int(raw.get("weight") or 1),
        {extra}=float(raw.get("{extra}") or 0),
        {flag}=raw.get("{flag}", "no") == "yes",
    )
''',
    '''def {name}_by_day({noun}s: Iterable[{Noun}]) -> dict[date, list[{Noun}]]:
    """Group {noun}s by the day they start, oldest first, dropping {flag} ones."""
    days: dict[date, list[{Noun}]] = defaultdict(list)
    for item in sorted({noun}s, key=lambda item: (item.starts, item.code)):
        if item.{flag} and item.weight < {n}:
            continue
        days[item.starts.date()].append(item)
    return dict(days)
''',
    '''@lru_cache(maxsize={n}00)
def find_{name}(code: str) -> {Noun} | None:
    """Look a {noun} up by its code, first in the override table."""
    override = OVERRIDES.get(code.casefold())
    if override is not None:
        return override
    with connect() as db:
        row = db.execute("SELECT * FROM {noun} WHERE code = ?", (code,)).fetchone()
    return {Noun}(**row) if row else None
''',
)
_HEADER = '''"""{Title} of the harbour: what a {noun} is and what it costs."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache

from quayside.errors import FormatError
from quayside.models import {models}
from quayside.storage import Store, connect

logger = logging.getLogger("quayside.{module}")
OVERRIDES: dict[str, {Noun}] = {{}}
'''
_TEST = """@pytest.mark.parametrize(
    ("nights", "expected"),
    [({a}, {b}), ({c}, {d})],
)
def test_{name}_{case}(harbour: Harbour, nights: int, expected: float) -> None:
    {noun} = harbour.{noun}("{code}", {extra}={b})
    {noun}.{flag} = nights > {a}
    assert {name}({noun}, nights=nights) == pytest.approx(expected)
"""


@dataclass(slots=True, kw_only=True)
class Project:
    """Files by path, changed by the session as it goes; `functions[path]`: (name, source)."""

    random: Random
    files: dict[str, str] = field(default_factory=dict)
    original: dict[str, str] = field(default_factory=dict)
    functions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def read(self, path: str, *, first: int = 1, count: int = 2_000) -> str:
        """Show lines with their numbers, as an agent's Read tool does."""
        lines = self.files[path].split("\n")[first - 1 : first - 1 + count]
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))

    def grep(self, word: str, *, context: int = 0) -> str:
        """Search all files for `word`; `path:line:text`, with `context` lines after each."""
        found: list[str] = []
        for path, text in self.files.items():
            lines = text.split("\n")
            for i, line in enumerate(lines):
                if word in line:
                    short = path.removeprefix(ROOT + "/")
                    found.append(f"{short}:{i + 1}:{line}")
                    found += [
                        f"{short}-{i + j + 2}-{after}"
                        for j, after in enumerate(lines[i + 1 : i + 1 + context])
                    ]
        return "\n".join(found) or "No matches found"

    def replace(self, path: str, old: str, new: str) -> None:
        """Do what an Edit call says; the text must be there once."""
        if self.files[path].count(old) != 1:
            raise ValueError(f"{old[:40]!r} occurs {self.files[path].count(old)} times in {path}")
        self.files[path] = self.files[path].replace(old, new)

    def diff(self, path: str) -> str:
        """Show what changed in a file since the session began, as git diff does."""
        short = path.removeprefix(ROOT + "/")
        lines = difflib.unified_diff(
            self.original.get(path, "").split("\n"),
            self.files[path].split("\n"),
            f"a/{short}",
            f"b/{short}",
            lineterm="",
        )
        return f"diff --git a/{short} b/{short}\n" + "\n".join(lines)


def make_project(random: Random) -> Project:
    """Write all modules and their tests."""
    project = Project(random=random)
    for module, nouns in NOUNS.items():
        path, test_path = source_path(module), check_path(module)
        functions = _functions(random, module)
        header = _HEADER.format(
            Title=module.capitalize(),
            module=module,
            noun=nouns[0],
            Noun=nouns[0].capitalize(),
            models=", ".join(sorted(noun.capitalize() for noun in nouns)),
        )
        project.functions[path] = functions
        project.files[path] = header + "\n\n" + "\n\n".join(source for _, source in functions)
        project.files[test_path] = _checks(random, module, [name for name, _ in functions])
    project.original = dict(project.files)
    return project


def source_path(module: str) -> str:
    """Name a module's file."""
    return f"{ROOT}/src/quayside/{module}.py"


def check_path(module: str) -> str:
    """Name the file of a module's tests."""
    return f"{ROOT}/tests/test_{module}.py"


def with_decimals(source: str) -> str:
    """Rewrite one function from float to Money, the change that the session is about."""
    lines = source.replace("-> float", "-> Money").replace("list[float]", "list[Money]").split("\n")
    changed = []
    for line in lines:
        text = line.replace("amount: float", "amount: Money").replace("float(", "Money.parse(")
        text = (
            text.replace("= 0.0", "= ZERO")
            .replace("[0.0]", "[ZERO]")
            .replace("return 0.0", "return ZERO")
        )
        if "round(" in text:
            indent = text[: len(text) - len(text.lstrip())]
            changed.append(
                f"{indent}# One rounding, at the end, half up: the printed invoice is the contract."
            )
            text = text.replace("round(", "to_cents(").replace(", 2)", ")")
        changed.append(text)
    return "\n".join(changed)


def _functions(random: Random, module: str) -> list[tuple[str, str]]:
    made: dict[str, str] = {}
    while len(made) < 33:
        noun, verb, tail = (
            random.choice(NOUNS[module]),
            random.choice(_VERBS),
            random.choice(_TAILS),
        )
        name = f"{verb}_{noun}_{tail}"
        if name in made:
            continue
        template = random.choice(_MONEY) if len(made) % 3 else random.choice(_PLAIN)
        made[name] = template.format(
            name=name,
            noun=noun,
            Noun=noun.capitalize(),
            tail=tail,
            n=random.randrange(2, 9),
            flag=random.choice(_FLAGS),
            extra=random.choice(_EXTRAS),
            factor=f"{random.randrange(5, 160) / 100:.2f}",
        )
    return list(made.items())


def _checks(random: Random, module: str, names: list[str]) -> str:
    tests = [
        '"""'
        + f'Tests of quayside.{module}."""'
        + f"\n\nimport pytest\n\nfrom quayside.{module} import (\n"
    ]
    tests[0] += (
        "".join(f"    {name},\n" for name in sorted(names))
        + ")\nfrom tests.harbour import Harbour\n"
    )
    for name in names:
        tests.append(make_check(random, name))
    return "\n\n".join(tests)


def make_check(random: Random, name: str, case: str = "nights") -> str:
    """Write one parametrised test of a function."""
    low = random.randrange(1, 5)
    return _TEST.format(
        name=name,
        case=case,
        noun=name.split("_")[1],
        code="".join(random.choice("ABCDEFGHKLMNPRSTVX") for _ in range(5)),
        a=low,
        b=f"{random.randrange(1_000, 9_999) / 100:.2f}",
        c=low + random.randrange(1, 9),
        d=f"{random.randrange(10_000, 99_999) / 100:.2f}",
        extra=random.choice(_EXTRAS),
        flag=random.choice(_FLAGS),
    )
