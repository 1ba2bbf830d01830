"""Elastic pools as Prometheus metrics, read from their status at each scrape, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from headgate.core import Metric
from headgate.elastic.service.status import BOUNDS_S, PoolStatus, Spread
from headgate.elastic.worker import WorkerState

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
Value = tuple[str, tuple[str, ...], float]


_POOL: Final = ("pool",)
_WORKER: Final = ("pool", "worker")

_GAUGES: Final = (
    Metric("headgate_elastic_workers", "gauge", "Workers by state.", ("pool", "state")),
    Metric("headgate_elastic_desired_workers", "gauge", "Number of workers wanted, as last decided.", _POOL),
    Metric(
        "headgate_elastic_demand_workers",
        "gauge",
        "Work that runs and waits, in workers: 1.5 fills one and a half.",
        _POOL,
    ),
    Metric("headgate_elastic_running", "gauge", "Requests that are with workers.", _POOL),
    Metric("headgate_elastic_waiting", "gauge", "Requests that wait in front of the workers.", _POOL),
    Metric("headgate_elastic_oldest_wait_seconds", "gauge", "How long the first of them has been waiting.", _POOL),
    Metric("headgate_elastic_start_estimate_seconds", "gauge", "How long a worker takes to start, as learnt.", _POOL),
    Metric("headgate_elastic_service_estimate_seconds", "gauge", "How long a request takes, as learnt.", _POOL),
    Metric("headgate_elastic_worker_requests", "gauge", "Requests that the pool has given a worker.", _WORKER),
    Metric(
        "headgate_elastic_worker_engine_requests",
        "gauge",
        "Requests that a worker's engine counts, running and waiting; more than the pool's are others'.",
        _WORKER,
    ),
    Metric("headgate_elastic_worker_slots", "gauge", "Requests that a worker is given at once.", _WORKER),
    Metric("headgate_elastic_worker_share", "gauge", "How much of a worker is in use; 1 is full.", _WORKER),
)
_COUNTERS: Final = (
    Metric("headgate_elastic_arrivals_total", "counter", "Requests that were accepted.", _POOL),
    Metric(
        "headgate_elastic_requests_total",
        "counter",
        "Requests that ended; outcome is served, lost, withdrawn (by the client) or refused (never accepted).",
        ("pool", "outcome"),
    ),
    Metric(
        "headgate_elastic_hand_overs_total",
        "counter",
        "Times that a request was taken from one worker for another, unseen by its client.",
        _POOL,
    ),
    Metric("headgate_elastic_worker_failures_total", "counter", "Times that a worker failed.", _WORKER),
    Metric(
        "headgate_elastic_scale_decisions_total",
        "counter",
        "Decisions for another number of workers; direction is up or down.",
        ("pool", "direction"),
    ),
    Metric(
        "headgate_elastic_awake_seconds_total",
        "counter",
        "Worker-seconds awake, starting and draining included: what the pool has cost.",
        _POOL,
    ),
)
_HISTOGRAMS: Final = (
    Metric(
        "headgate_elastic_wait_seconds",
        "histogram",
        "Time of a request until it was given to the worker that answered it.",
        _POOL,
    ),
    Metric(
        "headgate_elastic_first_byte_seconds",
        "histogram",
        "Time of a request until its answer could begin to be sent; without streaming, until it was complete.",
        _POOL,
    ),
    Metric("headgate_elastic_answer_seconds", "histogram", "Time of a request until its answer was whole.", _POOL),
    Metric("headgate_elastic_start_seconds", "histogram", "Time of a worker to start, its lease in hand.", _POOL),
    Metric("headgate_elastic_drain_seconds", "histogram", "Time of a worker from the drain until it slept.", _POOL),
)
ELASTIC_METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in (*_GAUGES, *_COUNTERS, *_HISTOGRAMS)}
"""Name -> what is known of it."""


class ElasticCollector(Collector):
    """The metrics of pools. Registered by whoever serves a page; `statuses` is called at each scrape.

    Labels are bounded by what is configured: pools and their workers.
    """

    def __init__(self, statuses: Callable[[], Sequence[PoolStatus]]) -> None:
        self._statuses = statuses

    def describe(self) -> Iterable[Family]:
        """Yield the families without their values, so that registering does not ask for a status."""
        yield from (_family(name) for name in ELASTIC_METRICS)

    def collect(self) -> Iterable[Family]:
        """Yield the families with the values of this moment."""
        families = {name: _family(name) for name in ELASTIC_METRICS}
        for status in self._statuses():
            for name, labels, value in _values(status):
                family = families[name]
                assert not isinstance(family, HistogramMetricFamily)
                family.add_metric(labels, value)
            for name, spread in _spreads(status):
                family = families[name]
                assert isinstance(family, HistogramMetricFamily)
                family.add_metric((status.name,), _cumulated(spread), spread.total_s)
        yield from families.values()


def _family(name: str) -> Family:
    metric = ELASTIC_METRICS[name]
    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
    family: Family = kinds[metric.kind](name, metric.help, labels=metric.labels)
    return family


def _values(status: PoolStatus) -> Iterator[Value]:
    yield from _pool_values(status)
    for worker in status.workers:
        labels = (status.name, worker.worker_id)
        yield "headgate_elastic_worker_requests", labels, worker.requests
        yield "headgate_elastic_worker_slots", labels, worker.slots
        yield "headgate_elastic_worker_share", labels, worker.share
        yield "headgate_elastic_worker_failures_total", labels, status.counts.failures.get(worker.worker_id, 0)
        if worker.load is not None:
            counted = worker.load.running + worker.load.waiting
            yield "headgate_elastic_worker_engine_requests", labels, counted


def _pool_values(status: PoolStatus) -> Iterator[Value]:
    pool, demand, counts = (status.name,), status.demand, status.counts
    for state in WorkerState:
        yield "headgate_elastic_workers", (*pool, state), status.count(state)
    yield "headgate_elastic_desired_workers", pool, status.desired.workers
    yield "headgate_elastic_demand_workers", pool, demand.worth
    yield "headgate_elastic_running", pool, demand.running
    yield "headgate_elastic_waiting", pool, demand.waiting
    yield "headgate_elastic_oldest_wait_seconds", pool, demand.oldest_wait_s
    yield "headgate_elastic_start_estimate_seconds", pool, demand.start_s
    yield "headgate_elastic_service_estimate_seconds", pool, demand.service_s
    yield "headgate_elastic_arrivals_total", pool, counts.arrived
    for outcome in ("served", "lost", "withdrawn", "refused"):
        yield "headgate_elastic_requests_total", (*pool, outcome), getattr(counts, outcome)
    yield "headgate_elastic_hand_overs_total", pool, counts.handed_over
    yield "headgate_elastic_scale_decisions_total", (*pool, "up"), counts.scaled_up
    yield "headgate_elastic_scale_decisions_total", (*pool, "down"), counts.scaled_down
    yield "headgate_elastic_awake_seconds_total", pool, counts.awake_s


def _spreads(status: PoolStatus) -> Iterator[tuple[str, Spread]]:
    times = status.times
    yield "headgate_elastic_wait_seconds", times.wait
    yield "headgate_elastic_first_byte_seconds", times.first_byte
    yield "headgate_elastic_answer_seconds", times.answer
    yield "headgate_elastic_start_seconds", times.start
    yield "headgate_elastic_drain_seconds", times.drain


def _cumulated(spread: Spread) -> list[tuple[str, float]]:
    bounds = (*(str(bound) for bound in BOUNDS_S), "+Inf")
    return list(zip(bounds, accumulate(spread.counts), strict=True))
