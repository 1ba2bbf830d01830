"""The dashboard of elastic pools asks for nothing that a gateway does not export."""

from __future__ import annotations

import re

import pytest

from headgate.elastic.service.metrics import ELASTIC_METRICS
from tests.dashboards import Dashboard, Known, check_query

DASHBOARD = Dashboard("headgate-elastic")


def _find(name: str) -> Known | None:
    metric = ELASTIC_METRICS.get(name)
    return None if metric is None else (metric.kind, metric.labels)


@pytest.mark.parametrize("query", DASHBOARD.queries)
def test_a_query_asks_for_metrics_that_there_are_as_their_kind_has_to_be_asked_for(query: str) -> None:
    check_query(query, "headgate_elastic_", _find)


def test_every_metric_is_on_a_panel_but_those_that_another_one_shows() -> None:
    shown = {
        name for query in DASHBOARD.queries for name in re.findall(r"\bheadgate_elastic_\w+?(?=_bucket|\b)", query)
    }
    assert set(ELASTIC_METRICS) - shown == {"headgate_elastic_arrivals_total", "headgate_elastic_worker_slots"}


def test_no_panel_lies_on_another() -> None:
    assert DASHBOARD.overlapping() == []
