"""Rehearsal of staffing rules: what each would have cost on the arrivals that a pool has seen."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

from headgate.elastic.demand import Demand, whole
from headgate.elastic.policies.history import Highest

_REST: Final = 1.5
"""Standard deviations to spare before a worker is put to sleep, as two loads may differ by that much by chance. Half of
what a rule keeps free anyway counts towards it."""

_NO_REST: Final = 1.0
"""Slots to spare for rules on the past load, which hardly changes."""

_DRAIN_SERVICES: Final = 5.0
"""Cost of a drain, in service times: the worker stays awake until its last answer is complete, while its slots are lost
to other requests."""

_NEGLIGIBLE: Final = 1e-4
"""Weight, in seconds, below which a value is dropped, to bound memory."""


class Spread:
    """The distribution of a number over recent time: seconds per integer value, decaying with age.

    Owned by one policy. A decision costs one step per value; there are at most as many values as slots in the pool.
    """

    def __init__(self, memory_s: float, shares: Sequence[float]) -> None:
        self._memory_s = memory_s
        self._shares = sorted(shares, reverse=True)
        self._seconds: dict[int, float] = {}
        self.quantiles: dict[float, float] = {}
        """Share -> the smallest value that was not exceeded for that share of the time; empty before the first."""

    def note(self, value: float, lasted_s: float) -> None:
        """Record that the number had a value for `lasted_s` seconds."""
        keep, slots = math.exp(-lasted_s / self._memory_s), math.ceil(value)
        self._seconds = {key: kept for key, was in self._seconds.items() if (kept := was * keep) > _NEGLIGIBLE}
        self._seconds[slots] = self._seconds.get(slots, 0.0) + lasted_s
        total, above = sum(self._seconds.values()), 0.0
        values = iter(sorted(self._seconds, reverse=True))
        value = next(values)
        for share in self._shares:
            while above + self._seconds[value] < total * (1 - share):
                above += self._seconds[value]
                value = next(values)
            self.quantiles[share] = float(value)


@dataclass(frozen=True, slots=True)
class Tick:
    """What happened in the pool between two decisions.

    Attributes:
        lasted_s: duration in seconds.
        arrived: requests that arrived.
        ended: requests that ended, divided by those at workers.
        before: requests in the pool at its beginning; `after`: at its end.
        waited: whether any request waited in the queue.
    """

    lasted_s: float
    arrived: int
    ended: float
    before: int
    after: int
    waited: bool

    def inside(self, before: float, room: float) -> float:
        """Return how many requests a pool of `room` slots that had `before` would have after the same tick."""
        stays = math.exp(-self.ended)
        if self.waited:  # the actual number says nothing about a pool with more room
            free = before * stays + self.arrived * ((1 - stays) / self.ended if self.ended else 1.0)
        else:
            free = self.after + (before - self.before) * stays
        return max(0.0, free, before + self.arrived - room * self.ended if room < math.inf else 0.0)


By = Literal["present", "past"]
"""What a rule is based on: the present load; or the past load, and the present arrivals if these need more."""


@dataclass(frozen=True, slots=True)
class Staffing:
    """A staffing rule: what it is based on, and the share of the time for which the slots should suffice."""

    by: By
    share: float


_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known about the load, in slots.

    Attributes:
        present: the load as it would be if no request had to wait.
        level: the load that follows from the present arrivals.
        past: share of recent time -> slots that sufficed for it.
    """

    present: float
    level: float
    past: Mapping[float, float]

    def need(self, rule: Staffing) -> float:
        """Return the slots that a rule asks for."""
        if rule.by == "past":
            return max(self.past[rule.share], self.level)
        return max(0.0, self.present + _NORMAL.inv_cdf(rule.share) * math.sqrt(self.present))

    def rest(self, rule: Staffing) -> float:
        """Return the slots that must be free in addition before a worker is put to sleep.

        Without them the number of workers would oscillate under a load between two numbers. For rules on the present
        load it is a number of standard deviations of Poisson arrivals.
        """
        if rule.by == "past":
            return min(_NO_REST, self.need(rule))
        return (_REST - _NORMAL.inv_cdf(rule.share) / 2) * math.sqrt(max(1.0, self.present))


class Rehearsal:
    """A rule as it would have staffed the pool, with the actual arrivals, ends and start times.

    Owned by one policy. A fluid model: requests without room wait, workers are ready one start time after the decision.

    Attributes:
        rule: the rule.
        worker_s: worker-seconds that it would have used; like `waited_s` it decays with age.
        waited_s: seconds that requests would have waited.
        most: the most slots that it needed within the time for which it holds workers.
    """

    def __init__(self, rule: Staffing) -> None:
        self.rule = rule
        self.worker_s = self.waited_s = self.most = 0.0
        self._wanted = self._ready = 0
        self._inside = 0.0
        self._starting: deque[tuple[float, int]] = deque()
        self._needs = Highest(0.0)

    def begin(self, demand: Demand, now: float, hold_s: float) -> None:
        """Begin with the pool as it is, and hold workers for `hold_s`; starting workers count as half started."""
        self._needs.window_s = hold_s
        self.worker_s = self.waited_s = 0.0
        self._wanted, self._ready = demand.awake, demand.active
        self._inside = float(demand.running + demand.waiting)
        self._starting = deque([(now + demand.start_s / 2, demand.awake)])

    def go_on(self, tick: Tick, outlook: Outlook, demand: Demand, keep: float, now: float) -> None:
        """Account for a tick and staff by the outlook; earlier costs are multiplied by `keep`."""
        was_room, before = self._ready * demand.slots, self._inside
        while self._starting and self._starting[0][0] <= now:
            self._ready = max(self._ready, self._starting.popleft()[1])
        room = self._ready * demand.slots
        self._inside = tick.inside(before, (was_room + room) / 2)
        waiting = max(0.0, self._inside - room)
        self.waited_s = self.waited_s * keep + (max(0.0, before - was_room) + waiting) / 2 * tick.lasted_s
        self.worker_s = self.worker_s * keep + self._wanted * tick.lasted_s

        need = outlook.need(self.rule) + queue_slots(waiting, outlook, self._wanted, demand)
        self.most = self._needs.note(need + outlook.rest(self.rule), now)
        wanted = whole(need / demand.slots)
        if wanted < self._wanted:
            used = min(self._inside, self._wanted * demand.slots)
            wanted = min(self._wanted, whole(max(self.most, used) / demand.slots))
        self._staff(min(demand.highest, max(demand.lowest, wanted)), demand, now)

    def cost(self, wait_price: float) -> float:
        """Return its cost in worker-seconds."""
        return self.worker_s + wait_price * self.waited_s

    def _staff(self, wanted: int, demand: Demand, now: float) -> None:
        if wanted > self._wanted:
            self._starting.append((now + demand.start_s, wanted))
        elif wanted < self._wanted:
            self.worker_s += (self._wanted - wanted) * _DRAIN_SERVICES * demand.service_s
            self._ready = min(self._ready, wanted)
            self._starting = deque((at, min(workers, wanted)) for at, workers in self._starting)
        self._wanted = wanted


def queue_slots(waiting: float, outlook: Outlook, awake: int, demand: Demand) -> float:
    """Return the extra slots that would clear the queue within one start time, or one service time if that is longer.

    Workers that are awake or starting suffice for a short queue, which will be gone before another worker could help.
    The load is that of the recent arrivals, or at least the present one if a start takes longer than a request. Before
    a start was measured, each waiting request counts as a slot.
    """
    if not waiting or not demand.service_s:
        return 0.0
    services = demand.start_s / demand.service_s if demand.has_started else 1.0
    load = outlook.level if demand.start_s <= demand.service_s else max(outlook.level, outlook.present)
    return max(0.0, waiting + (load - awake * demand.slots) * services) / max(1.0, services)
