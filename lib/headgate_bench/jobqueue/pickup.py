"""P5.pickup: how soon a waiting worker gets a submitted job, and a freed policy server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from itertools import pairwise

from headgate_bench.artifact import at_most
from headgate_bench.definition import Chart, Outcome, percentile
from headgate_bench.jobqueue.connection import Connection
from headgate_bench.jobqueue.part import Site
from headgate_bench.jobqueue.served import run, served
from headgate_bench.jobqueue.waiting_rules import simulated

_SUBMITTERS = 16
_WAIT_S = 30.0
_POOL = "team"
_CLOSED_S = 1.0
_POLL_S = 20.0
_SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


def pickup(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return both latencies, on the first of the stores."""
    parameters, part, store = site.parameters, Outcome(), site.parameters.stores[0]
    tell(0.0)
    with site.database(store) as database:
        most_per_s, picked_s, handed_s = run(_both(site, database, tell))
    polling = simulated(workers=24, hours=2.0, seed=site.seed, poll_s=_POLL_S).gaps_s
    picked, handed = ([1e3 * value for value in values] for values in (picked_s, handed_s))
    part.samples.append(
        {
            "part": "pickup", "store": store, "most_per_s": most_per_s, "jobs": len(picked),
            **{f"p{share * 100:g}_ms": percentile(picked, share) for share in _SHARES},
            **{f"handover_p{share * 100:g}_ms": percentile(handed, share) for share in _SHARES},
        }
    )  # fmt: skip
    part.bars += [
        at_most(
            "P5.pickup",
            f"95 % of jobs are picked up within, of {most_per_s / 2:.0f} submitted per second, half of the most",
            percentile(picked, 0.95),
            parameters.bar_pickup_ms,
            "ms",
            {"median ms": percentile(picked, 0.5), "99 % ms": percentile(picked, 0.99)},
        ),
        at_most(
            "P5.handover",
            "95 % of freed policy servers are with the job that waits within",
            percentile(handed, 0.95),
            parameters.bar_handover_ms,
            "ms",
            {
                "median ms": percentile(handed, 0.5),
                f"polling each {_POLL_S:g} s, one job waits, in theory": 950.0 * _POLL_S,
                "the same, 24 jobs on 8 servers, simulated": 1e3 * percentile(polling, 0.95),
            },
        ),
    ]
    part.charts.append(
        Chart(
            "Time until a waiting worker has it", "share of all, %", "ms", "lines",
            {
                "a submitted job": [(100 * share, percentile(picked, share)) for share in _SHARES],
                "a freed policy server": [(100 * share, percentile(handed, share)) for share in _SHARES],
            },
            parameters.bar_pickup_ms,
        )
    )  # fmt: skip
    part.notes.append("P5.pickup: from the moment at which the job was due to be submitted; arrivals are random.")
    return part


async def _both(site: Site, database: str, tell: Callable[[float], None]) -> tuple[float, list[float], list[float]]:
    async with served(database, site.folder) as server:
        most_per_s = await _most_per_s(server.port)
        picked_s = await _picked_up(site, server.port, most_per_s / 2)
        tell(0.7)
        return most_per_s, picked_s, await _handed_over(server.port, site.parameters.handovers)


async def _picked_up(site: Site, port: int, per_s: float) -> list[float]:
    parameters = site.parameters
    rng = random.Random(site.seed)
    due, at = [], 0.0
    for _ in range(parameters.pickup_jobs):
        at += rng.expovariate(per_s)
        due.append(at)
    picked: dict[int, float] = {}
    is_all = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        workers = [
            group.create_task(_wait(port, f"worker-{number}", picked, len(due), is_all))
            for number in range(parameters.pickup_workers)
        ]
        await asyncio.sleep(0.3)  # let all of them queue up
        begun = time.perf_counter()
        for first in range(_SUBMITTERS):
            group.create_task(_submit(port, begun, due, first))
        await is_all.wait()
        for worker in workers:
            worker.cancel()
    return [picked[number] - begun - due[number] for number in range(len(due))]


async def _most_per_s(port: int) -> float:
    """Return the jobs per second that can be submitted, claimed and completed one by one without waiters."""
    done = [0]

    async def cycle(name: str) -> None:
        async with Connection(port) as connection:
            while time.perf_counter() < until:
                await connection.submit([f"{name}-{done[0]}"])
                lease = await connection.claim(name)
                if lease is not None:
                    await connection.complete(lease)
                done[0] += 1

    begun = time.perf_counter()
    until = begun + _CLOSED_S
    async with asyncio.TaskGroup() as group:
        for number in range(_SUBMITTERS):
            group.create_task(cycle(f"warm-{number}"))
    return done[0] / (time.perf_counter() - begun)


async def _submit(port: int, begun: float, due: list[float], first: int) -> None:
    async with Connection(port) as connection:
        for number in range(first, len(due), _SUBMITTERS):
            await asyncio.sleep(max(0.0, begun + due[number] - time.perf_counter()))
            await connection.submit([f"job-{number}"])


async def _wait(port: int, worker: str, picked: dict[int, float], count: int, is_all: asyncio.Event) -> None:
    async with Connection(port) as connection:
        while True:
            lease = await connection.claim(worker, wait_s=_WAIT_S)
            if lease is None:
                continue
            now, (name, _, number) = time.perf_counter(), lease["job_id"].partition("-")
            if name == "job":
                picked[int(number)] = now
            await connection.complete(lease)
            if len(picked) == count:
                is_all.set()


async def _handed_over(port: int, count: int) -> list[float]:
    """Return the hand-over times of a policy server for which two workers take turns, one waiting for the other."""
    async with Connection(port) as one, Connection(port) as two:
        await one.register(_POOL, 1)
        await one.submit([f"turn-{number}" for number in range(count + 1)], pool=_POOL)
        leases = []
        for _ in range(count + 1):
            lease = await one.claim("worker", pools=[_POOL])
            assert lease is not None, "they were submitted"
            leases.append(lease)
        await one.reserve(leases[0], 0.0)
        taken_s = []
        for holder, waiter in pairwise(leases):
            waiting = asyncio.create_task(two.reserve(waiter, _WAIT_S))
            await one.get("/v1/statistics")  # answered after the waiting request has arrived
            await asyncio.sleep(0.002)
            begun = time.perf_counter()
            freeing = asyncio.create_task(one.complete(holder))
            assert await waiting is not None, "the server is free"
            taken_s.append(time.perf_counter() - begun)
            await freeing
        return taken_s
