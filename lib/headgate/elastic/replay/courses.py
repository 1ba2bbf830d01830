"""Courses over time for figures: what was asked for, how many workers there were, how waiting is spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from headgate.elastic.replay.bound import stretches
from headgate.elastic.replay.load import Load
from headgate.elastic.replay.measures import awake_over_time, waits_s
from headgate.elastic.replay.outcome import Outcome

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
