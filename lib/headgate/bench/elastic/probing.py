"""Short loads that each show one property, under our default policy and beside it the seed's rule and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.bench.elastic.parameters import STARTS, ElasticParameters
from headgate.elastic.replay import OURS, drained_with_a_backlog, operations_when_steady, starts_until_served

_UNMOVED: Final = frozenset({"fixed", "fixed-need", "clairvoyant", "clairvoyant-calm"})
"""Contenders of whom short loads tell nothing."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What was found, by policy.

    Attributes:
        steady: operations under a constant load.
        backlog: workers drained while requests wait.
        step: start time -> starts until a sudden load has its workers.
    """

    steady: Mapping[str, int]
    backlog: Mapping[str, int]
    step: Mapping[str, Mapping[str, float]]


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
