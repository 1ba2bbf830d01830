"""What a new user meets first: make, the set-up script, CI's entry point."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.house.tree import ROOT

SHARED = ["Makefile", "pyproject.toml", "requirements.lock", "requirements-bootstrap.lock", "requirements-model.lock"]


def _copy(folder: Path) -> Path:
    for name in SHARED:
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    return folder


def _python(folder: Path, body: str) -> str:
    path = folder / "some-python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def _run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))} | variables
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=60)


def test_make_alone_lists_every_target(tmp_path: Path) -> None:
    shown = _run(_copy(tmp_path), "make").stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    for target in phony[1].split():
        assert re.search(rf"make {target} +\w", shown), target


def test_a_second_make_installs_nothing(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    (folder / ".venv").mkdir()
    (folder / ".venv/.ready").touch()
    assert "setup.sh" not in _run(folder, "make", "-n", "test").stdout


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml"])
def test_make_installs_again_after_a_change_of_what_is_installed(tmp_path: Path, changed: str) -> None:
    folder = _copy(tmp_path)
    (folder / ".venv").mkdir()
    (folder / ".venv/.ready").touch()
    later = time.time() + 10
    os.utime(folder / changed, (later, later))
    assert "setup.sh" in _run(folder, "make", "-n", "demo").stdout


def test_an_old_python_is_refused_with_a_sentence(tmp_path: Path) -> None:
    old = _python(tmp_path, "echo 3.09")
    result = _run(_copy(tmp_path), "make", "setup", f"PYTHON={old}")
    assert result.returncode == 2
    assert "is Python 3.9; Headgate needs 3.11 or newer" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_python_without_the_venv_module_is_refused_with_the_package_to_install(tmp_path: Path) -> None:
    bare = _python(tmp_path, 'case "$2" in *version*) echo 3.12 ;; *) exit 1 ;; esac')
    result = _run(_copy(tmp_path), "make", "setup", f"PYTHON={bare}")
    assert result.returncode == 2
    assert "apt install python3-venv" in result.stderr


def test_a_python_that_does_not_run_is_refused_with_a_sentence(tmp_path: Path) -> None:
    result = _run(_copy(tmp_path), "make", "setup", "PYTHON=/nowhere/python3.12")
    assert result.returncode == 2
    assert "'/nowhere/python3.12' does not run" in result.stderr


def test_without_any_python_the_reader_learns_what_to_install(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    (folder / "bin").mkdir()
    for name in ("bash", "dirname"):
        (folder / "bin" / name).symlink_to(str(shutil.which(name)))
    result = _run(folder, str(shutil.which("bash")), "scripts/setup.sh", PATH=str(folder / "bin"), PYTHON="")
    assert result.returncode == 1
    assert "no Python 3.11 or newer on PATH (python3 is absent)" in result.stderr
    assert "apt install python3 python3-venv" in result.stderr


def test_the_licence_is_the_apache_licence_in_full() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "9. Accepting Warranty or Additional Liability" in text


@pytest.mark.parametrize(
    "script",
    [
        "scripts/setup.sh",
        "scripts/test-slurm.sh",
        "deployments/slurm/eval.sh",
        "lib/headgate_bench/postgres/guard.sh",
        ".ci/run",
    ],
)
def test_shell_scripts_parse_and_can_be_run(script: str) -> None:
    assert subprocess.run(["bash", "-n", str(ROOT / script)], check=False).returncode == 0
    assert os.access(ROOT / script, os.X_OK)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert re.search(r"^start make .*\bcheck\b", script, re.MULTILINE)
    assert re.search(r"^start make .*\btest$", script, re.MULTILINE)
    assert "\nmake test\n" in (ROOT / "README.md").read_text()
