"""Dashboards of Grafana as their tests read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from tests.house.tree import ROOT


class Dashboard:
    """A dashboard of `deployments/grafana`, and every query that it makes."""

    def __init__(self, name: str) -> None:
        self.document: dict[str, Any] = json.loads((ROOT / f"deployments/grafana/{name}.json").read_text())
        panels, variables = self.document["panels"], self.document["templating"]["list"]
        self.queries: list[str] = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        self.queries += [variable["definition"] for variable in variables if "definition" in variable]

    def overlapping(self) -> list[str]:
        """Return the titles of panels that lie on another, or reach beyond the page."""
        cells: set[tuple[int, int]] = set()
        found = []
        for panel in self.document["panels"]:
            place = panel["gridPos"]
            mine = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
            if cells & mine or place["x"] + place["w"] > 24:
                found.append(panel["title"])
            cells |= mine
        return found


Known = tuple[str, Collection[str]]
"""The kind and the labels of a metric."""


def check_query(query: str, prefix: str, find: Callable[[str], Known | None]) -> None:
    """Assert that a query names metrics and labels that there are, and asks for each as its kind has to be asked for.

    `find` returns what is known of a metric; the `_bucket` of a histogram's name is left out of what it is given.
    """
    names = re.findall(rf"\b{prefix}\w+", query)
    assert names
    grouped = {label for labels in re.findall(r"by \(([a-z_, ]+)\)", query) for label in labels.split(", ")} - {"le"}
    filtered = set(re.findall(r"(\w+)=~?\"", query))
    for name in names:
        known = find(name.removesuffix("_bucket"))
        assert known is not None, f"nothing exports {name}"
        kind, labels = known
        assert grouped | filtered <= set(labels)
        if kind == "counter":
            assert re.search(rf"(rate|increase)\({name}", query)
        if kind == "histogram":
            assert f"rate({name}" in query
            assert name.endswith("_bucket")
