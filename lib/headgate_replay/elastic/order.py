"""An order for a replay: the load, the sites and the policies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.elastic import ElasticConfig
from headgate_replay.elastic.bounds import fewest_fixed
from headgate_replay.elastic.comparison import USUAL, Comparison, compared
from headgate_replay.elastic.contenders import contender, terms_of
from headgate_replay.elastic.drawn import SHAPES, drawn
from headgate_replay.elastic.load import SLOTS, InvalidLoadError, Load, Site, ramp
from headgate_replay.elastic.outcome import BINS, asked_course
from headgate_replay.elastic.traces import Hardware, traced_load

RAMP_NAME: Final = "ramp"
"""Given instead of a trace: a generated hour."""

_FIRST_MIN: Final = 1.0
_LONGEST_SCALE: Final = 168.0
"""A week."""

_HARDWARE: Final = Hardware()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """One load under several policies, on a site for each start time.

    Attributes:
        trace: `ramp`, one of `SHAPES` (an hour drawn by `seed`), or the file of a trace. A trace has token counts but
            no times: it needs the table `service_times`, and which of its lines to use (`model`, `hardware` and
            `gpus`).
        policies: names of contenders; the usual ones and `clairvoyant` without any.
        frontiers: contenders that are also replayed with all values of their knob.
        starts_s: seconds that a worker takes to start; each value gets a separate comparison.
        slots: number of requests that a worker answers at once.
        awake: number of workers awake at the start; None for one, or for a trace as many as its first minute fills.
        copies: number of copies of each request of a trace.
        scale: factor on all times of the ramp or a drawn hour, except service times.
        config: settings of the pool; None for the defaults.
    """

    trace: str = RAMP_NAME
    service_times: str | Path | None = None
    model: str = _HARDWARE.model
    hardware: str = _HARDWARE.hardware
    gpus: int = _HARDWARE.tensor_parallel
    policies: Sequence[str] = ()
    frontiers: Sequence[str] = ()
    starts_s: Sequence[float] = (1.0, 30.0)
    slots: int = SLOTS
    max_workers: int = 16
    awake: int | None = None
    copies: int = 1
    scale: float = 1.0
    seed: int = 0
    config: ElasticConfig | None = None

    def check(self) -> None:
        """Check everything that can be checked without reading a file.

        Raises:
            InvalidLoadError: if a policy is unknown, there is no start time, or a number breaks a rule.
        """
        for name in (*self.policies, *self.frontiers):
            contender(name)
        if not self.starts_s:
            raise InvalidLoadError("at least one start time is needed (got none)")
        for start_s in self.starts_s:
            if not 0 <= start_s < math.inf:
                raise InvalidLoadError(f"a start time must be a number of seconds >= 0 (got {start_s:g})")
        if self.max_workers < 1:
            raise InvalidLoadError(f"max_workers must be >= 1 (got {self.max_workers})")

    def load(self) -> Load:
        """Return the load.

        Raises:
            InvalidLoadError: if there is no such trace, the table of times is missing, or a number or a file cannot
                be used.
        """
        if self.trace == RAMP_NAME or self.trace in SHAPES:
            if not 0 < self.scale <= _LONGEST_SCALE:
                raise InvalidLoadError(f"scale must be above 0 and at most {_LONGEST_SCALE:g} (got {self.scale:g})")
            if self.trace in SHAPES:
                return drawn(self.trace, seed=self.seed, scale=self.scale, slots=self.slots)
            return ramp(seed=self.seed, scale=self.scale, slots=self.slots)
        if not (trace := Path(self.trace)).exists():
            raise InvalidLoadError(
                f"there is no trace {self.trace!r}",
                next_step=f"Name a file, or one of {', '.join((RAMP_NAME, *SHAPES))} for a generated hour.",
            )
        if not self.service_times:
            raise InvalidLoadError(
                f"{self.trace} has token counts but no times: the table of service times is missing",
                next_step="Give one, such as data/perf_model.csv of https://github.com/Mutinifni/splitwise-sim.",
            )
        hardware = Hardware(self.model, self.hardware, self.gpus)
        return traced_load(
            trace, Path(self.service_times), hardware=hardware, slots=self.slots, copies=self.copies, seed=self.seed
        )

    def sites(self, load: Load) -> list[Site]:
        """Return a site for each start time."""
        awake = self.awake
        if awake is None:
            awake = 1 if self.trace in {RAMP_NAME, *SHAPES} else _first_workers(load, self.max_workers)
        return [Site(workers=self.max_workers, start_s=start_s, awake=awake) for start_s in self.starts_s]

    def replays(self, load: Load, sites: Sequence[Site]) -> int:
        """Return how many replays the comparisons take."""
        terms = terms_of(load, sites[0], self.config)
        return len(sites) * (
            len(self._compared) + sum(len(contender(name).sweep(terms)) for name in dict.fromkeys(self.frontiers))
        )

    def comparisons(self, load: Load, sites: Sequence[Site], tell: Callable[[str], None]) -> Iterator[Comparison]:
        """Yield a comparison for each site; `tell` is called before each replay with a description of it."""
        frontiers = tuple(dict.fromkeys(self.frontiers))
        for site in sites:
            yield compared(load, site, config=self.config, policies=self._compared, frontiers=frontiers, tell=tell)

    @property
    def _compared(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.policies)) or (*USUAL, "clairvoyant")


def roomy_site(load: Load, *, start_s: float, workers: int = 16) -> tuple[Load, Site]:
    """Return a load and a site for it: `workers` workers, or more if the load's peak needs them; a note says so.

    A trace begins in the middle of a day: as many workers are awake as its first minute needs, plus one.
    """
    there = max(workers, fewest_fixed(load, wait_s=0.0, share=1.0))
    awake = _first_workers(load, there)
    note = f"{there} workers, {awake} of them awake at the start: the trace begins in the middle of a day."
    site = Site(workers=there, start_s=start_s, awake=awake)
    return dataclasses.replace(load, notes=(*load.notes, note)), site


def _first_workers(load: Load, most: int) -> int:
    bins = max(BINS, math.ceil(load.window_s / 60 / _FIRST_MIN))  # at least one lies in the first minute
    busiest = max(asked for at_min, asked in asked_course(load, bins=bins) if at_min <= _FIRST_MIN)
    return min(most, math.ceil(busiest) + 1)
