"""Getting started, followed to the letter: its files and commands, on a port of the test's and for a shorter time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import blocks

pytestmark = pytest.mark.slow

PAGE = "docs/getting-started.md"
BIN = Path(sys.executable).parent


def _block(language: str, containing: str) -> str:
    return next(b.code for b in blocks(language) if b.page == PAGE and containing in b.code)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADGATE_", "OPENAI_", "PREFECT_"))}
    return kept | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}


@pytest.fixture
def endpoint(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The baselines as the page serves them, on a free port; gives the address."""
    served = _block("bash", "serve-baselines").strip()
    command = [BIN / "headgate", *served.replace("--port 8001", "--port 0").split()[1:]]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip().rsplit(" ", 1)[-1]
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)


def _shell(script: str, folder: Path, environment: dict[str, str]) -> str:
    command = ["bash", "-euc", script]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_new_user_samples_the_baselines_and_sees_their_scores(
    tmp_path: Path, environment: dict[str, str], endpoint: str
) -> None:
    roster = _block("yaml", "baseline-solver")
    (tmp_path / "roster.yaml").write_text(roster.replace("http://127.0.0.1:8001/v1", endpoint))
    assert "2 models" in _shell(_block("bash", "--instances 20"), tmp_path, environment)
    _shell(_block("bash", "--duration 60").replace("--duration 60", "--duration 5"), tmp_path, environment)
    seen = _shell(_block("bash", "headgate summary"), tmp_path, environment)
    assert "baseline-solver@main" in seen
    assert "report.html" in seen
    assert "<html" in (tmp_path / "report.html").read_text()[:1_000].lower()
