"""Durations of starts and stops on a real cluster, and what many of them leave behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headgate.placement.amounts import amounts
from headgate.placement.cluster.pools import PlacementPool
from headgate.placement.cluster.work import PlacedWork
from headgate_bench.placement.site import Site
from headgate_bench.placement.works import Cooperative, Idle, Stuck

_PATIENCE_S = 60.0
_SIZE = amounts(cpu=1, gpu=1)


@dataclass(frozen=True, slots=True)
class Stops:
    """Measurements of stops."""

    dead_ms: list[float]  # from the decision to stop until the victim was seen dead, per stop
    running_ms: list[float]  # from submitting the preemptor until it ran, as its driver sees it
    finished: int  # victims that later ran again
    victims: int  # all stopped victims


def stops(site: Site, count: int, *, is_stuck: bool, progress: Callable[[int], None]) -> Stops:
    """Stop work `count` times in a pool with room for one."""
    name = "stuck" if is_stuck else "stops"
    pool = site.placement.pool(name, quota=_SIZE)
    since = max((told.number for told in site.placement.events()), default=0)
    running_ms, finished = [], 0
    for number in range(count):
        victim = pool.submit(Stuck if is_stuck else Cooperative, resources=_SIZE, priority=3)
        victim.wait_running(_PATIENCE_S)
        running_ms.append(_started_ms(pool))
        finished += _is_back(victim)
        progress(number)
    told = [each.fields for each in site.placement.events(since) if each.event == "WorkPreempted"]
    dead_ms = [1_000 * float(fields["took_s"]) for fields in told if fields["pool"] == name]
    site.placement.close_pool(name)
    return Stops(dead_ms, running_ms, finished, count)


def _started_ms(pool: PlacementPool) -> float:
    """Return the milliseconds until work of a high priority ran, as its driver sees it; the work ends at once."""
    began = time.perf_counter()
    work = pool.submit(Idle, resources=_SIZE, priority=9, method=None)
    work.wait_running(_PATIENCE_S)
    took_ms = 1_000 * (time.perf_counter() - began)
    work.complete()
    work.wait(_PATIENCE_S)
    return took_ms


def _is_back(victim: PlacedWork) -> bool:
    """Return whether the victim runs again, then end it."""
    view = victim.wait_running(_PATIENCE_S)
    victim.cancel("the benchmark is over")
    victim.wait(_PATIENCE_S)
    return view.preemptions == 1


def starts(site: Site, count: int, progress: Callable[[int], None]) -> list[float]:
    """Return the milliseconds of each start, as its driver sees it, without the first, which warms the host."""
    pool = site.placement.pool("starts", quota=_SIZE, reserved=(_SIZE,))
    took_ms = []
    for number in range(count + 1):
        took_ms.append(_started_ms(pool))
        progress(number)
    site.placement.close_pool("starts")
    return took_ms[1:]


@dataclass(frozen=True, slots=True)
class Cycles:
    """Counts of cycles."""

    cycles: int  # number of cycles
    preemptions: int  # victims stopped in them
    victims_done: int  # victims that ended with a result
    reserved: int  # reserved groups at the end; there was one at the start
    leaked: int  # differences between ledger, journal and Ray that the audit found at the end


def cycles(site: Site, count: int, progress: Callable[[int], None]) -> Cycles:
    """Run cycles: a rollout is stopped for a training and resumes afterwards."""
    pool = site.placement.pool("cycles", quota=_SIZE, reserved=(_SIZE,), max_dynamic=1)
    before = int(site.placement.stats()["total_preemptions"])
    done = 0
    for number in range(count):
        rollout = pool.submit(Cooperative, resources=_SIZE, priority=3)
        rollout.wait_running(_PATIENCE_S)
        _started_ms(pool)
        rollout.wait_running(_PATIENCE_S)
        rollout.complete()
        done += rollout.wait(_PATIENCE_S).stage.value == "done"
        progress(number)
    reserved = sum(group.reserved for group in site.placement.groups("cycles"))
    preemptions = int(site.placement.stats()["total_preemptions"]) - before
    site.placement.close_pool("cycles")
    return Cycles(count, preemptions, done, reserved, len(site.placement.audit()))
