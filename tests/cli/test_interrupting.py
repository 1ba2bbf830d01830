"""Ctrl-C: the first drains and says so, the second ends at once with a status of its own; a reader that has gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from tests.cli.conftest import Command


async def _interrupted_twice(*_: Any, stop: asyncio.Event, **__: Any) -> None:
    """What a run looks like from outside whose episodes in progress never end."""
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


@pytest.mark.parametrize("command", ["run", "judge"])
def test_a_second_interrupt_ends_at_once_with_a_line_and_status_130(
    headgate: Command, roster: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("headgate.run.run_campaign", _interrupted_twice)
    monkeypatch.setattr("headgate.run.run_judged", _interrupted_twice)
    said = headgate(command, "--roster", str(roster), "--set", "drain_timeout_s=7", "--instances", "1")
    assert said.status == 130
    first, second = said.err.splitlines()
    assert "has 7 s to end (drain_timeout_s); Ctrl-C again ends at once" in first
    assert second == "interrupted; what was sampled is safe"
    assert "Traceback" not in said.out


@pytest.mark.parametrize(("tasks", "status"), [("2000", 130), ("1", 0)])
def test_a_run_that_was_told_to_end_says_whether_tasks_are_left(
    headgate: Command, monkeypatch: pytest.MonkeyPatch, tasks: str, status: int
) -> None:
    import headgate.run as runs

    run = runs.run_campaign

    async def told_to_end(*given: Any, **further: Any) -> Any:
        if status:
            asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGTERM)
        return await run(*given, **further)

    monkeypatch.setattr("headgate.run.run_campaign", told_to_end)
    said = headgate("run", "--roster", "baselines", "-e", "affine:sat", "--instances", tasks)
    assert said.status == status, said.err


@pytest.mark.parametrize("words", [["environments"], ["environments", "--json"], ["config", "show", "--json"]])
def test_output_that_nobody_reads_any_more_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        try:
            status: Any = main(words)
        except SystemExit as left:  # from within rich, for text
            status = left.code
    assert status == 141
    assert capfd.readouterr().err == ""
