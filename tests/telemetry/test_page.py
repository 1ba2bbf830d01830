from __future__ import annotations

from pathlib import Path

import pytest

from headgate.telemetry import SPECS
from headgate.telemetry.monitor import ROUTES

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SPECS)
def test_the_page_says_of_every_metric_what_its_help_says(name):
    spec = SPECS[name]
    section = PAGE.split(f"#### `{name}`\n", 1)[1].split("\n##", 1)[0]
    assert f"{spec.kind.capitalize()}. {spec.help}" in section
    assert all(f"`{label}`" in section for label in spec.labels)


@pytest.mark.parametrize("path", ["/", *ROUTES])
def test_the_page_lists_every_route(path):
    assert f"| `GET {path}` |" in PAGE
