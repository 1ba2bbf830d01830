"""Submit, preempt, end, many times; then nothing may be left that was not there before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.bench.placement.site import Site
from headgate.bench.placement.works import Cooperative, Idle
from headgate.placement.amounts import amounts

_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Cycles:
    """What was counted.

    Attributes:
        cycles: how many were run.
        preemptions: victims that were stopped in them.
        victims_done: victims that ended with a result.
        reserved: reserved groups at the end; one was there at the start.
        leaked: differences between ledger, journal and Ray that the audit found at the end.
    """

    cycles: int
    preemptions: int
    victims_done: int
    reserved: int
    leaked: int


def cycles(site: Site, count: int, progress: Callable[[int], None]) -> Cycles:
    """Run cycles: a rollout is stopped for a training and counts on afterwards."""
    small = amounts(cpu=1, gpu=1)
    pool = site.placement.pool("cycles", quota=small, reserved=(small,), max_dynamic=1)
    before = int(site.placement.stats()["total_preemptions"])
    done = 0
    for number in range(count):
        rollout = pool.submit(Cooperative, resources=small, priority=3)
        rollout.wait_running(_PATIENCE_S)
        training = pool.submit(Idle, resources=small, priority=9, method=None)
        training.wait_running(_PATIENCE_S)
        training.complete()
        training.wait(_PATIENCE_S)
        rollout.wait_running(_PATIENCE_S)
        rollout.complete()
        done += rollout.wait(_PATIENCE_S).stage.value == "done"
        progress(number)
    reserved = sum(group.reserved for group in site.placement.groups("cycles"))
    preemptions = int(site.placement.stats()["total_preemptions"]) - before
    site.placement.close_pool("cycles")
    return Cycles(count, preemptions, done, reserved, len(site.placement.audit()))
