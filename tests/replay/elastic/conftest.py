"""Policies of tests."""

from __future__ import annotations

from headgate.elastic.demand import Demand, Desired
from headgate.elastic.settings import ElasticConfig


class Plan:
    """Workers by time: pairs of seconds and how many from then on."""

    def __init__(self, *steps: tuple[float, int]) -> None:
        self._steps = steps

    def decide(self, demand: Demand, now: float) -> Desired:
        return Desired([workers for at, workers in self._steps if at <= now][-1], "planned")

    def validate(self) -> None:
        assert self._steps


def config(**changes: object) -> ElasticConfig:
    patient = {"queue_timeout": None, "max_queue": 100_000, "min_stable_period": 0.0, "monitoring_interval": 1.0}
    return ElasticConfig(**patient | {"max_workers": 16} | changes)
