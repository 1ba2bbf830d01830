from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.statistics import t_point, two_sided_p
from headgate.statistics.means import t_975


def integrated(t: float, degrees: float) -> float:
    """The same probability by summing the density: with t = tan(angle) the tails end at a right angle."""
    edges = np.linspace(math.atan(abs(t)), math.pi / 2, 200_001)
    angles = (edges[:-1] + edges[1:]) / 2
    at = np.tan(angles)
    density = (1 + at**2 / degrees) ** (-(degrees + 1) / 2) / np.cos(angles) ** 2
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    return float(2 * scale * density.sum() * (edges[1] - edges[0]))


@pytest.mark.parametrize("degrees", [1.0, 1.7, 2.0, 5.5, 29.0, 400.0])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.96, 4.0, 12.0])
def test_tails_are_the_integral_of_the_density(t: float, degrees: float) -> None:
    assert two_sided_p(t, degrees) == pytest.approx(integrated(t, degrees), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 3, 10, 11, 30, 200])
def test_points_of_whole_degrees_are_those_of_the_tables(degrees: int) -> None:
    assert t_point(degrees) == pytest.approx(t_975(degrees), abs=1e-4)


@given(st.floats(1, 1e6))
def test_the_point_leaves_five_per_cent_outside(degrees: float) -> None:
    assert two_sided_p(t_point(degrees), math.floor(degrees * 100 + 1e-6) / 100) == pytest.approx(0.05, abs=1e-6)


@given(st.floats(0, 50), st.floats(0, 50), st.floats(1, 500))
def test_what_is_further_off_is_less_likely(one: float, other: float, degrees: float) -> None:
    near, far = sorted((one, other))
    assert 0 <= two_sided_p(far, degrees) <= two_sided_p(near, degrees) + 1e-12 <= 1 + 1e-12
    assert two_sided_p(-far, degrees) == two_sided_p(far, degrees)


def test_an_infinite_t_is_never_seen() -> None:
    assert two_sided_p(math.inf, 3) == 0
