from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.reports.statistics import distinct
from headgate.statistics import MeanEstimate, clustered_mean, mean_of_means
from headgate.statistics.means import t_975
from tests.reports.factories import START, frame, lost, row


@pytest.mark.parametrize(
    ("degrees", "point"),
    [
        (1, 12.7062),
        (4, 2.7764),
        (10, 2.2281),
        (11, 2.20099),
        (15, 2.13145),
        (30, 2.04227),
        (79, 1.99045),
        (1000, 1.96234),
    ],
)
def test_students_t_is_that_of_the_tables(degrees, point):
    assert t_975(degrees) == pytest.approx(point, abs=1e-4)


def estimate(scores):
    return clustered_mean(scores, range(len(scores)))


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 1, 0.2065, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_shares_get_wilsons_interval(hits, n, low, high):
    made = estimate([1.0] * hits + [0.0] * (n - hits))
    assert (made.method, made.samples, made.mean) == ("wilson", n, hits / n)
    assert (made.low, made.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_other_scores_get_students_interval():
    made = estimate([0.2, 0.4, 0.6, 0.5])
    half = 3.1824 * math.sqrt(0.0875 / 3 / 4)
    assert made.method == "t"
    assert made.mean == pytest.approx(0.425)
    assert (made.low, made.high) == (pytest.approx(0.425 - half, abs=1e-4), pytest.approx(0.425 + half, abs=1e-4))


def test_one_score_between_the_ends_says_nothing_of_the_spread():
    assert estimate([0.4]) == MeanEstimate(1, 1, 0.4, 0.0, 1.0, "none")


def test_no_scores_have_no_mean():
    assert estimate([]) is None


scores = st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=50)


@given(scores)
def test_the_interval_holds_the_mean_and_stays_within_the_scale(values):
    made = estimate(values)
    assert 0 <= made.low <= made.mean + 1e-12
    assert made.mean - 1e-12 <= made.high <= 1


@given(st.lists(scores, min_size=1, max_size=6))
def test_a_mean_of_means_lies_in_its_own_interval_which_is_no_wider_than_the_widest(groups):
    parts = [estimate(group) for group in groups]
    made = mean_of_means(parts)
    assert made.mean == pytest.approx(sum(part.mean for part in parts) / len(parts))
    assert made.low - 1e-12 <= made.mean <= made.high + 1e-12
    assert made.high - made.low <= max(part.high - part.low for part in parts) + 1e-9


def test_means_of_all_successes_keep_an_uncertainty():
    perfect = estimate([1.0] * 10)
    assert mean_of_means([perfect, perfect]).low < 0.9


def test_a_task_counts_once_and_its_score_goes_before_its_failure():
    rows = frame(
        lost(1, finished_at=START),
        row(1, score=0.25, finished_at=START + 9),
        row(2, score=0.5, finished_at=START + 5),
        row(2, score=0.75, finished_at=START + 4),
        lost(3),
    )
    kept = dict(distinct(rows).select("task_id", "score").iter_rows())
    assert kept == {"t-1": 0.25, "t-2": 0.75, "t-3": None}
