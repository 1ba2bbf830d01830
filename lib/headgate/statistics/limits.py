"""The 95 % limits of a mean score of independent samples: summaries and reports take them from here."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

_Z: Final = NormalDist().inv_cdf(0.975)
_T_975: Final = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % points of Student's t with 1 to 10 degrees of freedom; the series below is good to 1e-4 above that."""


def wilson_limits(count: float, share: float) -> tuple[float, float]:
    """Return the limits of a share of `count` > 0 scores that are each 0 or 1.

    Wilson's interval (1927) is honest near 0 and 1, where the textbook one has no width.
    """
    square = _Z**2 / count
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    # At the ends the limits are 0 and 1 exactly; rounding would leave the mean outside of its own interval.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return low, high


def student_limits(count: int, mean: float, variance: float) -> tuple[float, float]:
    """Return the limits of a mean of `count` >= 2 scores in [0, 1] with this sample variance."""
    half = t_975(count - 1) * math.sqrt(max(0.0, variance) / count)
    return max(0.0, mean - half), min(1.0, mean + half)


def t_975(degrees: int) -> float:
    """Return the 97.5 % point of Student's t with `degrees` >= 1 degrees of freedom, exact to 1e-4.

    Above 10 by the series of Fisher and Cornish in powers of 1/degrees (Abramowitz & Stegun, 26.7.5).
    """
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z, inverse = _Z, 1 / degrees
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum(term * inverse**power for power, term in enumerate(terms))
