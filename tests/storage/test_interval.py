"""Confidence intervals, compared with published values and with what they promise."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from headgate.statistics.means import t_975
from headgate.storage.summary import interval_of


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (10, 2.2281), (30, 2.0423), (1_000, 1.9623)],
)
def test_quantiles_of_student_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_975(freedom) == pytest.approx(quantile, rel=5e-3)


def test_wilson_is_used_for_ones_and_zeros() -> None:
    found = interval_of(10, 8.0, 8.0, is_binary=True)  # Newcombe 1998: 8 of 10 gives 0.4902 to 0.9433
    assert (round(found.low, 4), round(found.high, 4), found.method) == (0.4902, 0.9433, "wilson")


def test_wilson_has_width_where_all_scores_are_equal() -> None:
    found = interval_of(20, 20.0, 20.0, is_binary=True)
    assert found.high == 1.0
    assert 0.83 < found.low < 0.85


def test_student_is_used_for_other_scores() -> None:
    scores = [0.1, 0.4, 0.5, 0.9]
    found = interval_of(4, sum(scores), sum(s * s for s in scores), is_binary=False)
    assert found.method == "t"
    assert found.low == pytest.approx(max(0.0, 0.475 - 3.1824 * 0.3304 / 2), abs=2e-3)
    assert found.high == 1.0


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_scores_say_nothing(count: int) -> None:
    found = interval_of(count, 0.5 * count, 0.25 * count, is_binary=False)
    assert (found.low, found.high, found.method) == (0.0, 1.0, "none")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_wilson_holds_the_truth_in_95_percent_of_cases(share: float) -> None:
    rng = random.Random(5)
    held = []
    for _ in range(2_000):
        ones = float(sum(rng.random() < share for _ in range(60)))
        found = interval_of(60, ones, ones, is_binary=True)
        held.append(found.low <= share <= found.high)
    assert 0.93 <= fmean(held) <= 0.98
