"""The docs are true: code blocks run, links lead somewhere, settings are written down."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from clifftop.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SETTINGS = ROOT / "docs" / "settings.md"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), {})
    if page == ROOT / "README.md":
        before, after = capsys.readouterr().out.split(" -> ")
        assert int(after) < int(before) / 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_the_docs_exist(page: Path) -> None:
    options = {option for name in COMMANDS for option in options_of(name)}
    for line in re.findall(r"^ *clifftop (?!\d)(.+)$", page.read_text(), re.MULTILINE):
        words = line.split("#")[0].split(" -- ")[0].split()
        assert words[0] in COMMANDS, line
        for word in words[1:]:
            if word.startswith("--"):
                assert word.split("=")[0] in options | {"--json"}, line


def test_every_setting_is_in_docs_settings(request: pytest.FixtureRequest) -> None:
    text = settings_page()
    if request.config.getoption("--update-golden"):
        SETTINGS.write_text(text)
    assert SETTINGS.read_text() == text, "run pytest --update-golden tests/test_docs.py"


def command_of(name: str) -> click.Command:
    command: click.Command = import_module(f"clifftop.cli.{name}").command
    return command


def options_of(name: str) -> list[str]:
    return [
        opt for param in command_of(name).params for opt in (*param.opts, *param.secondary_opts)
    ]


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Made from the commands' own options by `pytest --update-golden tests/test_docs.py`.",
        "A flag wins over the environment, the environment over the default.",
    ]
    for name in sorted(COMMANDS):
        lines += ["", f"## clifftop {name}", "", "| flag | environment | default | what it does |"]
        lines += ["| --- | --- | --- | --- |"]
        for param in command_of(name).params:
            if isinstance(param, click.Option):
                default = param.default if param.show_default and param.default is not None else ""
                values = getattr(param.type, "choices", None)
                help_text = " ".join((param.help or "").split())
                allowed = f"({', '.join(map(str, values))})" if values else ""
                what = " ".join(filter(None, [help_text, allowed]))
                lines.append(f"| `{param.opts[0]}` | {param.envvar or ''} | {default} | {what} |")
    return "\n".join(lines) + "\n"
