"""The dashboard of placement asks for nothing that Ray does not export."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from headgate.placement.metric_names import PLACEMENT_METRICS, PlacementMetric
from tests.house.tree import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "deployments/grafana/headgate-placement.json").read_text())
EXPORTED = {metric.exported: metric for metric in PLACEMENT_METRICS.values()}
QUERIES = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", [])]
QUERIES += [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]


def _asked(query: str) -> list[tuple[str, PlacementMetric | None]]:
    names = re.findall(r"\bray_\w+", query)
    return [(name, EXPORTED.get(name) or EXPORTED.get(name.removesuffix("_bucket"))) for name in names]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_metrics_and_tags_that_there_are(query: str) -> None:
    found = _asked(query)
    assert found
    assert [name for name, metric in found if metric is None] == []
    grouped = {label for labels in re.findall(r"by \(([a-z, ]+)\)", query) for label in labels.split(", ")} - {"le"}
    filtered = set(re.findall(r"(\w+)=~?\"", query))
    for _, metric in found:
        assert metric is not None
        assert grouped | filtered <= set(metric.tags)


@pytest.mark.parametrize("query", QUERIES)
def test_counters_are_asked_for_their_increase_and_histograms_for_their_buckets(query: str) -> None:
    for name, metric in _asked(query):
        assert metric is not None
        if metric.kind == "counter":
            assert re.search(rf"(rate|increase)\({name}", query)
        if metric.kind == "histogram":
            assert f"rate({name}" in query
            assert name.endswith("_bucket")


def test_no_panel_lies_on_another() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        mine = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & mine, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= mine
