"""What telemetry itself lost, as metrics: events that a sink dropped, and sinks that failed."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headgate.telemetry.metrics import SPECS
from headgate.telemetry.stream import EventStream


def register_losses(registry: CollectorRegistry, stream: EventStream) -> None:
    """Have `registry` say at each scrape what the sinks of `stream` lost so far."""
    registry.register(_LossCollector(stream))


class _LossCollector(Collector):
    """Reads the counts of a stream. A sink that closed is counted no more."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def describe(self) -> Iterable[Family]:
        """Return the families without values."""
        return (_family("headgate_events_dropped_total"), _family("headgate_sink_failures_total"))

    def collect(self) -> Iterable[Family]:
        """Return the counts by sink."""
        dropped, failures = _family("headgate_events_dropped_total"), _family("headgate_sink_failures_total")
        for name, count in self._stream.dropped().items():
            dropped.add_metric((name,), count)
        for name, count in self._stream.failures_by_sink().items():
            failures.add_metric((name,), count)
        return (dropped, failures)


def _family(name: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, SPECS[name].help, labels=SPECS[name].labels)
