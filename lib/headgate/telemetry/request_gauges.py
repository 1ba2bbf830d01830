"""Requests and budgets as gauges: as many series as the label cap allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headgate.core.status import ModelStatus, RequestStatus
from headgate.telemetry.metrics import SPECS

OTHER: Final = "(other)"
"""Label of the endpoints above the cap; no address and no model has such a name."""

Labels = tuple[str, str, str]

_VALUES: Final[Mapping[str, tuple[Callable[[RequestStatus], float], Callable[[float, float], float]]]] = {
    "headgate_request_limit": (lambda r: r.limit, float.__add__),
    "headgate_request_cap": (lambda r: r.cap, float.__add__),
    "headgate_requests_in_flight": (lambda r: r.in_flight, float.__add__),
    "headgate_request_waiters": (lambda r: r.waiters, float.__add__),
    "headgate_request_cooldown_seconds": (lambda r: r.cooldown_s, max),
    "headgate_request_breaker_open": (lambda r: r.breaker != "closed", float.__add__),
}
"""Metric -> its value, and how the values of the endpoints above the cap are put together."""


def request_values(requests: Sequence[RequestStatus], label_cap: int) -> dict[str, dict[Labels, float]]:
    """Return the values of every gauge by its labels.

    The endpoints that get labels of their own are the first ones in the status, whose order does not change while the
    roster stays the same: no series changes its meaning between two scrapes.
    """
    found: dict[str, dict[Labels, float]] = {name: {} for name in _VALUES}
    for position, request in enumerate(requests):
        is_own = position < label_cap
        labels = (request.provider, request.model, request.domain) if is_own else (OTHER, OTHER, OTHER)
        for name, (value_of, joined) in _VALUES.items():
            value = float(value_of(request))
            before = found[name].get(labels)
            found[name][labels] = value if before is None else joined(before, value)
    return found


class RequestCollector(Collector):
    """The gauges of a run's requests, for runs that have no `CampaignStatus`; read at each scrape."""

    def __init__(self, requests: Callable[[], Sequence[RequestStatus]], *, endpoint_label_cap: int = 100) -> None:
        self._requests = requests
        self._endpoint_label_cap = endpoint_label_cap

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Yield the families without their values."""
        yield from (_family(name) for name in _VALUES)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the families with the values of this moment."""
        for name, series in request_values(self._requests(), self._endpoint_label_cap).items():
            family = _family(name)
            for labels, value in series.items():
                family.add_metric(labels, value)
            yield family


def _family(name: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, SPECS[name].help, labels=SPECS[name].labels)


def budget_values(models: Sequence[ModelStatus], label_cap: int) -> dict[str, dict[tuple[str, str], float]]:
    """Return the values of every gauge by model and budget; those of models above the cap are added up.

    A model has no limit where only its cost is counted.
    """
    used: dict[tuple[str, str], float] = {}
    held: dict[tuple[str, str], float] = {}
    limit: dict[tuple[str, str], float] = {}
    with_budgets = [model for model in models if model.budgets]
    for position, model in enumerate(with_budgets):
        for budget in model.budgets:
            labels = (model.model if position < label_cap else OTHER, budget.name)
            used[labels] = used.get(labels, 0.0) + budget.used
            held[labels] = held.get(labels, 0.0) + budget.held
            if budget.limit is not None:
                limit[labels] = limit.get(labels, 0.0) + budget.limit
    return {"headgate_budget_used": used, "headgate_budget_held": held, "headgate_budget_limit": limit}
