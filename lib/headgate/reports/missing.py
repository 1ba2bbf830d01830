"""Samples without a score: how many each model has, and whether they could change the order of the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import polars as pl

MissingRule = Literal["bound", "exclude", "zero"]
"""What samples without a score count as in a ranking; `build_leaderboard` says how."""

MISSING_RULES: Final[tuple[MissingRule, ...]] = get_args(MissingRule)


@dataclass(frozen=True, slots=True)
class Missing:
    """A model's samples in all environments that it was sampled in.

    Attributes:
        samples: all of them.
        scored: those with a score.
        environments: in which it has samples.
        mean_if_zero: mean over these environments, had every missing score been 0.
        mean_if_one: likewise 1; the mean that no error had hidden lies between the two.
    """

    samples: int
    scored: int
    environments: int
    mean_if_zero: float
    mean_if_one: float

    @property
    def share(self) -> float:
        """Samples without a score, of all."""
        return 1 - self.scored / self.samples


def bounds_table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model: its counts, its mean over environments, and the means that missing scores allow.

    A mean over environments counts each the same, as in the leaderboard; it leaves out those without a score.
    """
    scored, points = pl.col("score").count(), pl.col("score").sum()
    return (
        samples.group_by("model", "environment")
        .agg(
            pl.len().alias("samples"),
            scored.alias("scored"),
            pl.col("score").mean().alias("mean"),
            (points / pl.len()).alias("mean_if_zero"),
            ((points + pl.len() - scored) / pl.len()).alias("mean_if_one"),
        )
        .sort("model", "environment")  # the order of a sum is in its last digit
        .group_by("model", maintain_order=True)
        .agg(
            pl.col("samples", "scored").sum(),
            pl.len().alias("environments"),
            pl.col("mean", "mean_if_zero", "mean_if_one").mean(),
        )
    )


def missing_of(samples: pl.DataFrame) -> dict[str, Missing]:
    """Return model -> what it has and what it lacks."""
    rows = bounds_table(samples).drop("mean").iter_rows(named=True)
    return {str(row.pop("model")): Missing(**row) for row in rows}


def could_move(order: Sequence[str], missing: Mapping[str, Missing]) -> frozenset[str]:
    """Return the models whose place in the order another one could take, or give, by what is missing of the two.

    Two could change places where the lower one has the higher mean with all its missing scores 1 and those of the
    other 0, or would then be scored in more environments.
    """
    found: set[str] = set()
    for place, above in enumerate(order):
        ours = missing[above]
        for below in order[place + 1 :]:
            theirs = missing[below]
            best, worst = (theirs.environments, theirs.mean_if_one), (ours.environments, ours.mean_if_zero)
            if best > worst and (ours.share or theirs.share):
                found |= {above, below}
    return frozenset(found)
