"""Staffs for the load that is forecast for when a worker that is woken now would be ready."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.elastic.demand import Demand, Desired, whole
from headgate.elastic.policies.history import Highest, Total
from headgate.elastic.settings import ElasticConfig

_DRIFT: Final = 0.07
"""Nobody knows how far a rate will wander: 7 % in a second are assumed, and by the square root of time 38 % in half a
minute. So a pool whose workers start slowly keeps more of them."""

_SHORT_START: Final = 1.1
"""So much more chance counts where a start is short against a request. A chance peak lasts about as long as a request:
a worker that starts sooner than that can still meet it, one that starts later comes when it is over."""

_REST: Final = 0.5
"""A worker is put to sleep when so many more standard deviations are free than one is woken for; a load between two
numbers of workers would go back and forth else."""

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


@dataclass(frozen=True, slots=True)
class _Forecast:
    """What will be there when a worker that is woken now is ready, in slots.

    Attributes:
        load: requests that will be under way if none waits.
        deviation: standard deviation of it.
        queue: slots to work off in time what will wait by then.
    """

    load: float
    deviation: float = 0.0
    queue: float = 0.0


class Predictive:
    """Slots for the load that is forecast, for its chance ups and downs, and for the queue that will be there.

    The load is arrivals per second times how long one takes (Little's law): a full pool hides demand from who counts
    what runs, but not from who counts what arrives. On top, `headroom` standard deviations stay free: square-root
    staffing. The variance has three parts: that of a Poisson load, more of it where starts are short; that of the rate
    as it was counted; and how far the rate may wander while a worker starts. The constants were chosen on the ramp and
    on two public traces.

    Fewer workers are asked for once the most of the last `stable_window` would fit into them with room to spare.

    Source: Jennings, Mandelbaum, Massey and Whitt, "Server staffing to meet time-varying demand" (1996); Whitt,
    "Staffing a call center with uncertain arrival rate and absenteeism" (2006).
    """

    def __init__(self, config: ElasticConfig) -> None:
        self._opened_at = math.inf
        self._headroom = config.headroom
        self._arrivals = Arrivals(config.panic_window)
        self._most = Highest(config.stable_window)

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be."""
        self._opened_at = min(self._opened_at, now)
        self._arrivals.note(demand.arrived, now)
        forecast = self._forecast(demand)
        need = forecast.load + self._headroom * forecast.deviation + forecast.queue
        most = self._most.note(need + _REST * forecast.deviation, now)
        wanted = whole(need / demand.slots)
        if wanted >= demand.awake:
            return Desired(wanted, self._because(forecast, demand))
        if now - self._opened_at < _OPENING_S:
            return Desired(demand.awake, f"no worker sleeps in the first {_OPENING_S:.0f} s: the load is not known yet")
        used = demand.worth * demand.slots + self._headroom * forecast.deviation
        kept = min(demand.awake, whole(max(most, used) / demand.slots))
        return Desired(kept, self._because(forecast, demand))

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._arrivals.validate()
        self._most.validate()

    def _forecast(self, demand: Demand) -> _Forecast:
        service_s, ahead_s = demand.service_s, demand.start_s
        if not service_s:  # nothing has ended yet: what is there is all that is known
            return _Forecast(demand.worth * demand.slots)
        stream = self._arrivals.stream()
        # What others send to the engines is only seen while it is there.
        load = stream.rate_in(ahead_s) * service_s + demand.foreign
        counted = stream.rate_error * service_s
        wandering = _DRIFT * math.sqrt(ahead_s) * load
        chance = load * (1 + _SHORT_START * service_s / (service_s + ahead_s))
        deviation = math.sqrt(chance + counted * counted + wandering * wandering)
        return _Forecast(load, deviation, self._for_queue(demand, load))

    @staticmethod
    def _for_queue(demand: Demand, load: float) -> float:
        """Return the slots that work off what will wait, in the time of a start or of one request if that is longer.

        Those that are awake or starting are enough for a short queue: it will be gone before another could help.
        """
        if not demand.waiting:
            return 0.0
        gains = (load - demand.awake * demand.slots) * demand.start_s / demand.service_s
        return max(0.0, demand.waiting + gains) * min(1.0, demand.service_s / max(demand.start_s, demand.service_s))

    @staticmethod
    def _because(forecast: _Forecast, demand: Demand) -> str:
        if not demand.awake:
            return "the load is not known yet"
        queue = f", and {forecast.queue:.0f} are needed for the queue" if forecast.queue else ""
        return (
            f"in {demand.start_s:.0f} s about {forecast.load:.1f} of the {demand.slots * demand.awake:.0f} slots awake "
            f"will be in use (give or take {forecast.deviation:.1f}){queue}"
        )
