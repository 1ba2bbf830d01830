"""Elastic pools as Prometheus metrics, read from their status at each scrape, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from headgate.elastic.service.metric_names import ELASTIC_METRICS
from headgate.elastic.service.spread import BOUNDS_S, Spread
from headgate.elastic.service.status import PoolStatus
from headgate.elastic.worker import WorkerState

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
Value = tuple[str, tuple[str, ...], float]


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
