"""Made-up loads: the hour that policies are compared on, and the short ones that each show one property."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.elastic.replay.errors import InvalidLoadError
from headgate.elastic.replay.load import Call, Load, load_of


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time in which the rate of arrivals runs in a straight line from one value to another."""

    lasts_s: float
    from_per_s: float
    to_per_s: float


RAMP: Final = (
    Phase(600, 2, 2),
    Phase(1500, 2, 32),
    Phase(120, 48, 48),
    Phase(780, 6, 6),
    Phase(600, 0.2, 0.2),
)
"""Quiet, a long rise, a burst, an afternoon, a night: one hour, about 37 000 requests."""

SLOTS: Final = 8
SERVICE_S: Final = 2.0


def ramp(*, seed: int = 0, scale: float = 1.0, phases: Sequence[Phase] = RAMP, slots: int = SLOTS) -> Load:
    """Return the ramp: Poisson arrivals, exponential service of mean 2 s; the same seed gives the same calls.

    Args:
        seed: of arrivals and services.
        scale: of all lengths of time, so that a test has a short one with the same rates.
        phases: how the rate runs.
        slots: of a worker.

    Raises:
        InvalidLoadError: the scale is not above 0, or so small that nothing arrives.
    """
    if not scale > 0:
        raise InvalidLoadError(f"the scale of a ramp must be > 0 (got {scale:g})")
    scaled = [Phase(phase.lasts_s * scale, phase.from_per_s, phase.to_per_s) for phase in phases]
    chance = random.Random(f"ramp/{seed}")
    calls = [Call(at, 0.0, chance.expovariate(1 / SERVICE_S)) for at in _arrivals(scaled, chance)]
    window_s = sum(phase.lasts_s for phase in scaled)
    note = (
        f"Generated with seed {seed}: {len(calls)} requests in {window_s:g} s, Poisson arrivals, exponential service "
        f"of mean {SERVICE_S:g} s, {slots} slots a worker."
    )
    return load_of("ramp", calls, slots=slots, window_s=window_s, notes=[note])


def steady(in_flight: int, *, lasts_s: float = 600.0, service_s: float = SERVICE_S, slots: int = SLOTS) -> Load:
    """Return a load of so many requests in flight at any moment, if nobody waits: each is followed at once."""
    calls = []
    for client in range(in_flight):
        at = client * service_s / in_flight
        while at < lasts_s:
            calls.append(Call(at, 0.0, service_s))
            at += service_s
    note = f"{in_flight} requests in flight all the time, each of {service_s:g} s."
    return load_of(f"steady {in_flight}", calls, slots=slots, window_s=lasts_s, notes=[note])


def backlog(count: int, *, service_s: float = 20.0, slots: int = SLOTS) -> Load:
    """Return a load of requests that are all there at the start."""
    calls = [Call(0.0, 0.0, service_s) for _ in range(count)]
    return load_of(
        f"backlog {count}", calls, slots=slots, notes=[f"{count} requests at once, each of {service_s:g} s."]
    )


def step(
    workers: int, *, at_s: float = 120.0, lasts_s: float = 240.0, service_s: float = SERVICE_S, slots: int = SLOTS
) -> Load:
    """Return one request in flight, then from `at_s` on so many that `workers` workers are full."""
    after = workers * slots
    before = [Call(number * service_s, 0.0, service_s) for number in range(int(at_s / service_s))]
    rounds = int(lasts_s / service_s)
    calls = [Call(at_s + number * service_s, 0.0, service_s) for number in range(rounds) for _ in range(after)]
    note = f"One request in flight, then {after}: as many as {workers} workers of {slots} slots have room for."
    return load_of(f"step to {workers}", before + calls, slots=slots, notes=[note])


def _arrivals(phases: Sequence[Phase], chance: random.Random) -> Iterator[float]:
    """Yield the arrivals of a Poisson process of changing rate, by thinning one of the phase's highest rate."""
    began = 0.0
    for phase in phases:
        highest = max(phase.from_per_s, phase.to_per_s)
        at = chance.expovariate(highest)
        while at < phase.lasts_s:
            rate = phase.from_per_s + (phase.to_per_s - phase.from_per_s) * at / phase.lasts_s
            if chance.random() * highest < rate:
                yield began + at
            at += chance.expovariate(highest)
        began += phase.lasts_s
