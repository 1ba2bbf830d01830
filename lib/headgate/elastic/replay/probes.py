"""Short replays that each show one property of a policy: it does not flap, it does not shrink, it is there in time."""

from __future__ import annotations

import math

from headgate.elastic.replay.contenders import contender, terms_of
from headgate.elastic.replay.load import Site
from headgate.elastic.replay.outcome import Outcome
from headgate.elastic.replay.ramp import SLOTS, backlog, steady, step
from headgate.elastic.settings import ElasticConfig

_STEP_AT_S = 121.3
"""Between two decisions of whoever decides at whole seconds."""


def operations_when_steady(policy: str, *, lasts_s: float = 600.0, config: ElasticConfig | None = None) -> int:
    """Return how many workers are started, drained or turned back under 7 requests in flight on 2 workers of 8 slots.

    One worker would have room for all of them, and be nearly full.
    """
    load, site = steady(SLOTS - 1, lasts_s=lasts_s), Site(workers=8, awake=2)
    return len(contender(policy).play(terms_of(load, site, config)).changes)


def drained_with_a_backlog(policy: str, *, count: int = 500, config: ElasticConfig | None = None) -> int:
    """Return how many workers are drained while requests wait, of `count` that are there at once on 4 workers."""
    load, site = backlog(count), Site(workers=8, awake=4)
    outcome = contender(policy).play(terms_of(load, site, config))
    until_s = max(given_s for given_s in outcome.given_s if given_s is not None)
    return sum(change < 0 and at < until_s for at, change in outcome.changes)


def starts_until_served(
    policy: str, *, workers: int = 4, start_s: float = 1.0, config: ElasticConfig | None = None
) -> float:
    """Return how long it takes from a sudden load of `workers` workers until so many take requests, in starts."""
    load, site = step(workers, at_s=_STEP_AT_S), Site(workers=2 * workers, start_s=start_s)
    return _ready_s(contender(policy).play(terms_of(load, site, config)), workers) / start_s


def _ready_s(outcome: Outcome, workers: int) -> float:
    edges = [(stay.ready_s, 1) for stay in outcome.stays if stay.ready_s is not None]
    edges += [(stay.drained_s, -1) for stay in outcome.stays if stay.drained_s is not None]
    active = sum(change for at, change in edges if at < _STEP_AT_S)
    if active >= workers:
        return 0.0
    for at, change in sorted(edge for edge in edges if edge[0] >= _STEP_AT_S):
        active += change
        if active >= workers:
            return at - _STEP_AT_S
    return math.inf
