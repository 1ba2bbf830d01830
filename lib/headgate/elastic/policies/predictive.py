"""Follows the staffing rule that would have cost least on the arrivals that the pool has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, get_args

from headgate.elastic.demand import Demand, Desired, whole
from headgate.elastic.policies.history import Total
from headgate.elastic.policies.rehearsal import By, Outlook, Rehearsal, Spread, Staffing, Tick, queue_slots
from headgate.elastic.settings import ElasticConfig

_OPENING_S: Final = 60.0
"""How long a new policy puts no worker to sleep: the first requests to end are the short ones, so the load looks too
small, and after a restart the earlier load is not known."""

_SHARES: Final = (0.3, 0.5, 0.7, 0.84, 0.9, 0.95, 0.98)

_HOLD: Final = 2.0
"""A worker is put to sleep once it was not needed for this many `stable_window`s, over which the load is measured."""

_HOLD_STARTS: Final = 0.75
"""Or, if longer, for this many start times: staying awake in vain for that long costs no more than another start."""

_MEMORY_S: Final = 3600.0
"""Time constant for forgetting loads: a load this long ago counts for a third (1/e)."""

_FORGETS_S: Final = 1200.0
"""Time constant for forgetting costs of rules: a cost this long ago counts for a third (1/e)."""

_CARE: Final = 0.2
"""A more careful rule is followed once it would have saved this share of the cost of lacking a worker for one start;
a leaner one once it would have saved all of it, or `_ALIKE` of it."""

_ALIKE: Final = 0.25
"""For a leaner rule on the same basis that still provides for `_MOSTLY` of the time: it holds what is needed often."""

_MOSTLY: Final = 0.84

_UNKNOWN: Final = 15.0
"""Factor on that saving before a start was measured, as it may take far longer than assumed."""

_EVERY_S: Final = 1.0
"""Shortest interval of rehearsals, as a queue makes the pool decide four times a second."""

_OTHER_START: Final = 1.5
"""If the start time changes by more than this factor, everything learnt about the rules is discarded."""

_LEARNS_S: Final = 480.0
"""How long rules are rehearsed before any is followed: savings of a quiet beginning are soon paid for."""

_LONG_S: Final = 60.0
"""A pool in which lacking a worker costs more than this many worker-seconds begins with a rule on the past load."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The state of the pool at the beginning of a tick."""

    at: float
    arrived: int
    inside: int
    running: int


class Predictive:
    """Follows the staffing rule that would have cost least: worker-seconds plus priced waiting.

    Each rule staffs by the present load, or by what was enough in the past, for a share of the time. All are rehearsed
    alongside the pool, with its actual arrivals, ends and start times. So how much capacity is kept free, and whether
    to follow a burst or to hold workers through it, follows from the measured costs.

    A leaner rule is followed once it would have saved the cost of lacking a worker for one start, and sooner if it
    differs little; a more careful one as soon as waiting has cost somewhat more; both only much later as long as no
    start was measured.

    Source: Herbster and Warmuth, "Tracking the best expert" (1998); Gandhi, Harchol-Balter, Raghunathan and Kozuch,
    "AutoScale" (2012); Jennings, Mandelbaum, Massey and Whitt, "Server staffing to meet time-varying demand" (1996).
    """

    def __init__(self, config: ElasticConfig) -> None:
        self._opened_at = math.inf
        self._price = config.wait_price
        self._window_s = config.stable_window
        self._arrivals = Total(config.stable_window)
        self._past = Spread(_MEMORY_S, _SHARES)
        rules = [Staffing(by, share) for by in get_args(By) for share in _SHARES]
        self._rehearsals = [Rehearsal(rule) for rule in rules]
        self._lead = self._rehearsals[0]
        self._start_s, self._began_at = -1.0, 0.0
        self._before: _Reading | None = None
        self._free = 0.0

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers should be awake."""
        self._opened_at = min(self._opened_at, now)
        self._arrivals.note(demand.arrived, now)
        if not demand.service_s:  # no request has ended yet: only the present load is known
            kept = demand.awake if now - self._opened_at < _OPENING_S else 0
            return Desired(max(kept, whole(demand.worth)), "the load is not known yet")
        outlook = self._learn(demand, now)
        queue = queue_slots(demand.waiting, outlook, demand.awake, demand)
        need = outlook.need(self._lead.rule) + queue
        wanted = whole(need / demand.slots)
        if wanted >= demand.awake:
            return Desired(wanted, self._because(need, queue, demand))
        if now - self._opened_at < _OPENING_S:
            return Desired(demand.awake, f"no worker sleeps in the first {_OPENING_S:.0f} s: the load is not known yet")
        kept = whole(max(need, self._lead.most, demand.worth * demand.slots) / demand.slots)
        return Desired(min(demand.awake, kept), self._because(need, queue, demand))

    def validate(self) -> None:
        """Assert the invariants of its state."""
        self._arrivals.validate()
        assert self._lead in self._rehearsals

    def _learn(self, demand: Demand, now: float) -> Outlook:
        """Rehearse all rules for the time since the last decision, follow the best, and return the outlook."""
        if not demand.start_s / _OTHER_START <= self._start_s <= demand.start_s * _OTHER_START:
            self._begin(demand, now)
        before, inside = self._before, demand.running + demand.waiting
        if before is None:
            before, self._free = _Reading(now, demand.arrived, inside, 0), float(demand.running)
        elif now - before.at < _EVERY_S:
            return self._ahead(demand)
        tick = _tick(demand, before, now)
        self._before = _Reading(now, demand.arrived, inside, demand.running)
        self._free = tick.inside(self._free, math.inf)
        self._past.note(self._free, tick.lasted_s)
        outlook = self._ahead(demand)
        keep = math.exp(-tick.lasted_s / _FORGETS_S)
        for rehearsal in self._rehearsals:
            rehearsal.go_on(tick, outlook, demand, keep, now)
        self._follow(demand, now)
        return outlook

    def _ahead(self, demand: Demand) -> Outlook:
        # Foreign requests are not counted as arrivals; they are only seen while the engines have them.
        level = self._arrivals.rate(self._window_s) * demand.service_s + demand.foreign
        return Outlook(self._free, level, self._past.quantiles)

    def _begin(self, demand: Demand, now: float) -> None:
        """Start learning, with a rule on the past load if lacking a worker is expensive."""
        self._start_s, self._began_at = demand.start_s, now
        for each in self._rehearsals:
            each.begin(demand, now, max(_HOLD * self._window_s, _HOLD_STARTS * demand.start_s))
        first = Staffing("past", 0.95) if self._absence(demand) > _LONG_S else Staffing("present", 0.7)
        self._lead = next(each for each in self._rehearsals if each.rule == first)

    def _absence(self, demand: Demand) -> float:
        """Return the cost, in worker-seconds, of lacking a needed worker for the time of one start."""
        return demand.start_s * (1 + self._price * demand.slots)

    def _follow(self, demand: Demand, now: float) -> None:
        if now - self._began_at < _LEARNS_S:
            return
        lead, price = self._lead, self._price
        absence = self._absence(demand) * (1.0 if demand.has_started else _UNKNOWN)
        better = [
            each for each in self._rehearsals if lead.cost(price) - each.cost(price) > absence * self._doubt(each)
        ]
        self._lead = min(better, key=lambda each: each.cost(price), default=lead)

    def _doubt(self, other: Rehearsal) -> float:
        """Return how much another rule must have saved to be followed: a share of the cost of lacking a worker."""
        if other.worker_s >= self._lead.worker_s:
            return _CARE
        is_alike = other.rule.by == self._lead.rule.by and other.rule.share >= _MOSTLY
        return _ALIKE if is_alike else 1.0

    def _because(self, need: float, queue: float, demand: Demand) -> str:
        if not demand.awake:
            return "the load is not known yet"
        rule = self._lead.rule
        for_queue = f", {queue:.0f} of them for the queue" if queue else ""
        return (
            f"by the {rule.by} load {need:.1f} slots are needed for {rule.share:.0%} of the time{for_queue}; "
            f"{demand.slots * demand.awake:.0f} are awake"
        )


def _tick(demand: Demand, before: _Reading, now: float) -> Tick:
    came, after = demand.arrived - before.arrived, demand.running + demand.waiting
    served = (before.running + demand.running) / 2
    ended = max(0.0, came + before.inside - after) / served if served else 0.0
    return Tick(
        now - before.at, came, ended, before.inside, after, before.inside > before.running or demand.waiting > 0
    )
