"""Student's t with any number of degrees of freedom: corrected variances give fractions of them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from headgate.core import t_975

_TINY: Final = 1e-300
_STEPS: Final = 500
_LEVEL: Final = 0.05


def two_sided_p(t: float, degrees: float) -> float:
    """Return the probability that a t of `degrees` > 0 degrees of freedom is at least as far from 0 as `t`."""
    if math.isinf(t):
        return 0.0
    return _beta_share(degrees / (degrees + t * t), degrees / 2, 0.5)


def t_point(degrees: float) -> float:
    """Return the 97.5 % point of Student's t with `degrees` >= 1; fractions below a hundredth are rounded down."""
    return _t_point(math.floor(100 * degrees + 1e-6))


@lru_cache(maxsize=4_096)
def _t_point(hundredths: int) -> float:
    degrees = hundredths / 100
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    point = t_975(math.ceil(degrees))  # not above the point sought: from there Newton's steps never pass it
    while True:
        density: float = scale * (1 + point * point / degrees) ** (-(degrees + 1) / 2)
        step = (two_sided_p(point, degrees) - _LEVEL) / (2 * density)
        point += step
        if abs(step) < 1e-9:
            return point


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by Lentz's continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly; the other side converges fast
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    value = upper = 1.0
    lower = 0.0
    for step in range(_STEPS):
        half, is_odd = divmod(step, 2)
        if step == 0:
            term = 1.0
        elif is_odd:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / _nonzero(1 + term * lower)
        upper = _nonzero(1 + term / upper)
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-14:
            break
    return front * (value - 1) / a


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
