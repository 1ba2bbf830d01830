"""`headgate jobqueue serve` in its own process."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from headgate.core.errors import HeadgateError

T = TypeVar("T")

_START_S: Final = 60.0
_PORT: Final = re.compile(rb"http://127\.0\.0\.1:(\d+)")
_STAT: Final = "/proc/{}/stat"


class QueueFailedError(HeadgateError):
    """The job queue's server of a benchmark did not start, or has exited."""

    code = "bench_jobqueue_failed"
    next_step = "Start `headgate jobqueue serve` by hand to see why."


class Server:
    """A running server; owned by `served` or by the caller of `start`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    def cpu_s(self) -> float:
        """Return the CPU time that it has used, in seconds; NaN if the system does not report it."""
        return cpu_s(self.process.pid)

    async def stop(self) -> None:
        """Stop the server after it has answered the requests in progress."""
        if self.process.returncode is None:
            self.process.terminate()
        await self.process.wait()

    async def kill(self) -> None:
        """Kill the server, as in a crash."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def start(database: str, folder: Path, *, port: int = 0) -> Server:
    """Start a server, which writes its log into the folder; port 0 takes a free one.

    Raises:
        QueueFailedError: if it does not start to listen.
    """
    log = folder / "server.log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headgate.cli", "jobqueue", "serve", "--port", str(port)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"HEADGATE_JOBQUEUE_DATABASE": database},
        )
    assert process.stdout is not None, "a pipe was asked for"
    try:
        async with asyncio.timeout(_START_S):
            said = await process.stdout.readline()
    except BaseException:
        await Server(process, port).kill()
        raise
    found = _PORT.search(said)
    if found is None:
        await Server(process, port).kill()
        end = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise QueueFailedError(f"the job queue's server did not start; its log ends with {end}")
    return Server(process, int(found[1]))


@asynccontextmanager
async def served(database: str, folder: Path) -> AsyncIterator[Server]:
    """Yield a server for as long as the context is open; arguments and errors as for `start`."""
    server = await start(database, folder)
    try:
        yield server
    finally:
        await server.stop()


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds; NaN if the system does not report it."""
    try:
        fields = Path(_STAT.format(pid)).read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:  # not Linux, or it has ended
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the kind of event loop that servers use, too."""
    return uvloop.run(work)
