"""P5.flat: the cost of a claim with few jobs queued, and with very many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from headgate.core import SystemClock
from headgate.jobqueue import ClaimRequest, Instant, Ledger, Store
from headgate.jobqueue.stores import open_store
from headgate_bench.artifact import at_most
from headgate_bench.definition import Chart, Outcome, spread_of
from headgate_bench.jobqueue.burn_down import specs
from headgate_bench.jobqueue.part import Site
from headgate_bench.jobqueue.served import cpu_s

_CLAIMED = 100
_SUBMITTED_AT_ONCE = 10_000
_LANES = 8
_WARM_UP = 3


@dataclass(slots=True)
class Queue:
    """A queue of some length, and the cost of its claims so far."""

    queued: int  # jobs waiting at the start
    store: Store  # owned by this object
    ledger: Ledger  # ledger on the store
    database_cpu_s: Callable[[], float]  # CPU time of the database's processes so far; 0 if the store has none
    cpu_us: list[float] = field(default_factory=list)  # CPU time of this process per job of each claim
    wall_us: list[float] = field(default_factory=list)  # wall time per job of each claim, including its commit

    def claim(self) -> tuple[float, float]:
        """Claim some jobs durably; return CPU and wall time in microseconds per job."""
        cpu, begun = time.process_time(), time.perf_counter()
        jobs = self.ledger.claims.claim(ClaimRequest("worker", _CLAIMED), _now())
        self.store.commit(self.ledger.changes)
        self.ledger.committed()
        assert len(jobs) == _CLAIMED, "more are queued"
        return 1e6 * (time.process_time() - cpu) / _CLAIMED, 1e6 * (time.perf_counter() - begun) / _CLAIMED


def flat(site: Site, tell: Callable[[float], None]) -> Outcome:
    """Return the cost for both queues on each store, measured in turns."""
    part = Outcome()
    for number, store in enumerate(site.parameters.stores):
        tell(number / len(site.parameters.stores))
        _measure(site, store, part)
    return part


def _measure(site: Site, store: str, part: Outcome) -> None:
    parameters = site.parameters
    with _filled(site, store, parameters.small) as small, _filled(site, store, parameters.large) as large:
        for queue in (small, large):
            for _ in range(_WARM_UP):
                queue.claim()
        database_cpu = {queue.queued: -queue.database_cpu_s() for queue in (small, large)}
        for _ in range(parameters.flat_rounds):
            for queue in (small, large):
                cpu, wall = queue.claim()
                queue.cpu_us.append(cpu)
                queue.wall_us.append(wall)
        for queue in (small, large):
            database_cpu[queue.queued] += queue.database_cpu_s()
    costs = {
        queue.queued: median(queue.cpu_us) + 1e6 * database_cpu[queue.queued] / (_CLAIMED * parameters.flat_rounds)
        for queue in (small, large)
    }
    ratios = [one / other for one, other in zip(large.wall_us, small.wall_us, strict=True)]
    what = f"flat {store}: wall time of a claim, {large.queued:,} over {small.queued:,} queued"
    part.ratios[what] = spread_of(ratios)
    part.samples += [
        {
            "part": "flat", "store": store, "queued": queue.queued, "cpu_us": costs[queue.queued],
            "wall_us": median(queue.wall_us),
        }
        for queue in (small, large)
    ]  # fmt: skip
    part.bars.append(
        at_most(
            f"P5.flat_{store}",
            f"CPU time of a claim with {large.queued:,} jobs queued over that with {small.queued:,}, {store}",
            costs[large.queued] / costs[small.queued],
            parameters.bar_flat,
            "×",
            {
                f"µs with {small.queued:,}": costs[small.queued],
                f"µs with {large.queued:,}": costs[large.queued],
                "wall time ×": median(large.wall_us) / median(small.wall_us),
                f"wall µs with {large.queued:,}": median(large.wall_us),
            },
        )
    )
    series = [(f"{queue.queued:,} queued", costs[queue.queued]) for queue in (small, large)]
    part.charts.append(Chart(f"CPU time of a claim, {store}", "", "µs per job", "bars", {store: series}))


@contextmanager
def _filled(site: Site, kind: str, queued: int) -> Iterator[Queue]:
    with site.database(kind) as database:
        store = open_store(database).own("headgate bench")
        try:
            ledger = Ledger(store, Instant(0.0, 0.0))
            jobs = specs(queued, lanes=_LANES)
            for first in range(0, queued, _SUBMITTED_AT_ONCE):
                ledger.submit(jobs[first : first + _SUBMITTED_AT_ONCE], _now())
                store.commit(ledger.changes)
                ledger.committed()
            # A new ledger, as after a restart: it has to read the heads of the lanes.
            yield Queue(queued, store, Ledger(store, Instant(0.0, 0.0)), lambda: _cpu_s_of(site, kind, database))
        finally:
            store.close()


def _cpu_s_of(site: Site, kind: str, database: str) -> float:
    """Return the CPU time of the PostgreSQL processes that serve a database, in seconds; 0 for other stores."""
    if kind != "postgres" or site.postgres is None:
        return 0.0
    name = database.rpartition("/")[2]
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if f" {name} " in _title(path)]
    return sum(cpu_s(pid) for pid in pids) if pids else float("nan")


def _title(process: Path) -> str:
    try:
        title = (process / "cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""
    return title if title.startswith("postgres: headgate") else ""


def _now() -> Instant:
    clock = SystemClock()
    return Instant(clock.monotonic(), clock.wall())
