"""The monitoring API's documents where they say more than the seed's."""

from __future__ import annotations

from dataclasses import replace

from headgate.core.status import BudgetStatus
from headgate.telemetry import views
from tests.telemetry.factories import status


def test_a_model_with_budgets_shows_how_much_of_each_is_used() -> None:
    limited = replace(status().models[0], budgets=(BudgetStatus("daily_tokens", 900.0, 50.0, 1_000.0),))
    (shown,) = views.models(replace(status(), models=(limited,)), views.ModelFilter())["models"]
    assert shown["budgets"] == [{"name": "daily_tokens", "used": 900.0, "held": 50.0, "limit": 1_000.0}]
