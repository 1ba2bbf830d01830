"""From files to a load and a site that it can be replayed on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.elastic.replay.bound import fewest_fixed
from headgate.elastic.replay.errors import InvalidLoadError
from headgate.elastic.replay.load import Load, Site
from headgate.elastic.replay.measures import asked_course
from headgate.elastic.replay.ramp import SLOTS, ramp
from headgate.elastic.replay.service_times import Hardware, read_service_times
from headgate.elastic.replay.traces import read_trace, superposed

RAMP_NAME: Final = "ramp"
"""In place of a trace: an hour that is made up."""

_FIRST_MIN: Final = 1.0
_LONGEST_SCALE: Final = 168.0
"""A week."""


def named_load(
    name: str,
    service_times: Path | None = None,
    *,
    hardware: Hardware | None = None,
    slots: int = SLOTS,
    copies: int = 1,
    scale: float = 1.0,
    seed: int = 0,
) -> Load:
    """Return the load that a user names: `ramp`, or the file of a trace.

    Args:
        name: `ramp`, or a path.
        service_times: of a trace, which tells tokens and not how long they take.
        hardware: of a trace: the model, and what a worker is.
        slots: requests that a worker answers at once.
        copies: of a trace: so many times as many users.
        scale: of the ramp: all lengths of time by this.
        seed: of the ramp, and of the moments of copies.

    Raises:
        InvalidLoadError: there is no such file, the table of times is missing, or a number or a file cannot be used.
    """
    if name == RAMP_NAME:
        if not 0 < scale <= _LONGEST_SCALE:
            raise InvalidLoadError(f"scale must be above 0 and at most {_LONGEST_SCALE:g} (got {scale:g})")
        return ramp(seed=seed, scale=scale, slots=slots)
    if not (trace := Path(name)).exists():
        raise InvalidLoadError(
            f"there is no trace {name!r}", next_step=f"Name a file, or `{RAMP_NAME}` for an hour that is made up."
        )
    if service_times is None:
        raise InvalidLoadError(
            f"{name} tells tokens and not how long they take: the table of service times is missing",
            next_step="Give one, such as data/perf_model.csv of https://github.com/Mutinifni/splitwise-sim.",
        )
    return traced_load(trace, service_times, hardware=hardware, slots=slots, copies=copies, seed=seed)


def traced_load(
    trace: Path,
    service_times: Path,
    *,
    hardware: Hardware | None = None,
    slots: int = SLOTS,
    copies: int | None = None,
    mean_workers: float = 4.0,
    seed: int = 0,
) -> Load:
    """Return what the requests of a trace ask of workers, its notes saying everything that was assumed.

    Args:
        trace: file of requests, see `read_trace`.
        service_times: table of measurements, see `read_service_times`.
        hardware: the model, and what a worker is.
        slots: requests that a worker answers at once.
        copies: how often each request is there, see `superposed`; by default as often as makes work for
            `mean_workers` workers on average, once at least.
        mean_workers: see `copies`.
        seed: of the moments of copies.

    Raises:
        InvalidLoadError: a file cannot be read or holds something else, or a number makes no load.
    """
    requests = read_trace(trace)
    times = read_service_times(service_times, hardware)
    if copies is None:
        once = times.load(requests, slots=slots)
        copies = max(1, math.ceil(mean_workers * once.window_s / once.work_s))
    return times.load(superposed(requests, copies, seed=seed), slots=slots)


def sites_for(load: Load, starts_s: Sequence[float], *, workers: int, awake: int | None = None) -> list[Site]:
    """Return a site for each start time; without `awake` as many workers are awake first as the first minute fills.

    Raises:
        InvalidLoadError: there is no start time, or a number breaks a rule.
    """
    if not starts_s:
        raise InvalidLoadError("at least one start time is needed (got none)")
    for start_s in starts_s:
        if not 0 <= start_s < math.inf:
            raise InvalidLoadError(f"a start time must be a number of seconds >= 0 (got {start_s:g})")
    if workers < 1:
        raise InvalidLoadError(f"max_workers must be >= 1 (got {workers})")
    first = _first_workers(load, workers) if awake is None else awake
    return [Site(workers=workers, start_s=start_s, awake=first) for start_s in starts_s]


def roomy_site(load: Load, *, start_s: float, workers: int = 16, sleep_s: float = 0.2) -> tuple[Load, Site]:
    """Return a load and a site for it, `workers` or as many as its highest moment needs, and note that.

    A trace begins in the middle of a day: as many workers are awake as its first minute takes, and one more.
    """
    there = max(workers, fewest_fixed(load, wait_s=0.0, share=1.0))
    awake = _first_workers(load, there)
    note = f"{there} workers, {awake} of them awake at the start: the trace begins in the middle of a day."
    site = Site(workers=there, start_s=start_s, sleep_s=sleep_s, awake=awake)
    return dataclasses.replace(load, notes=(*load.notes, note)), site


def _first_workers(load: Load, most: int) -> int:
    busiest = max(asked for at_min, asked in asked_course(load) if at_min <= _FIRST_MIN)
    return min(most, math.ceil(busiest) + 1)
