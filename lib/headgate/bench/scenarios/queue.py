"""P3: CPU time of the ready queue's full cycle from 1 to 4 096 groups, and the waits of a group that arrives."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.bench.bars import Bar, at_most
from headgate.bench.peer_arrival import PeerArrival, PeerWaits, peer_waits
from headgate.bench.rivals.sorted_scan import SortedScanQueue
from headgate.bench.scenario import Bench, Chart, Outcome, Scenario
from headgate.bench.spread import spread_of
from headgate.core import HolderId, Lease, LeaseBook, Task, TaskId
from headgate.scheduling import BoundedBorrow, Dispatch, Dispatcher, StrictFair, TaskPolicy

_HOLDER = HolderId("bench")
_CHUNK = 256
_IN_FLIGHT = 64
"""Leases held at any time, so that a release is of a task taken a while ago, as in a campaign."""


@dataclass(frozen=True, slots=True)
class QueueParameters:
    """Parameters of the scenario.

    Attributes:
        groups: numbers of groups (one per model) to measure with.
        tasks: cycles per measurement; each takes one task and adds one.
        backlog: numbers of tasks that wait at any time, to measure with.
        closed_share: of the groups in closed lanes in the second half of the measurements.
        iterations: measurements of each number of groups.
        rival_cpu_s: CPU time that one measurement of the rival may take; it does as many cycles as fit.
        bar_us: CPU time per task at most.
        bar_flat: slowest number of groups relative to the fastest at most.
        bar_peer_s: simulated seconds that the first task of a group that arrives may wait.
        bar_peer_share: 95th percentile of its waits relative to that under `strict_fair` at most.
        bar_wall: wall time relative to that under `strict_fair` at most.
    """

    groups: tuple[int, ...] = (1, 8, 64, 256, 1_024, 4_096)
    tasks: int = 5_000
    backlog: tuple[int, ...] = (20_000,)
    closed_share: float = 0.9
    iterations: int = 5
    rival_cpu_s: float = 0.1
    bar_us: float = 15.0
    bar_flat: float = 1.5
    bar_peer_s: float = 0.01
    bar_peer_share: float = 0.2
    bar_wall: float = 1.05


class _Contender(Protocol):
    """A queue under measurement: one `cycle` takes a task under a lease, releases another one and adds a third."""

    def fill(self, tasks: Sequence[Task]) -> None: ...

    def cycle(self, fresh: Task) -> None: ...


class _Ours:
    """Headgate's dispatcher: fair queue, task admission and lanes. Its workers leave what a policy may keep back."""

    def __init__(self, groups: Sequence[str], closed: frozenset[str], policy: TaskPolicy) -> None:
        self._dispatcher = Dispatcher({"workers": 2 * _IN_FLIGHT}, holder=_HOLDER, policy=policy)
        self._running: deque[Dispatch] = deque()
        for group in groups:
            self._dispatcher.set_model(group, _IN_FLIGHT + 1)
            if group in closed:
                self._dispatcher.hold(group, math.inf)

    def fill(self, tasks: Sequence[Task]) -> None:
        self._dispatcher.enqueue(tasks)
        for _ in range(_IN_FLIGHT):
            self._take()

    def cycle(self, fresh: Task) -> None:
        self._take()
        done = self._running.popleft()
        self._dispatcher.finished(done.task, done.lease)
        self._dispatcher.enqueue((fresh,))

    def _take(self) -> None:
        granted = self._dispatcher.next(0.0)
        assert isinstance(granted, Dispatch), granted
        self._running.append(granted)


class _Rival:
    """The sorted scan, with the same leases, the same cycle and the same bound on what runs."""

    def __init__(self, closed: frozenset[str]) -> None:
        self._queue = SortedScanQueue(lambda group: group not in closed)
        self._book = LeaseBook({"workers": _IN_FLIGHT + 1})
        self._running: deque[Lease] = deque()

    def fill(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._queue.enqueue(task)
        for _ in range(_IN_FLIGHT):
            self._take()

    def cycle(self, fresh: Task) -> None:
        self._take()
        self._book.release(self._running.popleft())
        self._queue.enqueue(fresh)

    def _take(self) -> None:
        selected = self._queue.select_next()
        assert selected is not None
        lease = self._book.acquire(_HOLDER, selected.resources, 0.0, subject=selected.task_id)
        assert isinstance(lease, Lease), lease
        self._queue.commit(selected)
        self._running.append(lease)


_POLICIES: dict[str, TaskPolicy] = {"strict_fair": StrictFair(), "bounded_borrow": BoundedBorrow()}
_SCAN = "sorted_scan"
_Case = tuple[int, float, int]
"""Groups, share of them in closed lanes, tasks that wait."""


def measure(parameters: QueueParameters, bench: Bench) -> Outcome:
    """Return the CPU time of a cycle by number of groups, ours and the rival's interleaved."""
    samples = list(_measured(parameters, bench))
    medians = {queue: _medians(samples, queue) for queue in (*_POLICIES, _SCAN)}
    beside: dict[str, float | str] = {
        f"sorted scan, {groups} groups": us
        for (groups, share, backlog), us in medians[_SCAN].items()
        if not share and backlog == parameters.backlog[-1]
    }
    waits = {
        "strict_fair": peer_waits(PeerArrival(), StrictFair()),
        "bounded_borrow": peer_waits(PeerArrival(), BoundedBorrow(reserve_share=0.375, reserve_for_s=1.0)),
        "by default": peer_waits(PeerArrival(), BoundedBorrow()),
    }
    bars = [*_cycle_bars(parameters, samples, medians, beside), *_peer_bars(parameters, waits)]
    ratios = {
        f"sorted scan / strict_fair, {groups} groups, {share:.0%} closed, {backlog} waiting": spread_of(
            [
                theirs["cpu_us"] / mine["cpu_us"]
                for mine, theirs in zip(
                    _of(samples, "strict_fair", (groups, share, backlog)),
                    _of(samples, _SCAN, (groups, share, backlog)),
                    strict=True,
                )
            ]
        )
        for groups, share, backlog in medians["strict_fair"]
    }
    series = {
        f"{queue.replace('_', ' ')}, {'all open' if not share else f'{share:.0%} closed'}": [
            (float(groups), us)
            for (groups, its, backlog), us in of_queue.items()
            if (its, backlog) == (share, parameters.backlog[-1])
        ]
        for queue, of_queue in medians.items()
        for share in (0.0, parameters.closed_share)
    }
    chart = Chart(
        f"CPU time of one full queue cycle by number of groups, {parameters.backlog[-1]} tasks waiting",
        "groups",
        "µs per task",
        "lines",
        series,
        level=parameters.bar_us,
        log="xy",
    )
    return Outcome(bars, samples, ratios, [chart])


def _cycle_bars(
    parameters: QueueParameters,
    samples: Sequence[dict[str, Any]],
    medians: dict[str, dict[_Case, float]],
    beside: dict[str, float | str],
) -> list[Bar]:
    strict, bounded = (max(medians[policy].values()) for policy in _POLICIES)
    flat = {
        (queue, is_closed): _flatness(samples, queue, parameters.backlog[-1], is_closed=is_closed)
        for queue in (*_POLICIES, _SCAN)
        for is_closed in (False, True)
    }
    cycle = "CPU time of a full cycle, slowest case"
    share = f"{parameters.closed_share:.0%}"
    return [
        at_most("P3.cycle", f"{cycle}, strict_fair", strict, parameters.bar_us, "µs/task", beside),
        at_most("P3.cycle_borrow", f"{cycle}, bounded_borrow", bounded, parameters.bar_us, "µs/task"),
        at_most(
            "P3.flat",
            f"slowest over fastest number of groups with {parameters.backlog[-1]:,} tasks, all lanes open",
            flat["strict_fair", False],
            parameters.bar_flat,
            "×",
            {
                "bounded_borrow": flat["bounded_borrow", False],
                "sorted scan": flat[_SCAN, False],
                **{
                    f"{backlog:,} tasks": _flatness(samples, "strict_fair", backlog, is_closed=False)
                    for backlog in parameters.backlog[:-1]
                },
            },
        ),
        at_most(
            "P3.flat_closed",
            f"the same with {share} of the groups in closed lanes",
            flat["strict_fair", True],
            parameters.bar_flat,
            "×",
            {"bounded_borrow": flat["bounded_borrow", True], "sorted scan": flat[_SCAN, True]},
        ),
    ]


def _peer_bars(parameters: QueueParameters, waits: dict[str, PeerWaits]) -> list[Bar]:
    strict, bounded, default = waits["strict_fair"], waits["bounded_borrow"], waits["by default"]
    return [
        at_most(
            "P3.peer_first",
            "first wait of a group that arrives beside a heavy one, bounded_borrow",
            bounded.first_wait_s,
            parameters.bar_peer_s,
            "s",
            {"strict_fair": strict.first_wait_s, "default reserve": default.first_wait_s},
        ),
        at_most(
            "P3.peer_p95",
            "95th percentile of its waits, relative to strict_fair",
            bounded.p95_wait_s / strict.p95_wait_s,
            parameters.bar_peer_share,
            "×",
            {"s": bounded.p95_wait_s, "strict_fair, s": strict.p95_wait_s, "default reserve, s": default.p95_wait_s},
        ),
        at_most(
            "P3.peer_wall",
            "wall time of both groups, relative to strict_fair",
            bounded.wall_s / strict.wall_s,
            parameters.bar_wall,
            "×",
            {"s": bounded.wall_s, "strict_fair, s": strict.wall_s, "default reserve, s": default.wall_s},
        ),
    ]


def _measured(parameters: QueueParameters, bench: Bench) -> Iterator[dict[str, Any]]:
    cases = [
        (groups, share, backlog)
        for backlog in parameters.backlog
        for groups in parameters.groups
        for share in (0.0, parameters.closed_share)
    ]
    total = len(cases) * parameters.iterations
    for iteration in range(parameters.iterations):
        for number, (groups, share, backlog) in enumerate(cases):
            what = f"{groups} groups, {share:.0%} closed, {backlog} tasks"
            bench.progress((iteration * len(cases) + number) / total, what)
            names = [f"model-{group}" for group in range(groups)]
            closed = frozenset(names[: int(groups * share)])
            contenders: dict[str, _Contender] = {
                name: _Ours(names, closed, policy) for name, policy in _POLICIES.items()
            }
            for queue, contender in (contenders | {_SCAN: _Rival(closed)}).items():
                limit_s = parameters.rival_cpu_s if queue == _SCAN else math.inf
                mean_us, p95_us, cycles = _cycle_us(contender, names, closed, parameters.tasks, backlog, limit_s)
                yield {
                    "iteration": iteration,
                    "groups": groups,
                    "closed_share": share,
                    "backlog": backlog,
                    "queue": queue,
                    "cpu_us": mean_us,
                    "cpu_us_p95": p95_us,
                    "cycles": cycles,
                }


def _cycle_us(
    contender: _Contender, names: Sequence[str], closed: frozenset[str], tasks: int, waiting: int, limit_s: float
) -> tuple[float, float, int]:
    """Return CPU microseconds per cycle (mean, 95th percentile of chunks), and how many cycles were done.

    Tasks are made outside of the measured time. New ones go round the open groups, which is the order in which equal
    groups are served, so that the backlog of each stays as it is.
    """
    is_open = [name for name in names if name not in closed]
    each = max(math.ceil(waiting / len(names)), math.ceil(2 * _IN_FLIGHT / len(is_open)))
    backlog = each * len(names)
    contender.fill([_task(number, names[number % len(names)]) for number in range(backlog)])
    spent_s, done = 0.0, 0
    chunks: list[float] = []
    while done < tasks and spent_s < limit_s:
        numbers = range(done, min(done + _CHUNK, tasks))
        fresh = [_task(backlog + number, is_open[number % len(is_open)]) for number in numbers]
        began = time.process_time()
        for task in fresh:
            contender.cycle(task)
        chunk_s = time.process_time() - began
        chunks.append(chunk_s / len(fresh))
        spent_s += chunk_s
        done += len(fresh)
    return 1e6 * spent_s / done, 1e6 * sorted(chunks)[math.ceil(0.95 * len(chunks)) - 1], done


def _task(number: int, group: str) -> Task:
    return Task(TaskId(f"t-{number:024x}"), group, "bench:free", number, 0, 0, group, 0.0)


def _of(samples: Sequence[dict[str, Any]], queue: str, case: _Case) -> list[dict[str, Any]]:
    return [s for s in samples if (s["queue"], s["groups"], s["closed_share"], s["backlog"]) == (queue, *case)]


def _medians(samples: Sequence[dict[str, Any]], queue: str) -> dict[_Case, float]:
    cases = dict.fromkeys((s["groups"], s["closed_share"], s["backlog"]) for s in samples)
    return {case: spread_of([s["cpu_us"] for s in _of(samples, queue, case)]).median for case in cases}


def _flatness(samples: Sequence[dict[str, Any]], queue: str, backlog: int, *, is_closed: bool) -> float:
    """Return the slowest number of groups over the fastest with as many tasks, each by its least disturbed measurement.

    What else the machine does only ever adds to CPU time, and not to all numbers of groups alike.
    """
    least: dict[int, float] = {}
    for sample in samples:
        if (sample["queue"], sample["backlog"], bool(sample["closed_share"])) == (queue, backlog, is_closed):
            least[sample["groups"]] = min(sample["cpu_us"], least.get(sample["groups"], math.inf))
    return max(least.values()) / min(least.values())


SCENARIO = Scenario(
    name="queue",
    quick=QueueParameters(),
    full=QueueParameters(tasks=20_000, backlog=(1_000, 10_000, 100_000), rival_cpu_s=0.3),
    measure=measure,
)
