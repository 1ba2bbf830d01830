"""P3: the ready queue's full cycle (enqueue, select, lease, commit, release), beside a queue that sorts its groups."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.bench.bars import at_most
from headgate.bench.rivals.sorted_scan import SortedScanQueue
from headgate.bench.scenario import Bench, Chart, Outcome, Scenario
from headgate.bench.spread import spread_of
from headgate.core import HolderId, Lease, LeaseBook, Task, TaskId
from headgate.scheduling import Dispatch, Dispatcher

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
        backlog: tasks that wait at any time.
        closed_share: of the groups in closed lanes in the second half of the measurements.
        iterations: measurements of each number of groups.
        rival_cpu_s: CPU time that one measurement of the rival may take; it does as many cycles as fit.
        bar_us: CPU time per task at most.
        bar_flat: slowest number of groups relative to the fastest at most.
    """

    groups: tuple[int, ...] = (1, 8, 64, 256, 1_024, 4_096)
    tasks: int = 10_000
    backlog: int = 20_000
    closed_share: float = 0.9
    iterations: int = 5
    rival_cpu_s: float = 0.1
    bar_us: float = 15.0
    bar_flat: float = 1.5


class _Contender(Protocol):
    """A queue under measurement: one `cycle` takes a task under a lease, releases another one and adds a third."""

    def fill(self, tasks: Sequence[Task]) -> None: ...

    def cycle(self, fresh: Task) -> None: ...


class _Ours:
    """Headgate's dispatcher: fair queue, leases and lanes."""

    def __init__(self, groups: Sequence[str], closed: frozenset[str]) -> None:
        self._dispatcher = Dispatcher({"workers": _IN_FLIGHT + 1}, holder=_HOLDER)
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


def measure(parameters: QueueParameters, bench: Bench) -> Outcome:
    """Return the CPU time of a cycle by number of groups, ours and the rival's interleaved."""
    samples = list(_measured(parameters, bench))
    ours = _medians(samples, "ours")
    rival = _medians(samples, "sorted_scan")
    slowest = max(ours.values())
    flat = {
        (name, is_closed): _flatness(samples, name, is_closed=is_closed)
        for name in ("ours", "sorted_scan")
        for is_closed in (False, True)
    }
    beside = {f"sorted scan, {groups} groups": us for (groups, share), us in rival.items() if not share}
    bars = [
        at_most("P3.cycle", "CPU time of a full cycle, slowest case", slowest, parameters.bar_us, "µs/task", beside),
        at_most(
            "P3.flat",
            "slowest over fastest number of groups, all lanes open",
            flat["ours", False],
            parameters.bar_flat,
            "×",
            {"sorted scan": flat["sorted_scan", False]},
        ),
        at_most(
            "P3.flat_closed",
            f"the same with {parameters.closed_share:.0%} of the groups in closed lanes",
            flat["ours", True],
            parameters.bar_flat,
            "×",
            {"sorted scan": flat["sorted_scan", True]},
        ),
    ]
    ratios = {
        f"sorted scan / ours, {groups} groups, {share:.0%} closed": spread_of(
            [
                theirs["cpu_us"] / mine["cpu_us"]
                for mine, theirs in zip(
                    _of(samples, "ours", groups, share), _of(samples, "sorted_scan", groups, share), strict=True
                )
            ]
        )
        for groups, share in ours
    }
    series = {
        f"{'Headgate' if name == 'ours' else 'sorted scan'}, {'all open' if not share else f'{share:.0%} closed'}": [
            (float(groups), us) for (groups, its), us in medians.items() if its == share
        ]
        for name, medians in (("ours", ours), ("sorted_scan", rival))
        for share in (0.0, parameters.closed_share)
    }
    chart = Chart(
        "CPU time of one full queue cycle by number of groups",
        "groups",
        "µs per task",
        "lines",
        series,
        level=parameters.bar_us,
        log="xy",
    )
    return Outcome(bars, samples, ratios, [chart])


def _measured(parameters: QueueParameters, bench: Bench) -> Iterator[dict[str, Any]]:
    cases = [(groups, share) for groups in parameters.groups for share in (0.0, parameters.closed_share)]
    total = len(cases) * parameters.iterations
    for iteration in range(parameters.iterations):
        for number, (groups, share) in enumerate(cases):
            bench.progress((iteration * len(cases) + number) / total, f"{groups} groups, {share:.0%} closed")
            names = [f"model-{group}" for group in range(groups)]
            closed = frozenset(names[: int(groups * share)])
            common = {"iteration": iteration, "groups": groups, "closed_share": share}
            ours = _cycle_us(_Ours(names, closed), names, closed, parameters, limit_s=math.inf)
            rival = _cycle_us(_Rival(closed), names, closed, parameters, limit_s=parameters.rival_cpu_s)
            yield common | {"queue": "ours", "cpu_us": ours[0], "cycles": ours[1]}
            yield common | {"queue": "sorted_scan", "cpu_us": rival[0], "cycles": rival[1]}


def _cycle_us(
    contender: _Contender, names: Sequence[str], closed: frozenset[str], parameters: QueueParameters, limit_s: float
) -> tuple[float, int]:
    """Return CPU microseconds per cycle, and how many cycles were done.

    Tasks are made outside of the measured time. New ones go round the open groups, which is the order in which equal
    groups are served, so that the backlog of each stays as it is.
    """
    is_open = [name for name in names if name not in closed]
    each = max(math.ceil(parameters.backlog / len(names)), math.ceil(2 * _IN_FLIGHT / len(is_open)))
    backlog = each * len(names)
    contender.fill([_task(number, names[number % len(names)]) for number in range(backlog)])
    spent_s, done = 0.0, 0
    while done < parameters.tasks and spent_s < limit_s:
        numbers = range(done, min(done + _CHUNK, parameters.tasks))
        fresh = [_task(backlog + number, is_open[number % len(is_open)]) for number in numbers]
        began = time.process_time()
        for task in fresh:
            contender.cycle(task)
        spent_s += time.process_time() - began
        done += len(fresh)
    return 1e6 * spent_s / done, done


def _task(number: int, group: str) -> Task:
    return Task(TaskId(f"t-{number:024x}"), group, "bench:free", number, 0, 0, group, 0.0)


def _of(samples: Sequence[dict[str, Any]], queue: str, groups: int, share: float) -> list[dict[str, Any]]:
    return [s for s in samples if (s["queue"], s["groups"], s["closed_share"]) == (queue, groups, share)]


def _medians(samples: Sequence[dict[str, Any]], queue: str) -> dict[tuple[int, float], float]:
    cases = dict.fromkeys((s["groups"], s["closed_share"]) for s in samples)
    return {case: spread_of([s["cpu_us"] for s in _of(samples, queue, *case)]).median for case in cases}


def _flatness(samples: Sequence[dict[str, Any]], queue: str, *, is_closed: bool) -> float:
    """Return the slowest number of groups over the fastest, each by its least disturbed measurement.

    What else the machine does only ever adds to CPU time, and not to all numbers of groups alike.
    """
    least: dict[int, float] = {}
    for sample in samples:
        if sample["queue"] == queue and bool(sample["closed_share"]) == is_closed:
            least[sample["groups"]] = min(sample["cpu_us"], least.get(sample["groups"], math.inf))
    return max(least.values()) / min(least.values())


SCENARIO = Scenario(
    name="queue",
    what="P3: CPU time of the ready queue's full cycle from 1 to 4 096 groups, beside a queue that sorts its groups",
    quick=QueueParameters(),
    full=QueueParameters(tasks=100_000, backlog=100_000, iterations=7, rival_cpu_s=1.0),
    measure=measure,
)
