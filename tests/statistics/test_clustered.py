from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.statistics import NO_SPREAD, clustered_mean, t_point
from headgate.statistics.means import _variance_by_task, student_limits, wilson_limits
from headgate.storage.summary import interval_of

scores = st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=40)
sized = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6)), min_size=2, max_size=40)


def by_matrices(values: list[float], tasks: list[int]) -> tuple[float, float]:
    """CR2 variance and Satterthwaite's degrees of freedom from their matrix definitions (Bell and McCaffrey 2002)."""
    n = len(values)
    ones, y = np.ones((n, 1)), np.array(values)
    hat = ones @ ones.T / n
    residuals = (np.eye(n) - hat) @ y
    sandwich, vectors = 0.0, []
    for task in sorted(set(tasks)):
        rows = np.array([t == task for t in tasks])
        block = np.eye(rows.sum()) - hat[np.ix_(rows, rows)]
        roots, basis = np.linalg.eigh(block)
        adjusted = basis @ np.diag(roots**-0.5) @ basis.T
        sandwich += (np.ones(rows.sum()) @ adjusted @ residuals[rows] / n) ** 2
        vectors.append(((np.eye(n) - hat)[rows].T @ adjusted @ np.ones(rows.sum())) / n)
    products = np.array(vectors) @ np.array(vectors).T
    return sandwich, float(np.trace(products) ** 2 / (products**2).sum())


@given(sized)
def test_the_closed_form_is_that_of_the_matrices(rows: list[tuple[float, int]]) -> None:
    values, tasks = [v for v, _ in rows], [t for _, t in rows]
    assume(len(set(tasks)) >= 2)
    _, place, sizes = np.unique(tasks, return_inverse=True, return_counts=True)
    sums = np.bincount(place, weights=np.array(values) - np.mean(values))
    variance, degrees = _variance_by_task(sums, sizes.astype(float))
    expected, expected_degrees = by_matrices(values, tasks)
    assert variance == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert degrees == pytest.approx(max(1.0, expected_degrees), rel=1e-6)


def test_tasks_of_one_size_give_the_clustered_error_of_miller_with_the_usual_correction() -> None:
    values = [0.3, 0.4, 0.6, 0.7, 0.4, 0.4, 0.6, 0.7]
    made = clustered_mean(values, [0, 0, 1, 1, 2, 2, 3, 3])
    mean = sum(values) / 8
    pairs = [sum(values[i : i + 2]) - 2 * mean for i in (0, 2, 4, 6)]
    error = math.sqrt(sum(p * p for p in pairs) / 64 * 4 / 3)
    assert (made.samples, made.tasks, made.method) == (8, 4, "clustered t")
    assert made.mean == pytest.approx(mean)
    assert made.high - made.mean == pytest.approx(t_point(3) * error)


@pytest.mark.parametrize("tasks", [(0, 1, 2), (0, 0, 1)])
def test_equal_scores_between_0_and_1_do_not_make_a_mean_certain(tasks: tuple[int, ...]) -> None:
    made = clustered_mean([0.5] * 3, tasks)
    assert made is not None
    assert made.low < 0.2
    assert made.high > 0.8
    assert interval_of(3, 1.5, 0.75, is_binary=False).low < 0.2


@given(scores)
def test_without_repeated_tasks_it_is_the_interval_of_the_summary(values: list[float]) -> None:
    made = clustered_mean(values, range(len(values)))
    is_binary = all(value in (0.0, 1.0) for value in values)
    n, total, squares = len(values), math.fsum(values), math.fsum(v * v for v in values)
    variance = math.fsum((v - total / n) ** 2 for v in values) / max(1, n - 1)
    if is_binary or (n > 1 and variance < NO_SPREAD):
        assert (made.low, made.high) == pytest.approx(wilson_limits(n, total / n))
    elif n > 1:
        assert (made.low, made.high) == pytest.approx(student_limits(n, total / n, variance), abs=1e-9)
    if n > 1 and made.method == "wilson":
        known = interval_of(n, total, squares, is_binary=is_binary)
        assert (made.low, made.high) == pytest.approx((known.low, known.high))
    assert made.tasks == made.samples == n
    assert made.design_effect == 1.0


@given(scores, st.integers(2, 5))
def test_copies_of_every_sample_do_not_make_the_interval_narrower(values: list[float], copies: int) -> None:
    assume(len(values) > 1)
    single = clustered_mean(values, range(len(values)))
    many = clustered_mean(values * copies, list(range(len(values))) * copies)
    assert many.mean == pytest.approx(single.mean)
    assert many.high - many.low >= (single.high - single.low) - 1e-4


@given(sized)
def test_repeated_tasks_never_make_it_narrower_than_independent_samples(rows: list[tuple[float, int]]) -> None:
    values, tasks = [v for v, _ in rows], [t for _, t in rows]
    made = clustered_mean(values, tasks)
    alone = clustered_mean(values, range(len(values)))
    assert made.low <= made.mean + 1e-12
    assert made.mean <= made.high + 1e-12
    assert made.low >= 0
    assert made.high <= 1
    assert made.high - made.low >= alone.high - alone.low - 1e-9


@given(sized, st.randoms(use_true_random=False))
def test_the_order_of_samples_and_the_names_of_tasks_do_not_matter(
    rows: list[tuple[float, int]], rng: random.Random
) -> None:
    other = [(value, 100 - task) for value, task in rows]
    rng.shuffle(other)
    one = clustered_mean([v for v, _ in rows], [t for _, t in rows])
    two = clustered_mean([v for v, _ in other], [t for _, t in other])
    assert (one.low, one.high) == pytest.approx((two.low, two.high), abs=1e-9)


def test_one_task_says_nothing_of_the_spread_between_tasks() -> None:
    made = clustered_mean([1.0] * 50, [7] * 50)
    assert (made.low, made.high, made.method, made.tasks) == (0.0, 1.0, "none", 1)
    assert clustered_mean([], []) is None


def test_all_successes_count_one_sample_of_each_task() -> None:
    made = clustered_mean([1.0] * 40, [n % 10 for n in range(40)])
    assert (made.low, made.high) == pytest.approx(wilson_limits(10, 1.0))


@pytest.mark.parametrize("is_binary", [True, False])
def test_ninety_five_per_cent_of_intervals_hold_the_truth_where_independence_would_lose_many(is_binary: bool) -> None:
    rng = np.random.default_rng(5)
    held, naive = [], []
    for _ in range(600):
        tasks = np.repeat(np.arange(25), rng.integers(1, 9, 25))
        easy = rng.beta(1.2, 0.8, 25)[tasks]  # mean 0.6; how hard a task is, is common to its samples
        values = (
            (rng.random(tasks.size) < easy).astype(float) if is_binary else easy * 0.9 + 0.1 * rng.random(tasks.size)
        )
        truth = 0.6 if is_binary else 0.6 * 0.9 + 0.05
        made, alone = clustered_mean(values, tasks), clustered_mean(values, np.arange(tasks.size))
        held.append(made.low <= truth <= made.high)
        naive.append(alone.low <= truth <= alone.high)
    assert 0.93 <= np.mean(held) <= 0.99
    assert np.mean(naive) < 0.85
