"""P3: CPU time of a full cycle of the ready queue with 1 to 4 096 groups, and the waits of an arriving group."""

from __future__ import annotations

import gc
import heapq
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headgate.core import HolderId, Lease, LeaseBook, Task, TaskId
from headgate.run import rare_collections
from headgate.scheduling import BoundedBorrow, Dispatch, Dispatcher, StrictFair, TaskPolicy
from headgate_bench.artifact import Bar, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario, spread_of
from headgate_bench.rivals.sorted_scan import SortedScanQueue

_CAPACITY: Final = 8
_TASKS: Final = {"hot": (512, 0.0, 0.5, 4.0), "peer": (256, 0.05, 0.05, 1.0)}
"""Group -> number of tasks, time at which they are ready, duration of each, weight; as in DataDesigner's own
benchmark `heavy_root_peer_arrival`."""


@dataclass(frozen=True, slots=True)
class PeerWaits:
    """Waits and wall time in simulated seconds: exact, and the same in every run."""

    policy: str
    wall_s: float
    first_wait_s: float
    p95_wait_s: float
    max_wait_s: float


def peer_waits(policy: TaskPolicy, *, is_timed: bool = True) -> PeerWaits:
    """Return how long the arriving group waits for its leases, and how long everything takes.

    Without `is_timed` the dispatcher does not learn the tasks' durations: groups take turns by number of tasks.
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


_HOLDER = HolderId("bench")
_TURN = 250
"""Cycles per turn of each contender, so that other load on the machine slows all of them alike."""
_IN_FLIGHT = 64
"""Leases held at any time, so that a release concerns a task taken a while ago, as in a campaign."""


@dataclass(frozen=True, slots=True)
class QueueParameters:
    """Parameters of the scenario."""

    groups: tuple[int, ...] = (1, 8, 64, 256, 1_024, 4_096)  # numbers of groups (one per model) to measure
    tasks: int = 1_000  # cycles per measurement; each takes one task and adds one
    backlog: tuple[int, ...] = (1_000, 20_000)  # numbers of waiting tasks to measure
    closed_share: float = 0.9  # share of groups in closed lanes in half of the cases
    iterations: int = 10  # measurements of each case, after one warm-up
    rival_cpu_s: float = 0.02  # maximum CPU time of one measurement of the rival, which limits its cycles
    bar_us: float = 15.0  # maximum CPU time per task
    bar_beside: float = 3.0  # maximum CPU time relative to the rival's best case
    bar_flat: float = 1.5  # maximum ratio of the slowest to the fastest number of groups
    bar_peer_s: float = 0.01  # maximum simulated wait of an arriving group's first task, in seconds
    bar_peer_share: float = 0.2  # maximum 95th percentile of its waits, relative to turns by number of tasks
    bar_wall: float = 1.05  # maximum wall time relative to that under `strict_fair`


class _Contender(Protocol):
    """A queue under measurement: a `cycle` leases one task, releases another and adds a third."""

    def fill(self, tasks: Sequence[Task]) -> None: ...

    def cycle(self, fresh: Task) -> None: ...


class _Ours:
    """Headgate's dispatcher: fair queue, task admission and lanes. It has spare workers for a policy's reserve."""

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
    """The sorted scan, with the same leases, the same cycle and the same bound on running tasks."""

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


class _Run:
    """A contender running one case. Tasks are created outside the measured time.

    New tasks cycle through the open groups, in the order in which equal groups are served, so that the backlog of each
    group stays constant.
    """

    def __init__(self, contender: _Contender, names: Sequence[str], closed: frozenset[str], waiting: int) -> None:
        self._contender = contender
        self._open = [name for name in names if name not in closed]
        each = max(math.ceil(waiting / len(names)), math.ceil(2 * _IN_FLIGHT / len(self._open)))
        self._made = each * len(names)
        contender.fill([_task(number, names[number % len(names)]) for number in range(self._made)])
        self._first = self._made

    def cpu_s(self, cycles: int) -> float:
        """Return the CPU time of `cycles` cycles."""
        numbers = range(self._made, self._made + cycles)
        fresh = [_task(number, self._open[(number - self._first) % len(self._open)]) for number in numbers]
        self._made += cycles
        cycle = self._contender.cycle
        began = time.process_time()
        for task in fresh:
            cycle(task)
        return time.process_time() - began


_POLICIES: dict[str, TaskPolicy] = {"strict_fair": StrictFair(), "bounded_borrow": BoundedBorrow()}
_SCAN = "sorted_scan"
_Case = tuple[int, float, int]
"""Number of groups, share of them in closed lanes, number of waiting tasks."""


def measure(parameters: QueueParameters, bench: Bench) -> Outcome:
    """Return the CPU time of a cycle by number of groups; Headgate and the rival take turns."""
    samples = list(_measured(parameters, bench))
    medians = {queue: _medians(samples, queue, "cpu_us") for queue in (*_POLICIES, _SCAN)}
    beside: dict[str, float | str] = {
        f"sorted scan, {groups} groups": us
        for (groups, share, backlog), us in medians[_SCAN].items()
        if not share and backlog == parameters.backlog[-1]
    }
    waits = {
        "by number": peer_waits(StrictFair(), is_timed=False),
        "strict_fair": peer_waits(StrictFair()),
        "bounded_borrow": peer_waits(BoundedBorrow(reserve_share=0.375, reserve_for_s=1.0)),
        "by default": peer_waits(BoundedBorrow()),
    }
    bars = [*_cycle_bars(parameters, samples, medians, beside), *_peer_bars(parameters, waits)]
    ratios = {
        f"{queue} / sorted scan's best case, {groups} groups, {share:.0%} closed, {backlog} waiting": spread_of(
            [sample["beside"] for sample in _of(samples, queue, (groups, share, backlog))]
        )
        for queue in medians
        for groups, share, backlog in medians[queue]
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
    relative = {queue: _medians(samples, queue, "beside") for queue in (*_POLICIES, _SCAN)}
    least_us = min(sample["cpu_us"] / sample["beside"] for sample in samples)

    def slowest(suffix: str, policy: str) -> list[Bar]:
        ratio, what = max(relative[policy].values()), f"{policy}, slowest case"
        found = {"as measured": max(medians[policy].values()), "sorted scan's best case": least_us} | beside
        return [
            at_most(
                f"P3.cycle{suffix}",
                f"CPU time of a full cycle with nothing else on the machine, {what}",
                ratio * least_us,
                parameters.bar_us,
                "µs/task",
                found if policy == "strict_fair" else {"as measured": found["as measured"]},
            ),
            at_most(
                f"P3.beside{suffix}",
                f"CPU time of a full cycle over that of the sorted scan's best case beside it, {what}",
                ratio,
                parameters.bar_beside,
                "×",
            ),
        ]

    def flat(name: str, what: str, share: float) -> Bar:
        found: dict[str, float] = {}
        for queue, its in relative.items():
            by_groups = [us for case, us in its.items() if case[1:] == (share, parameters.backlog[-1])]
            found[queue] = max(by_groups) / min(by_groups)
        value = max(ratio for queue, ratio in found.items() if queue in _POLICIES)
        return at_most(name, f"slowest over fastest number of groups, {what}", value, parameters.bar_flat, "×", found)

    share, most = parameters.closed_share, parameters.backlog[-1]
    return [
        *slowest("", "strict_fair"),
        *slowest("_borrow", "bounded_borrow"),
        flat("P3.flat", f"{most:,} tasks, all lanes open, either policy", 0.0),
        flat("P3.flat_closed", f"the same with {share:.0%} of the groups in closed lanes", share),
    ]


def _peer_bars(parameters: QueueParameters, waits: dict[str, PeerWaits]) -> list[Bar]:
    by_number, strict, bounded, default = waits.values()
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
            "95th percentile of its waits, bounded_borrow, relative to turns by number of tasks",
            bounded.p95_wait_s / by_number.p95_wait_s,
            parameters.bar_peer_share,
            "×",
            {"s": bounded.p95_wait_s} | {f"{how}, s": one.p95_wait_s for how, one in waits.items()},
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
    """Yield the CPU time of each contender in each case, also relative to the rival's best case measured next to it."""
    cases = [
        (groups, share, backlog)
        for backlog in parameters.backlog
        for groups in parameters.groups
        for share in (0.0, parameters.closed_share)
    ]
    with rare_collections():  # as a campaign does
        best = _Run(_Rival(frozenset()), ["model-0"], frozenset(), min(parameters.backlog))
        for number, (groups, share, backlog) in enumerate(cases):
            bench.progress(number / len(cases), f"{groups} groups, {share:.0%} closed, {backlog} tasks")
            names = [f"model-{group}" for group in range(groups)]
            closed = frozenset(names[: int(groups * share)])
            contenders: dict[str, _Contender] = {
                name: _Ours(names, closed, policy) for name, policy in _POLICIES.items()
            } | {_SCAN: _Rival(closed)}
            runs = {name: _Run(contender, names, closed, backlog) for name, contender in contenders.items()}
            gc.collect()  # garbage of the previous case
            _in_turns(runs | {"best": best}, parameters)
            about = {"groups": groups, "closed_share": share, "backlog": backlog}
            for iteration in range(parameters.iterations):
                us = _in_turns(runs | {"best": best}, parameters)
                for queue in runs:
                    figures = {"queue": queue, "cpu_us": us[queue], "beside": us[queue] / us["best"]}
                    yield about | {"iteration": iteration} | figures


def _in_turns(runs: Mapping[str, _Run], parameters: QueueParameters) -> dict[str, float]:
    """Return CPU microseconds per cycle of each run."""
    spent, done = dict.fromkeys(runs, 0.0), dict.fromkeys(runs, 0)
    for begun in range(0, parameters.tasks, _TURN):
        for name, run in runs.items():
            if name != _SCAN or spent[name] < parameters.rival_cpu_s:
                cycles = min(_TURN, parameters.tasks - begun)
                spent[name] += run.cpu_s(cycles)
                done[name] += cycles
    return {name: 1e6 * spent[name] / done[name] for name in runs}


def _task(number: int, group: str) -> Task:
    return Task(TaskId(f"t-{number:024x}"), group, "bench:free", number, 0, 0, group, 0.0)


def _of(samples: Sequence[dict[str, Any]], queue: str, case: _Case) -> list[dict[str, Any]]:
    return [s for s in samples if (s["queue"], s["groups"], s["closed_share"], s["backlog"]) == (queue, *case)]


def _medians(samples: Sequence[dict[str, Any]], queue: str, figure: str) -> dict[_Case, float]:
    cases = dict.fromkeys((s["groups"], s["closed_share"], s["backlog"]) for s in samples)
    return {case: spread_of([s[figure] for s in _of(samples, queue, case)]).median for case in cases}


SCENARIO = Scenario(
    name="queue",
    quick=QueueParameters(),
    full=QueueParameters(backlog=(1_000, 20_000, 100_000), iterations=50),
    measure=measure,
)
