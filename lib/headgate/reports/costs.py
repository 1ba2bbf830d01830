"""The cost of samples: per model, and per point scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

COST_COLUMNS: Final = ("cost_micro", "judge_cost_micro")
"""Cost columns of samples, null where the cost is unknown; samples of earlier versions lack them."""

_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of samples, as far as it is known.

    Attributes:
        micro: millionths of the currency, including judgements as far as their cost is known.
        samples: number of samples whose cost is known.
        points: sum of the scores of those samples.
    """

    micro: int
    samples: int
    of: int
    points: float

    @property
    def is_partial(self) -> bool:
        """Whether the cost of some samples is unknown."""
        return self.samples < self.of

    @property
    def total(self) -> float:
        """Their total cost, in the currency."""
        return self.micro / _MICRO

    @property
    def per_point(self) -> float | None:
        """The cost per point of score; None without points."""
        return self.total / self.points if self.points else None

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "cost_micro": self.micro,
            "samples": self.samples,
            "per_sample": self.total / self.samples,
            "per_point": self.per_point,
        }


def costs_by(samples: pl.DataFrame, *columns: str) -> dict[tuple[str, ...], Cost]:
    """Return the cost of samples by the values of `columns`; groups without any known cost are left out."""
    if "cost_micro" not in samples.columns:
        return {}
    known = pl.col("cost_micro").is_not_null()
    judged = pl.col("judge_cost_micro").fill_null(0) if "judge_cost_micro" in samples.columns else pl.lit(0)
    rows = samples.group_by(columns).agg(
        (pl.col("cost_micro") + judged).sum().alias("micro"),
        known.sum().alias("samples"),
        pl.len().alias("of"),
        pl.col("score").filter(known).sum().alias("points"),
    )
    keys = len(columns)
    found = ((tuple(map(str, row[:keys])), Cost(*row[keys:])) for row in rows.iter_rows())
    return {key: cost for key, cost in found if cost.samples}


def money(amount: float | None) -> str:
    """Return an amount with four decimals, or two significant digits if it is smaller; a dash for None."""
    if amount is None:
        return "–"
    return f"{amount:,.4f}" if amount >= 0.01 or not amount else f"{amount:.2g}"
