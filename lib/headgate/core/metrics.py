"""What a metric is: the same for Prometheus pages, for Ray's exporter, dashboards and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its kind, its help text and the labels it carries, all of bounded cardinality.

    `buckets` are upper bounds of a histogram; none for those of whoever exports it.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
