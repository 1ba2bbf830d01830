"""Ctrl-C: the first drains and says so, the second ends at once with a status of its own and no traceback."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

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
