"""Staffs for the load that is forecast for when a worker that is woken now would be ready."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.elastic.demand import Demand, Desired
from headgate.elastic.policies.arrivals import Arrivals
from headgate.elastic.policies.history import Highest
from headgate.elastic.policies.rounding import whole
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
            return Desired(demand.awake, f"nobody sleeps in the first {_OPENING_S:.0f} s: the load is not known yet")
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
