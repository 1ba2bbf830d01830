"""Parameters of the elastic benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

STARTS: Final[Mapping[str, float]] = MappingProxyType({"1s": 1.0, "30s": 30.0})
"""Name -> seconds that a worker takes to start: an engine that sleeps, and one that is started anew."""


@dataclass(frozen=True, slots=True)
class ElasticParameters:
    """Parameters of the scenario.

    Attributes:
        scale: of the ramp's lengths of time; its hour is 1.
        seeds: ramps that ours is held to, each with another seed; the worst counts. Rivals run on the first.
        workers: of the site.
        steady_s: how long the constant load lasts.
        backlog: requests that are there at once.
        step: workers that the sudden load fills.
        trace_workers: a trace with less work than for so many workers on average is multiplied.
        trace_site: workers of a trace's site at least; more where its highest moment needs them.
        hardware: model, hardware and GPUs a worker of the service times.
        rivals: policies of others, and ours that is not the default, that run beside.
        frontiers: policies whose frontier is drawn, each several replays.
        bar_cost_1s: cost on the ramp at most, where a worker starts in 1 s.
        bar_wait_1s: seconds that one request in a hundred waits on the ramp at most, where a worker starts in 1 s.
        bar_cost_30s: as above, where it starts in 30 s.
        bar_wait_30s: as above, where it starts in 30 s.
        bar_operations: workers that are started, drained or turned back at most.
        bar_worth: share of the active periods of three starts at least.
        bar_steady: operations under a constant load at most.
        bar_backlog: workers drained while requests of the backlog wait at most.
        bar_step: starts until a sudden load has its workers.
    """

    scale: float = 1.0
    seeds: int = 1
    workers: int = 16
    steady_s: float = 600.0
    backlog: int = 500
    step: int = 4
    trace_workers: float = 4.0
    trace_site: int = 16
    hardware: tuple[str, str, int] = ("llama2-70b", "h100-80gb", 8)
    rivals: tuple[str, ...] = ("seed", "ray-serve", "ray-serve-5-60", "knative", "fixed", "fixed-need", "clairvoyant")
    frontiers: tuple[str, ...] = ()
    bar_cost_1s: float = 1.65
    bar_wait_1s: float = 0.5
    bar_cost_30s: float = 1.7
    bar_wait_30s: float = 1.5
    bar_operations: int = 45
    bar_worth: float = 0.99
    bar_steady: int = 1
    bar_backlog: int = 0
    bar_step: float = 2.0

    def bar_cost(self, start: str) -> float:
        """Return the bar of cost of `1s` or `30s`."""
        return {"1s": self.bar_cost_1s, "30s": self.bar_cost_30s}[start]

    def bar_wait(self, start: str) -> float:
        """Return the bar of waiting of `1s` or `30s`."""
        return {"1s": self.bar_wait_1s, "30s": self.bar_wait_30s}[start]
