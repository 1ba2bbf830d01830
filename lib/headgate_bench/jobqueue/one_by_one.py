"""P5.http: a server process, several workers, one job per claim and one per completion."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from headgate_bench.artifact import at_least
from headgate_bench.definition import Chart, Outcome, percentile, spread_of
from headgate_bench.jobqueue.connection import Connection
from headgate_bench.jobqueue.part import Site
from headgate_bench.jobqueue.served import run, served

_MOST_PER_S = 3_000
"""Jobs submitted per second of measurement: more than one process can answer."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What workers and the server did in a time span."""

    jobs: int  # jobs claimed and completed
    seconds: float  # length of the time span
    p50_ms: float  # median time of a claim or a completion
    p99_ms: float  # 99th percentile of it
    server_cpu: float  # CPU time of the server over `seconds`
    clients_cpu: float  # CPU time of the workers over `seconds`

    @property
    def per_s(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds


def one_by_one(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return the rate on each store."""
    parameters, part = site.parameters, Outcome()
    rates: dict[str, list[Rate]] = {store: [] for store in parameters.stores}
    rounds = [store for _ in range(parameters.iterations) for store in parameters.stores]
    for number, store in enumerate(rounds):
        tell(number / len(rounds))
        with site.database(store) as database:
            rate = run(_measured(site, database))
        rates[store].append(rate)
        part.samples.append({"part": "http", "store": store, "per_s": rate.per_s} | asdict(rate))
    for store, found in rates.items():
        spread = spread_of([rate.per_s for rate in found])
        middle = sorted(found, key=lambda rate: rate.per_s)[len(found) // 2]
        part.ratios[f"http {store} per s"] = spread
        part.bars.append(
            at_least(
                f"P5.http_{store}",
                f"jobs claimed and completed one by one over HTTP, {store}, {parameters.http_clients} workers",
                spread.median,
                parameters.bar_http,
                "jobs/s",
                {
                    "answered within, median ms": middle.p50_ms,
                    "99 % ms": middle.p99_ms,
                    "the server's share of a core": middle.server_cpu,
                    "the workers'": middle.clients_cpu,
                },
            )
        )
    points = [(store, spread_of([rate.per_s for rate in found]).median) for store, found in rates.items()]
    part.charts.append(
        Chart("Jobs per second over HTTP, one by one", "", "jobs/s", "bars", {"jobs": points}, parameters.bar_http)
    )
    return part


async def _measured(site: Site, database: str) -> Rate:
    parameters = site.parameters
    async with served(database, site.folder) as server:
        async with Connection(server.port) as connection:
            jobs = [f"job-{number}" for number in range(int(_MOST_PER_S * parameters.http_s))]
            for first in range(0, len(jobs), 1_000):
                await connection.submit(jobs[first : first + 1_000])
        taken_s: list[float] = []
        server_cpu, clients_cpu = server.cpu_s(), _cpu_s()
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            workers = [
                group.create_task(_work(server.port, f"worker-{number}", begun + parameters.http_s, taken_s))
                for number in range(parameters.http_clients)
            ]
        seconds = time.perf_counter() - begun
        return Rate(
            sum(worker.result() for worker in workers),
            seconds,
            1e3 * percentile(taken_s, 0.5),
            1e3 * percentile(taken_s, 0.99),
            (server.cpu_s() - server_cpu) / seconds,
            (_cpu_s() - clients_cpu) / seconds,
        )


async def _work(port: int, worker: str, until: float, taken_s: list[float]) -> int:
    done = 0
    async with Connection(port) as connection:
        while (begun := time.perf_counter()) < until:
            lease = await connection.claim(worker)
            if lease is None:
                break
            claimed = time.perf_counter()
            await connection.complete(lease)
            taken_s += (claimed - begun, time.perf_counter() - claimed)
            done += 1
    return done


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
