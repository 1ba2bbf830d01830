"""One heap of timers, compared with a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core import TimerHeap

keys = st.sampled_from("abcde")
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 20).map(float))), max_size=60)


@given(changes, st.integers(0, 20), st.one_of(st.none(), st.integers(1, 5)))
def test_what_is_due_comes_once_in_the_order_of_its_last_time(
    changes: list[tuple[str, float | None]], now: int, at_most: int | None
) -> None:
    timers, plain = TimerHeap(), dict[str, float]()
    for key, at in changes:
        timers.set(key, at)
        plain.pop(key, None)
        if at is not None:
            plain[key] = at
    assert sorted(timers.keys()) == sorted(plain)
    assert timers.next_at() == min(plain.values(), default=None)
    due = timers.pop_due(float(now), at_most)
    wanted = sorted(at for at in plain.values() if at <= now)[:at_most]
    assert [plain[key] for key in due] == wanted
    assert len(set(due)) == len(due)
    assert sorted(timers.keys()) == sorted(set(plain) - set(due))
    passed = timers.pop_passed(15.0)
    assert {plain[key] for key in passed} == {at for key, at in plain.items() if key not in due and at < 15}
    assert len(timers) == len(plain) - len(due) - len(passed)
    timers.validate()


def test_a_key_that_came_due_may_be_set_again_to_the_same_time() -> None:
    timers = TimerHeap()
    timers.set("a", 5.0)
    timers.set("a", 7.0)
    timers.set("a", 5.0)
    assert timers.pop_due(10.0) == ["a"]
    assert timers.pop_due(10.0) == []
    timers.set("a", 5.0)
    assert timers.pop_due(10.0) == ["a"]
    assert timers.next_at() is None


def test_a_few_at_a_time_and_none_left_out() -> None:
    timers = TimerHeap()
    for number in range(1_000):
        timers.set(f"k{number:04}", float(number % 7))
    taken: list[str] = []
    while some := timers.pop_due(10.0, 256):
        assert len(some) <= 256
        taken += some
    assert len(taken) == len(set(taken)) == 1_000


def test_a_deadline_that_is_reached_has_not_passed() -> None:
    deadlines = TimerHeap()
    deadlines.set("a", 5.0)
    assert deadlines.pop_passed(5.0) == []
    assert deadlines.pop_passed(5.1) == ["a"]
    assert deadlines.pop_passed(9.0) == []


def test_a_deadline_moved_to_an_earlier_moment_is_met_there() -> None:
    deadlines = TimerHeap()
    deadlines.set("a", 50.0)
    deadlines.set("a", 5.0)
    assert deadlines.next_at() == 5.0
    assert deadlines.pop_passed(6.0) == ["a"]
    assert deadlines.next_at() is None


def test_heartbeats_of_many_keys_leave_one_entry_each() -> None:
    deadlines = TimerHeap()
    for now in range(50):
        for key in range(100):
            deadlines.set(str(key), now + 30.0)
    assert len(deadlines._heap) == 100
    assert deadlines.next_at() == 79.0
    assert len(deadlines._heap) == 100


def test_long_deadlines_that_are_dropped_leave_nothing_behind() -> None:
    deadlines = TimerHeap()
    deadlines.set("soon", 10.0)
    for key in range(10_000):
        deadlines.set(str(key), 3_600.0)
        deadlines.set(str(key), None)
    assert deadlines.next_at() == 10.0
    assert len(deadlines._heap) < 200
