"""Confidence intervals of a mean score at 95 %."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headgate.core import student_limits, wilson_limits


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
    mean = total / count
    if is_binary:
        return Interval(*wilson_limits(count, mean), "wilson")
    variance = max(0.0, squares - total * mean) / (count - 1)
    return Interval(*student_limits(count, mean, variance), "t")
