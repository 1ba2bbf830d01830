from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from headgate.telemetry import monitor_app, new_registry
from headgate.telemetry.metrics import SPECS
from tests.telemetry.factories import status

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "monitoring.md").read_text(encoding="utf-8")


def test_the_page_says_of_every_metric_what_its_help_says():
    for name, spec in SPECS.items():
        section = PAGE.split(f"#### `{name}`\n", 1)[1].split("\n##", 1)[0]
        assert f"{spec.kind.capitalize()}. {spec.help}" in section, name
        assert all(f"`{label}`" in section for label in spec.labels), name


def test_the_page_lists_every_route():
    card = TestClient(monitor_app(status, new_registry()), base_url="http://127.0.0.1").get("/").json()
    assert [path for path in ("/", *card["endpoints"]) if f"| `GET {path}` |" not in PAGE] == []
