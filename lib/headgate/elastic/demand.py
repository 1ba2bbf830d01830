"""What a policy is told, and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Demand:
    """A pool's demand and capacity at one moment. Everything in `…_worth` is in workers: 1.5 fills one and a half.

    Attributes:
        worth: what runs, on draining workers too, and what waits.
        waiting_worth: the part of it that waits.
        area: integral of `worth` over time since the pool began, in worker-seconds; the difference of two readings by
            the time between them is the mean over that time.
        peak_worth: the most that `worth` was since the last decision.
        running: requests on workers, those of others that their engines count included.
        waiting: requests in front of them.
        oldest_wait_s: how long the first of them has been waiting; 0 when none waits.
        arrived: requests since the pool began.
        active: workers that take requests.
        starting: workers that will soon.
        draining: workers that take no more.
        slots: requests that a worker takes at once, on average.
        start_s: how long a worker takes to start, as learnt.
        service_s: how long a request is with its worker, as learnt; 0 before the first has ended.
        lowest: the fewest workers that may be awake.
        highest: the most workers that can be: asleep and failed ones that will not start are left out.
        running_draining: requests on draining workers, which `running` counts too.
        foreign: requests that engines work on for others than this pool, which `running` counts too.
    """

    worth: float
    waiting_worth: float
    area: float
    peak_worth: float
    running: int
    waiting: int
    oldest_wait_s: float
    arrived: int
    active: int
    starting: int
    draining: int
    slots: float
    start_s: float
    service_s: float
    lowest: int
    highest: int
    running_draining: int = 0
    foreign: int = 0

    @property
    def awake(self) -> int:
        """Workers that count as capacity: active and starting ones."""
        return self.active + self.starting


@dataclass(frozen=True, slots=True)
class Desired:
    """How many workers there should be, and why."""

    workers: int
    because: str


class Policy(Protocol):
    """Decides how many workers a pool should have. Pure: `now` comes in, it keeps what it has been told.

    It is asked every `monitoring_interval`, and in between when a request has to wait (at most every
    `urgent_interval`).
    """

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be; the pool keeps it within `lowest` and `highest`."""
        ...

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        ...


_ROUNDING: Final = 1e-9


def whole(workers: float) -> int:
    """Return the whole workers that it takes; sums of slots that miss a number by their last digit are that number."""
    return math.ceil(workers - _ROUNDING)


def in_use(demand: Demand) -> int:
    """Return the workers that what runs and waits now would fill: with fewer, requests would lose their place."""
    return whole(demand.worth)
