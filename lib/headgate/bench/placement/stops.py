"""How long it takes to stop running work for other work, when it helps and when it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headgate.bench.placement.site import Site
from headgate.bench.placement.works import Cooperative, Idle, Stuck
from headgate.placement.amounts import amounts
from headgate.placement.cluster.placed import PlacedWork
from headgate.placement.cluster.pools import PlacementPool

_PATIENCE_S = 60.0
_SIZE = amounts(cpu=1, gpu=1)


@dataclass(frozen=True, slots=True)
class Stops:
    """What was measured.

    Attributes:
        dead_ms: from the decision to stop until the victim was seen dead, of each stop.
        running_ms: from handing in the preemptor until it ran, as its driver sees it.
        finished: victims that ended later with their state.
        victims: all that were stopped.
    """

    dead_ms: list[float]
    running_ms: list[float]
    finished: int
    victims: int


def stops(site: Site, count: int, *, is_stuck: bool, progress: Callable[[int], None]) -> Stops:
    """Stop work `count` times in a pool that has room for one."""
    name = "stuck" if is_stuck else "stops"
    pool = site.placement.pool(name, quota=_SIZE)
    since = max((told.number for told in site.placement.events()), default=0)
    running_ms, finished = [], 0
    for number in range(count):
        victim = pool.submit(Stuck if is_stuck else Cooperative, resources=_SIZE, priority=3)
        victim.wait_running(_PATIENCE_S)
        running_ms.append(_preempt(pool))
        finished += _is_back(victim)
        progress(number)
    told = [each.fields for each in site.placement.events(since) if each.event == "WorkPreempted"]
    dead_ms = [1_000 * float(fields["took_s"]) for fields in told if fields["pool"] == name]
    site.placement.close_pool(name)
    return Stops(dead_ms, running_ms, finished, count)


def _preempt(pool: PlacementPool) -> float:
    """Return the milliseconds that a preemptor took to run; it ends at once."""
    began = time.perf_counter()
    preemptor = pool.submit(Idle, resources=_SIZE, priority=9, method=None)
    preemptor.wait_running(_PATIENCE_S)
    took_ms = 1_000 * (time.perf_counter() - began)
    preemptor.complete()
    preemptor.wait(_PATIENCE_S)
    return took_ms


def _is_back(victim: PlacedWork) -> bool:
    """Tell whether the victim runs again; it is ended then."""
    view = victim.wait_running(_PATIENCE_S)
    victim.cancel("the benchmark is over")
    victim.wait(_PATIENCE_S)
    return view.preemptions == 1
