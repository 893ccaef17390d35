"""The fixed part of the demo's requests: system blocks, tools with schemas, the opening items.

Own words, in the shape that Claude Code sends. Nothing here depends on a seed or on the history.
"""

from __future__ import annotations

from typing import Any

from clifftop.demo.project import NOUNS, ROOT, Project, source_path

MODEL = "claude-opus-5-5"
TASK = (
    "Invoices that are split between two boats are a cent off about once a day (see QUAY-418). "
    "Find out why and "
    "fix it at the root: carry amounts as Money (Decimal) through all modules of src/quayside, "
    "round once, and keep "
    "the public function names. Work module by module, run the tests of each before you go on, "
    "and add tests for the "
    "cases that were wrong. Tell me when everything is green."
)


def system_blocks(project: Project) -> list[dict[str, Any]]:
    """Give the three system blocks; the client marks the last two for the cache."""
    return [
        {
            "type": "text",
            "text": "x-anthropic-billing-header: cc_version=0.0.0.demo; cc_entrypoint=demo;",
        },
        {
            "type": "text",
            "text": "You are a coding agent that works in a terminal, on the user's own files.",
        },
        {"type": "text", "text": _INSTRUCTIONS + _project_notes(project)},
    ]


def opening_messages() -> list[dict[str, Any]]:
    """Give the head of the history: reminders, the task, the environment."""
    reminder = (
        "<system-reminder>\nCurrent branch: money\nMain branch: main\nStatus:\n(clean)\n\nRecent "
        "commits:\n"
        "3f0c9aa ledger: index by day\n81d2e07 tides: read the new gauge\n</system-reminder>"
    )
    environment = (
        f"# Environment\nWorking directory: {ROOT}\nPlatform: linux, bash\nPython: 3.12.7 in "
        ".venv\n"
        f"Model: {MODEL}\nThe context is kept small on your behalf; files can be read again at "
        "any time."
    )
    return [
        {
            "role": "user",
            "content": [{"type": "text", "text": reminder}, {"type": "text", "text": TASK}],
        },
        {"role": "system", "content": environment, "output_config": {"effort": "medium"}},
    ]


def tools() -> list[dict[str, Any]]:
    """Give the declared tools."""
    text, number, flag = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
    path = {"type": "string", "description": "Absolute path."}
    todo = {
        "type": "object",
        "properties": {
            "content": text,
            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
        },
        "required": ["content", "status"],
    }
    return [
        _tool(
            "Bash",
            _BASH,
            {"command": text, "description": text, "timeout": number, "run_in_background": flag},
            1,
        ),
        _tool(
            "Edit",
            _EDIT,
            {"file_path": path, "old_string": text, "new_string": text, "replace_all": flag},
            3,
        ),
        _tool("Glob", _GLOB, {"pattern": text, "path": path}, 1),
        _tool(
            "Grep",
            _GREP,
            {"pattern": text, "path": path, "glob": text, "-A": number, "-n": flag},
            1,
        ),
        _tool(
            "NotebookEdit",
            _NOTEBOOK,
            {"notebook_path": path, "cell_id": text, "new_source": text},
            3,
        ),
        _tool("Read", _READ, {"file_path": path, "offset": number, "limit": number}, 1),
        _tool("TodoWrite", _TODO, {"todos": {"type": "array", "items": todo}}, 1),
        _tool("WebFetch", _FETCH, {"url": {"type": "string", "format": "uri"}, "prompt": text}, 2),
        _tool(
            "WebSearch",
            _SEARCH,
            {"query": text, "allowed_domains": {"type": "array", "items": text}},
            1,
        ),
        _tool("Write", _WRITE, {"file_path": path, "content": text}, 2),
    ]


def _tool(name: str, description: str, properties: dict[str, Any], required: int) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "input_schema": {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:required],
            "additionalProperties": False,
        },
    }


def _project_notes(project: Project) -> str:
    lines = [
        f"- src/quayside/{module}.py: the harbour's {module}; it owns {', '.join(nouns[:-1])} and "
        f"{nouns[-1]}. "
        f"Tests in tests/test_{module}.py. Callers outside: api, cli and the nightly batch."
        for module, nouns in NOUNS.items()
    ]
    names = [
        f"- {module}: {', '.join(name for name, _ in project.functions[source_path(module)])}"
        for module in NOUNS
    ]
    return (
        "\n\n# Notes of this repository (QUAYSIDE.md)\n"
        + "\n".join(lines)
        + _CONVENTIONS
        + "\n# Public names; other teams import them\n"
        + "\n".join(names)
    )


_INSTRUCTIONS = """# How you work
Read before you write. Before a file is changed, read the part that will change in this session,
and the tests that cover it. Prefer a small change to an existing file over a new file. Do not add
comments that repeat the code. Do not change public names unless the user asks for it.

Run the narrowest test first, then the module's tests, then everything. When a test fails, read
the whole failure before you change anything, and say in one sentence what you believe is wrong.
If the same fix has failed twice, stop and look for the cause somewhere else.

# Tools
Use Read, Grep and Glob for looking, Edit and Write for changing, Bash for running. Calls that do
not depend on each other go out together in one step. Never print secrets, never send files to
another machine, never rewrite published history. A command that could destroy work (reset, clean,
drop, rm on a folder) needs the user's word first.

# Talking to the user
Keep it short: what you found, what you changed, what is left. Name files with their line so that
they can be clicked. When the user sets a rule during the work, it holds for the rest of the
session, also when it is not repeated. When you are not sure whether something is wanted, ask one
question and wait.

# Tasks
Keep a list of the open tasks with TodoWrite when there are more than three. Exactly one is in
progress. Mark a task as done only when its tests pass; a task that needs more work stays open and
says what is missing.

# Commits
Commit only when the user asks. One change, one commit; the subject names the module; the body
says why. Leave generated files, lock files and local settings out unless the change is about
them.
"""
_CONVENTIONS = """

# Conventions
- Python 3.12, ruff, mypy in strict mode; lines of at most 110 characters; imports absolute and
  sorted.
- Money is `quayside.units.Money`, four decimals inside; `to_cents` rounds half up and is called
  once per document.
- `Store` hides the database. No SQL outside storage.py except in the reports, which are read-only
  by grant.
- Times are UTC inside, harbour time at the edges; a night belongs to the day on which it began.
- Every public function has a docstring of one sentence. Logging is structured: ids and counts, no
  names of people.
- Tests use the `harbour` fixture (tests/harbour.py): two basins, forty berths, three seasons,
  prices of 2025.
- The nightly batch replays the day's postings; it must give the same ledger when it is run twice.
"""
_BASH = (
    "Run one shell command in the working directory and return what it printed, standard error "
    "included. The shell keeps "
    "its directory between calls, nothing else. Output past 30,000 characters is cut in the "
    "middle. Quote paths with "
    "spaces. Give `description` in five to ten words. Use `timeout` (milliseconds, at most "
    "600,000) for slow commands and "
    "`run_in_background` for servers. Do not use it to read or search files: Read, Grep and Glob "
    "do that better."
)
_EDIT = (
    "Replace one passage of a file by another, exactly. The file must have been read in this "
    "session. `old_string` must "
    "occur once, indentation included and without the line numbers that Read shows; give more "
    "lines around it when it "
    "does not, or set `replace_all` to change every occurrence. Nothing is changed when the "
    "passage is not found."
)
_GLOB = (
    "List files whose path matches a pattern such as src/**/*.py, the most recently changed first."
)
_GREP = (
    "Search the contents of files with a regular expression. `glob` narrows the files, `-A` shows "
    "lines after each hit, "
    "`-n` shows line numbers. Hidden files and files that git ignores are left out."
)
_NOTEBOOK = "Replace the source of one cell of a notebook; the cell is named by its id."
_READ = (
    "Read a file with line numbers. Reads 2,000 lines from the start unless `offset` and `limit` "
    "say otherwise; read the "
    "part you need of a long file. Images are shown as images. A folder cannot be read: use Glob."
)
_TODO = "Write the whole list of tasks anew. Use it for work of three steps or more and keep it "
"true as you go on."
_FETCH = "Fetch a web page, turn it into text and answer `prompt` about it. Plain http becomes "
"https. Read only."
_SEARCH = "Search the web and return titles, addresses and short passages. Say which domains are "
"allowed if it matters."
_WRITE = "Write a file whole; one that exists is replaced and must have been read before. Prefer "
"Edit for small changes."
