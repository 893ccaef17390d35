"""The demo's story: an agent looks for a lost cent, changes twelve modules, and hears a person.

Scenes that append steps to a `Script`. No HTTP, no clock, no budget, and no order of scenes (that
is `session`).
"""

from __future__ import annotations

from random import Random

from clifftop.demo import output
from clifftop.demo.project import (
    NOUNS,
    ROOT,
    check_path,
    make_check,
    source_path,
    with_decimals,
)
from clifftop.demo.script import Call, Script, bash, todo


def investigate(script: Script) -> None:
    random, project = script.random, script.project
    invoices = source_path("invoices")
    image = {"type": "base64", "media_type": "image/png", "data": output.screenshot_png()}
    script.act(
        "I will look at the repository and at how often the drift happens.",
        [
            bash("git log --oneline -15", "Show recent commits", output.git_log(random, 15)),
            Call(name="Glob", input={"pattern": "**/*.py"}, result=output.file_list(list(NOUNS))),
            bash(
                "sqlite3 var/quay.db < sql/drift.sql",
                "List drifting invoices",
                output.ledger_rows(random, 40),
            ),
        ],
        thought="A cent once a day on split invoices: either each part is rounded by itself or a "
        "total is rounded "
        "twice. The query of the drifting invoices will tell which. If the drift is never more "
        "than two cents and "
        "has both signs, it is rounding and not a missing line.",
    )
    script.act(
        "The drift is one or two cents in both directions, so it is rounding. The log and a "
        "printed invoice next.",
        [
            bash(
                "tail -60 var/quayside.log", "Show the service log", output.server_log(random, 60)
            ),
            Call(
                name="Read",
                input={"file_path": f"{ROOT}/docs/img/Q-41877.png"},
                result=[{"type": "image", "source": image}],
            ),
        ],
    )
    script.act(
        "The office has rules for amounts; I want their wording before I choose where to round.",
        [
            Call(
                name="WebFetch",
                input={
                    "url": "https://harbour-office.example/rules/amounts",
                    "prompt": "How are amounts rounded, split and reversed? Quote the rules.",
                },
                result=output.page_about_rounding(),
            ),
            Call(name="Read", input={"file_path": invoices}, result=project.read(invoices)),
        ],
        thought="The parts on the printed invoice add up to one cent more than its total. That "
        "fits parts which are "
        "rounded one by one in invoices.py. The office's rule decides who takes the remainder.",
    )
    script.act(
        "Each part is rounded and the total is rounded again. I plan the change module by module.",
        [todo([], list(NOUNS))],
    )


def change_module(script: Script, module: str, *, done: list[str], left: list[str]) -> None:
    random, project = script.random, script.project
    path, tests = source_path(module), check_path(module)
    functions = [
        (name, source)
        for name, source in project.functions[path]
        if with_decimals(source) != source
    ]
    names = [name for name, _ in functions]
    hits = project.grep("round(", context=1)
    lines = project.files[path].count("\n")
    script.act(
        f"Now {module}: where it rounds, and who calls it.",
        [
            Call(
                name="Grep",
                input={"pattern": r"round\(", "path": f"{ROOT}/src", "-A": 1, "-n": True},
                result="\n".join(hits.split("\n")[: random.randrange(30, 120)]),
            ),
            Call(
                name="Glob", input={"pattern": f"**/*{module}*"}, result=output.file_list([module])
            ),
        ],
        thought=f"{hits.count(chr(10)) + 1} places still call round(). In {module} there are "
        f"{len(names)} functions that "
        f"return floats; {names[0]} is the one that the api calls first, so its callers see the "
        "change at once. "
        "I read the whole module before I touch it, because a half-converted module mixes Decimal "
        "and float "
        "and fails only where a multiplication happens.",
    )
    first = random.randrange(190, 240)
    script.act(
        "",
        [
            Call(
                name="Read",
                input={"file_path": path, "offset": 1, "limit": first},
                result=project.read(path, count=first),
            )
        ],
    )
    script.act(
        f"The rest of the module and its tests (src/quayside/{module}.py:{first}).",
        [
            Call(
                name="Read",
                input={"file_path": path, "offset": first + 1, "limit": 240},
                result=project.read(path, first=first + 1, count=240),
            ),
            Call(
                name="Read",
                input={"file_path": tests},
                result=project.read(tests),
            ),
        ],
        thought=f"{names[1]} divides an amount over parts, the very case of the ticket. {lines} "
        "lines in all.",
    )
    caller = source_path(random.choice([name for name in NOUNS if name != module]))
    offset = random.randrange(40, 160)
    script.act(
        "What a booking does with these amounts today, and one module that builds on them.",
        [
            bash(
                f"python -m quayside.replay --only {module} --day 2026-05-10",
                "Replay one day",
                output.server_log(random, random.randrange(30, 70)),
            ),
            Call(
                name="Read",
                input={"file_path": caller, "offset": offset, "limit": 110},
                result=project.read(caller, first=offset, count=110),
            ),
        ],
        thought=_reason(random, module, names[2:6]),
    )
    _edit(
        script,
        path,
        functions[:4],
        text=f"{names[0]} and {names[1]} first.",
        thought=_reason(random, module, names),
    )
    if random.random() < 0.4:
        missing = f"        return round({names[2].split('_')[1]}.carry, 4)"
        script.act(
            "",
            [
                Call(
                    name="Edit",
                    input={
                        "file_path": path,
                        "old_string": missing,
                        "new_string": missing.replace("round", "to_cents"),
                    },
                    result="The passage was not found in the file; nothing was changed.",
                    failed=True,
                )
            ],
        )
    _edit(script, path, functions[4:9], text="", thought=_reason(random, module, names[4:9]))
    script.act(
        "Types before tests: the checker lists the callers that still pass floats.",
        [
            bash(
                f"mypy src/quayside/{module}.py",
                "Check the types of one module",
                output.type_errors(random, module, names[9 : random.randrange(14, 18)]),
                failed=False,
            )
        ],
    )
    _edit(
        script,
        path,
        functions[9:14],
        text=f"{module}.py still mixes Money and float in five places.",
        thought=_reason(random, module, names[9:14]),
    )
    if module in ("tariffs", "scheduler", "customs"):
        name, source = functions[2]
        script.act(
            "The tests of the module.",
            [
                bash(
                    f"pytest tests/test_{module}.py -x",
                    "Run the module's tests",
                    output.pytest_failure(random, module, name, with_decimals(source)),
                    failed=True,
                )
            ],
        )
        _edit(
            script,
            path,
            functions[14:16],
            text=f"{name} compares with a float constant; the same pattern sits in "
            f"{functions[14][0]}.",
            thought="The last line tells it: a few cents off, so the factor is applied after the "
            "rounding and not before. "
            f"{name} itself is right now, but it calls {functions[14][0]}, which still rounds by "
            "itself.",
        )
    script.act(
        "",
        [
            bash(
                f"pytest tests/test_{module}.py -v",
                "Run the module's tests, verbosely",
                output.pytest_verbose(random, module, names[: random.randrange(9, 14)]),
            ),
            bash("ruff check src tests", "Lint", "All checks passed!"),
        ],
    )
    new_tests = f"{ROOT}/tests/money/test_{module}_drift.py"
    content = "\n\n".join(
        ['"""Cases of QUAY-418 for ' + f'quayside.{module}."""\n\nimport pytest\n']
        + [make_check(random, name, case="drift") for name in names[: random.randrange(10, 17)]]
    )
    project.files[new_tests] = content
    script.act(
        f"Green. The cases of the ticket for {module} get tests of their own.",
        [
            Call(
                name="Write",
                input={"file_path": new_tests, "content": content},
                result=f"Wrote {len(content.encode()):,} bytes to {new_tests}.",
            )
        ],
    )
    script.act(
        f"Old and new tests together, then {module} is done.",
        [
            bash(
                f"pytest -q tests/test_{module}.py tests/money",
                "Run old and new tests",
                output.pytest_quiet(random, random.randrange(40, 90)),
            ),
            bash(
                f"git diff src/quayside/{module}.py", "Show the module's diff", project.diff(path)
            ),
            todo([*done, module], left),
        ],
        thought=f"New tests for {module} next to the old ones; then a look at the whole diff, to "
        "see that no public name "
        "changed and that to_cents is called once per function.",
    )


def _edit(
    script: Script, path: str, functions: list[tuple[str, str]], *, text: str, thought: str = ""
) -> None:
    calls = []
    for _, source in functions:
        changed = with_decimals(source)
        script.project.replace(path, source, changed)
        calls.append(
            Call(
                name="Edit",
                input={"file_path": path, "old_string": source, "new_string": changed},
                result=f"{path} has been changed ({changed.count(chr(10))} lines).",
            )
        )
    script.act(text, calls, thought=thought)


def _reason(random: Random, module: str, names: list[str]) -> str:
    """Think aloud about a change in a few sentences that name its functions."""
    name, other = names[0], names[-1]
    sentences = [
        f"{name} rounds before it returns, and {other} rounds what it gets from there: two "
        "roundings for one document.",
        f"If {name} returns Money, its callers in {module} get four decimals and to_cents belongs "
        "into the printing only.",
        f"The weights in {other} are integers, so the division stays exact until the remainder is "
        "handed to one part.",
        f"I could leave {other} for later, but then mypy reports the mixed multiplication and the "
        "tests cannot run between.",
        f"The season factor of {name} is a float literal; as a string literal of Money it says "
        "what it means.",
        "The fixture builds its prices from floats – pytest.approx hides that, so a green test "
        "proves little here.",
        "Nothing outside the package calls it with a keyword, so the parameter's type may change "
        "without a new name.",
        "A negative amount turns the rounding around: half up of -0.005 must be the mirror of "
        f"the credit in {module}.",
        "The nightly batch runs it twice on purpose; a cached Money value must not be changed in "
        "place.",
    ]
    picked = [
        sentences.pop(random.randrange(len(sentences))) for _ in range(random.randrange(3, 7))
    ]
    return " ".join(picked)


def hear_person(script: Script, module: str, directive: str) -> None:
    script.say(
        f"{module} and everything before it is converted and green. No public name has changed. I "
        "go on with the next "
        "module unless you want something else first.",
        then=directive,
    )


def finish(script: Script) -> None:
    random = script.random
    cell = "from quayside.units import Money\n\ndrift = "
    f"{{{', '.join(repr(name) + ': 0' for name in NOUNS)}}}\n"
    script.act(
        "All modules are converted. The whole suite, and the drift notebook for the office.",
        [
            bash("pytest -q", "Run everything", output.pytest_quiet(random, 612)),
            Call(
                name="NotebookEdit",
                input={
                    "notebook_path": f"{ROOT}/notebooks/drift.ipynb",
                    "cell_id": "c3",
                    "new_source": cell,
                },
                result="Cell c3 has been replaced.",
            ),
        ],
    )
    script.act(
        "",
        [
            bash(
                "python -m quayside.batch --replay 2026-05-10",
                "Replay a day",
                output.server_log(random, 40),
            ),
            bash(
                "git status --short",
                "Show changed files",
                "\n".join(f" M src/quayside/{name}.py" for name in NOUNS),
            ),
        ],
        thought="Three rules from the user hold: no migrations touched, the ticket number in "
        "every new test, the float "
        "helpers of units.py still there. The status shows no file outside src, tests and "
        "notebooks.",
    )
    script.say(
        "Everything is green: 612 tests. Amounts are Money in all twelve modules, and each "
        "document is rounded once. "
        "The replayed day shows no drift. The migrations folder is untouched, new tests name "
        "QUAY-418, and the float "
        "helpers of units.py are still there for the batch.",
        then=None,
    )
