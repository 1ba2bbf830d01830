"""A small group arrives while a heavy one holds the workers: how long it waits under each task admission policy."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.core import HolderId, Task, TaskId
from headgate.scheduling import Dispatch, Dispatcher, TaskPolicy


@dataclass(frozen=True, slots=True)
class PeerArrival:
    """The case. The defaults are those of DataDesigner's own benchmark `heavy_root_peer_arrival`.

    Attributes:
        capacity: units of the model resource.
        hot_tasks: of the heavy group, all ready at 0.
        peer_tasks: of the other one, all ready at `peer_at_s`.
        peer_at_s: see there.
        hot_s: length of a heavy task.
        peer_s: length of one of the other group.
        hot_weight: share of the heavy group.
        peer_weight: share of the other one.
    """

    capacity: int = 8
    hot_tasks: int = 512
    peer_tasks: int = 256
    peer_at_s: float = 0.05
    hot_s: float = 0.5
    peer_s: float = 0.05
    hot_weight: float = 4.0
    peer_weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PeerWaits:
    """What came of it, in simulated seconds: exact, and the same in every run."""

    policy: str
    wall_s: float
    first_wait_s: float
    p95_wait_s: float
    max_wait_s: float


def peer_waits(case: PeerArrival, policy: TaskPolicy, *, is_timed: bool = True) -> PeerWaits:
    """Return how long the group that arrives waits for its leases, and how long everything takes.

    Args:
        case: who arrives beside whom.
        policy: what a group may hold.
        is_timed: whether the dispatcher is told how long tasks took; else groups take turns by number.
    """
    dispatcher = Dispatcher(
        {"submission": case.capacity, "llm_wait": case.capacity},
        holder=HolderId("bench"),
        policy=policy,
        is_roster_open=True,
    )
    arrivals = [(0.0, _tasks("hot", case.hot_tasks, case.hot_weight))]
    arrivals.append((case.peer_at_s, _tasks("peer", case.peer_tasks, case.peer_weight)))
    length_s = {"hot": case.hot_s, "peer": case.peer_s}
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
            heapq.heappush(running, (now + length_s[granted.task.group], started, granted))
            if granted.task.group == "peer":
                waits.append(now - case.peer_at_s)
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
