"""The server's metrics for Prometheus: `headgate_jobqueue_…`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.writer import LedgerWriter

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_NAME: Final = "headgate_jobqueue_"


def queue_gauges(ledger: Ledger) -> list[Metric]:
    """Return gauges of the queue's current state; runs on the writer."""
    jobs = GaugeMetricFamily(f"{_NAME}jobs", "Jobs by state.", labels=("state",))
    for state, number in ledger.totals().items():
        jobs.add_metric((state.value,), number)
    counts = Counter((spec.pool, one.use) for one in ledger.resources().values() for spec in one.specs)
    servers = GaugeMetricFamily(f"{_NAME}servers", "Policy servers of each pool by state.", labels=("pool", "state"))
    for labels, number in sorted(counts.items()):
        servers.add_metric(labels, number)
    return [
        jobs,
        servers,
        _gauge("workers", "Workers that hold a job.", ledger.claims.workers),
        _gauge("waiting_claims", "Claims that wait for a job.", ledger.waiting_claims),
        _gauge("waiting_reservations", "Jobs that wait for a policy server.", len(ledger.servers.lines)),
    ]


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._registry = CollectorRegistry()
        self._gauges = _Gauges(writer)
        self._registry.register(self._gauges)
        self._claims = self._counter("claims", "Jobs handed out.")
        self._ended = self._counter("ended_claims", "Claims that workers ended, by how.", "how")
        self._reservations = self._counter("reservations", "Policy servers handed out.")
        self._changes = self._counter("resource_checks", "State changes of policy servers by health checks.", "state")
        self._refused = self._counter("refused", "Refused requests, by reason.", "reason")
        self._hand_over = Histogram(
            f"{_NAME}reservation_wait_seconds",
            "Time that requests waited for a policy server.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._requests = Histogram(
            f"{_NAME}request_seconds",
            "Time from a request's head to its answer; long polls include their waiting.",
            ("route", "status"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._children: dict[tuple[str, int], Histogram] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        child = self._children.get((route, status))
        if child is None:
            child = self._children[route, status] = self._requests.labels(route, str(status))
        child.observe(seconds)

    def claimed(self, jobs: int) -> None:
        """Count jobs handed out."""
        self._claims.inc(jobs)

    def ended(self, how: str, number: int = 1) -> None:
        """Count claims that workers ended: `done`, `repeated`, `stale`, `unknown`, `failed`, `given_back`."""
        self._ended.labels(how).inc(number)

    def reserved(self, waited_s: float = 0.0) -> None:
        """Count a server handed out, and the time in seconds that the request waited for it."""
        self._reservations.inc()
        self._hand_over.observe(waited_s)

    def checked(self, state: str) -> None:
        """Count a server whose state a health check changed."""
        self._changes.labels(state).inc()

    def refused(self, reason: str) -> None:
        """Count a refused request."""
        self._refused.labels(reason).inc()

    def text(self, now: list[Metric], open_requests: int) -> bytes:
        """Return everything in the text form of Prometheus."""
        self._gauges.now, self._gauges.open_requests = now, open_requests
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> PrometheusCounter:
        return PrometheusCounter(_NAME + name, text, labels, registry=self._registry)


class _Gauges(Collector):
    def __init__(self, writer: LedgerWriter) -> None:
        self.now: list[Metric] = []
        self.open_requests = 0
        self._writer = writer

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        figures = self._writer.figures
        yield _counter("operations", "Operations executed and committed.", figures.operations)
        yield _counter("commits", "Transactions written; operations per commit is the group's size.", figures.commits)
        yield _counter("reloads", "Times the ledger was rebuilt after a failure.", figures.reloads)
        yield _counter("expired_claims", "Claims that ended because no heartbeat came.", figures.expired)
        yield _gauge("waiting_operations", "Operations that wait for their transaction.", self._writer.depth)
        yield _gauge("long_polls", "Long polls that are open.", self.open_requests)
        yield from self.now


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(_NAME + name, text, value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_NAME + name, text, value)
