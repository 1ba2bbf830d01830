"""The demo itself: interrupted, then run to its end in the same folder."""

# ruff: noqa: ASYNC240, ASYNC251 - a test has nothing else to run meanwhile

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flows.places import Places

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

WINDOW_S = 8


def _started(folder: Path, output: Path, mark: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "headgate.cli",
        "demo",
        "--folder",
        str(folder),
        "--duration",
        str(WINDOW_S),
        "--no-local-model",
    ]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "HEADGATE_"))} | {"DEMO_MARK": mark}
    with output.open("wb") as opened:
        return subprocess.Popen(command, env=environ, stdout=opened, stderr=opened)


def left_of(mark: str) -> list[str]:
    """Return the command lines of the processes that the demo has started and that still run."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"DEMO_MARK={mark}".encode() in environ.read_bytes():
                found.append((environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


async def _runs_to_its_goal(folder: Path, said: Path, mark: str, *, before: int) -> None:
    demo = _started(folder, said, mark)
    assert demo.wait(280) == 0, said.read_text()
    assert left_of(mark) == []
    assert await Places(folder, folder).assert_nothing_lost("demo") >= before + 10 * WINDOW_S
    text = said.read_text()
    assert "done" in text
    for shown in ("affine:sat", "affine:abd", "affine:ded", "agentgym:babyai", "OPENAI_BASE_URL", "--roster FILE"):
        assert shown in text
    page = Path(re.search(r"report  (\S+)", text)[1])  # type: ignore[index]
    assert "solver@main" in page.read_text("utf-8")


@pytest.mark.long
async def test_the_demo_reaches_its_goal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    await _runs_to_its_goal(tmp_path / "demo", tmp_path / "said", "only", before=0)


@pytest.mark.long
@pytest.mark.parametrize(
    "moment",
    [
        # Its flow runs are being started: the moment at which the most processes have something to clear away.
        pytest.param("flow runs started", id="starting"),
        pytest.param(r"[1-9]\d* scored", id="sampling"),
    ],
)
async def test_an_interrupted_demo_leaves_nothing_behind_and_the_next_one_reaches_its_goal(
    tmp_path: Path, moment: str
) -> None:
    folder, said = tmp_path / "demo", tmp_path / "said"
    first = _started(folder, said, "first")
    deadline = time.monotonic() + 120
    while not re.search(moment, said.read_text()):
        assert first.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 130
    assert "Interrupted" in said.read_text()
    assert left_of("first") == []
    before = await Places(folder, folder).assert_nothing_lost("demo")
    await _runs_to_its_goal(folder, said, "second", before=before)
