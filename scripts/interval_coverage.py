"""Coverage and power of the paired interval: the table of `docs/explanation/statistics.md`.

`python scripts/interval_coverage.py [COMPARISONS]` simulates two models on independent outcomes, 600 times a row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.statistics.paired import mean_difference, task_pairs

_SEED = 20_261
_BETA = 4.0
"""Sum of the two parameters of the beta distribution that scores of any value are drawn from."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: tasks of each environment, both models' true rates, samples of a task (0: a score of any value)."""

    tasks: Sequence[int]
    first: float
    second: float
    samples: int = 1

    def scores(self, rate: float, tasks: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return a model's mean score of each task."""
        if self.samples:
            return rng.binomial(self.samples, rate, tasks) / self.samples
        return rng.beta(_BETA * rate, _BETA * (1 - rate), tasks)


ROWS = (
    Row([10], 0.7, 0.5),
    Row([20], 0.95, 0.05),
    Row([20], 0.95, 0.05, samples=4),
    Row([10] * 6, 0.7, 0.5),
    Row([10] * 6, 0.99, 0.0),
    Row([20] * 8, 0.9, 0.1),
    Row([20] * 20, 0.5, 0.5),
    Row([20] * 20, 0.8, 0.2),
    Row([20] * 20, 0.98, 0.95, samples=2),
    Row([20] * 40, 0.9, 0.3),
    Row([10, 12, 15, 20, 40, 80, 160], 0.9, 0.8),
    Row([10] * 6, 0.9, 0.8, samples=0),
    Row([20], 0.95, 0.05, samples=0),
)


def measured(row: Row, comparisons: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return the shares of comparisons whose interval held the true difference, and that claimed one."""
    held = claimed = 0
    for _ in range(comparisons):
        found = mean_difference(
            [task_pairs(row.scores(row.first, tasks, rng), row.scores(row.second, tasks, rng)) for tasks in row.tasks]
        )
        held += found.low <= row.first - row.second <= found.high
        claimed += found.p_value <= 0.05
    return held / comparisons, claimed / comparisons


def main(comparisons: int = 600) -> None:
    """Print the table."""
    print("| environments | tasks in each | true rates | samples of a task | held | power |")
    print("|---|---|---|---|---|---|")
    for number, row in enumerate(ROWS):
        held, power = measured(row, comparisons, np.random.default_rng(_SEED + number))
        tasks = f"{min(row.tasks)}" + (f" to {max(row.tasks)}" if len(set(row.tasks)) > 1 else "")
        rates = f"{row.first:g} and {row.second:g}" + ("" if row.samples else ", any score")
        print(
            f"| {len(row.tasks)} | {tasks} | {rates} | {row.samples or 1} | {100 * held:.0f} % | {100 * power:.0f} % |"
        )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
