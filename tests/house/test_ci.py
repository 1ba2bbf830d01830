"""The entry point of CI, run for real around a small Makefile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.processes.alive import is_alive


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch(mode=0o755)
    return tmp_path


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CI_"))}


def _ci(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", ".ci/run"]
    environment = _environment() | variables
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_ci_sets_up_and_then_checks_and_tests_side_by_side(checkout: Path) -> None:
    meet = "touch $@; until [ -e check ] && [ -e test ]; do sleep 0.05; done; echo step-$@"
    (checkout / "Makefile").write_text(f".PHONY: setup check test\nsetup:\n\t@echo step-$@\ncheck test:\n\t@{meet}\n")
    result = _ci(checkout)
    assert result.returncode == 0, result.stderr
    steps = [line for line in result.stdout.splitlines() if line.startswith("step-")]
    assert steps[0] == "step-setup"
    assert sorted(steps[1:]) == ["step-check", "step-test"]


def test_ci_runs_nothing_after_a_setup_that_fails(checkout: Path) -> None:
    (checkout / "Makefile").write_text("check test:\n\t@echo step-$@\nsetup:\n\t@exit 3\n")
    result = _ci(checkout)
    assert result.returncode != 0
    assert "step-" not in result.stdout
    assert "failed with exit status" in result.stderr


def test_a_check_that_fails_ends_the_tests_beside_it(checkout: Path) -> None:
    (checkout / "Makefile").write_text(
        "setup:\n\t@true\ncheck:\n\t@echo found; exit 3\ntest:\n\t@sleep 300; echo step-$@\n"
    )
    result = _ci(checkout)
    assert result.returncode != 0
    assert "found" in result.stdout
    assert "step-test" not in result.stdout
    assert "failed with exit status 2: make check" in result.stderr


def test_a_check_that_fails_after_the_tests_have_passed_fails_ci(checkout: Path) -> None:
    (checkout / "Makefile").write_text(
        "setup test:\n\t@touch $@\ncheck:\n\t@until [ -e test ]; do sleep 0.05; done; sleep 0.3; echo found; exit 3\n"
    )
    result = _ci(checkout)
    assert result.returncode != 0
    assert "found" in result.stdout
    assert "failed with exit status 2: make check" in result.stderr


def test_ci_ends_what_a_step_left_running_and_names_it(checkout: Path) -> None:
    left = "setsid sleep 300 >/dev/null 2>&1 & echo $$! > pid"
    (checkout / "Makefile").write_text(f"setup check:\n\t@true\ntest:\n\t@{left}\n")
    result = _ci(checkout)
    assert result.returncode == 0
    assert "still running, ended" in result.stderr
    assert "sleep 300" in result.stderr
    assert not is_alive(int((checkout / "pid").read_text()))


def test_ci_ends_at_its_limit_with_a_sentence(checkout: Path) -> None:
    (checkout / "Makefile").write_text("setup check:\n\t@true\ntest:\n\t@sleep 300\n")
    result = _ci(checkout, CI_LIMIT_S="1")
    assert result.returncode != 0
    assert "the limit of 1 s" in result.stderr


def test_ci_ends_its_steps_when_it_is_terminated(checkout: Path) -> None:
    (checkout / "Makefile").write_text("setup:\n\t@echo $$PPID > pid; echo ready; exec sleep 300\n")
    process = subprocess.Popen(
        ["bash", ".ci/run"],
        cwd=checkout,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert any(line.startswith("ready") for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143
    deadline = time.monotonic() + 10
    while is_alive(int((checkout / "pid").read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int((checkout / "pid").read_text()))
