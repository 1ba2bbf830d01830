"""Agreement of repeated judgements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.statistics import krippendorff
from tests.examples import examples


def by_definition(units: list[list[float]]) -> float:
    """Krippendorff's alpha as the book writes it, over all pairs."""
    units = [unit for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]
    n = len(values)
    observed = sum(
        sum((one - other) ** 2 for one, other in itertools.permutations(unit, 2)) / (len(unit) - 1) for unit in units
    )
    expected = sum((one - other) ** 2 for one, other in itertools.permutations(values, 2)) / (n - 1)
    return 1 - observed / expected


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(st.integers(0, 10).map(lambda v: v / 10), min_size=1, max_size=5), min_size=3, max_size=12))
def test_alpha_is_that_of_the_definition(units: list[list[float]]) -> None:
    made = krippendorff(units)
    judged = [unit for unit in units if len(unit) > 1]
    if not judged:
        assert made is None
        return
    assert made is not None
    assert (made.answers, made.judgements) == (len(judged), sum(map(len, judged)))
    if len(judged) > 1 and len({value for unit in judged for value in unit}) > 1:
        assert made.alpha == pytest.approx(by_definition(units), abs=1e-9)
    else:
        assert made.alpha is None


def test_equal_judgements_of_different_answers_agree_fully() -> None:
    made = krippendorff([[0.2, 0.2], [0.9, 0.9, 0.9], [0.5, 0.5]])
    assert made is not None
    assert (made.alpha, made.low, made.high, made.spread) == pytest.approx((1.0, 1.0, 1.0, 0.0))


def test_judgements_drawn_at_random_agree_by_chance_alone_and_the_interval_says_so() -> None:
    drawn = np.random.default_rng(5).random((200, 3))
    made = krippendorff(drawn.tolist())
    assert made is not None
    assert made.alpha == pytest.approx(0.0, abs=0.1)
    assert made.low is not None
    assert made.high is not None
    assert made.low < 0.0 < made.high


def test_the_interval_is_the_same_at_every_call_and_narrows_with_answers() -> None:
    rng = np.random.default_rng(6)
    truth = rng.random(400)
    judged = (truth[:, None] + rng.normal(0, 0.2, (400, 2))).tolist()
    few, many = krippendorff(judged[:25]), krippendorff(judged)
    assert few == krippendorff(judged[:25])
    assert few is not None
    assert many is not None
    assert None not in (few.low, few.high, many.low, many.high)
    assert many.high - many.low < (few.high - few.low) / 2


def test_answers_judged_once_say_nothing() -> None:
    assert krippendorff([[0.5], [0.7], []]) is None


def test_spread_is_the_mean_distance_of_two_judgements() -> None:
    made = krippendorff([[0.0, 0.5, 1.0], [0.2, 0.4]])
    assert made is not None
    assert made.spread == pytest.approx(((0.5 + 0.5 + 1.0) / 3 + 0.2) / 2)
