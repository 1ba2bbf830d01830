"""Elastic pools as Prometheus metrics, derived from their status at each scrape, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.registry import Collector

from headgate.core import Metric
from headgate.elastic.service.status import BOUNDS_S, PoolStatus, Spread
from headgate.elastic.worker import WorkerState

_FAMILIES: Final = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
_POOL: Final = ("pool",)
_WORKER: Final = ("pool", "worker")


def _gauge(name: str, text: str, labels: tuple[str, ...] = _POOL) -> Metric:
    return Metric(f"headgate_elastic_{name}", "gauge", text, labels)


def _counter(name: str, text: str, labels: tuple[str, ...] = _POOL) -> Metric:
    return Metric(f"headgate_elastic_{name}_total", "counter", text, labels)


def _histogram(name: str, text: str) -> Metric:
    return Metric(f"headgate_elastic_{name}_seconds", "histogram", text, _POOL)


_WORKERS: Final = _gauge("workers", "Workers by state.", ("pool", "state"))
_REQUESTS: Final = _counter(
    "requests",
    "Requests that ended; outcome is served, lost, withdrawn (by the client) or refused (never accepted).",
    ("pool", "outcome"),
)
_DECISIONS: Final = _counter(
    "scale_decisions", "Decisions for another number of workers; direction is up or down.", ("pool", "direction")
)
_FAILURES: Final = _counter("worker_failures", "Times that a worker failed.", _WORKER)
_ENGINE_REQUESTS: Final = _gauge(
    "worker_engine_requests",
    "Requests that a worker's engine counts, running and waiting; more than the pool's are others'.",
    _WORKER,
)
_OF_POOL: Final = {
    _gauge("desired_workers", "Number of workers wanted, as last decided."): "desired.workers",
    _gauge("demand_workers", "Work that runs and waits, in workers: 1.5 fills one and a half."): "demand.worth",
    _gauge("running", "Requests that are with workers."): "demand.running",
    _gauge("waiting", "Requests that wait in front of the workers."): "demand.waiting",
    _gauge("oldest_wait_seconds", "How long the first of them has been waiting."): "demand.oldest_wait_s",
    _gauge("start_estimate_seconds", "How long a worker takes to start, as learnt."): "demand.start_s",
    _gauge("service_estimate_seconds", "How long a request takes, as learnt."): "demand.service_s",
    _counter("arrivals", "Requests that were accepted."): "counts.arrived",
    _counter(
        "hand_overs", "Times that a request was taken from one worker for another, unseen by its client."
    ): "counts.handed_over",
    _counter(
        "awake_seconds", "Worker-seconds awake, starting and draining included: what the pool has cost."
    ): "counts.awake_s",
}
"""Metric -> path of its value in a status."""

_OF_WORKER: Final = {
    _gauge("worker_requests", "Requests that the pool has given a worker.", _WORKER): "requests",
    _gauge("worker_slots", "Requests that a worker is given at once.", _WORKER): "slots",
    _gauge("worker_share", "How much of a worker is in use; 1 is full.", _WORKER): "share",
}
_TIMES: Final = {
    _histogram("wait", "Time of a request until it was given to the worker that answered it."): "wait",
    _histogram(
        "first_byte",
        "Time of a request until its answer could begin to be sent; without streaming, until it was complete.",
    ): "first_byte",
    _histogram("answer", "Time of a request until its answer was whole."): "answer",
    _histogram("start", "Time of a worker to start, its lease in hand."): "start",
    _histogram("drain", "Time of a worker from the drain until it slept."): "drain",
}
_VALUES: Final = (_WORKERS, *_OF_POOL, *_OF_WORKER, _ENGINE_REQUESTS, _REQUESTS, _FAILURES, _DECISIONS)
ELASTIC_METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in (*_VALUES, *_TIMES)}
"""Name -> its definition."""


class ElasticCollector(Collector):
    """The metrics of pools. Register it where metrics are served; `statuses` is called at each scrape.

    Labels are bounded by the configuration: pools and their workers.
    """

    def __init__(self, statuses: Callable[[], Sequence[PoolStatus]]) -> None:
        self._statuses = statuses

    def describe(self) -> Iterable[PrometheusMetric]:
        """Return the families without their values, so that registering does not ask for a status."""
        return map(_family, ELASTIC_METRICS.values())

    def collect(self) -> Iterable[PrometheusMetric]:
        """Return the families with their current values."""
        families = {metric: _family(metric) for metric in ELASTIC_METRICS.values()}
        for status in self._statuses():
            for metric, labels, value in _told(status):
                families[metric].add_metric((status.name, *labels), value)
            for metric, name in _TIMES.items():
                spread: Spread = getattr(status.times, name)
                cumulated = zip((*map(str, BOUNDS_S), "+Inf"), accumulate(spread.counts), strict=True)
                families[metric].add_metric((status.name,), list(cumulated), spread.total_s)
        return families.values()


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)


def _told(status: PoolStatus) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    """Yield a status as metrics: each value with its labels besides the pool's name."""
    for metric, path in _OF_POOL.items():
        yield metric, (), attrgetter(path)(status)
    for state in WorkerState:
        yield _WORKERS, (state,), status.count(state)
    for outcome in ("served", "lost", "withdrawn", "refused"):
        yield _REQUESTS, (outcome,), getattr(status.counts, outcome)
    for direction in ("up", "down"):
        yield _DECISIONS, (direction,), getattr(status.counts, f"scaled_{direction}")
    for worker in status.workers:
        for metric, name in _OF_WORKER.items():
            yield metric, (worker.worker_id,), getattr(worker, name)
        yield _FAILURES, (worker.worker_id,), status.counts.failures.get(worker.worker_id, 0)
        if worker.load is not None:
            yield _ENGINE_REQUESTS, (worker.worker_id,), worker.load.running + worker.load.waiting
