"""The budgets of models as gauges: as many models as the label cap allows."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core.status import ModelStatus
from headgate.telemetry.request_gauges import OTHER


def budget_values(models: Sequence[ModelStatus], label_cap: int) -> dict[str, dict[tuple[str, str], float]]:
    """Return the values of every gauge by model and budget; those of models above the cap are added up.

    A model has no limit where only its cost is counted.
    """
    used: dict[tuple[str, str], float] = {}
    held: dict[tuple[str, str], float] = {}
    limit: dict[tuple[str, str], float] = {}
    with_budgets = [model for model in models if model.budgets]
    for position, model in enumerate(with_budgets):
        for budget in model.budgets:
            labels = (model.model if position < label_cap else OTHER, budget.name)
            used[labels] = used.get(labels, 0.0) + budget.used
            held[labels] = held.get(labels, 0.0) + budget.held
            if budget.limit is not None:
                limit[labels] = limit.get(labels, 0.0) + budget.limit
    return {"headgate_budget_used": used, "headgate_budget_held": held, "headgate_budget_limit": limit}
