"""How far repeated judgements of the same answers agree: Krippendorff's alpha, with an interval by answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RESAMPLES: Final = 2_000
_SEED: Final = 20_250
_CELLS_AT_ONCE: Final = 2_000_000
_NO_SPREAD: Final = 1e-12
_MIN_ANSWERS: Final = 2


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far judgements agree.

    Attributes:
        answers: number of answers with at least two judgements; others carry no information.
        judgements: number of judgements of these answers.
        alpha: 1 if all judgements of an answer are equal, 0 if they differ as much as those of different answers,
            negative if they differ more; None if all judgements are equal or there is only one answer, so that
            disagreement has no scale.
        low: lower limit of the 95 % interval of alpha, `high` the upper; None likewise.
        spread: mean distance between two judgements of one answer.
    """

    answers: int
    judgements: int
    alpha: float | None
    low: float | None
    high: float | None
    spread: float


def krippendorff(judgements: Sequence[Sequence[float]]) -> Agreement | None:
    """Return the agreement of repeated judgements, a sequence per answer; None if no answer was judged twice.

    Alpha is Krippendorff's (2018) with the interval metric: 1 minus the mean squared difference of two judgements of
    one answer, divided by that of any two judgements. Answers may have any number of judgements, and no judge needs to
    have judged all of them. The interval is from a bootstrap of whole answers, with a fixed seed.
    """
    units = [np.asarray(values, dtype=np.float64) for values in judgements if len(values) >= _MIN_ANSWERS]
    if not units:
        return None
    counts = np.asarray([unit.size for unit in units], dtype=np.float64)
    # Centred on the common mean, so that small differences are not lost to rounding in the squares of the values.
    middle = float(np.concatenate(units).mean())
    sums = np.asarray([(unit - middle).sum() for unit in units])
    squares = np.asarray([((unit - middle) ** 2).sum() for unit in units])
    within = 2 * (counts * squares - sums**2) / (counts - 1)
    columns = np.column_stack([counts, sums, squares, within])
    alpha = _alpha(columns.sum(axis=0)[None, :])[0] if len(units) >= _MIN_ANSWERS else np.nan
    low, high = _interval(columns) if np.isfinite(alpha) else (None, None)
    return Agreement(
        answers=len(units),
        judgements=int(counts.sum()),
        alpha=float(alpha) if np.isfinite(alpha) else None,
        low=low,
        high=high,
        spread=float(np.mean([_mean_distance(unit) for unit in units])),
    )


def _alpha(totals: Floats) -> Floats:
    """Return alpha for each row of totals: judgements, their sum, sum of squares, disagreement within answers."""
    n, total, squares, within = totals.T
    expected = 2 * (n * squares - total**2) / (n - 1)
    alpha: Floats = np.full(n.size, np.nan)
    np.divide(within, expected, out=alpha, where=expected > _NO_SPREAD * n)
    return 1 - alpha


def _interval(columns: Floats) -> tuple[float, float]:
    """Return the percentiles of alpha over resamples of the answers; resamples without any spread are left out."""
    rng = np.random.default_rng(_SEED)
    answers = len(columns)
    at_once = max(1, _CELLS_AT_ONCE // answers)
    found = []
    for start in range(0, _RESAMPLES, at_once):
        drawn = rng.multinomial(answers, np.full(answers, 1 / answers), size=min(at_once, _RESAMPLES - start))
        found.append(_alpha(drawn @ columns))
    alphas = np.concatenate(found)
    low, high = np.quantile(alphas[np.isfinite(alphas)], (0.025, 0.975))
    return min(1.0, float(low)), min(1.0, float(high))


def _mean_distance(unit: Floats) -> float:
    """Return the mean distance between two values, computed from their sorted order."""
    weights = 2 * np.arange(unit.size) - unit.size + 1
    return float(2 * (weights * np.sort(unit)).sum() / (unit.size * (unit.size - 1)))
