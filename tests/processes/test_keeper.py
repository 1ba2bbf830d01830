"""Commands that run beside this process end with it, however it ends, and so does all that they started."""

# ruff: noqa: ASYNC240, ASYNC251 - a test has nothing else to run meanwhile

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.processes import child_process
from tests.processes.alive import is_alive

SLEEP = "import time; time.sleep(600)"
FAMILY = f"""
import os, subprocess, sys
inner = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
open(sys.argv[1], "w").write(f"{{os.getpid()}} {{inner.pid}}")
os.replace(sys.argv[1], sys.argv[2])
inner.wait()
"""
"""A command whose child is in a session of its own, as Prefect's flow runs are."""

OWNER = f"""
import asyncio, os, signal, sys
from pathlib import Path
from headgate.processes import child_process
signal.signal(signal.SIGINT, signal.default_int_handler)  # the background jobs of a shell have none
async def main():
    folder = Path(sys.argv[1])
    command = [sys.executable, "-c", {FAMILY!r}, str(folder / "part"), str(folder / "pids")]
    async with child_process(command, environ=dict(os.environ), folder=folder, log=folder / "log", grace_s=5):
        await asyncio.sleep(600)
asyncio.run(main())
"""


def gone(*pids: int, within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(is_alive(pid) for pid in pids)


def pids_in(folder: Path, within_s: float = 30.0) -> list[int]:
    deadline = time.monotonic() + within_s
    while not (folder / "pids").exists():
        assert time.monotonic() < deadline, (folder / "log").read_text() if (folder / "log").exists() else "no log"
        time.sleep(0.05)
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def _family(folder: Path) -> list[str]:
    return [sys.executable, "-c", FAMILY, str(folder / "part"), str(folder / "pids")]


async def test_the_end_of_the_context_ends_the_command_and_its_grandchildren(tmp_path: Path) -> None:
    async with child_process(
        _family(tmp_path), environ=dict(os.environ), folder=tmp_path, log=tmp_path / "log", grace_s=5
    ) as process:
        pids = pids_in(tmp_path)
        assert all(is_alive(pid) for pid in pids)
    assert gone(*pids, within_s=0)
    assert process.has_ended


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process_that_started_it(tmp_path: Path, number: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        pids = pids_in(tmp_path)
        owner.send_signal(number)
        owner.wait(timeout=30)
        assert gone(*pids)
    finally:
        owner.kill()
        owner.wait()


async def test_a_keeper_that_is_killed_takes_its_command_with_it(tmp_path: Path) -> None:
    async with child_process(
        [sys.executable, "-c", SLEEP], environ=dict(os.environ), folder=tmp_path, log=tmp_path / "log", grace_s=5
    ) as process:
        keeper = process._keeper.pid
        children = Path(f"/proc/{keeper}/task/{keeper}/children")
        deadline = time.monotonic() + 20
        while not children.read_text().split() and time.monotonic() < deadline:
            time.sleep(0.02)
        (child,) = [int(pid) for pid in children.read_text().split()]
        os.kill(keeper, signal.SIGKILL)
        assert gone(child)


async def test_what_refuses_to_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    stubborn = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(tmp_path / 'pids')!r}, 'w').write(str(__import__('os').getpid())); time.sleep(600)"
    )
    async with child_process(
        [sys.executable, "-c", stubborn], environ=dict(os.environ), folder=tmp_path, log=tmp_path / "log", grace_s=0.3
    ) as process:
        pids = pids_in(tmp_path)
    assert gone(*pids, within_s=0)
    assert await process.ended() == -signal.SIGKILL


async def test_a_command_can_be_interrupted_although_a_shell_would_have_it_ignore_that(tmp_path: Path) -> None:
    told = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    async with child_process(
        [sys.executable, "-c", told], environ=dict(os.environ), folder=tmp_path, log=tmp_path / "log", grace_s=5
    ) as process:
        assert await process.ended() == 0
    assert process.last_lines() == "False"


async def test_the_exit_status_and_the_last_words_of_a_command_are_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(7)"]
    async with child_process(
        command, environ=dict(os.environ), folder=tmp_path, log=tmp_path / "log", grace_s=5
    ) as process:
        assert await process.ended() == 7
    assert process.last_lines(1) == "two"


def test_as_the_first_process_of_a_container_it_ends_everything_at_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headgate.processes.keeper", "5", *_family(tmp_path)]
    keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    pids = pids_in(tmp_path)
    assert all(is_alive(pid) for pid in pids), "without a pipe nothing is to be ended"
    keeper.send_signal(signal.SIGTERM)
    assert keeper.wait(timeout=20) == -signal.SIGTERM
    assert gone(*pids, within_s=0)


STOPPED_AT_ONCE = """
import os, signal, subprocess, sys
from headgate.processes import keeper
class Popen(subprocess.Popen):
    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Popen
sys.exit(keeper.main(["5", "sleep", "600"]))
"""


def test_a_stop_in_the_moment_in_which_the_command_begins_is_one() -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED_AT_ONCE], stdin=subprocess.DEVNULL) as keeper:
        try:
            assert keeper.wait(60) == -signal.SIGTERM
        finally:
            keeper.kill()


DRAINS = """
import signal, sys, time
from pathlib import Path
def drained(*_):
    Path(sys.argv[1], "drained").write_text("")
    sys.exit()
signal.signal(signal.SIGTERM, drained)
Path(sys.argv[1], "up").write_text("")
time.sleep(600)
"""
KILLS_ITS_CHILD = f"""#!{sys.executable}
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {DRAINS!r}, sys.argv[-1]], start_new_session=True)
def end(*_):
    child.kill()
    sys.exit()
signal.signal(signal.SIGTERM, end)
child.wait()
"""
"""As a worker of Prefect does with its flow runs."""


@pytest.mark.parametrize("words", [["worker", "start"], ["server", "start"]])
def test_flow_runs_of_a_prefect_worker_drain_when_it_has_to_end(tmp_path: Path, words: list[str]) -> None:
    program = tmp_path / "prefect"
    program.write_text(KILLS_ITS_CHILD)
    program.chmod(0o755)
    command = [sys.executable, "-m", "headgate.processes.keeper", "20", str(program), *words, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as keeper:
        while not (tmp_path / "up").exists():
            time.sleep(0.02)
        keeper.terminate()
        assert keeper.wait(30) == 0
    assert (tmp_path / "drained").exists() == (words[0] == "worker")
