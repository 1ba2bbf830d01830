"""A host of environments on a machine of a cluster: it serves one run and plays episodes in child processes."""

from __future__ import annotations

import asyncio
import importlib.metadata
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate.core.errors import EnvironmentFailedError
from headgate.environments.apart import frames
from headgate.environments.apart.frames import ApartLimits, Frame, Source, UnfitNodeError
from headgate.environments.apart.host import Host, Hosts
from headgate.environments.apart.hosted import HostedEpisode
from headgate.environments.apart.serving import CallServer
from headgate.environments.apart.stream import TOKEN_BYTES, FrameStream, accepted
from headgate.environments.protocol import Episode

BEAT_S: Final = 2.0
"""Interval of heartbeats."""

CLAIM_S: Final = 60.0
"""Time for the run to connect; an unclaimed host gives its place back."""

_UNPROVED: Final = 64
"""Maximum of unauthenticated connections at once; further ones are closed."""

_END_S: Final = 0.2
"""Time for child processes to end by themselves, since a preempted place must be free within half a second."""

_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """How to reach a host: address, port and, in hexadecimal, the token of the only connection that it accepts."""

    address: str
    port: int
    token: str


class EnvironmentHost(CallServer):
    """Plays episodes of any package in child processes of its machine, as a run does on its own.

    Lives as long as the connection of the run for which it was started. Created on the machine where it works. `run`
    has its own event loop; `where` and `cancel` are called from other threads.
    """

    says_begun = False  # deadlines of calls are enforced here, where their start is known

    def __init__(self, address: str, node: str, limits: ApartLimits) -> None:
        """Prepare the host.

        Args:
            address: the only address of this machine at which it listens.
            node: name of this machine in errors.
            limits: limits of the processes of each package.
        """
        self._stream = FrameStream(self.take, self._end)
        super().__init__(self._stream.send)
        self._address = address
        self._node = node
        self._limits = limits
        self._hosts = Hosts()
        self._unfit: dict[Source, str] = {}
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._port = self._unproved = 0
        self._is_up = threading.Event()
        self._is_claimed = False
        self._begun, self._is_over, self._why = asyncio.Event(), asyncio.Event(), ""
        self._stop: Callable[[], object] = lambda: None
        self._is_stopped = False

    def where(self) -> Whereabouts:
        """Return how to reach the host, once it listens.

        Raises:
            EnvironmentFailedError: if it does not start to listen within 30 s.
        """
        if not self._is_up.wait(_UP_S) or not self._port:
            raise EnvironmentFailedError("the host of environments did not start to listen")
        return Whereabouts(self._address, self._port, self._token.hex())

    async def run(self) -> str:
        """Serve the run until the host ends; return why it ended, after all its processes have ended."""
        try:
            return await self._served()
        finally:
            self._is_up.set()
            self._hosts.end_all(_END_S)

    def cancel(self, request_id: str) -> None:  # noqa: ARG002 - as placement calls it
        """End the host because its place was preempted; callable from another thread."""
        self._is_stopped = True
        self._stop()

    def take(self, frame: Frame) -> None:
        """Start a call; compares the packages of a new source at once, even if the call is cancelled."""
        self._begun.set()
        if frame["do"] == "begin":
            return
        if "packages" in frame:
            self._unfit[Source(*frame["source"])] = differences(self._node, frame["packages"])
        super().take(frame)

    async def _served(self) -> str:
        loop = asyncio.get_running_loop()
        self._stop = partial(loop.call_soon_threadsafe, self._end, "its place was taken away")
        if self._is_stopped:
            return "its place was taken away"
        listener = await asyncio.start_server(self._connected, self._address, 0)
        self._port = listener.sockets[0].getsockname()[1]
        self._is_up.set()
        loop.call_later(CLAIM_S, self._give_up)
        beating = loop.create_task(self._beat())
        try:
            await self._is_over.wait()
        finally:
            beating.cancel()
            listener.close()
            self._stream.finish("its host has ended")
        return self._why

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unproved >= _UNPROVED or self._is_claimed:
            writer.transport.abort()
            return
        self._unproved += 1
        is_known = await accepted(reader, writer, self._token)
        self._unproved -= 1
        if is_known and not self._is_claimed:
            self._is_claimed = True
            self._stream.begin(writer)
        else:
            writer.transport.abort()

    async def _beat(self) -> None:
        await self._begun.wait()
        beat = frames.packed({"call": 0})
        while True:
            self._stream.send(beat)
            await asyncio.sleep(BEAT_S)

    def _give_up(self) -> None:
        if not self._begun.is_set():
            self._end(f"no run claimed it within {CLAIM_S:g} s")

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._is_over.set()

    async def opened(self, frame: Frame) -> Episode:
        """Open an episode in a child process."""
        return await HostedEpisode.begun(frame["environment"], frame["index"], frame["seed"], self._host(frame))

    async def baseline(self, frame: Frame) -> str:
        """Ask a child process for a baseline's reply."""
        asked = {name: frame[name] for name in ("kind", "index", "seed", "conversation", "draw")}
        call = self._host(frame).ask("baseline", frame["environment"], **asked)
        return str((await asyncio.wrap_future(call.future))["reply"])

    def _host(self, frame: Frame) -> Host:
        """Return the host of a package's processes.

        Raises:
            UnfitNodeError: if this machine's packages differ from the run's.
        """
        source = Source(*frame["source"])
        if why := self._unfit[source]:
            raise UnfitNodeError(why, next_step="Install the same version there, or keep the node out by its labels.")
        return self._hosts.of(source, self._limits)


def differences(node: str, packages: Mapping[str, Any]) -> str:
    """Return how this machine's packages differ from a run's (name -> version), as a clause about `node`."""
    told = []
    for name, version in packages.items():
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            told.append(f"node {node} has no package {name}, but the run has {version}")
            continue
        if here != version:
            told.append(f"node {node} has {name} {here}, but the run has {version}")
    return "; ".join(told)
