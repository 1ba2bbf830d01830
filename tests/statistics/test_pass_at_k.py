from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import errors
from headgate.statistics import TooFewSamples, pass_at_k
from headgate.statistics.means import wilson_limits

tasks = st.lists(st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=6)


@given(tasks, st.integers(1, 7))
def test_it_is_the_share_of_all_subsets_of_k_samples_that_hold_a_success(rows: list[tuple[int, int]], k: int) -> None:
    made = pass_at_k([c for c, _ in rows], [n for _, n in rows], k)
    shares = []
    for c, n in rows:
        subsets = list(combinations([1] * c + [0] * (n - c), k))
        if subsets:
            shares.append(np.mean([any(subset) for subset in subsets]))
    if not shares:
        assert made == TooFewSamples(k, max(n for _, n in rows))
    else:
        assert made.mean == pytest.approx(np.mean(shares))
        assert made.tasks == len(shares)
        assert made.low <= made.mean + 1e-12 <= made.high + 2e-12


def test_too_few_samples_are_said_in_a_sentence() -> None:
    assert str(pass_at_k([1, 2], [3, 4], 5)) == "pass@5 needs 5 scored samples of a task (the most that any has is 4)"


def test_the_interval_counts_tasks_and_not_samples() -> None:
    made = pass_at_k([4] * 9 + [0], [4] * 10, 4)
    assert (made.low, made.high) == pytest.approx(wilson_limits(10, 0.9))


def test_many_samples_of_hard_tasks_do_not_overflow() -> None:
    assert pass_at_k([1, 0], [100_000, 100_000], 1_000).mean == pytest.approx(0.005)


def test_k_below_one_is_refused() -> None:
    with pytest.raises(errors.InvalidInputError, match=r"k of pass@k must be >= 1 .got 0"):
        pass_at_k([1], [1], 0)


def test_the_estimate_is_unbiased_and_its_interval_holds() -> None:
    rng, k, n = np.random.default_rng(3), 3, 6
    truth = 1 - np.mean([(1 - p) ** k for p in np.linspace(0, 1, 2_001)])
    means, held = [], []
    for _ in range(600):
        successes = rng.binomial(n, rng.random(40))
        made = pass_at_k(successes.tolist(), [n] * 40, k)
        means.append(made.mean)
        held.append(made.low <= truth <= made.high)
    assert np.mean(means) == pytest.approx(truth, abs=0.006)
    assert 0.92 <= np.mean(held) <= 0.98
