"""`python -m headgate.environments.apart`: the process that runs the environments of one package.

Started only by `headgate.environments.apart.process`. Arguments: descriptor of the socket to the parent, the parent's
process id, the locks of the sandbox, then kind, name and value of the `Source`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import io
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from headgate.environments.apart import frames
from headgate.environments.apart.frames import Frame, Source, failure_frame
from headgate.environments.apart.serving import CallServer
from headgate.environments.judge_questions import ReadsGrades
from headgate.environments.protocol import Collection, Environment, Episode
from headgate.environments.registry import checked_environment, collection_at, environment_at, judges_in_process
from headgate.environments.sandbox import SANDBOX

_TIDY_S: Final = 2.0
"""Time to close episodes when the process is asked to end; then it ends anyway."""


def serve(descriptor: int, source: Source) -> None:
    """Answer calls on the socket `descriptor` until it closes or `end` is received."""
    with socket.socket(fileno=descriptor) as connection:
        connection.setblocking(False)
        asyncio.run(_served(connection, source))


async def _served(connection: socket.socket, source: Source) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    server = _Server(source, writer.write)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            count = frames.length(await reader.readexactly(frames.HEADER.size))
            frame = frames.unpacked(await reader.readexactly(count))
            if frame["do"] == "end":
                break
            server.take(frame)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TIDY_S):
            await server.close()


class _Server(CallServer):
    """The environments of this process's package, created on first use."""

    def __init__(self, source: Source, say: Callable[[bytes], None]) -> None:
        super().__init__(say)
        self._source = source
        self._collection: Collection | None = None
        self._environments: dict[str, Environment] = {}

    async def opened(self, frame: Frame) -> Episode:
        return await self._environment(frame["environment"]).open(frame["index"], frame["seed"])

    async def baseline(self, frame: Frame) -> str:
        known = self._environment(frame["environment"])
        rng = random.Random(frame["draw"])
        conversation = frames.heard(frame["conversation"])
        return await known.baseline(frame["kind"], frame["index"], frame["seed"], conversation, rng)

    def told(self, frame: Frame) -> Frame:
        if frame["do"] == "specs":
            return {"specs": [self._spec(name) for name in frame["names"]]}
        return {"names": list(self._members().names())}

    def _spec(self, name: str) -> Frame:
        try:
            made = self._environment(name)
            if made.spec.needs_judge and not isinstance(made, ReadsGrades):
                raise judges_in_process(name)  # noqa: TRY301 - reported like any other problem
            found = {"spec": asdict(made.spec)}
            frames.packed(found)  # a field that cannot be serialised is the problem of this one only
        except Exception as error:  # noqa: BLE001 - whatever one raises is reported as its problem
            return failure_frame(error)
        return found

    def _environment(self, name: str) -> Environment:
        """Return environment `name`, created on first use.

        Runs in the main thread, since some packages install signal handlers.
        """
        if name not in self._environments:
            made: object
            if self._source.kind == "environment":
                made = environment_at(self._source.value)
            else:
                made = self._members().environment(name)
            self._environments[name] = checked_environment(name, made)
        return self._environments[name]

    def _members(self) -> Collection:
        if self._collection is None:
            self._collection = collection_at(self._source.name, self._source.value)
        return self._collection


_PR_SET_PDEATHSIG: Final = 1

_WATCH: Final = 'read -r _; kill -9 "-$0"'
"""Waits for the end of a pipe that only the parent can write to, then kills the process group, itself included.

Without `--`, which dash mistakes for a number.
"""


def tie_to_parent(parent: int) -> None:
    """End this process and its descendants when process `parent` ends, even by `kill -9`.

    The kernel ends this process (Linux). Its descendants, such as a Java runtime, would stay, so a shell of 2 MB in the
    same process group waits for the end of stdin, whose other end the parent holds, and kills the group. For this
    process stdin is empty: an environment that reads from the terminal gets end-of-file.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has already ended
        os._exit(1)
    subprocess.Popen(  # noqa: S603 - fixed words and a number
        ["/bin/sh", "-c", _WATCH, str(os.getpgid(0))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main(arguments: list[str]) -> None:
    """Serve calls until the parent sends `end`, or is gone."""
    descriptor, parent, locks, kind, name, value = arguments
    SANDBOX.require(locks.split(","))
    tie_to_parent(int(parent))
    # If the machine runs out of memory, the kernel kills this process rather than the campaign.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.environ.pop("PYTHONPATH", None)  # set by the parent to its own path; child processes must not inherit it
    os.set_inheritable(int(descriptor), False)  # so that the socket closes when this process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="replace")  # so that output before a crash is kept
    faulthandler.enable()
    serve(int(descriptor), Source("collection" if kind == "collection" else "environment", name, value))


if __name__ == "__main__":
    main(sys.argv[1:])
