"""The scripts that a fresh machine meets first."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def make_venv(python: str, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "make-venv", python, target],
        capture_output=True,
        text=True,
        check=False,
    )


def fake_python(folder: Path, script: str) -> str:
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\n{script}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_missing_venv_module_is_said_in_one_apt_line(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'case "$2" in *ensurepip*) exit 1;; esac')
    done = make_venv(python, tmp_path / "venv")
    assert done.returncode == 1
    assert "apt-get install -y python3-venv" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_old_python_is_said(tmp_path: Path) -> None:
    python = fake_python(tmp_path, 'case "$2" in *version_info*) exit 1;; esac')
    done = make_venv(python, tmp_path / "venv")
    assert done.returncode == 1
    assert "needs Python 3.11" in done.stderr


def test_a_python_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = make_venv("python-of-nowhere", tmp_path / "venv")
    assert done.returncode == 1
    assert "python-of-nowhere was not found" in done.stderr


def test_every_dependency_has_a_decision_note() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    notes = "\n".join(path.read_text() for path in (ROOT / "docs" / "decisions").glob("*.md"))
    extras = project.get("optional-dependencies", {}).values()
    for requirement in (*project["dependencies"], *(name for extra in extras for name in extra)):
        name = requirement.split(">")[0].split("=")[0].split("[")[0]
        assert name in notes, name


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=lambda p: p.name)
def test_every_file_says_what_it_is_for_and_stays_short(path: Path) -> None:
    text = path.read_text()
    assert text.startswith('"""')
    assert len(text.splitlines()) <= 400


def test_scripts_can_be_run() -> None:
    for path in (ROOT / "scripts").iterdir():
        assert os.access(path, os.X_OK), path
