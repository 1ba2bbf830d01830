"""Definition of a metric, shared by Prometheus pages, Ray's exporter, dashboards and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its kind, its help text and the labels it carries, all of bounded cardinality.

    `buckets` are upper bounds of a histogram; empty for the exporter's default.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def metrics_of(kind: MetricKind, told: Mapping[str, str], buckets: tuple[float, ...] = ()) -> dict[str, Metric]:
    """Return metrics by name, from `name{label,label}` -> help; a name that ends in `_total` makes a counter."""
    made = {}
    for key, about in told.items():
        name, _, labels = key.rstrip("}").partition("{")
        is_counter = name.endswith("_total")
        labelled = tuple(filter(None, labels.split(",")))
        made[name] = Metric(name, "counter" if is_counter else kind, about, labelled, () if is_counter else buckets)
    return made
