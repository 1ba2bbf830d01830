"""Backpressure: warn above 5 000, pause at 8 000, resume at 3 000, never beyond the hard cap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.events import QueuePaused, QueueResumed, QueueWarned
from headgate.scheduling import Backpressure


def test_the_seeds_thresholds_are_the_defaults() -> None:
    rules = Backpressure()
    assert (rules.warn_above, rules.pause_at, rules.resume_at, rules.max_size) == (5_000, 8_000, 3_000, 100_000)


def test_each_threshold_acts_exactly_where_it_says() -> None:
    rules = Backpressure()
    assert rules.update(5_000, 0.0) is None
    assert rules.update(5_001, 1.0) == QueueWarned(5_001, 5_000)
    assert rules.update(7_999, 2.0) is None
    assert not rules.is_paused
    assert rules.update(8_000, 3.0) == QueuePaused(8_000, 8_000)
    assert rules.update(3_001, 50.0) is None
    assert rules.is_paused
    assert rules.update(3_000, 63.0) == QueueResumed(3_000, 3_000, 60.0)
    assert not rules.is_paused


def test_between_resume_and_pause_the_state_stays_what_it_was() -> None:
    rules = Backpressure()
    rules.update(8_000, 0.0)
    assert [rules.update(size, 1.0) for size in (7_999, 4_000, 3_001, 6_000, 12_000)] == [None] * 5
    rules.update(3_000, 2.0)
    assert [rules.update(size, 3.0) for size in (3_001, 4_999)] == [None] * 2
    assert not rules.is_paused


def test_a_warning_comes_once_a_minute_at_most() -> None:
    rules = Backpressure()
    told = [now for now in range(0, 200, 10) if rules.update(6_000, float(now)) is not None]
    assert told == [0, 60, 120, 180]


def test_a_pause_leaves_no_room_and_a_full_queue_neither() -> None:
    rules = Backpressure(max_size=9_000)
    assert rules.room(0) == 9_000
    assert rules.room(8_999) == 1
    assert rules.room(9_000) == rules.room(9_500) == 0
    rules.update(8_000, 0.0)
    assert rules.room(100) == 0
    rules.update(100, 1.0)
    assert rules.room(100) == 8_900


@given(st.lists(st.integers(-400, 700), min_size=1, max_size=120), st.integers(1, 400), st.integers(1, 600))
def test_whatever_is_offered_the_queue_stays_below_its_cap_and_its_events_alternate(
    offers: list[int], resume_at: int, gap: int
) -> None:
    rules = Backpressure(resume_at, resume_at + gap, resume_at, resume_at + gap + 300)
    size, events = 0, []
    for now, offer in enumerate(offers):
        size = max(0, size + min(offer, rules.room(size)))
        event = rules.update(size, float(now))
        assert size <= rules.max_size
        assert rules.is_paused or size < rules.pause_at
        assert not rules.is_paused or size > rules.resume_at
        if isinstance(event, QueuePaused | QueueResumed):
            events.append(type(event))
    assert all(kind is (QueueResumed if i % 2 else QueuePaused) for i, kind in enumerate(events))
