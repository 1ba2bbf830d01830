"""A small group arrives while a heavy one holds the workers: how long it waits under each task admission policy."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.core import HolderId, Task, TaskId
from headgate.scheduling import Dispatch, Dispatcher, TaskPolicy

_CAPACITY: Final = 8
_TASKS: Final = {"hot": (512, 0.0, 0.5, 4.0), "peer": (256, 0.05, 0.05, 1.0)}
"""Group -> its tasks, when they are ready, how long each takes, and its weight; as in DataDesigner's own benchmark
`heavy_root_peer_arrival`."""


@dataclass(frozen=True, slots=True)
class PeerWaits:
    """What came of it, in simulated seconds: exact, and the same in every run."""

    policy: str
    wall_s: float
    first_wait_s: float
    p95_wait_s: float
    max_wait_s: float


def peer_waits(policy: TaskPolicy, *, is_timed: bool = True) -> PeerWaits:
    """Return how long the group that arrives waits for its leases, and how long everything takes.

    Unless `is_timed` the dispatcher is not told how long tasks took, and groups take turns by number.
    """
    limits = {"submission": _CAPACITY, "llm_wait": _CAPACITY}
    dispatcher = Dispatcher(limits, holder=HolderId("bench"), policy=policy, is_roster_open=True)
    arrivals = [(ready_at, _tasks(group, number, weight)) for group, (number, ready_at, _, weight) in _TASKS.items()]
    running: list[tuple[float, int, Dispatch]] = []
    waits: list[float] = []
    now, wall_s, started = 0.0, 0.0, 0
    while arrivals or running or len(dispatcher.queue):
        while arrivals and arrivals[0][0] <= now:
            dispatcher.enqueue(arrivals.pop(0)[1], now)
        while running and running[0][0] <= now:
            ended = heapq.heappop(running)[2]
            dispatcher.finished(ended.task, ended.lease, now if is_timed else None)
            wall_s = now
        while isinstance(granted := dispatcher.next(now), Dispatch):
            started += 1
            _, ready_at, length_s, _ = _TASKS[granted.task.group]
            heapq.heappush(running, (now + length_s, started, granted))
            if granted.task.group == "peer":
                waits.append(now - ready_at)
        times = [*(at for at, _ in arrivals[:1]), *(at for at, _, _ in running[:1]), dispatcher.next_change_at(now)]
        now = min((at for at in times if at is not None), default=now)
    waits.sort()
    return PeerWaits(policy.name, wall_s, waits[0], waits[math.ceil(0.95 * len(waits)) - 1], waits[-1])


_NEEDS: Mapping[str, int] = {"submission": 1, "llm_wait": 1}


def _tasks(group: str, number: int, weight: float) -> list[Task]:
    return [
        Task(TaskId(f"{group}-{n}"), group, "bench:free", n, 0, 0, group, 0.0, weight=weight, resources=_NEEDS)
        for n in range(number)
    ]
