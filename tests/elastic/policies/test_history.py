"""What policies keep of what they were told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.elastic.policies.history import Highest, Total
from tests.examples import examples

STEPS = st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 100.0)), min_size=1, max_size=40)


def test_a_total_is_taken_to_grow_evenly_between_two_readings() -> None:
    total = Total(60.0)
    total.note(10.0, 100.0)
    total.note(30.0, 110.0)
    assert total.back(0.0) == 30.0
    assert total.back(5.0) == 20.0
    assert total.back(50.0) == 10.0
    assert total.rate(5.0) == 2.0
    assert total.rate(60.0) == 2.0


def test_a_total_that_was_read_once_has_no_rate() -> None:
    total = Total(60.0)
    assert total.age_s == 0.0
    total.note(10.0, 100.0)
    assert total.rate(60.0) == 0.0


def test_the_last_of_two_readings_at_one_time_counts() -> None:
    total = Total(60.0)
    total.note(1.0, 5.0)
    total.note(3.0, 5.0)
    total.note(5.0, 6.0)
    assert total.rate(1.0) == 2.0


@settings(max_examples=examples(40))
@given(STEPS)
def test_what_a_total_has_forgotten_changes_nothing_within_what_it_keeps(steps: list[tuple[float, float]]) -> None:
    short, long = Total(20.0), Total(1e9)
    now = value = 0.0
    for gap_s, more in steps:
        now, value = now + gap_s, value + more
        for total in (short, long):
            total.note(value, now)
            total.validate()
        reach_s = min(20.0, long.age_s)
        assert short.grown(reach_s) == pytest.approx(long.grown(reach_s))


@settings(max_examples=examples(40))
@given(STEPS)
def test_the_highest_is_the_largest_of_the_window(steps: list[tuple[float, float]]) -> None:
    highest = Highest(30.0)
    now, seen = 0.0, []
    assert highest.is_empty
    for gap_s, value in steps:
        now += gap_s
        seen.append((now, value))
        assert highest.note(value, now) == max(each for at, each in seen if at >= now - 30.0)
        highest.validate()
        assert not highest.is_empty


def test_a_window_of_no_length_has_the_present() -> None:
    highest = Highest(0.0)
    assert highest.note(5.0, 1.0) == 5.0
    assert highest.note(2.0, 2.0) == 2.0
