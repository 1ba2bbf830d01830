"""P5.saturation: policy servers must never idle while a job waits; in virtual time and over HTTP."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from headgate.jobqueue import ResourceSpec
from headgate_bench.artifact import at_least
from headgate_bench.definition import Chart, Outcome
from headgate_bench.jobqueue.connection import Connection
from headgate_bench.jobqueue.part import Site
from headgate_bench.jobqueue.served import run, served
from headgate_bench.jobqueue.waiting_rules import EPISODE_S, LOAD_S, SPREAD, Use, simulated

_SERVERS: Final = 8
_WORKERS: Final = 24
_POLL_S: Final = 20.0
_WAIT_S: Final = 30.0
_RULES: Final = {"in line": None, "polling": _POLL_S}
"""How workers get a server -> polling interval in seconds; None if they wait in line."""
_SWEEP: Final = (12, 14, 16, 24)
"""Numbers of workers; 12 are just enough to keep each server busy if no time is lost."""

_RADIO: Final = "turning_on_radio"


def saturation(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return the busy share of the servers for each way of getting one."""
    part = Outcome()
    tell(0.0)
    _virtual(site, part)
    tell(0.3)
    _constrained(site, part)
    tell(0.4)
    _over_http(site, part, tell)
    return part


def _virtual(site: Site, part: Outcome) -> None:
    parameters = site.parameters
    series: dict[str, list[tuple[float | str, float]]] = {name: [] for name in _RULES}
    used: dict[str, Use] = {}
    for workers in _SWEEP:
        for name, poll_s in _RULES.items():
            use = simulated(workers=workers, hours=parameters.saturation_hours, seed=site.seed, poll_s=poll_s)
            series[name].append((workers, 100 * use.busy))
            part.samples.append(
                {"part": "saturation", "way": name, "workers": workers, "busy": use.busy, "episodes": use.episodes}
            )
            if workers == _WORKERS:
                used[name] = use
    part.bars.append(
        at_least(
            "P5.saturation",
            f"share of the time in which {_SERVERS} policy servers have a job, {_WORKERS} workers, virtual time",
            used["in line"].busy,
            parameters.bar_busy,
            "busy",
            {f"polling each {_POLL_S:g} s": used["polling"].busy}
            | {f"the same, {int(n)} workers": busy / 100 for n, busy in series["polling"][:3]}
            | {f"in line, {int(n)} workers": busy / 100 for n, busy in series["in line"][:3]},
        )
    )
    part.charts.append(
        Chart(
            f"Busy share of {_SERVERS} policy servers", "workers", "busy, %", "lines", series, 100 * parameters.bar_busy
        )
    )
    part.notes.append(
        f"P5.saturation: loads of {LOAD_S:g} s and episodes of {EPISODE_S:g} s, each up to {SPREAD:.0%} longer or "
        "shorter; a quarter of an hour passes before the servers are watched."
    )


def _constrained(site: Site, part: Outcome) -> None:
    """Measure one server for every task next to one for the radio only; half of the jobs are the radio's."""
    radio_only = frozenset({_RADIO})
    ours = [ResourceSpec("team", "10.0.0.1", 1), ResourceSpec("team", "10.0.0.2", 1, compatible_task=radio_only)]
    bound = [ResourceSpec("team_1", "10.0.0.1", 1), ResourceSpec("team_2", "10.0.0.2", 1, compatible_task=radio_only)]
    hours = site.parameters.saturation_hours
    use, first_group = (
        simulated(
            workers=8, hours=hours, seed=site.seed, servers=servers,
            jobs=[(pool, _RADIO), (pool, "hiding_easter_eggs")],
        )
        for servers, pool in ((ours, "team"), (bound, "team_1"))
    )  # fmt: skip
    part.samples += [
        {"part": "saturation", "way": way, "workers": 8, "busy": one.busy, **one.by_server}
        for way, one in (("constraints", use), ("first group", first_group))
    ]
    part.bars.append(
        at_least(
            "P5.constrained",
            "the same with a server for every task and one for a single task, virtual time",
            use.busy,
            site.parameters.bar_busy,
            "busy",
            {"jobs bound to the first group that serves them": first_group.busy},
        )
    )


def _over_http(site: Site, part: Outcome, tell: Callable[[float], None]) -> None:
    parameters, store = site.parameters, site.parameters.stores[0]
    with site.database(store) as database:
        busy = run(_served_in_turns(site, database, tell))
    part.samples += [
        {"part": "saturation", "way": f"{name}, over HTTP", "workers": _WORKERS, "busy": share}
        for name, share in busy.items()
    ]
    scale = parameters.saturation_scale
    part.bars.append(
        at_least(
            "P5.saturation_http",
            f"the same over HTTP, {store}, everything {scale:g} times as fast as in life",
            busy["in line"],
            parameters.bar_busy,
            "busy",
            {f"polling each {_POLL_S / scale:g} s": busy["polling"]},
        )
    )
    part.notes.append(
        f"P5.saturation_http: {scale:g} times as fast, a hand-over that takes 5 ms costs as much as {5e-3 * scale:g} s "
        "would in life."
    )


async def _served_in_turns(site: Site, database: str, tell: Callable[[float], None]) -> dict[str, float]:
    busy: dict[str, float] = {}
    async with served(database, site.folder) as server:
        for number, (name, poll_s) in enumerate(_RULES.items()):
            tell(0.4 + 0.3 * number)
            busy[name] = await _Scaled(site, poll_s, server.port, pool=f"pool-{number}").busy()
    return busy


class _Scaled:
    """Workers of a queue over HTTP, with loads and episodes shorter than real ones."""

    def __init__(self, site: Site, poll_s: float | None, port: int, pool: str) -> None:
        self._port, self._pool = port, pool
        self._scale = site.parameters.saturation_scale
        self._episodes = site.parameters.saturation_episodes
        self._rng = random.Random(site.seed)
        self._poll_s = poll_s
        self._since = self._until = float("inf")
        self._busy_s = 0.0

    async def busy(self) -> float:
        """Return the share of the time in which the policy servers had a job."""
        warm_up_s = 2 * (LOAD_S + EPISODE_S) / self._scale
        window_s = self._episodes * EPISODE_S / self._scale
        async with Connection(self._port) as connection:
            await connection.register(self._pool, _SERVERS)
            most = _SERVERS * (self._episodes + 8) * 2 + _WORKERS
            await connection.submit([f"{self._pool}-{number}" for number in range(most)], pool=self._pool)
        self._since = time.perf_counter() + warm_up_s
        self._until = self._since + window_s
        async with asyncio.TaskGroup() as group:
            for number in range(_WORKERS):
                group.create_task(self._work(f"worker-{number}"))
        return self._busy_s / (_SERVERS * window_s)

    async def _work(self, worker: str) -> None:
        async with Connection(self._port) as connection:
            await asyncio.sleep(self._rng.uniform(0.0, LOAD_S / self._scale))
            while time.perf_counter() < self._until:
                lease = await connection.claim(worker, pools=[self._pool])
                assert lease is not None, "more jobs are queued than are served"
                await asyncio.sleep(self._varied(LOAD_S))
                if not await self._reserved(connection, lease):
                    return
                begun = time.perf_counter()
                await asyncio.sleep(self._varied(EPISODE_S))
                self._busy_s += max(0.0, min(time.perf_counter(), self._until) - max(begun, self._since))
                await connection.complete(lease)

    async def _reserved(self, connection: Connection, lease: dict[str, object]) -> bool:
        while time.perf_counter() < self._until:
            wait_s = _WAIT_S if self._poll_s is None else 0.0
            if await connection.reserve(lease, wait_s) is not None:
                return True
            if self._poll_s is not None:
                await asyncio.sleep(self._poll_s / self._scale)
        return False

    def _varied(self, seconds: float) -> float:
        return seconds / self._scale * self._rng.uniform(1.0 - SPREAD, 1.0 + SPREAD)
