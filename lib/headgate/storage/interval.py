"""Confidence intervals of a mean score at 95 %."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

_CONFIDENCE_TAIL: Final = 0.975
_Z: Final = NormalDist().inv_cdf(_CONFIDENCE_TAIL)


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true mean lies in 95 % of such cases.

    Attributes:
        low: in [0, 1].
        high: in [0, 1].
        method: `wilson` where every score is 0 or 1, `t` else, `none` for fewer than two scores (then [0, 1]).
    """

    low: float
    high: float
    method: Literal["wilson", "t", "none"]


def interval_of(count: int, total: float, squares: float, *, is_binary: bool) -> Interval:
    """Return the interval of the mean of `count` scores whose sum is `total` and whose squares sum to `squares`."""
    if count < 2:
        return Interval(0.0, 1.0, "none")
    return _wilson(count, total) if is_binary else _student(count, total, squares)


def _wilson(count: int, ones: float) -> Interval:
    """Wilson's score interval (E. B. Wilson, 1927): honest at 0 and 1, where the normal one has no width."""
    share = ones / count
    scale = 1 + _Z * _Z / count
    centre = (share + _Z * _Z / (2 * count)) / scale
    half = _Z * math.sqrt(share * (1 - share) / count + _Z * _Z / (4 * count * count)) / scale
    return _clipped(centre - half, centre + half, "wilson")


def _student(count: int, total: float, squares: float) -> Interval:
    mean = total / count
    variance = max(0.0, squares - total * mean) / (count - 1)
    half = student_quantile(count - 1) * math.sqrt(variance / count)
    return _clipped(mean - half, mean + half, "t")


def _clipped(low: float, high: float, method: Literal["wilson", "t"]) -> Interval:
    return Interval(max(0.0, low), min(1.0, high), method)


def student_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t with `freedom` degrees of freedom, to better than 0.5 %.

    One and two degrees have closed forms; from three on the expansion of Cornish and Fisher to the fourth order
    (Abramowitz & Stegun, 26.7.5).
    """
    if freedom == 1:
        return math.tan(math.pi * (_CONFIDENCE_TAIL - 0.5))
    if freedom == 2:
        tail = 2 * _CONFIDENCE_TAIL - 1
        return tail * math.sqrt(2 / (1 - tail * tail))
    z, n = _Z, float(freedom)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4
