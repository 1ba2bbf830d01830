"""Replays of the ramp and of given traces, under our default policy and other policies."""

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
"""Name -> start time of a worker in seconds: of a sleeping engine, and of a new one."""


EVERY_S: Final = 1.0
"""Ray Serve's rule runs ten times a second: with its delays of seconds it gives the same results once a second, in a
quarter of the time. A request that has to wait makes it run at once in any case."""


@dataclass(frozen=True, slots=True)
class ElasticParameters:
    """Parameters of the scenario."""

    scale: float = 1.0  # factor on the ramp's times; 1 is its hour
    seeds: int = 1  # ramps with different seeds for our policy; the worst counts. Rivals run on the first
    workers: int = 16  # workers of the site
    steady_s: float = 600.0  # length of the constant load
    backlog: int = 500  # requests that arrive at once
    step: int = 4  # workers that the sudden load fills
    trace_workers: float = 4.0  # a trace is multiplied until it has work for at least this many workers on average
    trace_site: int = 16  # minimum number of workers of a trace's site; more if its peak needs them
    # Model, hardware and GPUs per worker of the service times.
    hardware: tuple[str, str, int] = ("llama2-70b", "h100-80gb", 8)
    # Further policies to replay: other systems', and ours that are not the default.
    rivals: tuple[str, ...] = ("ray-serve-5-60", "knative", "clairvoyant")
    drawn_shapes: tuple[str, ...] = ("bursty", "smooth")  # shapes of generated loads
    drawn_seeds: int = 1  # generated loads of each shape, with odd seeds; their means count
    drawn_scale: float = 0.25  # factor on their times; 1 is an hour
    drawn_starts: tuple[float, ...] = (30.0,)  # start times of a worker on them, in seconds
    drawn_peers: tuple[str, ...] = ("knative", "fixed")  # other systems' rules, at each setting of their knobs
    # Further values of `stable_window` for our policy on generated loads: the frontier of waiting and operations.
    drawn_windows: tuple[float, ...] = ()
    frontiers: tuple[str, ...] = ()  # policies whose frontier is drawn, with several replays each
    bar_cost_1s: float = 1.65  # maximum cost on the ramp if a worker starts in 1 s
    # Maximum p99 of waiting on the ramp, in seconds, if a worker starts in 1 s.
    bar_wait_1s: float = 0.5
    bar_cost_30s: float = 1.7  # maximum cost if it starts in 30 s
    bar_wait_30s: float = 1.5  # maximum p99 of waiting if it starts in 30 s
    bar_operations: int = 45  # maximum number of workers started, drained or turned back
    bar_worth: float = 0.99  # minimum share of active periods of at least three starts
    bar_frontier_cost: float = 1.05  # on generated loads: maximum cost over that of the cheapest rule as fast
    bar_frontier_wait: float = 0.0  # on generated loads: maximum p99 waiting beyond that of a rule as cheap, in seconds
    bar_frontier_operations: float = 1.2  # on generated loads: maximum operations over those of the clairvoyant plan
    bar_steady: int = 1  # maximum number of operations under a constant load
    bar_backlog: int = 0  # maximum number of workers drained while requests of the backlog wait
    bar_step: float = 2.0  # maximum time, in starts, until a sudden load has its workers


Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """The replays of one load at one start time."""

    name: str  # name of the load in ids of bars
    start: str  # `1s` or `30s`
    comparison: Comparison  # our policy and the others
    ours: tuple[Measures, ...]  # our figures, one per seed; the first is that of the comparison

    @property
    def others(self) -> tuple[Measures, ...]:
        """The figures of the other policies."""
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
    """Replay the given traces at both start times; return an empty list without traces.

    Raises:
        InvalidInputError: if only traces or only service times are given, or a file cannot be read.
    """
    if not bench.traces and bench.service_times is None:
        return []
    if not bench.traces or bench.service_times is None:
        raise InvalidInputError(
            "--trace and --service-times belong together: a trace has tokens, and the table has the time per token",
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
    """Return a unique name of each file for ids: `code` and `conv` for Azure's files, else one made of its own."""
    names: list[str] = []
    for path in paths:
        stem = path.stem.lower()
        name = next((word for word in ("code", "conv") if word in stem), re.sub(r"[^a-z0-9_]+", "_", stem))
        same = sum(each.partition("-")[0] == name for each in names)
        names.append(f"{name}-{same + 1}" if same else name)
    return names


_UNMOVED: Final = frozenset({"fixed", "fixed-need", "clairvoyant", "clairvoyant-calm"})
"""Policies for which short loads say nothing."""


@dataclass(frozen=True, slots=True)
class Probes:
    """Results of the short loads, by policy."""

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
