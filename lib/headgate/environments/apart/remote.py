"""The run's side of hosts of environments on other machines."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate.core.errors import HeadgateError, HostLostError
from headgate.environments.apart import frames
from headgate.environments.apart.frames import Frame, MovedError, Source, failure_of
from headgate.environments.apart.hosted import HostedEnvironment, hosted
from headgate.environments.apart.node import Whereabouts
from headgate.environments.apart.stream import FrameStream, connected
from headgate.environments.shares import MODEL

SILENT_S: Final = 15.0
"""A host that has been silent for longer is considered lost, like a driver in the placement ledger."""


@dataclass(slots=True)
class RemoteCall:
    """One call in progress; see `Call`."""

    host: RemoteHost
    number: int
    do: str
    environment: str
    source: Source
    future: asyncio.Future[Frame]

    def heard(self) -> asyncio.Future[Frame]:
        """Return its future, not a coroutine around it, which would add a level to every turn."""
        return self.future

    def give_up(self) -> None:
        """Cancel the call at the host if its future was cancelled."""
        if self.future.cancelled():
            self.host.cancel(self.number)


class RemoteHost:
    """One host. Belongs to the run's event loop; lives as long as its connection.

    Attributes:
        seats: maximum number of episodes.
        load: open episodes; counted by `RemoteSeats`.
        is_retiring: whether it gets no new episodes, and is given back when the last one has ended.
        why_gone: what ended it; empty while it lives.
        unfit: sources that cannot run there, with the reason.
    """

    def __init__(self, name: str, node: str, seats: int, lost: Callable[[RemoteHost], None]) -> None:
        self.name = name
        self.node = node
        self.seats = seats
        self.load = 0
        self.is_retiring = False
        self.why_gone = ""
        self.unfit: dict[Source, HeadgateError] = {}
        self._lost = lost
        self._calls: dict[int, RemoteCall] = {}
        self._numbers = itertools.count(1)
        self._told: set[Source] = set()
        self._stream = FrameStream(self._take, self._ended)
        self._loop = asyncio.get_running_loop()
        self._heard_at = 0.0

    async def connect(self, where: Whereabouts) -> None:
        """Claim the host.

        Raises:
            ConnectionError: if it does not answer, or something else does.
        """
        await connected(where.address, where.port, bytes.fromhex(where.token), self._stream)
        self._heard_at = self._loop.time()
        self._stream.send(frames.packed({"do": "begin", "call": 0}))

    def call(self, source: Source, do: str, environment: str, **arguments: Any) -> RemoteCall:
        """Send a call to the host; its future gets the answer or the exception."""
        call = RemoteCall(self, next(self._numbers), do, environment, source, self._loop.create_future())
        frame = {"do": do, "call": call.number, "environment": environment, "model": MODEL.get(), **arguments}
        if do in ("open", "baseline"):
            frame["source"] = (source.kind, source.name, source.value)
            if source not in self._told:
                frame["packages"] = dict(source.packages)
                self._told.add(source)
        data = frames.packed(frame)
        if self.why_gone:
            _fail(call.future, self.lost(environment, do))
            return call
        self._calls[call.number] = call
        self._stream.send(data)
        return call

    def lost(self, environment: str, do: str) -> HostLostError:
        """Return the error for a call to this host after its end."""
        return HostLostError(f"the host of environment {environment!r} on {self.node} ended in {do}: {self.why_gone}")

    def check(self, now: float) -> None:
        """End a host that has been silent for too long."""
        if now - self._heard_at > SILENT_S:
            self.close(f"it was silent for {SILENT_S:g} s")

    def close(self, why: str) -> None:
        """Close the connection, which ends the host; idempotent."""
        self._stream.close(why)

    def cancel(self, number: int) -> None:
        """Cancel a call at the host."""
        if not self.why_gone:
            self._stream.send(frames.packed({"do": "cancel", "call": number}))

    def _take(self, frame: Frame) -> None:
        self._heard_at = self._loop.time()
        if not (number := frame["call"]):
            return  # a heartbeat
        call = self._calls.pop(number)  # an answer to no call raises, which ends the connection
        if call.future.cancelled():
            if "opening" in frame:
                self.call(call.source, "close", call.environment, episode=number)  # its caller was cancelled
        elif "raised" in frame:
            _fail(call.future, self._failure(frame, call))
        else:
            call.future.set_result(frame)

    def _failure(self, frame: Frame, call: RemoteCall) -> HeadgateError:
        error = failure_of(frame, f"environment {call.environment!r}", call.do)
        if frame["raised"] == "UnfitNodeError":
            self.unfit[call.source] = error
            return MovedError(error.message)
        error.args = (f"on node {self.node}: {error.message}",)
        return error

    def _ended(self, why: str) -> None:
        self.why_gone = why
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.future.done():
                _fail(call.future, self.lost(call.environment, call.do))
        self._lost(self)


def _fail(future: asyncio.Future[Frame], error: HeadgateError) -> None:
    future.set_exception(error)
    future.exception()  # marks it as retrieved: nothing may await the end of a close


class RemoteSeat:
    """The place of one episode in a host: forwards its calls, and gives the error once the host is gone."""

    blocked_by: Final = ()  # blocking models are detected and handled on the host's own machine

    def __init__(self, host: RemoteHost, source: Source) -> None:
        self.host = host
        self.call = partial(host.call, source)
        self.lost = host.lost

    @property
    def is_gone(self) -> bool:
        """Whether the host has ended."""
        return bool(self.host.why_gone)


class RemoteHosts:
    """The connected hosts of one run. Belongs to the run's event loop.

    An episode goes to the host with the fewest episodes per seat that can run it.
    """

    def __init__(self) -> None:
        self._hosts: list[RemoteHost] = []

    def __iter__(self) -> Iterator[RemoteHost]:
        return iter(tuple(self._hosts))

    def add(self, host: RemoteHost) -> None:
        """Add a connected host."""
        self._hosts.append(host)

    def remove(self, host: RemoteHost) -> None:
        """Remove a host that is gone."""
        self._hosts = [one for one in self._hosts if one is not host]

    def moved(self, environment: HostedEnvironment) -> HostedEnvironment:
        """Return the environment with its episodes on these hosts."""
        return hosted(environment.spec, RemoteSeats(self, environment.source))

    def chosen(self, source: Source) -> RemoteHost:
        """Return the host for the next episode of a package.

        Raises:
            HostLostError: if there is no host now.
            EnvironmentFailedError: if no host can run it.
        """
        there = [host for host in self._hosts if not host.why_gone]
        fit = [host for host in there if source not in host.unfit]
        if not fit:
            raise there[0].unfit[source] if there else HostLostError("there is no host of environments now")
        return min(fit, key=lambda host: (host.is_retiring, host.load / host.seats))


@dataclass(frozen=True, slots=True)
class RemoteSeats:
    """The seats for one package: the counterpart of `Host` for other machines."""

    hosts: RemoteHosts
    source: Source

    def seat(self) -> RemoteSeat:
        """Return a counted seat for one more episode, to be given back with `leave`. Raises as `chosen` does."""
        host = self.hosts.chosen(self.source)
        host.load += 1
        return RemoteSeat(host, self.source)

    def ask(self, do: str, environment: str, **arguments: Any) -> RemoteCall:
        """Send a call that belongs to no episode. Raises as `chosen` does."""
        return self.hosts.chosen(self.source).call(self.source, do, environment, **arguments)

    def is_misplaced(self, seat: RemoteSeat) -> bool:  # noqa: ARG002 - the signature of `Host`
        """Return False; see `RemoteSeat.blocked_by`."""
        return False

    def leave(self, seat: RemoteSeat, *, is_well: bool) -> None:  # noqa: ARG002 - as above
        """Give a seat back."""
        seat.host.load -= 1
