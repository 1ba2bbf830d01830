"""Ratings from comparisons: they recover strengths, lean on no order, and say how far they can be trusted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.statistics import ELO_MEAN, bradley_terry, win_chance
from headgate.statistics.bradley_terry import ELO_PER_UNIT

Game = tuple[int, int, float, int]

GAMES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 5)).filter(
        lambda game: game[0] != game[1]
    ),
    min_size=1,
    max_size=40,
)


def rated(games: list[Game], models: int = 4):
    first, second, score, task = zip(*games, strict=True)
    return bradley_terry(first, second, score, task, models)


def tournament(strengths: list[float], tasks: int, seed: int, *, shared: bool = False) -> list[Game]:
    """Every two models on every task; with `shared` one draw of quality per answer decides all of its comparisons."""
    rng = np.random.default_rng(seed)
    n = len(strengths)
    games: list[Game] = []
    for task in range(tasks):
        quality = np.asarray(strengths) + rng.gumbel(size=n)
        for one in range(n):
            for other in range(one + 1, n):
                fresh = np.asarray(strengths) + rng.gumbel(size=n)
                drawn = quality if shared else fresh
                games.append((one, other, float(drawn[one] > drawn[other]), task))
    return games


def test_known_strengths_are_recovered() -> None:
    strengths = [-1.0, -0.2, 0.4, 0.8]
    made = rated(tournament(strengths, 1_500, seed=1))
    found = (made.rating - ELO_MEAN) / ELO_PER_UNIT
    assert found == pytest.approx(np.asarray(strengths) - np.mean(strengths), abs=0.1)
    assert made.ranks() == [4, 3, 2, 1]


def test_the_fit_is_the_best_of_all_on_a_fine_grid() -> None:
    games = [(0, 1, 1.0, 0), (0, 1, 1.0, 1), (1, 0, 1.0, 2), (1, 2, 0.5, 3), (2, 0, 0.0, 4), (2, 1, 1.0, 5)]
    prior_sd = 800 / ELO_PER_UNIT
    line = np.linspace(-2.5, 2.5, 101)
    grid = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1)
    loss = (grid**2).sum(axis=-1) / (2 * prior_sd**2)
    for first, second, score, _ in games:
        apart = grid[..., first] - grid[..., second]
        loss = loss + score * np.logaddexp(0, -apart) + (1 - score) * np.logaddexp(0, apart)
    best = grid.reshape(-1, 3)[loss.argmin()]
    found = (rated(games, 3).rating - ELO_MEAN) / ELO_PER_UNIT
    assert found == pytest.approx(best, abs=0.05)


@settings(max_examples=25, deadline=None)
@given(GAMES, st.randoms())
def test_the_order_of_comparisons_changes_nothing(games: list[Game], random) -> None:
    shuffled = list(games)
    random.shuffle(shuffled)
    one, other = rated(games), rated(shuffled)
    assert one.rating == pytest.approx(other.rating, abs=1e-3)
    assert one.low == pytest.approx(other.low, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(GAMES)
def test_who_stands_first_changes_nothing(games: list[Game]) -> None:
    turned = [(second, first, 1.0 - score, task) for first, second, score, task in games]
    one, other = rated(games), rated(turned)
    assert one.rating == pytest.approx(other.rating, abs=1e-3)
    assert one.p_values == pytest.approx(other.p_values, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(GAMES)
def test_winning_everything_and_losing_everything_are_mirror_images(games: list[Game]) -> None:
    turned = [(first, second, 1.0 - score, task) for first, second, score, task in games]
    assert rated(games).rating - ELO_MEAN == pytest.approx(ELO_MEAN - rated(turned).rating, abs=1e-3)


def test_a_model_that_never_lost_is_finite_and_its_interval_is_wide() -> None:
    made = rated([(0, 1, 1.0, task) for task in range(20)], 2)
    assert 1_200 < made.rating[0] < 2_000
    assert made.high[0] - made.low[0] > 500
    assert math.isfinite(made.high[0])


def test_two_that_always_tie_are_not_known_to_be_equal() -> None:
    made = rated([(0, 1, 0.5, task) for task in range(20)], 2)
    assert made.rating == pytest.approx([ELO_MEAN, ELO_MEAN])
    assert made.high[0] - made.low[0] > 100


def test_comparisons_of_one_task_repeated_are_no_more_evidence() -> None:
    apart = tournament([0.0, 0.0, 1.0], 15, seed=3)
    copied = [game for game in apart for _ in range(8)]
    once, often = rated(apart, 3), rated(copied, 3)
    assert ((often.high - often.low) > (once.high - once.low) / 1.6).all()  # independent ones: by 8 ** 0.5


def test_models_that_nothing_connects_are_told_and_not_compared() -> None:
    made = rated([(0, 1, 1.0, task) for task in range(30)] + [(2, 3, 1.0, task) for task in range(30)])
    assert made.component.tolist() == [0, 0, 1, 1]
    assert made.rating[0] == pytest.approx(made.rating[2])
    assert made.told_apart() == {(0, 1), (2, 3)}
    assert made.ranks() == [1, 2, 1, 2]


def test_a_model_without_a_comparison_has_no_interval() -> None:
    made = rated([(0, 1, 1.0, task) for task in range(5)], 3)
    assert (made.low[2], made.high[2]) == (-math.inf, math.inf)


def test_one_task_tells_nothing_apart() -> None:
    made = rated([(0, 1, 1.0, 7)] * 50, 2)
    assert made.told_apart() == set()
    assert math.isinf(made.high[0])


@pytest.mark.parametrize("shared", [False, True])
def test_intervals_hold_the_truth_about_as_often_as_they_say(shared: bool) -> None:
    strengths = [-0.6, 0.0, 0.6]
    truth = ELO_MEAN + ELO_PER_UNIT * np.asarray(strengths)
    held = [
        (made.low <= truth) & (truth <= made.high)
        for seed in range(60)
        for made in [rated(tournament(strengths, 25, seed, shared=shared), 3)]
    ]
    assert 0.91 <= np.mean(held) <= 0.995


def test_equal_models_are_rarely_told_apart() -> None:
    false = [bool(rated(tournament([0.0] * 4, 20, seed, shared=True)).told_apart()) for seed in range(60)]
    assert np.mean(false) <= 0.1


def test_a_comparison_with_oneself_is_refused() -> None:
    with pytest.raises(ValueError, match="two different models"):
        bradley_terry([1], [1], [0.5], [0], 2)


def test_400_points_are_odds_of_10_to_1() -> None:
    assert win_chance(1_400, 1_000) == pytest.approx(10 / 11)
    assert win_chance(1_000, 1_000) == 0.5
