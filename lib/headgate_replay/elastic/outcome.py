"""What a policy made of a load: the record of it, its figures, and their courses."""

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
    """A stretch of time in which a worker held its memory: starting, active, draining, going to sleep.

    Moments are None where the end came first. It was woken at 0 where it was awake at the start.
    """

    worker: str
    woken_s: float
    ready_s: float | None = None
    drained_s: float | None = None
    slept_s: float | None = None

    def held_s(self, ended_s: float) -> float:
        """Return how long it held its memory, in a replay that ended then."""
        return (ended_s if self.slept_s is None else self.slept_s) - self.woken_s


_UP = frozenset({(WorkerState.INACTIVE, WorkerState.STARTING), (WorkerState.DRAINING, WorkerState.ACTIVE)})
_DOWN = frozenset({(WorkerState.ACTIVE, WorkerState.DRAINING), (WorkerState.STARTING, WorkerState.INACTIVE)})


@dataclass(slots=True)
class Outcome:
    """One policy on one load. Written by its driver during the replay, and only read from then on.

    Attributes:
        given_s: of each call, when it was given to the worker that answered it; None for those that were lost.
        done_s: of each call, when its answer was complete; None for those that were lost.
        stays: of all workers, in the order in which they began.
        changes: seconds and +1 or -1 for every worker that was started, drained, or turned back while it drained.
        decisions: changes of the number that the policy wanted.
        hand_overs: calls that were taken from one worker and given to another.
        ended_s: when the last answer was complete, or the load's window was over if that was later.
        took_s: real seconds of the replay.
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
        """Take over what the pool tells."""
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
        """Note an answer that is complete."""
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
"""A request that waits no longer was served promptly."""

WORTH_STARTS: Final = 3.0
"""A worker that was active for less than so many times its start was hardly worth starting."""


@dataclass(frozen=True, slots=True)
class Measures:
    """One row of a comparison.

    Attributes:
        cost: `worker_s` awake (starting, draining and going to sleep included) by what the work takes at least.
        p50_s: waiting from arrival to being given to a worker, by quantile, as `p95_s`, `p99_s` and `longest_s`.
        prompt_share: share of the calls that waited for `PROMPT_S` at most.
        operations: workers that were started, drained, or turned back while they drained.
        decisions: changes of the number that was wanted.
        periods: stretches that workers were active between a start and their end; `shortest_s` is the shortest of them.
        worth_share: share of them that lasted three times as long as the start, or longer.
        peak: most workers awake at one time.
        hand_overs: calls that were taken from one worker and given to another.
        dropped: calls that were never answered; `doubled` ones were answered more than once.
        took_s: real seconds of the replay.
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
    # Of workers that were started; those that still took requests at the end are left out.
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
    """Return how long each call that was answered waited before it was given to the worker that answered it."""
    return [
        given_s - call.arrived_s
        for call, given_s, done_s in zip(load.calls, outcome.given_s, outcome.done_s, strict=True)
        if given_s is not None and done_s is not None
    ]


def awake_over_time(outcome: Outcome) -> list[tuple[float, int]]:
    """Return seconds and how many workers held their memory from then on."""
    steps = Counter({0.0: 0})
    for stay in outcome.stays:
        steps[stay.woken_s] += 1
        if stay.slept_s is not None:
            steps[stay.slept_s] -= 1
    times = sorted(steps)
    return list(zip(times, accumulate(steps[at] for at in times), strict=True))


Course = list[tuple[float, float]]
"""Points as (x, y)."""

_BINS: Final = 360
_SHARES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


def asked_course(load: Load, *, bins: int = _BINS) -> Course:
    """Return the workers that calls would fill if nobody waited: means of equal stretches of the window, by minute."""
    spans = ((call.arrived_s, call.arrived_s + load.crowded_s(call)) for call in load.calls)
    return _course([(one.from_s, one.to_s, one.count / load.slots) for one in stretches(spans)], load, bins)


def awake_course(load: Load, outcome: Outcome, *, bins: int = _BINS) -> Course:
    """Return the workers that were awake: means of equal stretches of the window, by minute."""
    steps = awake_over_time(outcome)
    ends = [*(at for at, _ in steps[1:]), max(outcome.ended_s, steps[-1][0])]
    return _course([(at, until, float(awake)) for (at, awake), until in zip(steps, ends, strict=True)], load, bins)


def wait_course(load: Load, outcome: Outcome) -> Course:
    """Return waiting by share of the calls: x per cent of them waited y seconds at most."""
    waits = waits_s(load, outcome)
    values = _quantiles(waits, _SHARES) if waits else [0.0] * len(_SHARES)
    return [(100 * share, value) for share, value in zip(_SHARES, values, strict=True)]


def _quantiles(waits: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return for each share the least waiting that so many of the calls do not exceed."""
    return [float(value) for value in np.quantile(waits, shares, method="inverted_cdf")]


def _course(parts: Sequence[tuple[float, float, float]], load: Load, bins: int) -> Course:
    """Return the mean of a stepwise course in each bin; it is integrated, so that no peak falls between two points."""
    edges = np.linspace(0.0, load.window_s, bins + 1)
    times = np.array([parts[0][0], *(until for _, until, _ in parts)])
    area = np.concatenate(([0.0], np.cumsum([(until - since) * height for since, until, height in parts])))
    bin_means = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    middles = (edges[1:] + edges[:-1]) / 2
    return [(float(at) / 60, float(mean)) for at, mean in zip(middles, bin_means, strict=True)]
