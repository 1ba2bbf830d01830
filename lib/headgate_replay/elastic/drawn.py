"""Loads of several shapes, drawn by seed; no policy was tuned to them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

from headgate_replay.elastic.load import SLOTS, Call, InvalidLoadError, Load, load_of

WINDOW_S: Final = 3600.0
MEAN_SERVICE_S: Final = 10.0
_SIGMA: Final = 1.0
"""Standard deviation of the logarithm of a service time: one answer in twenty takes three times the mean or longer."""

_Rate = Callable[[float], float]
"""Arrivals per second at each second of an hour."""

_Shape = Callable[[random.Random], tuple[_Rate, float]]
"""Draws a rate function and its maximum."""


def drawn(shape: str, *, seed: int = 0, scale: float = 1.0, slots: int = SLOTS) -> Load:
    """Return an hour of one of `SHAPES`: Poisson arrivals at a drawn rate, log-normal service times of mean 10 s.

    The same seed gives the same calls. `scale` multiplies all times except service times, like the ramp's.

    Sources: the shapes of Gandhi et al., "AutoScale" (2012), section 4; bursts as a Markov-modulated Poisson process,
    Fischer and Meier-Hellstern, "The MMPP cookbook" (1993).

    Raises:
        InvalidLoadError: if the shape is unknown, or the scale is not above 0 or so small that nothing arrives.
    """
    if shape not in SHAPES:
        raise InvalidLoadError(
            f"there is no shape {shape!r} to draw a load of", next_step=f"There are: {', '.join(SHAPES)}."
        )
    if not 0 < scale < math.inf:
        raise InvalidLoadError(f"the scale of a drawn load must be a number > 0 (got {scale:g})")
    chance = random.Random(f"{shape}/{seed}")
    rate, highest = _SHAPES[shape](chance)
    calls, window_s = [], WINDOW_S * scale
    at = chance.expovariate(highest)
    while at < window_s:
        if chance.random() * highest < rate(at / scale):
            service_s = chance.lognormvariate(math.log(MEAN_SERVICE_S) - _SIGMA**2 / 2, _SIGMA)
            calls.append(Call(at, 0.0, service_s))
        at += chance.expovariate(highest)
    note = (
        f"{shape}: drawn with seed {seed}, {len(calls)} requests in {window_s:g} s, Poisson arrivals, log-normal "
        f"service of mean {MEAN_SERVICE_S:g} s, {slots} slots a worker."
    )
    return load_of(shape, calls, slots=slots, window_s=window_s, notes=[note])


def _smooth(chance: random.Random) -> tuple[_Rate, float]:
    """A level with two waves of a tenth each, over 20 and 50 minutes."""
    level, first, second = chance.uniform(1.5, 3.0), chance.uniform(0, math.tau), chance.uniform(0, math.tau)
    swing = 0.1

    def rate(at: float) -> float:
        return level * (
            1 + swing * math.sin(math.tau * at / 1200 + first) + swing * math.sin(math.tau * at / 3000 + second)
        )

    return rate, level * (1 + 2 * swing)


def _bursty(chance: random.Random) -> tuple[_Rate, float]:
    """On average two quiet minutes and then 40 s of 3 to 5 times as much; both durations are exponential."""
    level = chance.uniform(0.8, 1.6)
    burst = level * chance.uniform(3.0, 5.0)
    return _switched(chance, (level, 120.0), (burst, 40.0)), burst


def _daily(chance: random.Random) -> tuple[_Rate, float]:
    """Two days in an hour: a wave whose minimum is about a twentieth of its maximum."""
    mean, phase = chance.uniform(1.2, 2.5), chance.uniform(0, math.tau)
    swing = 0.9
    return lambda at: mean * (1 + swing * math.sin(math.tau * at / 1800 + phase)), mean * (1 + swing)


def _flash(chance: random.Random) -> tuple[_Rate, float]:
    """A level that rises to 4 to 6 times as much within 20 s; the excess halves every four minutes."""
    level, times, begins = chance.uniform(0.8, 1.5), chance.uniform(4.0, 6.0), chance.uniform(900.0, 2400.0)

    def rate(at: float) -> float:
        since = at - begins
        if since < 0:
            return level
        return level * (1 + (times - 1) * min(1.0, since / 20.0) * math.pow(0.5, since / 240.0))

    return rate, level * times


def _on_off(chance: random.Random) -> tuple[_Rate, float]:
    """On average seven minutes of work and five of none, both exponential: a run that samples and then trains."""
    level = chance.uniform(2.0, 4.0)
    return _switched(chance, (level, 420.0), (0.0, 300.0)), level


def _switched(chance: random.Random, *states: tuple[float, float]) -> _Rate:
    """Return a rate that takes each (rate, mean duration) state in turn, for an exponential time of that mean."""
    rates: list[float] = []
    while len(rates) <= WINDOW_S:
        rate, mean_s = states[0]
        rates += [rate] * math.ceil(chance.expovariate(1 / mean_s))
        states = (*states[1:], states[0])
    return lambda at: rates[int(at)]


_SHAPES: Final[dict[str, _Shape]] = {
    "smooth": _smooth,
    "bursty": _bursty,
    "daily": _daily,
    "flash": _flash,
    "on-off": _on_off,
}

SHAPES: Final = tuple(_SHAPES)
"""Names of the shapes."""
