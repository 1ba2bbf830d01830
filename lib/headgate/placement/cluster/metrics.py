"""The metrics of placement as Ray exports them: `ray_<name>` on the exporter's page of every node."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ray.util.metrics import Counter, Gauge, Histogram

from headgate.core import events
from headgate.placement.group import Group
from headgate.placement.metering import Meter, Reading
from headgate.placement.metric_names import PLACEMENT_METRICS, PlacementMetric
from headgate.placement.occupancy import Occupancy

_Write = Callable[[float, dict[str, str]], None]


class PlacementMetrics:
    """Counts events into Ray's metrics. Owned by the ledger actor, one per process: Ray keeps one series per process.

    A sink: call it with each event.
    """

    def __init__(self) -> None:
        self._meter = Meter()
        self._metrics: dict[str, tuple[tuple[str, ...], _Write]] = {
            name: (metric.tags, _ray_metric(metric)) for name, metric in PLACEMENT_METRICS.items()
        }

    def __call__(self, event: events.Event) -> None:
        """Count one event."""
        self._write(self._meter.take(event))

    def seed(self, groups: Iterable[Group], requests: Iterable[Occupancy]) -> None:
        """Let the gauges show what a restored ledger found in its journal."""
        self._write(self._meter.seed(groups, requests))

    def _write(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            tags, write = self._metrics[reading.name]
            write(reading.value, dict(zip(tags, reading.tags, strict=True)))


def _ray_metric(metric: PlacementMetric) -> _Write:
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.help, tag_keys=metric.tags).set
    if metric.kind == "histogram":
        return Histogram(metric.name, metric.help, boundaries=list(metric.buckets), tag_keys=metric.tags).observe
    return _adding(Counter(metric.name, metric.help, tag_keys=metric.tags))


def _adding(counter: Counter) -> _Write:
    def write(value: float, tags: dict[str, str]) -> None:
        if value > 0:  # Ray refuses to add nothing
            counter.inc(value, tags)

    return write
