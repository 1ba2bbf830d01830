"""How many requests a token may make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvalidSettingError
from headgate.net.authority import Rate, TokenBuckets

GAPS = st.lists(st.floats(0.0, 0.5), min_size=1, max_size=300)


@given(GAPS, st.floats(0.5, 100.0), st.integers(1, 20))
def test_no_stretch_of_time_lets_more_in_than_the_burst_and_the_rate(
    gaps: list[float], per_s: float, burst: int
) -> None:
    buckets, now, let_in = TokenBuckets(Rate(per_s, burst)), 0.0, []
    for gap in gaps:
        now += gap
        if buckets.take("t", now) == 0.0:
            let_in.append(now)
        buckets.validate()
    for first in range(len(let_in)):
        for last in range(first, len(let_in)):
            assert last - first + 1 <= burst + (let_in[last] - let_in[first]) * per_s + 1e-6


@given(GAPS, st.floats(0.5, 100.0), st.integers(1, 20))
def test_whoever_waits_as_long_as_told_is_let_in(gaps: list[float], per_s: float, burst: int) -> None:
    buckets, now = TokenBuckets(Rate(per_s, burst)), 0.0
    for gap in gaps:
        now += gap
        if wait_s := buckets.take("t", now):
            now += wait_s
            assert buckets.take("t", now) == 0.0


def test_a_burst_is_let_in_at_once_and_the_next_told_to_wait() -> None:
    buckets = TokenBuckets(Rate(50.0, 100))
    assert [buckets.take("t", 5.0) for _ in range(100)] == [0.0] * 100
    assert buckets.take("t", 5.0) == pytest.approx(0.02)


def test_tokens_do_not_share_a_bucket() -> None:
    buckets = TokenBuckets(Rate(1.0, 1))
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.take("a", 0.0) > 0.0
    assert buckets.take("b", 0.0) == 0.0


def test_memory_is_bounded_and_the_bucket_used_longest_ago_goes_first() -> None:
    buckets = TokenBuckets(Rate(0.001, 1), most=3)
    for token_id in "abcad":
        buckets.take(token_id, 0.0)
    assert len(buckets) == 3
    assert buckets.take("a", 0.0) > 0.0
    assert buckets.take("b", 0.0) == 0.0


def test_a_clock_that_stands_or_goes_back_fills_nothing() -> None:
    buckets = TokenBuckets(Rate(1.0, 1))
    buckets.take("t", 10.0)
    assert buckets.take("t", 3.0) > 0.0


@pytest.mark.parametrize(("per_s", "burst"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)])
def test_a_rate_that_lets_nobody_in_is_refused(per_s: float, burst: int) -> None:
    with pytest.raises(InvalidSettingError, match="rate must be > 0"):
        Rate(per_s, burst)
