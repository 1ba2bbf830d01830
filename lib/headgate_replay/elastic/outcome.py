"""The result of a policy on a load: its record, its figures, and their course over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import numpy as np

from headgate.core import events
from headgate.core.events import Event
from headgate.elastic import WorkerState
from headgate_replay.elastic.bounds import stretches
from headgate_replay.elastic.load import Load, Site


@dataclass(slots=True)
class Stay:
    """A period in which a worker held its memory: starting, active, draining, going to sleep.

    A moment is None if the replay ended before it. `woken_s` is 0 if the worker was awake at the start.
    """

    worker: str
    woken_s: float
    ready_s: float | None = None
    drained_s: float | None = None
    slept_s: float | None = None

    def held_s(self, ended_s: float) -> float:
        """Return how long it held its memory in a replay that ended at `ended_s`."""
        return (ended_s if self.slept_s is None else self.slept_s) - self.woken_s


_UP = frozenset({(WorkerState.INACTIVE, WorkerState.STARTING), (WorkerState.DRAINING, WorkerState.ACTIVE)})
_DOWN = frozenset({(WorkerState.ACTIVE, WorkerState.DRAINING), (WorkerState.STARTING, WorkerState.INACTIVE)})


@dataclass(slots=True)
class Outcome:
    """The result of one policy on one load. The driver writes it during the replay; afterwards it is only read.

    Attributes:
        given_s: for each call, when it was given to the worker that answered it; None if it was lost.
        done_s: for each call, when its answer was complete; None if it was lost.
        stays: stays of all workers, in the order of their beginnings.
        changes: time and +1 or -1 for every worker that was started, drained, or turned back while it drained.
        decisions: number of changes of the policy's target.
        hand_overs: number of calls that were taken from one worker and given to another.
        ended_s: when the last answer was complete, or the end of the load's window if that is later.
        took_s: real seconds that the replay took.
    """

    policy: str
    says: str
    site: Site
    given_s: list[float | None]
    done_s: list[float | None]
    stays: list[Stay]
    changes: list[tuple[float, int]] = field(default_factory=list)
    decisions: int = 0
    hand_overs: int = 0
    dropped: int = 0
    doubled: int = 0
    ended_s: float = 0.0
    took_s: float = 0.0

    def note(self, event: Event, now: float) -> None:
        """Record an event of the pool."""
        match event:
            case events.WorkerChanged():
                self._changed(event, now)
            case events.ScaleDecided():
                self.decisions += 1
            case events.RequestHandedOver():
                self.hand_overs += 1
            case events.RequestLost():
                self.dropped += 1

    def answered(self, call: int, now: float) -> None:
        """Record a complete answer."""
        if self.done_s[call] is not None:
            self.doubled += 1
        self.done_s[call] = now

    def _changed(self, event: events.WorkerChanged, now: float) -> None:
        edge = (WorkerState(event.before), WorkerState(event.after))
        if edge in _UP:
            self.changes.append((now, 1))
        elif edge in _DOWN:
            self.changes.append((now, -1))
        after = edge[1]
        if after is WorkerState.STARTING:
            self.stays.append(Stay(event.worker, now))
        open_stays = (each for each in self.stays if each.worker == event.worker and each.slept_s is None)
        stay = next(open_stays, None)
        if stay is None:
            return
        if after is WorkerState.ACTIVE:
            stay.ready_s = now if stay.ready_s is None else stay.ready_s
            stay.drained_s = None
        elif after is WorkerState.DRAINING:
            stay.drained_s = now
        elif after is WorkerState.INACTIVE:
            stay.slept_s = now


PROMPT_S: Final = 1.0
"""Maximum wait of a request that was served promptly."""

WORTH_STARTS: Final = 3.0
"""A worker that was active for less than this multiple of its start time was hardly worth starting."""


@dataclass(frozen=True, slots=True)
class Measures:
    """One row of a comparison.

    Attributes:
        cost: `worker_s` awake (starting, draining and going to sleep included), divided by the minimum for the work.
        p50_s: median wait from arrival to being given to a worker; `p95_s`, `p99_s` and `longest_s` likewise.
        prompt_share: share of the calls that waited at most `PROMPT_S`.
        operations: number of workers that were started, drained, or turned back while they drained.
        decisions: number of changes of the policy's target.
        periods: number of periods in which started workers were active; `shortest_s` is the length of the shortest.
        worth_share: share of these periods that lasted at least three times as long as the start.
        peak: maximum number of workers awake at one time.
        hand_overs: number of calls that were taken from one worker and given to another.
        dropped: number of calls that were never answered; `doubled` is the number answered more than once.
        took_s: real seconds that the replay took.
    """

    policy: str
    cost: float
    worker_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    longest_s: float
    prompt_share: float
    operations: int
    decisions: int
    periods: int
    worth_share: float
    shortest_s: float | None
    peak: int
    hand_overs: int
    dropped: int
    doubled: int
    took_s: float


def measured(load: Load, outcome: Outcome) -> Measures:
    """Return the figures of an outcome."""
    waits = waits_s(load, outcome) or [math.inf]
    p50_s, p95_s, p99_s = _quantiles(waits, (0.5, 0.95, 0.99))
    worker_s = sum(stay.held_s(outcome.ended_s) for stay in outcome.stays)
    # Only workers that were started count; those that still took requests at the end are left out.
    periods = [
        stay.drained_s - stay.ready_s
        for stay in outcome.stays
        if stay.woken_s > 0 and stay.ready_s is not None and stay.drained_s is not None
    ]
    worth = sum(period >= WORTH_STARTS * outcome.site.start_s for period in periods)
    return Measures(
        policy=outcome.policy,
        cost=worker_s / load.work_s,
        worker_s=worker_s,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        longest_s=max(waits),
        prompt_share=sum(wait_s <= PROMPT_S for wait_s in waits) / len(waits),
        operations=len(outcome.changes),
        decisions=outcome.decisions,
        periods=len(periods),
        worth_share=worth / len(periods) if periods else 1.0,
        shortest_s=min(periods, default=None),
        peak=max(awake for _, awake in awake_over_time(outcome)),
        hand_overs=outcome.hand_overs,
        dropped=outcome.dropped,
        doubled=outcome.doubled,
        took_s=outcome.took_s,
    )


def waits_s(load: Load, outcome: Outcome) -> list[float]:
    """Return how long each answered call waited before it was given to the worker that answered it."""
    return [
        given_s - call.arrived_s
        for call, given_s, done_s in zip(load.calls, outcome.given_s, outcome.done_s, strict=True)
        if given_s is not None and done_s is not None
    ]


def awake_over_time(outcome: Outcome) -> list[tuple[float, int]]:
    """Return pairs of a time and the number of workers that held their memory from then on."""
    steps = Counter({0.0: 0})
    for stay in outcome.stays:
        steps[stay.woken_s] += 1
        if stay.slept_s is not None:
            steps[stay.slept_s] -= 1
    times = sorted(steps)
    return list(zip(times, accumulate(steps[at] for at in times), strict=True))


Course = list[tuple[float, float]]
"""Points as (x, y)."""

BINS: Final = 360
"""Points of a course over a load's window, unless more are needed."""

_SHARES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


def asked_course(load: Load, *, bins: int = BINS) -> Course:
    """Return how many workers the calls would fill without waiting: means over equal bins of the window, by minute."""
    spans = ((call.arrived_s, call.arrived_s + load.crowded_s(call)) for call in load.calls)
    return _course([(one.from_s, one.to_s, one.count / load.slots) for one in stretches(spans)], load, bins)


def awake_course(load: Load, outcome: Outcome, *, bins: int = BINS) -> Course:
    """Return how many workers were awake: means over equal bins of the window, by minute."""
    steps = awake_over_time(outcome)
    ends = [*(at for at, _ in steps[1:]), max(outcome.ended_s, steps[-1][0])]
    return _course([(at, until, float(awake)) for (at, awake), until in zip(steps, ends, strict=True)], load, bins)


def wait_course(load: Load, outcome: Outcome) -> Course:
    """Return waiting by share of the calls: x percent of them waited at most y seconds."""
    waits = waits_s(load, outcome)
    values = _quantiles(waits, _SHARES) if waits else [0.0] * len(_SHARES)
    return [(100 * share, value) for share, value in zip(_SHARES, values, strict=True)]


def _quantiles(waits: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return for each share the smallest wait that this share of the calls does not exceed."""
    return [float(value) for value in np.quantile(waits, shares, method="inverted_cdf")]


def _course(parts: Sequence[tuple[float, float, float]], load: Load, bins: int) -> Course:
    """Return the mean of a step function in each bin; it is integrated so that no peak falls between two points."""
    edges = np.linspace(0.0, load.window_s or 1.0, bins + 1)  # a second if all calls arrive at once
    times = np.array([parts[0][0], *(until for _, until, _ in parts)])
    area = np.concatenate(([0.0], np.cumsum([(until - since) * height for since, until, height in parts])))
    bin_means = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    middles = (edges[1:] + edges[:-1]) / 2
    return [(float(at) / 60, float(mean)) for at, mean in zip(middles, bin_means, strict=True)]
