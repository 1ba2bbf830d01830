"""The hosts of a run on a Ray cluster, from the run's side: how many it wants, and the life of each."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any, Final

from headgate.config import Settings
from headgate.core.errors import EnvironmentHostsError
from headgate.core.events import (
    Emit,
    EnvironmentClusterJoined,
    EnvironmentClusterLost,
    EnvironmentHostEnded,
    EnvironmentHostStarted,
    EnvironmentHostWaits,
)
from headgate.environments import Environment, apart
from headgate.run.dispatch import SEATS
from headgate.scheduling import Dispatcher

TICK_S: Final = 0.5
"""Interval between checks of how many hosts are wanted; a check takes some 10 us. Only the clock shows that a host
was silent or idle for too long, and a new host takes seconds to come up: reacting to each task would gain nothing."""

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Wait before retrying a cluster that is gone or a host that does not start: doubles from the first to the longest."""

_SETTLED_S: Final = 10.0
"""After a connection to the cluster that lasted this long, the next pause is the first one again."""

_END_S: Final = 40.0
"""Time to give all places back at the end of a run."""


@dataclass(frozen=True, slots=True)
class HostCluster:
    """The Ray cluster of a run's hosts.

    Attributes:
        address: `host:port` of its head; empty for RAY_ADDRESS, else a cluster running here, else a local one.
        pool: the pool whose quota the hosts count against.
        quota: of that pool if it must be opened; empty for the whole cluster.
        journal: file on the head node for a placement ledger that must be started; empty for the default one.
    """

    address: str = ""
    pool: str = "main"
    quota: Mapping[str, Any] = field(default_factory=dict)
    journal: str = ""


class EnvironmentHosts:
    """Keeps as many hosts as the run's demand needs. Owned by one run, on its event loop.

    Each task of an environment that runs on hosts takes a unit of `SEATS`. The limit of `SEATS` is the room on hosts
    that are up: without a host these tasks wait in the ready queue, hold no worker, and delay no other task. A host
    that is no longer needed gets no new episode, and is given back when its last one has ended.

    Attributes:
        names: the environments that run on hosts.
    """

    def __init__(self, settings: Settings, run_id: str, *, emit: Emit, cluster: HostCluster | None = None) -> None:
        """Prepare the hosts; nothing is connected before `start`."""
        self._settings = settings
        self._emit = emit
        self._driver = f"hosts-{run_id}"
        cluster = cluster or HostCluster(settings.ray_address, settings.ray_pool)
        self._order: dict[str, Any] = {
            "cluster": asdict(cluster),
            "driver": self._driver,
            "cpus": settings.environment_host_cpus,
            "priority": settings.environment_host_priority,
            "role": settings.environment_host_role,
            "limits": asdict(apart.ApartLimits.of(settings)) | {"processes": settings.environment_host_cpus},
            "owns_pool": False,
            "owns_ledger": False,
        }
        """Where and how hosts are placed, and whether this run has opened the pool and started the ledger."""
        self.names: frozenset[str] = frozenset()
        self._seats = settings.environment_host_cpus * settings.environment_seats
        self._hosts = apart.RemoteHosts()
        self._pending: dict[str, asyncio.Task[None] | None] = {}
        self._asked = 0
        self._dispatcher: Dispatcher | None = None
        self._busy_at = 0.0
        self._not_before = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._process: asyncio.subprocess.Process | None = None
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process_keeper: asyncio.Task[None] | None = None
        self._is_closing = False
        self._wait_reason = ""
        self._next_step = EnvironmentHostsError.next_step

    def moved(self, environments: Mapping[str, Environment], outside: Collection[str]) -> dict[str, Environment]:
        """Return the environments, with hosted ones moved to these hosts unless outside workers play them."""
        found = dict(environments)
        for name, one in environments.items():
            if isinstance(one, apart.HostedEnvironment) and name not in outside:
                found[name] = self._hosts.moved(one)
        self.names = frozenset(name for name, one in found.items() if one is not environments[name])
        return found

    async def start(self) -> None:
        """Join the cluster.

        Raises:
            EnvironmentHostsError: if it cannot be joined. A cluster that is lost later is joined again.
        """
        self._process_keeper = asyncio.get_running_loop().create_task(self._keep_process())
        await asyncio.wait((self._process_keeper, self._joined), return_when=asyncio.FIRST_COMPLETED)
        if self._process_keeper.done():
            self._process_keeper.result()  # raises if it has a defect; then nobody joins
        await self._joined

    async def keep(self, dispatcher: Dispatcher) -> None:
        """Keep as many hosts as the ready tasks and open episodes need, until cancelled."""
        self._dispatcher = dispatcher
        while True:
            self._adjust(asyncio.get_running_loop().time())
            await asyncio.sleep(TICK_S)

    async def close(self) -> None:
        """Give all hosts back, and return when none is left; may be called twice."""
        if self._is_closing:
            return
        self._is_closing = True
        for connecting in self._pending.values():
            if connecting is not None:
                connecting.cancel()
        for host in self._hosts:
            host.close("the run has ended")
        self._send(end=True)
        if self._process_keeper is not None:
            await asyncio.wait([self._process_keeper], timeout=_END_S)
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
            self._process_keeper.cancel()
            await asyncio.wait([self._process_keeper])
            if not self._process_keeper.cancelled():
                self._process_keeper.result()

    def held_by(self) -> str:
        """Return what a task without a seat waits for, in words."""
        up, seats = list(self._hosts), self._settings.environment_seats
        if up:
            taken = f"all seats of the {len(up)} hosts on Ray are taken ({seats} per CPU)"
            return f"{taken}; {self._wait_reason}" if self._wait_reason and self._pending else taken
        return self._wait_reason or "a host on Ray is being started"

    # How many.

    def _adjust(self, now: float) -> None:
        """Ask for hosts, or give some back, according to demand."""
        hosts = list(self._hosts)
        for host in hosts:
            host.check(now)
        kept = [host for host in hosts if not host.is_retiring]
        wanted, have = self._wanted(), len(kept) + len(self._pending)
        if wanted >= have:
            self._busy_at = now
        for host in hosts:
            if host.is_retiring and wanted > have:
                host.is_retiring = False
                have += 1
        if wanted > have and now >= self._not_before and self._is_joined:
            for _ in range(wanted - have):
                self._asked += 1
                name = f"{self._driver}-{self._asked}"
                self._pending[name] = None
                self._send(ask=name)
        elif wanted < have and now - self._busy_at >= self._settings.environment_host_idle_s:
            self._shrink(have - wanted, kept)
        for host in hosts:
            if host.is_retiring and not host.load:
                host.close("there is no work for it")
        self._set_limit()

    def _wanted(self) -> int:
        assert self._dispatcher is not None, "`keep` has set it"
        queue, book = self._dispatcher.queue, self._dispatcher.book
        demand = queue.demand(SEATS) - queue.stuck(SEATS) + book.in_use.get(SEATS, 0)
        return math.ceil(min(demand, self._settings.num_evaluation_workers) / self._seats)

    def _shrink(self, count: int, kept: list[apart.RemoteHost]) -> None:
        for name in [name for name, connecting in self._pending.items() if connecting is None][:count]:
            del self._pending[name]
            self._send(drop=name)
            count -= 1
        for host in sorted(kept, key=lambda host: host.load)[:count]:
            host.is_retiring = True

    def _set_limit(self) -> None:
        limit = sum(host.load if host.is_retiring else host.seats for host in self._hosts)
        dispatcher = self._dispatcher
        if dispatcher is not None and dispatcher.book.limits.get(SEATS) != limit:
            dispatcher.set_limit(SEATS, limit)

    # The life of one host.

    async def _claim(self, name: str, where: apart.Whereabouts) -> None:
        host = apart.RemoteHost(name, where.address, self._seats, self._ended)
        try:
            await host.connect(where)
        except ConnectionError as error:
            self._send(drop=name)
            self._failed(name, str(error))
            return
        self._pending.pop(name, None)
        self._pause_s, self._wait_reason = FIRST_PAUSE_S, ""
        self._hosts.add(host)
        self._set_limit()
        self._emit(EnvironmentHostStarted(name, host.node, host.seats))

    def _ended(self, host: apart.RemoteHost) -> None:
        """Handle the end of a host that was up, whatever ended it."""
        self._hosts.remove(host)
        self._send(drop=host.name)
        self._set_limit()
        self._emit(EnvironmentHostEnded(host.name, host.node, host.load, host.why_gone))

    def _failed(self, name: str, why: str) -> None:
        """Handle a host that did not come up: the next one is requested after a pause."""
        self._pending.pop(name, None)
        if self._is_closing:
            return
        now = asyncio.get_running_loop().time()
        if now >= self._not_before:
            self._not_before = now + self._pause_s
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
        self._report_wait(name, f"no host starts: {why}")

    def _report_wait(self, name: str, why: str) -> None:
        """Report once what hosts are waiting for."""
        if why != self._wait_reason:
            self._wait_reason = why
            self._emit(EnvironmentHostWaits(name, why))

    # The process that talks to Ray.

    @property
    def _is_joined(self) -> bool:
        return self._joined.done() and self._joined.exception() is None

    def _send(self, **told: Any) -> None:
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(json.dumps(told).encode() + b"\n")

    async def _keep_process(self) -> None:
        """Run a process that talks to Ray, and start another whenever it ends, until the hosts are closed."""
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            began = loop.time()
            try:
                with tempfile.TemporaryFile(prefix="headgate-hosts-") as printed:
                    why = await self._run_process(printed)
            except (OSError, ValueError) as error:  # no memory or file for it at the moment, or it says nonsense
                why = f"the process that talks to Ray cannot be started or understood: {error}"
            if self._is_closing:
                return
            if not self._joined.done():
                self._joined.set_exception(EnvironmentHostsError(why, next_step=self._next_step))
                return
            pause_s = FIRST_PAUSE_S if loop.time() - began > _SETTLED_S else min(LONGEST_PAUSE_S, 2 * pause_s)
            if not self._wait_reason.startswith(why):
                self._emit(EnvironmentClusterLost(why, pause_s))
            self._wait_reason = why
            await asyncio.sleep(pause_s)

    async def _run_process(self, printed: IO[bytes]) -> str:
        """Run one such process to its end; return why it ended."""
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "headgate.run.hosts"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=printed,
            start_new_session=True,  # Ctrl-C must reach only the run, which gives places back in its own order
        )
        why = ""
        try:
            assert process.stdin is not None, "the process was started with pipes"
            assert process.stdout is not None, "likewise"
            process.stdin.write(json.dumps(self._order).encode() + b"\n")
            for name, connecting in self._pending.items():
                if connecting is None:
                    self._send(ask=name)
            async for line in process.stdout:
                why = self._handle(json.loads(line)) or why
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return why or f"the Ray cluster of the hosts is gone{_last_line(printed)}"

    def _handle(self, told: dict[str, Any]) -> str:
        """Handle a message of the process; return why it will end, if it says so."""
        if "says" in told:
            if not self._joined.done():
                self._joined.set_result(None)
            self._wait_reason = ""
            self._order |= {name: told[name] for name in ("owns_pool", "owns_ledger")}
            self._emit(EnvironmentClusterJoined(told["says"]))
        elif "host" in told and told["host"] in self._pending:
            name = told["host"]
            claim = self._claim(name, apart.Whereabouts(**told["where"]))
            self._pending[name] = asyncio.get_running_loop().create_task(claim)
        elif "host" in told:
            self._send(drop=told["host"])
        elif "waits" in told:
            self._report_wait(told["waits"], f"a host is queued: {told['why']}")
        elif "gone" in told and told["gone"] in self._pending:
            self._failed(told["gone"], told["why"])
        self._next_step = str(told.get("next_step", self._next_step))
        return str(told.get("failed", ""))


def _last_line(printed: IO[bytes]) -> str:
    """Return the last line that a process printed, except Ray's own log, to append to a sentence."""
    printed.seek(max(0, printed.seek(0, 2) - 4_096))
    lines = [line.strip() for line in printed.read().decode(errors="replace").splitlines()]
    lines = [line for line in lines if line and line[0] not in "[("]
    return f"; its last output: {lines[-1][:300]}" if lines else ""
