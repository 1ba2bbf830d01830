"""Workers are whole."""

from __future__ import annotations

import math
from typing import Final

from headgate.elastic.demand import Demand

_ROUNDING: Final = 1e-9


def whole(workers: float) -> int:
    """Return the whole workers that it takes; sums of slots that miss a number by their last digit are that number."""
    return math.ceil(workers - _ROUNDING)


def in_use(demand: Demand) -> int:
    """Return the workers that what runs and waits now would fill: with fewer, requests would lose their place."""
    return whole(demand.worth)
