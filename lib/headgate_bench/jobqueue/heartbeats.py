"""P5.heartbeats: very many workers on one server, each with its own connection and a lease to renew."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from headgate_bench.artifact import at_most
from headgate_bench.definition import Outcome, percentile
from headgate_bench.jobqueue.connection import Connection
from headgate_bench.jobqueue.part import Site
from headgate_bench.jobqueue.served import run, served

_STARTED_AT_ONCE = 64


@dataclass(slots=True)
class Beats:
    """The results of the workers' renewals."""

    late_s: list[float] = field(default_factory=list)  # from the time at which a renewal was due to its answer
    lost: int = 0  # refused renewals
    still_held: int = 0  # leases that the server has at the end
    server_cpu: float = 0.0  # CPU time of the server per second


def heartbeats(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return how many leases were lost, on the first of the stores."""
    parameters, part, store = site.parameters, Outcome(), site.parameters.stores[0]
    tell(0.0)
    _allow_connections(parameters.heartbeat_workers)
    with site.database(store) as database:
        beats = run(_beaten(site, database))
    late_ms = [1e3 * value for value in beats.late_s]
    lost = max(beats.lost, parameters.heartbeat_workers - beats.still_held)
    figures = {
        "renewals/s": len(late_ms) / parameters.heartbeat_s,
        "median ms": percentile(late_ms, 0.5),
        "99 % ms": percentile(late_ms, 0.99),
        "slowest ms": max(late_ms),
        "the server's share of a core": beats.server_cpu,
    }
    part.samples.append({"part": "heartbeats", "store": store, "renewals": len(late_ms), "lost": lost} | figures)
    part.bars.append(
        at_most(
            "P5.heartbeats",
            f"leases of {parameters.heartbeat_workers:,} workers lost in {parameters.heartbeat_s:g} s, "
            f"{parameters.heartbeat_lease_s:g} s each, renewed three times per period",
            lost,
            parameters.bar_lost,
            "leases",
            figures,
        )
    )
    return part


def _allow_connections(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


async def _beaten(site: Site, database: str) -> Beats:
    parameters, count = site.parameters, site.parameters.heartbeat_workers
    async with served(database, site.folder) as server:
        async with Connection(server.port) as connection:
            for first in range(0, count, 1_000):
                await connection.submit([f"job-{number}" for number in range(first, min(count, first + 1_000))])
        workers = _Workers(server.port, count, parameters.heartbeat_lease_s)
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(workers.live(number))
            await workers.are_ready.wait()
            beats = workers.beats = Beats()
            cpu, begun = server.cpu_s(), time.perf_counter()
            await asyncio.sleep(parameters.heartbeat_s)
            beats.server_cpu = (server.cpu_s() - cpu) / (time.perf_counter() - begun)
            workers.are_done.set()
        async with Connection(server.port) as connection:
            beats.still_held = (await connection.get("/v1/statistics"))["jobs"]["in_progress"]
    return beats


class _Workers:
    """Workers that renew at times spread over a period, independent of the answers."""

    def __init__(self, port: int, count: int, lease_s: float) -> None:
        self.beats = Beats()
        self.are_ready, self.are_done = asyncio.Event(), asyncio.Event()
        self._port, self._count, self._lease_s = port, count, lease_s
        self._door = asyncio.Semaphore(_STARTED_AT_ONCE)
        self._ready = 0

    async def live(self, number: int) -> None:
        """Claim a job and renew its lease until all is done."""
        every_s = self._lease_s / 3
        async with AsyncExitStack() as stack:
            async with self._door:  # the server closes connections without a request
                connection = await stack.enter_async_context(Connection(self._port))
                lease = await connection.claim(f"worker-{number}", lease_s=self._lease_s)
            assert lease is not None, "there are as many jobs as workers"
            self._ready += 1
            if self._ready == self._count:
                self.are_ready.set()
            due = time.perf_counter() + every_s * number / self._count
            while not await self._are_done_by(due):
                (renewal,) = (await connection.post("/v1/leases/renew", {"leases": [lease]}))["renewals"]
                self.beats.late_s.append(time.perf_counter() - due)
                self.beats.lost += renewal["status"] != "renewed"
                due += every_s

    async def _are_done_by(self, due: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - time.perf_counter())):
                await self.are_done.wait()
        return self.are_done.is_set()
