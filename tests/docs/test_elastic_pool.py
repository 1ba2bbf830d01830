"""The five minutes of elastic pools, followed to the letter: its engines, its file, its client and its commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAGE = "docs/how-to/elastic.md"
HEADGATE = Path(sys.executable).parent / "headgate"
QUESTIONS = 40


def _block(language: str, containing: str) -> str:
    return next(b.code for b in blocks(language) if b.page == PAGE and containing in b.code)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADGATE_", "OPENAI_", "PREFECT_"))}
    return kept | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}


@contextmanager
def _served(*words: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a command that serves, and give the first address in what it says."""
    command = [str(HEADGATE), *words]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        assert found is not None, " ".join(command)
        try:
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


@pytest.fixture
def engines(tmp_path: Path, environment: dict[str, str]) -> Iterator[list[str]]:
    """The three engines of the page, on free ports."""
    with ExitStack() as exits:
        lines = _block("bash", "fake-engine --port").strip().splitlines()
        yield [
            exits.enter_context(
                _served(*re.sub(r"--port \d+", "--port 0", line).split()[1:], folder=tmp_path, environment=environment)
            )
            for line in lines
        ]


@pytest.fixture
def gateway(engines: list[str], tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The gateway of the page in front of them."""
    file = _block("yaml", "127.0.0.1:30000")
    for number, url in enumerate(engines):
        file = file.replace(f"http://127.0.0.1:{30_000 + number}", url)
    (tmp_path / "pool.yaml").write_text(file)
    serve = ("elastic", "serve", "pool.yaml", "--port", "0")
    with _served(*serve, folder=tmp_path, environment=environment) as url:
        yield url


def _run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    result = subprocess.run(
        [str(HEADGATE), *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    return result.stdout


def test_a_new_user_asks_a_pool_and_takes_its_workers_in_hand(
    gateway: str, engines: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    names: dict[str, Any] = {}
    exec(_block("python", "OpenAI(").replace("http://127.0.0.1:8080", gateway), names)
    with ThreadPoolExecutor(QUESTIONS) as threads:
        assert all(threads.map(names["ask"], [f"question {number}" for number in range(QUESTIONS)]))
    names["client"].close()

    steering = environment | {"HEADGATE_ELASTIC_URL": gateway}
    port = engines[1].rsplit(":", 1)[1]
    for line in _block("bash", "elastic scale auto").strip().splitlines():
        _run(line.replace("30001", port).split()[1:], tmp_path, steering)

    told = json.loads(_run(["elastic", "status", "--json"], tmp_path, steering))
    assert (told["pool"]["counts"]["served"], told["pool"]["counts"]["lost"]) == (QUESTIONS, 0)
    assert {worker["state"] for worker in told["pool"]["workers"]} == {"active"}
