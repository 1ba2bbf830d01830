"""The dashboard of placement asks for nothing that Ray does not export."""

from __future__ import annotations

import pytest

from headgate.placement.metrics import PLACEMENT_METRICS, exported_name
from tests.dashboards import Dashboard, Known, check_query

DASHBOARD = Dashboard("headgate-placement")
EXPORTED = {exported_name(metric): metric for metric in PLACEMENT_METRICS.values()}


def _find(name: str) -> Known | None:
    metric = EXPORTED.get(name)
    return None if metric is None else (metric.kind, metric.labels)


@pytest.mark.parametrize("query", DASHBOARD.queries)
def test_a_query_asks_for_metrics_that_there_are_as_their_kind_has_to_be_asked_for(query: str) -> None:
    check_query(query, "ray_", _find)


def test_no_panel_lies_on_another() -> None:
    assert DASHBOARD.overlapping() == []
