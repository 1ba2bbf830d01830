"""The ramp and the traces that were given, under our default policy and beside it the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from headgate.core.errors import InvalidInputError
from headgate_bench.definition import Bench
from headgate_replay.elastic import (
    OURS,
    Comparison,
    Hardware,
    Load,
    Measures,
    Site,
    compared,
    contender,
    drained_with_a_backlog,
    measured,
    operations_when_steady,
    ramp,
    roomy_site,
    starts_until_served,
    terms_of,
    traced_load,
)

STARTS: Final[Mapping[str, float]] = MappingProxyType({"1s": 1.0, "30s": 30.0})
"""Name -> seconds that a worker takes to start: an engine that sleeps, and one that is started anew."""


EVERY_S: Final = 1.0
"""Ray Serve's rule looks ten times a second: with its delays of seconds it finds the same once a second, in a quarter
of the time. A request that has to wait makes it look at once in any case."""


@dataclass(frozen=True, slots=True)
class ElasticParameters:
    """Parameters of the scenario."""

    scale: float = 1.0  # of the ramp's lengths of time; its hour is 1
    seeds: int = 1  # ramps that ours is held to, each with another seed; the worst counts. Rivals run on the first
    workers: int = 16  # of the site
    steady_s: float = 600.0  # how long the constant load lasts
    backlog: int = 500  # requests that are there at once
    step: int = 4  # workers that the sudden load fills
    trace_workers: float = 4.0  # a trace with less work than for so many workers on average is multiplied
    trace_site: int = 16  # workers of a trace's site at least; more where its highest moment needs them
    # Model, hardware and GPUs a worker of the service times.
    hardware: tuple[str, str, int] = ("llama2-70b", "h100-80gb", 8)
    # Policies of others, and ours that is not the default, that run beside.
    rivals: tuple[str, ...] = ("ray-serve-5-60", "knative", "clairvoyant")
    drawn_shapes: tuple[str, ...] = ("bursty", "smooth")  # of drawn loads
    drawn_seeds: int = 1  # drawn loads of each shape, of odd seeds; their means count
    drawn_scale: float = 0.25  # of their lengths of time; an hour is 1
    drawn_starts: tuple[float, ...] = (30.0,)  # seconds that a worker takes to start there
    drawn_peers: tuple[str, ...] = ("knative", "fixed")  # rules of others, at each setting of their knobs
    frontiers: tuple[str, ...] = ()  # policies whose frontier is drawn, each several replays
    bar_cost_1s: float = 1.65  # cost on the ramp at most, where a worker starts in 1 s
    # Seconds that one request in a hundred waits on the ramp at most, where a worker starts in 1 s.
    bar_wait_1s: float = 0.5
    bar_cost_30s: float = 1.7  # as above, where it starts in 30 s
    bar_wait_30s: float = 1.5  # as above, where it starts in 30 s
    bar_operations: int = 45  # workers that are started, drained or turned back at most
    bar_worth: float = 0.99  # share of the active periods of three starts at least
    bar_frontier_cost: float = 1.05  # on drawn loads, cost by that of the cheapest rule that waits no longer at most
    bar_frontier_wait: float = 0.0  # and seconds at p99 beyond those of a rule that costs no more
    bar_frontier_operations: float = 1.2  # and operations by those of the clairvoyant plan
    bar_steady: int = 1  # operations under a constant load at most
    bar_backlog: int = 0  # workers drained while requests of the backlog wait at most
    bar_step: float = 2.0  # starts until a sudden load has its workers


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """One load at one start time."""

    name: str  # of the load, as ids of bars have it
    start: str  # `1s` or `30s`
    comparison: Comparison  # ours and the others
    ours: tuple[Measures, ...]  # our figures: one for each seed, the first of the comparison

    @property
    def others(self) -> tuple[Measures, ...]:
        """The figures of the rest."""
        return tuple(each for each in self.comparison.measures if each.policy != OURS)


def ramps(parameters: ElasticParameters, bench: Bench, tell: Tell) -> list[Played]:
    """Replay the ramp at both start times."""
    loads = [ramp(seed=bench.seed + number, scale=parameters.scale) for number in range(parameters.seeds)]
    found = []
    for start, start_s in STARTS.items():
        site = Site(workers=parameters.workers, start_s=start_s)
        comparison = _compared(parameters, loads[0], site, tell)
        ours = [comparison.of(OURS)]
        for number, load in enumerate(loads[1:], start=1):
            tell(f"ramp, {OURS}, seed {number}")
            ours.append(measured(load, contender(OURS).play(terms_of(load, site))))
        found.append(Played("ramp", start, comparison, tuple(ours)))
    return found


def traces(parameters: ElasticParameters, bench: Bench, tell: Tell) -> list[Played]:
    """Replay the traces that were given at both start times; none without any.

    Raises:
        InvalidInputError: traces were given without service times or the other way round, or one cannot be read.
    """
    if not bench.traces and bench.service_times is None:
        return []
    if not bench.traces or bench.service_times is None:
        raise InvalidInputError(
            "--trace and --service-times belong together: a trace tells tokens, and a table how long they take",
            next_step="Give both, or neither; perf_model.csv of https://github.com/Mutinifni/splitwise-sim is a table.",
        )
    found = []
    for path, name in zip(bench.traces, short_names(bench.traces), strict=True):
        load = traced_load(
            path,
            bench.service_times,
            hardware=Hardware(*parameters.hardware),
            mean_workers=parameters.trace_workers,
            seed=bench.seed,
        )
        for start, start_s in STARTS.items():
            comparison = _compared(parameters, *roomy_site(load, workers=parameters.trace_site, start_s=start_s), tell)
            found.append(Played(name, start, comparison, (comparison.of(OURS),)))
    return found


def _compared(parameters: ElasticParameters, load: Load, site: Site, tell: Tell) -> Comparison:
    return compared(
        load,
        site,
        policies=(OURS, *(name for name in parameters.rivals if name != OURS)),
        frontiers=parameters.frontiers,
        at_most_every_s=EVERY_S,
        tell=lambda what: tell(f"{load.name}, {what}"),
    )


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a name of each file for ids: `code` and `conv` for Azure's files, else the file's own, each once."""
    names: list[str] = []
    for path in paths:
        stem = path.stem.lower()
        name = next((word for word in ("code", "conv") if word in stem), re.sub(r"[^a-z0-9_]+", "_", stem))
        same = sum(each.partition("-")[0] == name for each in names)
        names.append(f"{name}-{same + 1}" if same else name)
    return names


_UNMOVED: Final = frozenset({"fixed", "fixed-need", "clairvoyant", "clairvoyant-calm"})
"""Contenders of whom short loads tell nothing."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What was found, by policy."""

    steady: Mapping[str, int]  # operations under a constant load
    backlog: Mapping[str, int]  # workers drained while requests wait
    step: Mapping[str, Mapping[str, float]]  # start time -> starts until a sudden load has its workers


def probes(parameters: ElasticParameters, tell: Callable[[str], None]) -> Probes:
    """Run the short loads."""
    policies = [OURS, *(name for name in parameters.rivals if name not in {OURS, *_UNMOVED})]
    tell("short loads")
    return Probes(
        {name: operations_when_steady(name, lasts_s=parameters.steady_s) for name in policies},
        {name: drained_with_a_backlog(name, count=parameters.backlog) for name in policies},
        {
            start: {name: starts_until_served(name, workers=parameters.step, start_s=start_s) for name in policies}
            for start, start_s in STARTS.items()
        },
    )
