"""Sliding counts agree with a list of every time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.sampling import SlidingCount
from tests.sampling.table import DAY_S, NOW

steps = st.lists(st.tuples(st.floats(0, 400), st.integers(0, 5)), max_size=120)


@given(steps, st.sampled_from([(600.0, 60.0), (60.0, 1.0), (3_600.0, 60.0)]))
def test_a_count_is_that_of_a_plain_list_to_one_bucket(
    steps: list[tuple[float, int]], shape: tuple[float, float]
) -> None:
    span_s, bucket_s = shape
    count, times, now = SlidingCount(span_s=span_s, bucket_s=bucket_s), [], NOW
    for wait, events in steps:
        now += wait
        count.add(now, events)
        times += [now] * events
        exact = sum(at > now - span_s for at in times)
        shorter = sum(at > now - span_s + bucket_s for at in times)
        assert shorter <= count.total(now) <= exact
        naive = sum(now // bucket_s - at // bucket_s < span_s / bucket_s for at in times)
        assert count.total(now) == naive
        assert count.recent(now, span_s) == count.total(now)
        half = sum(now // bucket_s - at // bucket_s < round(span_s / 2 / bucket_s) for at in times)
        assert count.recent(now, span_s / 2) == half
        count.validate()


def test_a_day_later_nothing_is_left() -> None:
    count = SlidingCount()
    count.add(NOW, 500)
    assert count.total(NOW + DAY_S - 61) == 500
    assert count.total(NOW + DAY_S) == 0


def test_a_time_from_before_the_span_is_not_counted_and_one_inside_it_is() -> None:
    count = SlidingCount()
    count.add(NOW, 1)
    count.add(NOW - DAY_S, 100)
    count.add(NOW - DAY_S / 2, 10)
    assert count.total(NOW) == 11


def test_a_restored_count_leaves_as_it_would_have_left() -> None:
    count = SlidingCount()
    count.restore([(NOW - DAY_S - 60, 7), (NOW - DAY_S + 3_600, 3), (NOW - 60, 2), (NOW + 60, 99)], NOW)
    assert count.total(NOW) == 5
    assert count.total(NOW + 3_660) == 2
    count.validate()


def test_a_clock_that_stands_or_steps_back_a_little_loses_nothing() -> None:
    count = SlidingCount(span_s=600.0)
    for at in (NOW, NOW, NOW - 30, NOW + 1):
        count.add(at)
    assert count.total(NOW - 60) == 4
