"""The path survives in every scaffold's edit tools; no call breaks a signature or its limit."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clifftop.core.signature import signature

BULK = "def f():\n    return 1\n" * 150  # 3,300 characters
PATCH = "*** Begin Patch\n{}\n@@\n-a\n+b\n*** End Patch\n"
JS = 'const p = "*** Begin Patch\\n*** Update File: src/a.py\\n@@\\n+x\\n*** Add File: b.py\\n+y";'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5)
    ),
    max_leaves=20,
)
KEYS = ["path", "file_path", "command", "content", "edits", "patch", "input", "query", "code"]
arguments = (
    st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=12), json_values, max_size=8)
    | st.text(max_size=400)
    | json_values.map(json.dumps)
)
styles = st.sampled_from(["tools", "generic", "openhands"])
objects = st.dictionaries(st.text(max_size=9), json_values, max_size=8)


P = "/home/user/project/src/package/module.py"
HERE = f"cat > {P} <<'EOF'\n{BULK}EOF\n"
# fmt: off
EDIT_CALLS = {
    "Claude Code": [
        ("Write", {"content": BULK, "file_path": P}),
        ("Edit", {"old_string": BULK, "new_string": BULK, "replace_all": False, "file_path": P}),
        ("MultiEdit", {"edits": [{"old_string": BULK, "new_string": BULK}] * 9, "file_path": P}),
        ("NotebookEdit", {"new_source": BULK, "cell_id": "c1", "notebook_path": P}),
    ],
    "Codex": [
        ("apply_patch", PATCH.format(f"*** Update File: {P}")),
        ("apply_patch", {"input": PATCH.format(f"*** Add File: {P}")}),
        ("exec_command", {"yield_time_ms": 1000, "workdir": "/w" * 70, "cmd": HERE}),
        ("shell", {"command": ["apply_patch", PATCH.format(f"*** Delete File: {P}")]}),
        ("exec", f"{BULK}; await tools.apply_patch(`{PATCH.format('*** Update File: ' + P)}`)"),
    ],
    "opencode": [
        ("write", {"content": BULK, "filePath": P}),
        ("edit", {"oldString": BULK, "newString": BULK, "filePath": P}),
        ("apply_patch", {"patchText": PATCH.format(f"*** Update File: {P}") + BULK}),
    ],
    "pi": [
        ("write", {"content": BULK, "path": P}),
        ("edit", {"edits": [{"oldText": BULK, "newText": BULK}] * 5, "path": P}),
    ],
    "Qwen Code": [
        ("write_file", {"content": BULK, "record_as_artifact": True, "file_path": P}),
        ("edit", {"old_string": BULK, "new_string": BULK, "file_path": P}),
        ("notebook_edit", {"new_source": BULK, "edit_mode": "insert", "notebook_path": P}),
        ("tool_call", {"name": "edit", "arguments": {"new_string": BULK, "file_path": P}}),
    ],
    "OpenHands": [
        ("file_editor", {"command": "create", "file_text": BULK, "path": P, "summary": "s"}),
        ("str_replace_editor", {"new_str": BULK, "command": "str_replace", "path": P}),
        ("execute_bash", {"summary": BULK, "command": HERE}),
    ],
    "mini-swe-agent": [("bash", {"command": HERE})],
    "Terminus-2": [("bash_command", {"duration": 1.0, "keystrokes": HERE})],
}
# fmt: on


@pytest.mark.parametrize("scaffold", EDIT_CALLS)
def test_every_edit_tool_keeps_its_path(scaffold):
    for name, call in EDIT_CALLS[scaffold]:
        line = signature(name, call)
        assert P in line
        assert line == signature(name, call if isinstance(call, str) else json.dumps(call))


def test_a_path_too_long_keeps_its_end_and_says_so():
    long = "/deep" * 60 + "/module.py"
    line = signature("Write", {"content": "x", "file_path": long})
    assert line.startswith("Write(file_path=…")
    assert line.endswith("/deep/module.py, …")
    assert len(line) == 151
    assert signature("Read", {"file_path": long}).endswith("/deep/module.py)")
    assert len(signature("Read", {"file_path": long})) == 150
    patched = signature("apply_patch", PATCH.format(f"*** Update File: {long}"))
    assert patched.startswith("apply_patch(update …")
    assert "/deep/module.py; " in patched


# fmt: off
SHAPES = [
    ("Write", {"content": "x" * 3120, "file_path": "/a"}, "(file_path=/a, content=<3,120 chars>)"),
    ("Edit", {"old_string": "a", "file_path": "/a"}, "(file_path=/a, old_string=<1 chars>)"),
    ("Read", {"limit": 5, "offset": 9, "file_path": "/a"}, "(file_path=/a, offset=9, limit=5)"),
    ("Bash", {"description": "list", "command": "ls -la"}, "(command=ls -la, description=list)"),
    ("Grep", {"-n": True, "pattern": "a.*b", "path": "src"}, "(path=src, pattern=a.*b, -n=true)"),
    ("Glob", {"path": "", "pattern": "**/*.py"}, "(path=, pattern=**/*.py)"),
    ("WebFetch", {"prompt": "p" * 151, "url": "http://x"}, "(url=http://x, prompt=<151 chars>)"),
    ("ToolSearch", {"max_results": 5, "query": "select:A"}, "(query=select:A, max_results=5)"),
    ("Agent", {"prompt": "p" * 200, "description": "d"}, "(description=d, prompt=<200 chars>)"),
    ("TodoWrite", {"todos": [{"content": "é"}]}, '(todos=[{"content":"é"}])'),
    ("shell", {"workdir": "/w", "command": ["bash", "ls"]}, "(command=bash ls, workdir=/w)"),
    ("write_stdin", {"session_id": 1, "chars": "y\n"}, "(chars=y\n, session_id=1)"),
    ("exec", 'const r = await tools.f({cmd: "ls"});', '(const r = await tools.f({cmd: "ls"});)'),
    ("edit", {"edits": [{}] * 2000, "path": "a"}, "(path=a, edits=<2,000 items>)"),
    ("think", {"thought": "why"}, "(thought=why)"),
    ("mark_task_complete", {}, "()"),
    ("wait", "", "()"),
    ("f", {"content": None, "edits": 3}, "(content=null, edits=3)"),
    ("tool_call", {"name": "x", "arguments": '{"url": "u"}'}, ":x(url=u)"),
    ("tool_call", {"name": 3, "arguments": {}}, "(name=3, arguments={})"),
    ("tool_call", {"name": "x", "arguments": 3}, "(name=x, arguments=3)"),
    ("import", {"file": BULK}, "(file=<3,300 chars>)"),  # a document, not a path
    ("f", None, "()"),
    ("f", [1, "a"], '([1,"a"])'),
    ("Read", '{"file_path": "/a", "broken', '({"file_path": "/a", "broken)'),
]
# fmt: on


@pytest.mark.parametrize(("name", "call", "shown"), SHAPES)
def test_the_shape_of_a_signature(name, call, shown):
    assert signature(name, call) == name + shown


def test_a_long_key_argument_is_cut_and_not_counted():
    assert signature("Bash", {"command": "x" * 500}) == "Bash(command=" + "x" * 137 + "…"
    assert signature("think", {"thought": "t" * 500}) == "think(thought=" + "t" * 136 + "…"


@pytest.mark.parametrize(
    ("body", "files"),
    [
        ("*** Update File: a\n@@\n*** Add File: b\n+*** Add File: not", "update a, add b"),
        ("*** Update File: a.py\n*** Move to: lib/a.py\r", "update a.py -> lib/a.py"),
        ("*** Move to: x\n*** Add File: a\n*** Move to: b\n*** Move to: c", "add a -> b"),
        ("*** Delete File: a.py\r\n*** Delete File: a.py\r\n", "delete a.py"),
        ("--- a/x.py\t2026\n+++ b/x.py\t2026\n@@ -1 +1 @@", "update x.py"),
        ("--- /dev/null\r\n+++ b/new.py\r\n@@", "add new.py"),
        ("diff --git a/x b/x\n+++ no\n--- a/x\n+++ b/x\n", "update x"),
        ("--- a/old.py\n+++ /dev/null\n--- a/b.py\n+++ b/b.py\n", "delete old.py, update b.py"),
    ],
)
def test_a_patch_keeps_its_file_list(body, files):
    text = f"*** Begin Patch\n{body}\n*** End Patch" if body.startswith("***") else body
    count = f"<{len(text):,} chars>"
    assert signature("apply", text) == f"apply({files}; patch={count})"
    assert signature("apply", {"patchText": text}) == f"apply({files}; patchText={count})"


def test_what_fits_exactly_is_shown_whole():
    for length in range(80, 160):
        path = "/" + "x" * length
        patch = PATCH.format(f"*** Update File: a\n*** Add File: {path}")
        wholes = {
            f"f(query={path})": signature("f", {"query": path}),
            f"f(path={path})": signature("f", {"path": path}),
            f"f(path={path}, x=1)": signature("f", {"path": path, "x": 1}),
            f"f(update a, add {path}; patch=<{len(patch)} chars>)": signature("f", patch),
        }
        assert wholes[list(wholes)[-1]].endswith(f"; patch=<{len(patch)} chars>)")
        for whole, line in wholes.items():
            assert (line == whole) == (len(whole) <= 150)
            assert ("…" in line or "+1 more" in line) == (len(whole) > 150)


def test_files_that_do_not_fit_are_counted():
    body = "".join(f"*** Update File: src/module_{i}.py\n@@\n" for i in range(40))
    line = signature("apply_patch", f"*** Begin Patch\n{body}*** End Patch")
    assert line.startswith("apply_patch(update src/module_0.py, update src/module_1.py, ")
    assert line.endswith(", +36 more; patch=<1,499 chars>)")


def test_a_patch_inside_a_script_names_its_files_before_the_script():
    assert signature("exec", JS).startswith("exec(update src/a.py, add b.py; const p = ")
    here = "cd /w && apply_patch <<'EOF'\n" + PATCH.format("*** Update File: a.py")
    assert signature("run", {"cmd": here}).startswith("run(update a.py; cmd=cd /w && apply")


def test_edits_of_several_files_keep_their_paths():
    edits = [{"new": BULK, "filePath": "a.py"}, {"filePath": "b.py"}, {"filePath": "a.py"}, 7]
    assert signature("multi", {"edits": edits}) == "multi(a.py, b.py; edits=<4 items>)"
    both = signature("multi", {"edits": edits, "path": "/w"})
    assert both == "multi(path=/w, a.py, b.py; edits=<4 items>)"


def compact(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(st.text(max_size=20), objects, st.integers(0, 300))
def test_generic_is_the_whole_call_cut_at_the_limit(name, call, limit):
    whole = f"{name}({', '.join(f'{key}={compact(value)}' for key, value in call.items())})"
    expected = whole if len(whole) <= limit else whole[:limit] + "…"
    assert signature(name, call, style="generic", limit_chars=limit) == expected


def test_openhands_drops_and_cuts_as_the_paper_says():
    call = {"command": "c" * 200, "old_str": "o" * 80, "security_risk": "LOW", "path": "/a"}
    call["summary"] = "s"
    whole = f"file_editor(path=/a, command={'c' * 120}…, old_str={'o' * 60}…)"
    assert signature("file_editor", call, style="openhands", limit_chars=999) == whole
    assert signature("file_editor", call, style="openhands") == whole[:150] + "…"
    assert signature("task_tracker", {"command": "plan"}, style="openhands") == ""
    assert signature("task_tracker", {"command": "plan"}) == "task_tracker(command=plan)"


@given(st.text(min_size=1, max_size=64), arguments, styles, st.integers(0, 200))
def test_any_call_gives_one_bounded_line_that_begins_with_its_name(name, call, style, limit):
    line = signature(name, call, style=style, limit_chars=limit)
    assert line.removesuffix("…").startswith(name[:limit]) or name == "task_tracker"
    assert len(line) <= limit or (len(line) == limit + 1 and line.endswith("…"))
    assert line == signature(name, call, style=style, limit_chars=limit)


@given(objects, styles)
def test_arguments_as_json_text_and_as_a_mapping_are_one(call, style):
    assert signature("f", json.dumps(call), style=style) == signature("f", call, style=style)


@given(
    st.sampled_from(["path", "file_path", "filePath", "notebook_path", "absolutePath"]),
    st.from_regex(r"/[a-z0-9_./-]{0,80}[a-z]", fullmatch=True),
    st.lists(st.tuples(st.sampled_from(["content", "edits", "old_str", "x"]), json_values)),
    st.integers(0, 6),
)
def test_a_path_that_fits_is_kept_for_any_key_order(key, path, others, at):
    others.insert(at, (key, path))
    assert signature("mcp__files__save", dict(others)).startswith(f"mcp__files__save({key}={path}")


@given(json_values)
def test_no_value_of_any_type_raises(value):
    signature("f", value)


def test_hostile_values_cost_little():
    deep: list[object] = []
    for _ in range(50_000):
        deep = [deep]
    hostile = [
        {"content": "x" * 5_000_000, "file_path": "/a", "x": [["y"]] * 300_000},
        {"x": deep, "content": deep, "n": 10**5_000, "paths": ["a" * 1_000_000] * 2},
        {str(number): number for number in range(300_000)},
        "*** Update File: a\n" + "*** Move to: b\n" * 100_000,
        {"patch": "--- a\n+++ b\n" * 100_000},
        '{"a":' + "[" * 100_000,
    ]
    for call in hostile:
        assert len(signature("f", call)) <= 151


def test_recorded_calls_keep_their_paths_and_commands(test_data):
    seen: Counter[str] = Counter()
    for file in sorted(test_data.glob("captures/*/0*.json")):
        for name, call in calls_in(json.loads(file.read_text())["body"]):
            line = signature(name, call)
            fields = json.loads(call) if isinstance(call, str) and call[0] == "{" else call
            for key in ("file_path", "filePath", "path", "command", "cmd"):
                if isinstance(fields, dict) and key in fields:
                    assert fields[key][:100] in line
            assert len(line) <= 151
            seen[name] += 1
            if name == "apply_patch":
                assert line == "apply_patch(update src/app.py; patch=<83 chars>)"
    assert {"Bash", "Read", "exec_command", "apply_patch", "exec", "bash", "read_file"} <= set(seen)


def calls_in(node):
    """Walk a request body of any dialect and yield (name, arguments) of each call."""
    if isinstance(node, list):
        for item in node:
            yield from calls_in(item)
    elif isinstance(node, dict):
        match node:
            case {"type": "tool_use", "name": str(name), "input": dict(call)}:
                yield name, call
            case {"type": "function_call", "name": str(name), "arguments": str(call)}:
                yield name, call
            case {"type": "custom_tool_call", "name": str(name), "input": str(call)}:
                yield name, call
            case {"function": {"name": str(name), "arguments": str(call)}}:
                yield name, call
            case _:
                for value in node.values():
                    yield from calls_in(value)
