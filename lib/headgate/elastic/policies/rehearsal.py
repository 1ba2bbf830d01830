"""Rules of staffing, rehearsed: what each would have cost on the arrivals that a pool has seen."""

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
"""Standard deviations that are to spare before a worker is given up: two loads differ by chance by as much. Half of
what a rule keeps free in any case counts towards it."""

_NO_REST: Final = 1.0
"""Slots that are free where what was enough before is followed, which hardly moves."""

_DRAIN_SERVICES: Final = 5.0
"""A worker that is given up is awake until its last answer is complete, and its slots are lost to the others: so many
times as long as one takes, in all."""

_NEGLIGIBLE: Final = 1e-4
"""Weight, in seconds, below which a value is forgotten: it bounds what is kept."""


class Spread:
    """How a number was spread over recent time: seconds by whole value, each worth less the longer it is ago.

    Owned by one policy. A decision costs as many steps as there are values, which are slots of the pool at most.
    """

    def __init__(self, memory_s: float, shares: Sequence[float]) -> None:
        self._memory_s = memory_s
        self._shares = sorted(shares, reverse=True)
        self._seconds: dict[int, float] = {}
        self.quantiles: dict[float, float] = {}
        """Share -> the least value that was not exceeded for so much of the time; empty before the first."""

    def note(self, value: float, lasted_s: float) -> None:
        """Take what a number was for so long."""
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
    """What passed in the pool between two decisions.

    Attributes:
        lasted_s: seconds.
        arrived: requests that came.
        ended: requests that ended by those that were with workers.
        before: requests in the pool when it began, as `after` when it was over.
        waited: whether any waited in front of workers.
    """

    lasted_s: float
    arrived: int
    ended: float
    before: int
    after: int
    waited: bool

    def inside(self, before: float, room: float) -> float:
        """Return how many requests are in a pool of so many slots that had `before`, by the same arrivals and ends."""
        stays = math.exp(-self.ended)
        if self.waited:  # what is inside tells nothing of a pool that has more room
            free = before * stays + self.arrived * ((1 - stays) / self.ended if self.ended else 1.0)
        else:
            free = self.after + (before - self.before) * stays
        return max(0.0, free, before + self.arrived - room * self.ended if room < math.inf else 0.0)


By = Literal["present", "past"]
"""What a rule goes by: the load of now; or what was enough before, or what arrives now where that needs more."""


@dataclass(frozen=True, slots=True)
class Staffing:
    """A rule of staffing: what it goes by, and the share of the time for which slots are to be enough."""

    by: By
    share: float


_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of the load, in slots.

    Attributes:
        present: the load that there would be if nobody waited.
        level: the load by the arrivals of now.
        past: share of recent time -> slots that were enough for it.
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
        """Return the slots that have to be free beyond that before a worker is given up.

        Without them a load between two numbers of workers would go back and forth. By the present load it is
        so many standard deviations of Poisson arrivals.
        """
        if rule.by == "past":
            return min(_NO_REST, self.need(rule))
        return (_REST - _NORMAL.inv_cdf(rule.share) / 2) * math.sqrt(max(1.0, self.present))


class Rehearsal:
    """A rule as it would have staffed the pool, with the arrivals, starts and ends that there were.

    Owned by one policy. A fluid model: requests that find no room wait, workers come a start after they were wanted.

    Attributes:
        rule: what is rehearsed.
        worker_s: worker-seconds that it took; the recent count more, as in `waited_s`.
        waited_s: seconds that requests waited.
        most: slots that it needed at most within the time for which it holds workers.
    """

    def __init__(self, rule: Staffing) -> None:
        self.rule = rule
        self.worker_s = self.waited_s = self.most = 0.0
        self._wanted = self._ready = 0
        self._inside = 0.0
        self._starting: deque[tuple[float, int]] = deque()
        self._needs = Highest(0.0)

    def begin(self, demand: Demand, now: float, hold_s: float) -> None:
        """Begin with the pool as it is, and hold workers for so long; half of a start is taken to be over."""
        self._needs.window_s = hold_s
        self.worker_s = self.waited_s = 0.0
        self._wanted, self._ready = demand.awake, demand.active
        self._inside = float(demand.running + demand.waiting)
        self._starting = deque([(now + demand.start_s / 2, demand.awake)])

    def go_on(self, tick: Tick, outlook: Outlook, demand: Demand, keep: float, now: float) -> None:
        """Staff for what lies ahead after a tick; what was before it counts `keep` times."""
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
        """Return what it cost in worker-seconds."""
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
    """Return the slots that work off what will wait, in the time of a start or of one request if that is longer.

    Those that are awake or starting are enough for a short queue: it will be gone before another could help. The load
    that they meet is that of the last arrivals, or of now where a start is the longer. Each request gets a slot before
    a start was measured.
    """
    if not waiting or not demand.service_s:
        return 0.0
    services = demand.start_s / demand.service_s if demand.has_started else 1.0
    load = outlook.level if demand.start_s <= demand.service_s else max(outlook.level, outlook.present)
    return max(0.0, waiting + (load - awake * demand.slots) * services) / max(1.0, services)
