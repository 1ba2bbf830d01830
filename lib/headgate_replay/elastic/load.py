"""The input of a replay: requests in order of arrival, how fast engines answer them, and the site with the engines."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.elastic import InvalidElasticError


class InvalidLoadError(InvalidElasticError):
    """Raised if a trace of requests, a table of service times, or a setting of a replay cannot be used."""

    code = "invalid_load"
    next_step = "Correct it and run the command again; see `headgate elastic replay --help`."


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a load.

    Attributes:
        arrived_s: seconds since the load began.
        first_s: seconds from being given to a worker until its answer begins.
        steps: length of its answer from there on: tokens, or seconds if the load's `step_s` is 1.
        tokens: number of tokens that the pool is told.
    """

    arrived_s: float
    first_s: float
    steps: float
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """Calls, and the speed of the workers that they are meant for.

    Attributes:
        name: its name in tables.
        calls: its calls, sorted by `arrived_s`.
        slots: number of requests that a worker answers at once.
        step_s: seconds of one step while a worker has 1, 2, … `slots` answers in progress.
        window_s: its length; nothing arrives later.
        notes: its assumptions, in sentences; shown with every result.
    """

    name: str
    calls: tuple[Call, ...]
    slots: int
    step_s: tuple[float, ...]
    window_s: float
    notes: tuple[str, ...] = ()

    @property
    def work_s(self) -> float:
        """The minimum worker-seconds to serve it: every worker full, at the most efficient batch size."""
        steps = sum(call.steps for call in self.calls)
        first_s = sum(call.first_s for call in self.calls)
        best = min(step_s / batch for batch, step_s in enumerate(self.step_s, start=1))
        return first_s / self.slots + steps * best

    def alone_s(self, call: Call) -> float:
        """Return the minimum time of a call: on a worker at the batch size that is fastest for it."""
        return call.first_s + call.steps * min(self.step_s)

    def crowded_s(self, call: Call) -> float:
        """Return how long a call takes on a full worker."""
        return call.first_s + call.steps * self.step_s[-1]


def load_of(
    name: str,
    calls: Iterable[Call],
    *,
    slots: int,
    step_s: Sequence[float] | None = None,
    window_s: float | None = None,
    notes: Sequence[str] = (),
) -> Load:
    """Return a load of calls given in any order.

    Steps are seconds if no `step_s` is given; the window ends with the last arrival unless `window_s` is later.

    Raises:
        InvalidLoadError: if there is no call, one never arrives or never ends, or workers have no slots or the wrong
            number of speeds.
    """
    ordered = tuple(sorted(calls, key=lambda call: call.arrived_s))
    if not ordered:
        raise InvalidLoadError(f"{name} has no request")
    for call in ordered:
        if not all(0 <= value < math.inf for value in (call.arrived_s, call.first_s, call.steps)):
            raise InvalidLoadError(
                f"{name}: times of a request must be numbers >= 0 (got arrival {call.arrived_s:g} s, first "
                f"{call.first_s:g} s, steps {call.steps:g})"
            )
    if slots < 1:
        raise InvalidLoadError(f"slots of a worker must be >= 1 (got {slots})")
    speeds = (1.0,) * slots if step_s is None else tuple(step_s)
    if len(speeds) != slots or min(speeds) <= 0:
        raise InvalidLoadError(f"{name}: a worker of {slots} slots has {slots} step times > 0 (got {len(speeds)})")
    last_s = ordered[-1].arrived_s
    return Load(name, ordered, slots, speeds, max(last_s, window_s or 0.0), tuple(notes))


@dataclass(frozen=True, slots=True)
class Site:
    """A site of equal workers.

    Attributes:
        workers: number of workers.
        start_s: seconds from the command to wake a worker until it can answer. Waking a sleeping engine takes about
            1 s, starting a new one 30 s or more.
        sleep_s: seconds from the command to put a worker to sleep until its memory is free.
        awake: number of workers that are awake when the load begins.
    """

    workers: int = 16
    start_s: float = 1.0
    sleep_s: float = 0.2
    awake: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.awake <= self.workers:
            raise InvalidLoadError(
                f"awake workers must be between 1 and the workers of the site (got {self.awake} of {self.workers})"
            )
        if self.start_s < 0 or self.sleep_s < 0:
            raise InvalidLoadError(f"start_s and sleep_s must be >= 0 (got {self.start_s:g} and {self.sleep_s:g})")

    @property
    def start_text(self) -> str:
        """How long a start takes, as written in headings."""
        return f"{self.start_s:g} s to start"

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names, padded with zeros so that their alphabetical order is that of their numbers."""
        return tuple(f"worker-{number:03d}" for number in range(self.workers))


RAMP: Final = ((600, 2, 2), (1500, 2, 32), (120, 48, 48), (780, 6, 6), (600, 0.2, 0.2))
"""Quiet, a long rise, a burst, an afternoon, a night: one hour, about 37 000 requests.

Each phase has its length in seconds and its arrivals per second at the start and the end, with a linear change."""

SLOTS: Final = 8
SERVICE_S: Final = 2.0


def ramp(*, seed: int = 0, scale: float = 1.0, slots: int = SLOTS) -> Load:
    """Return the ramp: Poisson arrivals, exponential service times of mean 2 s; the same seed gives the same calls.

    `scale` multiplies the length of all phases, so that tests can use a short ramp with the same rates.

    Raises:
        InvalidLoadError: if the scale is not above 0, or so small that nothing arrives.
    """
    if not 0 < scale < math.inf:
        raise InvalidLoadError(f"the scale of a ramp must be > 0 (got {scale:g})")
    chance = random.Random(f"ramp/{seed}")
    calls = [Call(at, 0.0, chance.expovariate(1 / SERVICE_S)) for at in _arrivals(scale, chance)]
    window_s = sum(lasts_s * scale for lasts_s, _, _ in RAMP)
    note = (
        f"Generated with seed {seed}: {len(calls)} requests in {window_s:g} s, Poisson arrivals, exponential service "
        f"of mean {SERVICE_S:g} s, {slots} slots a worker."
    )
    return load_of("ramp", calls, slots=slots, window_s=window_s, notes=[note])


def steady(in_flight: int, *, lasts_s: float = 600.0) -> Load:
    """Return a load with `in_flight` requests at any moment if none waits: each is followed by the next at once."""
    calls = []
    for client in range(in_flight):
        at = client * SERVICE_S / in_flight
        while at < lasts_s:
            calls.append(Call(at, 0.0, SERVICE_S))
            at += SERVICE_S
    return load_of(f"steady {in_flight}", calls, slots=SLOTS, window_s=lasts_s)


def backlog(count: int) -> Load:
    """Return a load of requests of 20 s each that all arrive at the start."""
    return load_of(f"backlog {count}", [Call(0.0, 0.0, 20.0)] * count, slots=SLOTS)


def step(workers: int, *, at_s: float = 120.0, lasts_s: float = 240.0) -> Load:
    """Return a load of one request in flight, and from `at_s` on enough to fill `workers` workers."""
    before = [Call(number * SERVICE_S, 0.0, SERVICE_S) for number in range(int(at_s / SERVICE_S))]
    rounds = [Call(at_s + number * SERVICE_S, 0.0, SERVICE_S) for number in range(int(lasts_s / SERVICE_S))]
    after = [call for call in rounds for _ in range(workers * SLOTS)]
    return load_of(f"step to {workers}", before + after, slots=SLOTS)


def _arrivals(scale: float, chance: random.Random) -> Iterator[float]:
    """Yield the arrivals of a Poisson process of changing rate, by thinning a process of the phase's maximum rate."""
    began = 0.0
    for unscaled_s, first, last in RAMP:
        lasts_s, highest = unscaled_s * scale, max(first, last)
        at = chance.expovariate(highest)
        while at < lasts_s:
            if chance.random() * highest < first + (last - first) * at / lasts_s:
                yield began + at
            at += chance.expovariate(highest)
        began += lasts_s
