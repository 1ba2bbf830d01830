"""How a budget of 24 h that is used up is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headgate.sampling.budgets import Exhausted

_UNITS: Final = {"daily_tokens": "tokens", "daily_requests": "requests", "daily_cost": "of cost"}


def used_up(alias: str, exhausted: Exhausted) -> str:
    """Return how much a model has used or promised, and on which day and when it goes on, where that is known."""
    used = (
        f"{alias} has used or promised {_shown(exhausted.used)} of {_shown(exhausted.allowed)} "
        f"{_UNITS[exhausted.limit]} of 24 h"
    )
    if exhausted.until is None:
        return used
    at = datetime.fromtimestamp(exhausted.until, UTC)
    return f"{used}, goes on at {at:%Y-%m-%d %H:%M} UTC"


def too_large(alias: str, exhausted: Exhausted) -> str:
    """Return that a request is more than any day allows, and what to do."""
    return (
        f"a request of {alias} needs about {_shown(exhausted.needed)} {_UNITS[exhausted.limit]}, more than "
        f"{exhausted.limit}={_shown(exhausted.allowed)} allows in any 24 h; raise {exhausted.limit}"
    )


def _shown(amount: float) -> str:
    return f"{amount:,.0f}".replace(",", " ") if amount == int(amount) else f"{amount:.4g}"
