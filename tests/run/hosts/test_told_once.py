"""What hosts wait for is told once, however often it is tried: with a process in place of Ray's that always fails."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.core import HolderId, sample_task
from headgate.core.errors import EnvironmentHostsError
from headgate.core.events import EnvironmentClusterJoined, EnvironmentClusterLost, EnvironmentHostWaits, Event
from headgate.run.dispatch import SEATS, dispatcher_of
from headgate.run.hosts import EnvironmentHosts, hosts

SPEAKER = """
import json, pathlib, sys
times = pathlib.Path(__file__).with_name("times")
times.write_text(times.read_text() + "|" if times.exists() else "|")
def say(**told):
    print(json.dumps(told), flush=True)
sys.stdin.readline()
if times.read_text() == "|":
    say(says="joined", owns_pool=False, owns_ledger=False)
    for _ in range(5):
        say(gone=json.loads(sys.stdin.readline())["ask"], why="no node has room")
say(failed="the head went away")
"""


async def test_failures_that_repeat_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speaker, times = tmp_path / "speaker", tmp_path / "times"
    speaker.write_text(f"#!{sys.executable}\n{SPEAKER}")
    speaker.chmod(0o755)
    for name, seconds in {"FIRST_PAUSE_S": 0.01, "LONGEST_PAUSE_S": 0.01, "TICK_S": 0.01}.items():
        monkeypatch.setattr(hosts, name, seconds)
    monkeypatch.setattr(sys, "executable", str(speaker))
    told: list[Event] = []
    settings = Settings(journal=tmp_path)
    tested = EnvironmentHosts(settings, "run", emit=told.append)
    dispatcher = dispatcher_of(settings, HolderId("here"), has_hosts=True)
    task = sample_task(campaign="main", model="m", environment="e", sequence=0, data_length=1, due_at=0.0)
    dispatcher.set_model("m", 8)
    dispatcher.enqueue([replace(task, resources={SEATS: 1})], 0.0)
    await tested.start()
    keeping = asyncio.create_task(tested.keep(dispatcher))
    async with asyncio.timeout(20):
        while not times.exists() or len(times.read_text()) < 4:  # noqa: ASYNC110 - processes tell nobody here
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.wait([keeping])
    await tested.close()
    waits = [event.reason for event in told if isinstance(event, EnvironmentHostWaits)]
    lost = [event.reason for event in told if isinstance(event, EnvironmentClusterLost)]
    assert (waits, lost) == (["no host starts: no node has room"], ["the head went away"])


async def test_a_run_whose_process_of_hosts_cannot_be_started_for_a_while_joins_its_cluster_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = tmp_path / "speaker"
    speaker.write_text(
        f"#!{sys.executable}\nimport json\nprint(json.dumps(dict(says='joined', owns_pool=0, owns_ledger=0)))"
    )
    for name in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(hosts, name, 0.01)
    monkeypatch.setattr(sys, "executable", str(speaker))
    told: asyncio.Queue[Event] = asyncio.Queue()

    async def until(kind: type[Event], why: str) -> None:
        async with asyncio.timeout(20):
            while not (isinstance(event := await told.get(), kind) and why in str(event)):
                pass

    refused = EnvironmentHosts(Settings(journal=tmp_path), "run", emit=told.put_nowait)
    with pytest.raises(EnvironmentHostsError, match="Permission denied"):
        await refused.start()
    await refused.close()
    speaker.chmod(0o755)
    tested = EnvironmentHosts(Settings(journal=tmp_path), "run", emit=told.put_nowait)
    await tested.start()
    speaker.chmod(0)
    await until(EnvironmentClusterLost, "Permission denied")
    speaker.chmod(0o755)
    await until(EnvironmentClusterJoined, "joined")
    await tested.close()


async def test_a_process_of_hosts_that_says_what_cannot_be_handled_keeps_no_run_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = tmp_path / "speaker"
    speaker.write_text("#!/bin/sh\necho 5\n")
    speaker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(speaker))
    tested = EnvironmentHosts(Settings(journal=tmp_path), "run", emit=lambda _: None)
    async with asyncio.timeout(20):
        with pytest.raises(TypeError, match="int"):
            await tested.start()
        with pytest.raises(TypeError, match="int"):
            await tested.close()
