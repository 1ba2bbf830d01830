from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headgate.statistics import PairedDifference, mean_difference, t_point, task_pairs, two_sided_p

pairs = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30)
outcomes = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=2, max_size=30)


def paired_difference(first, second) -> PairedDifference:
    return mean_difference([task_pairs(first, second)])


def test_it_is_the_mean_of_the_differences_with_students_interval() -> None:
    first, second = [0.9, 0.4, 0.7, 0.2], [0.5, 0.3, 0.6, 0.25]
    made = paired_difference(first, second)
    apart = np.subtract(first, second)
    error = apart.std(ddof=1) / 2
    assert made.difference == pytest.approx(apart.mean())
    assert (made.low, made.high) == pytest.approx(
        (apart.mean() - t_point(3) * error, apart.mean() + t_point(3) * error)
    )
    assert made.p_value == pytest.approx(two_sided_p(apart.mean() / error, 3))
    assert made.correlation == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert made.gain == pytest.approx((np.var(first, ddof=1) + np.var(second, ddof=1)) / apart.var(ddof=1))


def test_ones_and_zeros_get_the_interval_of_bonett_and_price() -> None:
    # 2012: n12 = 12, n21 = 4 of 80 pairs; (13 - 5) / 82 and sqrt((18 / 82 - d^2) / 82), with t in place of z.
    first = [1.0] * 12 + [0.0] * 4 + [1.0] * 64
    second = [0.0] * 12 + [1.0] * 4 + [1.0] * 64
    made = paired_difference(first, second)
    centre = 8 / 82
    error = math.sqrt((18 / 82 - centre**2) / 82)
    assert made.difference == pytest.approx(0.1)
    assert (made.low, made.high) == pytest.approx((centre - t_point(79) * error, centre + t_point(79) * error))


def test_environments_share_the_two_added_tasks() -> None:
    # Price and Bonett (2004): of 2 in all, each of two environments with as many tasks gets one, half of it won.
    rows = ([1.0] * 9 + [0.0], [0.0] * 10), ([1.0] * 5 + [0.0] * 5, [0.0] * 10)
    made = mean_difference([task_pairs(first, second) for first, second in rows])
    assert made.difference == pytest.approx(0.7)
    assert (made.low + made.high) / 2 == pytest.approx((9 / 11 + 5 / 11) / 2)


def test_the_environment_with_few_tasks_gets_most_of_what_is_added() -> None:
    few, many = task_pairs([1.0] * 10, [0.0] * 10), task_pairs([1.0] * 990, [0.0] * 990)
    made = mean_difference([few, many])
    assert made.low == pytest.approx(paired_difference([1.0] * 10, [0.0] * 10).low / 2 + 0.5, abs=0.02)


def test_what_is_added_is_less_where_tasks_have_several_samples() -> None:
    first, second = [1.0, 0.5, 1.0, 0.5] * 5, [0.5, 0.5, 0.0, 0.0] * 5
    assert task_pairs(first, second).added == 0.5
    assert task_pairs([1.0, 0.0] * 5, [0.0, 0.0] * 5).added == 2
    assert task_pairs([0.123, 0.771, 0.4], [0.0, 0.0, 0.0]).added == 0


def test_a_dozen_equal_outcomes_do_not_prove_that_two_models_are_the_same() -> None:
    made = paired_difference([1.0] * 12, [1.0] * 12)
    assert made.difference == 0
    assert made.high - made.low > 0.2
    assert (made.p_value, made.correlation) == (1.0, None)


def test_differences_that_only_rounding_parts_are_equal() -> None:
    first = [n / 10 for n in range(1, 10)]
    made = paired_difference([value + 0.05 for value in first], first)
    assert made.p_value > 0.05
    assert made.low < 0 < made.high


@given(pairs)
def test_the_other_way_round_it_is_the_negative(rows: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in rows], [b for _, b in rows]
    one, other = paired_difference(first, second), paired_difference(second, first)
    assert one.difference == pytest.approx(-other.difference)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-9)
    assert one.p_value == pytest.approx(other.p_value, abs=1e-9)


@given(st.lists(pairs | outcomes, min_size=1, max_size=4))
def test_the_interval_of_several_environments_holds_the_difference_and_stays_on_the_scale(
    groups: list[list[tuple[float, float]]],
) -> None:
    parts = [task_pairs([a for a, _ in rows], [b for _, b in rows]) for rows in groups]
    made = mean_difference(parts)
    assert -1 <= made.low <= made.difference <= made.high <= 1
    assert made.difference == pytest.approx(np.mean([part.difference for part in parts]))
    assert made.tasks == sum(len(rows) for rows in groups)
    assert 0 <= made.p_value <= 1
    assert made.correlation is None or -1 <= made.correlation <= 1


@given(st.lists(pairs | outcomes, min_size=1, max_size=4))
def test_a_p_value_is_below_five_per_cent_where_the_interval_leaves_out_zero(
    groups: list[list[tuple[float, float]]],
) -> None:
    made = mean_difference([task_pairs([a for a, _ in rows], [b for _, b in rows]) for rows in groups])
    assume(abs(made.p_value - 0.05) > 1e-6)  # the limits are exact to rounding only
    assert (made.p_value < 0.05) == (not made.low <= 0 <= made.high)


def test_pairing_gains_what_the_tasks_have_in_common() -> None:
    rng = np.random.default_rng(1)
    hard = rng.random(400)
    made = paired_difference(0.8 * hard + 0.2 * rng.random(400), 0.8 * hard + 0.2 * rng.random(400))
    assert made.correlation > 0.9
    assert made.gain > 10


@pytest.mark.parametrize(("share", "tasks"), [(0.5, 30), (0.9, 30), (0.5, 10)])
def test_no_difference_is_claimed_too_often(share: float, tasks: int) -> None:
    """Two models of equal strength, outcomes 0 and 1: a false claim in 5 % of the cases at most."""
    rng = np.random.default_rng(2)
    claims, held = [], []
    for _ in range(1_000):
        easy = rng.beta(4 * share, 4 * (1 - share), tasks)
        first, second = rng.random(tasks) < easy, rng.random(tasks) < easy
        made = paired_difference(first.astype(float), second.astype(float))
        claims.append(made.p_value <= 0.05)
        held.append(made.low <= 0 <= made.high)
    assert np.mean(claims) <= 0.065
    assert np.mean(held) >= 0.935


def test_a_difference_over_environments_is_held_in_ninety_five_per_cent() -> None:
    rng = np.random.default_rng(9)
    held = []
    for _ in range(600):
        parts = []
        for tasks, better in ((12, 0.1), (40, 0.0)):
            easy = rng.uniform(0.2, 0.7, tasks)
            parts.append(task_pairs(easy + better + 0.1 * rng.normal(size=tasks), easy + 0.1 * rng.normal(size=tasks)))
        made = mean_difference(parts)
        held.append(made.low <= 0.05 <= made.high)
    assert 0.93 <= np.mean(held) <= 0.975


@pytest.mark.parametrize(
    ("environments", "tasks", "first", "second", "samples"),
    [
        (6, 10, 0.99, 0.0, 1),
        (8, 20, 0.9, 0.1, 1),
        (20, 20, 0.8, 0.2, 1),
        (40, 20, 0.9, 0.3, 1),
        (20, 20, 0.5, 0.5, 1),
        (1, 20, 0.95, 0.05, 2),
        (20, 20, 0.99, 0.0, 2),
    ],
)
def test_outcomes_over_environments_are_held_in_ninety_five_per_cent(
    environments: int, tasks: int, first: float, second: float, samples: int
) -> None:
    """Two tasks added to every environment drew each to 0, and the interval held the truth half of the time."""
    rng = np.random.default_rng(11)
    held = []
    for _ in range(120):
        ours = rng.binomial(samples, first, (environments, tasks)) / samples
        theirs = rng.binomial(samples, second, (environments, tasks)) / samples
        made = mean_difference([task_pairs(a, b) for a, b in zip(ours, theirs, strict=True)])
        held.append(made.low <= first - second <= made.high)
    assert np.mean(held) >= 0.93
