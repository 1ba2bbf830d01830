"""`python -m headgate.environments.apart`: the process in which environments of one package live.

Started by `headgate.environments.apart.process` alone. Arguments: the descriptor of the socket to the parent, the
parent's process id, then kind, name and value of the `Source`.
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
from dataclasses import asdict
from pathlib import Path
from typing import Final

from headgate.environments.apart import frames
from headgate.environments.apart.frames import Frame, Source, failure_frame
from headgate.environments.protocol import Collection, Environment, Episode
from headgate.environments.registry import checked_environment, collection_at, environment_at

_TIDY_S: Final = 2.0
"""For episodes to be closed when the process is told to end; then it ends anyway."""


def serve(descriptor: int, source: Source) -> None:
    """Answer calls on the socket `descriptor` until it ends or says `end`."""
    with socket.socket(fileno=descriptor) as connection:
        connection.setblocking(False)
        asyncio.run(_served(connection, source))


async def _served(connection: socket.socket, source: Source) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    server = _Server(source, writer)
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


class _Server:
    """The environments and open episodes of this process.

    Calls run as tasks of one loop, as they do in a campaign: an environment that awaits is asked many things at once,
    and one that blocks is never entered twice at once. Threads of our own would let packages that draw from the global
    random generator mix up each other's tasks.
    """

    def __init__(self, source: Source, writer: asyncio.StreamWriter) -> None:
        self._source = source
        self._writer = writer
        self._collection: Collection | None = None
        self._environments: dict[str, Environment] = {}
        self._episodes: dict[int, Episode] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}

    def take(self, frame: Frame) -> None:
        """Begin the call of `frame`, or cancel the one that it names."""
        call = frame["call"]
        if frame["do"] == "cancel":
            if call in self._calls:
                self._calls[call].cancel()
            return
        task = asyncio.get_running_loop().create_task(self._answered(call, frame))
        self._calls[call] = task
        task.add_done_callback(lambda task: self._ended(call, task))

    async def close(self) -> None:
        """Close every episode that is open; what they raise is nobody's concern any more."""
        for episode in tuple(self._episodes.values()):
            with contextlib.suppress(Exception):
                await episode.close()

    def _ended(self, call: int, task: asyncio.Task[None]) -> None:
        del self._calls[call]
        if task.cancelled():  # before its first step: a call and its cancelling may arrive together
            self._say(_cancelled(call))

    async def _answered(self, call: int, frame: Frame) -> None:
        self._say(frames.packed({"call": call, "begun": True}))
        try:
            reply = frames.packed({"call": call, **await self._done(frame)})
        except asyncio.CancelledError:
            reply = _cancelled(call)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: an environment may not end the others' process
            reply = frames.packed({"call": call, **failure_frame(error)})
        self._say(reply)

    def _say(self, data: bytes) -> None:
        self._writer.write(data)

    async def _done(self, frame: Frame) -> Frame:
        match frame["do"]:
            case "open":
                return await self._open(frame)
            case "answer":
                return frames.answer_frame(await self._episodes[frame["episode"]].answer(frame["reply"]))
            case "close":
                if (episode := self._episodes.pop(frame["episode"], None)) is not None:
                    await episode.close()
                return {}
            case "baseline":
                return await self._baseline(frame)
            case "specs":
                return {"specs": [self._spec(name) for name in frame["names"]]}
        return {"names": list(self._members().names())}

    async def _open(self, frame: Frame) -> Frame:
        episode = await self._environment(frame["environment"]).open(frame["index"], frame["seed"])
        try:
            opening = frames.said(episode.opening)
        except BaseException:
            with contextlib.suppress(Exception):
                await episode.close()
            raise
        self._episodes[frame["call"]] = episode
        return {"opening": opening}

    async def _baseline(self, frame: Frame) -> Frame:
        known = self._environment(frame["environment"])
        rng = random.Random(frame["draw"])
        conversation = frames.heard(frame["conversation"])
        reply = await known.baseline(frame["kind"], frame["index"], frame["seed"], conversation, rng)
        if not isinstance(reply, str):
            raise TypeError(f"its baseline said {reply!r:.80}, not text")
        return {"reply": reply}

    def _spec(self, name: str) -> Frame:
        try:
            found = {"spec": asdict(self._environment(name).spec)}
            frames.packed(found)  # a field of a foreign type is the problem of this one alone
        except Exception as error:  # noqa: BLE001 - whatever one raises is told as its problem, beside the others
            return failure_frame(error)
        return found

    def _environment(self, name: str) -> Environment:
        """Return environment `name`, made when first asked for.

        In the main thread, since some packages install signal handlers.
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


def _cancelled(call: int) -> bytes:
    return frames.packed({"call": call, "raised": "CancelledError", "message": "it cancelled itself"})


_PR_SET_PDEATHSIG: Final = 1

_WATCH: Final = 'read -r _; kill -9 "-$0"'
"""Waits for the end of a pipe that only the parent can write to, then ends the process group, itself included.

Without `--`, which dash takes for a number.
"""


def tie_to_parent(parent: int) -> None:
    """Let this process and all that it starts end when process `parent` ends, also by `kill -9`.

    The kernel ends this process (Linux). What it started, such as a Java runtime, would stay: a shell of 2 MB in the
    same process group waits for the end of stdin, whose other end the parent holds, and ends the group.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before this line
        os._exit(1)
    subprocess.Popen(  # noqa: S603 - fixed words and a number
        ["/bin/sh", "-c", _WATCH, str(os.getpgid(0))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _read_nothing()


def offer_to_memory_killer() -> None:
    """Let the kernel end this process before the campaign when the machine runs out of memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _read_nothing() -> None:
    """Let stdin be empty: an environment that asks a question at the terminal gets the end of the file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main(arguments: list[str]) -> None:
    """Serve calls until the parent says that it is enough, or is gone."""
    descriptor, parent, kind, name, value = arguments
    tie_to_parent(int(parent))
    offer_to_memory_killer()
    os.environ.pop("PYTHONPATH", None)  # ours, made of the parent's path; what is started from here finds its own way
    os.set_inheritable(int(descriptor), False)  # the end of this process must be the end of the socket
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="replace")  # what is said before a crash is read
    faulthandler.enable()
    serve(int(descriptor), Source("collection" if kind == "collection" else "environment", name, value))


if __name__ == "__main__":
    main(sys.argv[1:])
