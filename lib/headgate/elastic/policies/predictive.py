"""Follows the rule of staffing that would have cost least on the arrivals that the pool has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from headgate.elastic.demand import Demand, Desired, whole
from headgate.elastic.policies.history import Total
from headgate.elastic.policies.rehearsal import Outlook, Rehearsal, Spread, Staffing, Tick, queue_slots
from headgate.elastic.settings import ElasticConfig

_DRIFT: Final = 0.07
"""Nobody knows how far a rate will wander: 7 % in a second are assumed, and by the square root of time 38 % in half a
minute. Where less would do, rules of a smaller share are cheaper, and followed."""

_SHORT_START: Final = 1.1
"""So much more chance counts where a start is short against a request. A chance peak lasts about as long as a request:
a worker that starts sooner than that can still meet it, one that starts later comes when it is over."""

_OPENING_S: Final = 60.0
"""So long a policy that has just begun lets nobody sleep: the first requests to end are the short ones, by which a load
looks smaller than it is, and after a restart nobody knows what came before."""


_CELLS: Final = 8
"""A window is looked at in so many equal parts: enough for a trend, and each long enough for a count."""

_SURPRISE: Final = 3.0
"""A count so many standard deviations from what was expected is no chance: the stream has changed."""

_CLEAR: Final = 9.0
"""A trend counts as far as its square exceeds so many times its variance: not at all below three deviations."""

_DOUBLINGS: Final = 5
"""The longest window is 2**5 times the shortest: 192 s for a panic window of 6 s."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrivals as a straight line.

    Attributes:
        rate: requests per second now.
        growth: by which the rate grows per second; 0 where a trend cannot be told from chance.
        seen_s: length of the window that shows it.
    """

    rate: float
    growth: float
    seen_s: float

    def rate_in(self, ahead_s: float) -> float:
        """Return the rate after so long: never below the present one; a trend lasts as long as it has been seen."""
        return self.rate + max(0.0, self.growth) * min(ahead_s, self.seen_s)

    @property
    def rate_error(self) -> float:
        """Standard deviation of the rate, by the requests that were counted."""
        return math.sqrt(self.rate / self.seen_s) if self.seen_s else 0.0


class Arrivals:
    """Counts of arrivals, and what they tell. Owned by one policy.

    A long window tells a rate well and a change late; a short one the other way round. So windows of a doubling length
    are tried, and the longest counts whose line explains every shorter end of it: a step leaves the long ones within a
    few requests, and steady traffic is not followed in its chance ups and downs.
    """

    def __init__(self, shortest_s: float) -> None:
        self._windows_s = tuple(shortest_s * 2**doubling for doubling in range(_DOUBLINGS + 1))
        self._count = Total(self._windows_s[-1])

    def note(self, arrived: int, now: float) -> None:
        """Take the number of requests since the beginning."""
        self._count.note(arrived, now)

    def stream(self) -> Stream:
        """Return what arrives now."""
        found = Stream(0.0, 0.0, 0.0)
        for number, window_s in enumerate(self._windows_s):
            seen_s = min(window_s, self._count.age_s)
            if seen_s == found.seen_s:
                break
            line = self._line(seen_s)
            if number and not self._explains(line, self._windows_s[:number]):
                break
            found = line
        return found

    def validate(self) -> None:
        """Assert the invariants of the counts."""
        self._count.validate()

    def _line(self, seen_s: float) -> Stream:
        """Return the line of least squares through the counts of a window, its trend shrunk by how uncertain it is."""
        cell_s = seen_s / _CELLS
        edges = [self._count.back(seen_s - cell_s * edge) for edge in range(_CELLS + 1)]
        mean = (edges[-1] - edges[0]) / seen_s
        middles = [cell_s * (cell + 0.5) - seen_s / 2 for cell in range(_CELLS)]
        spread = sum(middle * middle for middle in middles)
        slope = sum((edges[cell + 1] - edges[cell]) / cell_s * middles[cell] for cell in range(_CELLS)) / spread
        chance = mean / cell_s / spread  # variance of the slope of a Poisson stream without a trend
        growth = slope * max(0.0, 1 - _CLEAR * chance / (slope * slope)) if slope else 0.0
        return Stream(max(0.0, mean + growth * seen_s / 2), growth, seen_s)

    def _explains(self, line: Stream, ends_s: tuple[float, ...]) -> bool:
        for end_s in ends_s:
            expected = max(0.0, line.rate - line.growth * end_s / 2) * end_s
            if abs(self._count.grown(end_s) - expected) > _SURPRISE * math.sqrt(max(1.0, expected)):
                return False
        return True


_MEMORIES_S: Final = (100.0, 400.0, 1600.0)
_SHARES: Final = (0.5, 0.7, 0.84, 0.9, 0.95, 0.98)
_HOLDS: Final = (1.0, 3.0, 9.0)
"""In `stable_window`."""

_FORGETS_S: Final = 1800.0
"""What a rule cost so long ago counts for a third."""

_BETTER: Final = 0.03
"""A rule has to be cheaper by so much before it is followed."""

_CARE: Final = 0.1
"""And a more careful one by so much of what it costs to be without a worker for a start; a leaner one by all of it."""

_EVERY_S: Final = 1.0
"""Rules are rehearsed no more often: a queue makes the pool decide four times a second."""

_OTHER_START: Final = 1.5
"""When starts are found to take so many times as long, or as short, all that was learnt of the rules is void."""

_LEARNS_S: Final = 600.0
"""So long rules are rehearsed before any is followed: what a quiet beginning saves is soon paid for."""

_LONG_S: Final = 60.0
"""A pool where a worker's absence costs more than so many worker-seconds begins with what was enough in the past."""


class Predictive:
    """Follows the rule of staffing that would have cost least: worker-seconds, and waiting at its price.

    Rules staff by the trend of arrivals per second times how long a request takes (Little's law), by the present load,
    or by what was enough before; for a share of the time, and holding workers for a time. Each is rehearsed beside the
    pool, with the arrivals, ends and starts that there were. So caution that buys nothing is learnt away, and how long
    a worker is held comes from what it costs to be without it.

    A leaner rule is followed when it would have saved what a worker's absence for a start costs; a more careful one as
    soon as waiting has cost more.

    Source: Herbster and Warmuth, "Tracking the best expert" (1998); Gandhi, Harchol-Balter, Raghunathan and Kozuch,
    "AutoScale" (2012) on holding workers; for guesses, Jennings, Mandelbaum, Massey and Whitt, "Server staffing to meet
    time-varying demand" (1996).
    """

    def __init__(self, config: ElasticConfig) -> None:
        self._opened_at = math.inf
        self._price = config.wait_price
        self._arrivals = Arrivals(config.panic_window)
        self._past = {memory_s: Spread(memory_s, _SHARES) for memory_s in _MEMORIES_S}
        window_s = config.stable_window
        moving: tuple[Literal["trend", "present"], ...] = ("trend", "present")
        rules = [Staffing(by, share, window_s * hold) for by in moving for share in _SHARES for hold in _HOLDS]
        rules += [Staffing("past", share, window_s, memory_s) for share in _SHARES for memory_s in _MEMORIES_S]
        self._rehearsals = [Rehearsal(rule) for rule in rules]
        self._lead = self._rehearsals[0]
        self._start_s, self._began_at = -1.0, 0.0
        self._before: tuple[float, int, int, int] | None = None
        self._free = 0.0

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be."""
        self._opened_at = min(self._opened_at, now)
        self._arrivals.note(demand.arrived, now)
        if not demand.service_s:  # nothing has ended yet: what is there is all that is known
            kept = demand.awake if now - self._opened_at < _OPENING_S else 0
            return Desired(max(kept, whole(demand.worth)), "the load is not known yet")
        outlook = self._learn(demand, now)
        queue = queue_slots(demand.waiting, outlook.trend, demand.awake, demand)
        need = outlook.need(self._lead.rule) + queue
        wanted = whole(need / demand.slots)
        if wanted >= demand.awake:
            return Desired(wanted, self._because(need, queue, demand))
        if now - self._opened_at < _OPENING_S:
            return Desired(demand.awake, f"no worker sleeps in the first {_OPENING_S:.0f} s: the load is not known yet")
        kept = whole(max(need, self._lead.most, demand.worth * demand.slots) / demand.slots)
        return Desired(min(demand.awake, kept), self._because(need, queue, demand))

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._arrivals.validate()
        assert self._lead in self._rehearsals

    def _learn(self, demand: Demand, now: float) -> Outlook:
        """Rehearse all rules for what passed since the last decision, follow the best, and return what is ahead."""
        if not demand.start_s / _OTHER_START <= self._start_s <= demand.start_s * _OTHER_START:
            self._begin(demand, now)
        if self._before is None:
            self._free = float(demand.running)
        at, arrived, inside, running = self._before or (now, demand.arrived, demand.running + demand.waiting, 0)
        if self._before is not None and now - at < _EVERY_S:
            return self._ahead(demand)
        tick = _tick(demand, now - at, arrived, inside, running)
        self._before = now, demand.arrived, tick.after, demand.running
        self._free = tick.inside(self._free, math.inf)
        for each in self._past.values():
            each.note(self._free, tick.lasted_s)
        outlook = self._ahead(demand)
        keep = math.exp(-tick.lasted_s / _FORGETS_S)
        for rehearsal in self._rehearsals:
            rehearsal.go_on(tick, outlook, demand, keep, now)
        self._follow(demand, now)
        return outlook

    def _ahead(self, demand: Demand) -> Outlook:
        service_s, start_s, stream = demand.service_s, demand.start_s, self._arrivals.stream()
        # What others send to the engines is only seen while it is there.
        trend = stream.rate_in(start_s) * service_s + demand.foreign
        chance = trend * (1 + _SHORT_START * service_s / (service_s + start_s))
        counted = stream.rate_error * service_s
        wandering = _DRIFT * math.sqrt(start_s) * trend
        deviation = math.sqrt(chance + counted * counted + wandering * wandering)
        return Outlook(trend, deviation, stream.rate * service_s + demand.foreign, self._free, self._past)

    def _begin(self, demand: Demand, now: float) -> None:
        """Begin to learn, by what was enough before where it is dear to be without a worker."""
        self._start_s, self._began_at = demand.start_s, now
        for each in self._rehearsals:
            each.begin(demand, now)
        absence = self._absence(demand)
        memory_s = min(_MEMORIES_S, key=lambda memory_s: abs(math.log(memory_s / max(1.0, absence))))
        first = ("past", 0.95, memory_s) if absence > _LONG_S else ("trend", 0.84, 0.0)
        self._lead = next(
            each for each in self._rehearsals if (each.rule.by, each.rule.share, each.rule.memory_s) == first
        )

    def _absence(self, demand: Demand) -> float:
        """Return what it costs, in worker-seconds, to be without a worker for a start when it is needed."""
        return demand.start_s * (1 + self._price * demand.slots)

    def _follow(self, demand: Demand, now: float) -> None:
        best, lead = min(self._rehearsals, key=lambda each: each.cost(self._price)), self._lead
        saved = lead.cost(self._price) * (1 - _BETTER) - best.cost(self._price)
        has_seen = now - self._began_at >= _LEARNS_S
        if has_seen and saved > self._absence(demand) * (1.0 if best.worker_s < lead.worker_s else _CARE):
            self._lead = best

    def _because(self, need: float, queue: float, demand: Demand) -> str:
        if not demand.awake:
            return "the load is not known yet"
        rule = self._lead.rule
        by = {
            "trend": f"by the trend, in {demand.start_s:.0f} s",
            "present": "by the present load",
            "past": f"by the last {rule.memory_s:.0f} s",
        }[rule.by]
        for_queue = f", {queue:.0f} of them for the queue" if queue else ""
        return (
            f"{by} {need:.1f} of the {demand.slots * demand.awake:.0f} slots awake are needed for {rule.share:.0%} of "
            f"the time{for_queue}"
        )


def _tick(demand: Demand, lasted_s: float, arrived: int, inside: int, running: int) -> Tick:
    came, after = demand.arrived - arrived, demand.running + demand.waiting
    served = (running + demand.running) / 2
    ended = max(0.0, came + inside - after) / served if served else 0.0
    return Tick(lasted_s, came, ended, inside, after, inside > running or demand.waiting > 0)
