from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.statistics import ConfidenceSequence
from headgate.statistics.means import wilson_limits


def capital_of(scores: list[float], mean: float) -> float:
    """The hedged capital of Waudby-Smith and Ramdas (2024, eq. 26) for one mean, written out."""
    above = below = 1.0
    for number, score in enumerate(scores, start=1):
        seen = scores[: number - 1]
        centres = [(0.5 + sum(seen[: i + 1])) / (i + 2) for i in range(len(seen))]
        variance = (0.25 + sum((x - c) ** 2 for x, c in zip(seen, centres, strict=True))) / number
        bet = math.sqrt(2 * math.log(2 / 0.05) / (variance * number * math.log(number + 1)))
        above *= 1 + min(bet, 0.5 / mean) * (score - mean)
        below *= 1 - min(bet, 0.5 / (1 - mean)) * (score - mean)
    return max(above, below) / 2


@given(st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=30))
def test_a_mean_is_out_once_its_capital_has_grown_twentyfold(scores: list[float]) -> None:
    made = ConfidenceSequence()
    for score in scores:
        made.add(score)
    made.validate()
    for mean in (0.1, 0.3, 0.5, 0.8):
        is_out = any(capital_of(scores[:n], mean) >= 20 * (1 + 1e-9) for n in range(1, len(scores) + 1))
        if not made.low <= mean <= made.high:
            assert is_out
        elif made.low + 0.0015 < mean < made.high - 0.0015:
            assert not is_out


@given(st.lists(st.floats(0, 1), max_size=60))
def test_the_limits_only_ever_close_in(scores: list[float]) -> None:
    made, before = ConfidenceSequence(), (0.0, 1.0)
    for score in scores:
        made.add(score)
        made.validate()
        assert made.low >= before[0]
        assert made.high <= before[1]
        before = (made.low, made.high)
    assert made.count == len(scores)
    assert made.half_width == pytest.approx((made.high - made.low) / 2)


@pytest.mark.parametrize("score", [-0.1, 1.1, math.nan])
def test_a_score_off_the_scale_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match=r"a score must be in \[0, 1\]"):
        ConfidenceSequence().add(score)


def drawn(kind: str, rng: np.random.Generator, *size: int) -> tuple[np.ndarray, float]:
    if kind == "even":
        return (rng.random(size) < 0.5).astype(float), 0.5
    if kind == "rare":
        return (rng.random(size) < 0.07).astype(float), 0.07
    return rng.beta(6, 2, size), 0.75


def runs_that_lost(scores: np.ndarray, truth: float) -> np.ndarray:
    """Of runs (rows) of scores: whether the capital against the truth ever grew twentyfold."""
    above = below = np.zeros(len(scores))
    total, squares, lost = np.full(len(scores), 0.5), np.full(len(scores), 0.25), np.zeros(len(scores), dtype=bool)
    for number, score in enumerate(scores.T, start=1):
        bet = np.sqrt(2 * math.log(2 / 0.05) / (squares / number * number * math.log(number + 1)))
        above = above + np.log1p(np.minimum(bet, 0.5 / truth) * (score - truth))
        below = below + np.log1p(-np.minimum(bet, 0.5 / (1 - truth)) * (score - truth))
        total = total + score
        squares = squares + (score - total / (number + 1)) ** 2
        lost |= np.maximum(above, below) >= math.log(40)
    return lost


@pytest.mark.parametrize("kind", ["even", "rare", "smooth"])
def test_looking_after_every_sample_loses_the_truth_in_five_per_cent_of_runs_at_most(kind: str) -> None:
    scores, truth = drawn(kind, np.random.default_rng(11), 6_000, 400)
    assert runs_that_lost(scores, truth).mean() <= 0.05


@pytest.mark.parametrize("kind", ["even", "rare", "smooth"])
def test_the_runs_that_lose_the_truth_are_those_of_the_formula(kind: str) -> None:
    scores, truth = drawn(kind, np.random.default_rng(11), 60, 200)
    for run, is_lost in zip(scores, runs_that_lost(scores, truth), strict=True):
        made = ConfidenceSequence()
        for score in run.tolist():
            made.add(score)
        # The limits only close in: what was ever lost is lost at the end. They are rounded outward by a thousandth.
        assert made.low <= truth <= made.high or is_lost
        assert made.low + 0.002 <= truth <= made.high - 0.002 or is_lost or made.half_width < 0.01


def test_an_ordinary_interval_that_is_looked_at_after_every_sample_loses_it_far_more_often() -> None:
    lost = 0
    for seed in range(150):
        scores, truth = drawn("even", np.random.default_rng(seed), 200)
        ones = np.cumsum(scores)
        limits = [wilson_limits(n, float(ones[n - 1]) / n) for n in range(10, 201)]
        lost += any(not low <= truth <= high for low, high in limits)
    assert lost / 150 > 0.15


def test_scores_with_little_spread_are_known_sooner() -> None:
    def needed(kind: str) -> int:
        scores, _ = drawn(kind, np.random.default_rng(1), 3_000)
        made = ConfidenceSequence()
        for score in scores.tolist():
            made.add(score)
            if made.half_width <= 0.06:
                break
        return made.count

    assert needed("smooth") < needed("rare") < needed("even")
