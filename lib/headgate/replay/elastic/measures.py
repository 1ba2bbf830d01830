"""The figures of a replay: its cost, how long requests waited, how often workers changed; and their courses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headgate.replay.elastic.bounds import stretches
from headgate.replay.elastic.load import Load
from headgate.replay.elastic.outcome import Outcome, Stay

WORTH_STARTS: Final = 3.0
"""A worker that was active for less than so many times its start was hardly worth starting."""


@dataclass(frozen=True, slots=True)
class Measures:
    """One row of a comparison.

    Attributes:
        policy: whose.
        cost: worker-seconds awake (starting, draining and going to sleep included) by what the work takes at least.
        worker_s: those worker-seconds.
        p50_s: waiting from arrival to being given to a worker, by quantile.
        p95_s: see `p50_s`.
        p99_s: see `p50_s`.
        longest_s: the longest waiting.
        operations: workers that were started, drained, or turned back while they drained.
        decisions: changes of the number that was wanted.
        periods: stretches that workers were active between a start and their end.
        worth_share: share of them that lasted three times as long as the start, or longer.
        shortest_s: the shortest of them; None where there is none.
        peak: most workers awake at one time.
        hand_overs: calls that were taken from one worker and given to another.
        dropped: calls that were never answered.
        doubled: calls that were answered more than once.
        took_s: real seconds of the replay.
    """

    policy: str
    cost: float
    worker_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    longest_s: float
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

    def document(self) -> dict[str, object]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)


def measured(load: Load, outcome: Outcome) -> Measures:
    """Return the figures of an outcome."""
    waits = waits_s(load, outcome) or [float("inf")]
    p50_s, p95_s, p99_s = (float(value) for value in np.quantile(waits, (0.5, 0.95, 0.99), method="inverted_cdf"))
    worker_s = sum(held_s(stay, outcome.ended_s) for stay in outcome.stays)
    periods = active_periods_s(outcome)
    worth = sum(period >= WORTH_STARTS * outcome.site.start_s for period in periods)
    return Measures(
        policy=outcome.policy,
        cost=worker_s / load.work_s,
        worker_s=worker_s,
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        longest_s=max(waits),
        operations=len(outcome.changes),
        decisions=len(outcome.wanted),
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


def held_s(stay: Stay, ended_s: float) -> float:
    """Return how long a worker held its memory."""
    return (ended_s if stay.slept_s is None else stay.slept_s) - stay.woken_s


def active_periods_s(outcome: Outcome) -> list[float]:
    """Return how long workers that were started took requests; those that still did at the end are left out."""
    return [
        stay.drained_s - stay.ready_s
        for stay in outcome.stays
        if stay.woken_s > 0 and stay.ready_s is not None and stay.drained_s is not None
    ]


def awake_over_time(outcome: Outcome) -> list[tuple[float, int]]:
    """Return seconds and how many workers held their memory from then on."""
    steps: dict[float, int] = {0.0: 0}
    for stay in outcome.stays:
        steps[stay.woken_s] = steps.get(stay.woken_s, 0) + 1
        if stay.slept_s is not None:
            steps[stay.slept_s] = steps.get(stay.slept_s, 0) - 1
    awake, line = 0, []
    for at, change in sorted(steps.items()):
        awake += change
        line.append((at, awake))
    return line


Course = list[tuple[float, float]]
"""Points as (x, y)."""

_BINS: Final = 360
_SHARES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


def asked_course(load: Load, *, bins: int = _BINS) -> Course:
    """Return the workers that calls would fill if nobody waited: means of equal stretches of the window, by minute."""
    spans = ((call.arrived_s, call.arrived_s + load.crowded_s(call)) for call in load.calls)
    running = [(one.from_s, one.to_s, one.count / load.slots) for one in stretches(spans)]
    return _means(running, load.window_s, bins)


def awake_course(load: Load, outcome: Outcome, *, bins: int = _BINS) -> Course:
    """Return the workers that were awake: means of equal stretches of the window, by minute."""
    steps = awake_over_time(outcome)
    ends = [*(at for at, _ in steps[1:]), max(outcome.ended_s, steps[-1][0])]
    held = [(at, until, float(awake)) for (at, awake), until in zip(steps, ends, strict=True)]
    return _means(held, load.window_s, bins)


def wait_course(load: Load, outcome: Outcome) -> Course:
    """Return waiting by share of the calls: x per cent of them waited y seconds at most."""
    waits = waits_s(load, outcome)
    values = np.quantile(waits, _SHARES, method="inverted_cdf") if waits else [0.0] * len(_SHARES)
    return [(100 * share, float(value)) for share, value in zip(_SHARES, values, strict=True)]


def _means(parts: Sequence[tuple[float, float, float]], until_s: float, bins: int) -> Course:
    """Return the mean of a stepwise course in each bin; it is integrated, so that no peak falls between two points."""
    edges = np.linspace(0.0, until_s, bins + 1)
    times = np.array([parts[0][0], *(until for _, until, _ in parts)])
    area = np.concatenate(([0.0], np.cumsum([(until - since) * height for since, until, height in parts])))
    means = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    middles = (edges[1:] + edges[:-1]) / 2
    return [(float(at) / 60, float(mean)) for at, mean in zip(middles, means, strict=True)]
