"""Deadlines say what a plain table of them says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.jobqueue.deadlines import Deadlines
from tests.examples import examples

KEYS = st.sampled_from("abcde")
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers(0, 12)),
    st.tuples(st.just("drop"), KEYS, st.just(0)),
    st.tuples(st.just("due"), st.just(""), st.integers(0, 14)),
    st.tuples(st.just("next"), st.just(""), st.just(0)),
)


@settings(max_examples=examples(60))
@given(st.lists(STEPS, min_size=20, max_size=80))  # without the lower bound, lists of five are usual
def test_deadlines_are_those_of_a_plain_table(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    table: dict[str, int] = {}
    for what, key, at in steps:
        if what == "set":
            deadlines.set(key, at)
            table[key] = at
        elif what == "drop":
            deadlines.drop(key)
            table.pop(key, None)
        elif what == "due":
            due = list(deadlines.due(at))
            assert [table[one] for one in due] == sorted(table[one] for one in due)
            assert set(due) == {one for one, due_at in table.items() if due_at < at}
            table = {one: due_at for one, due_at in table.items() if due_at >= at}
        assert deadlines.next() == min(table.values(), default=None)
        assert len(deadlines) == len(table)
        deadlines.validate()


def test_a_deadline_that_is_reached_has_not_passed() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 5.0)
    assert list(deadlines.due(5.0)) == []
    assert list(deadlines.due(5.1)) == ["a"]
    assert list(deadlines.due(9.0)) == []


def test_a_deadline_moved_to_an_earlier_moment_is_met_there() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 50.0)
    deadlines.set("a", 5.0)
    assert deadlines.next() == 5.0
    assert list(deadlines.due(6.0)) == ["a"]
    assert deadlines.next() is None


def test_heartbeats_of_many_keys_leave_one_entry_each() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for now in range(50):
        for key in range(100):
            deadlines.set(key, now + 30.0)
    assert len(deadlines._heap) == 100
    assert deadlines.next() == 79.0
    assert len(deadlines._heap) == 100


def test_long_deadlines_that_are_dropped_leave_nothing_behind() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.set(-1, 10.0)
    for key in range(10_000):
        deadlines.set(key, 3_600.0)
        deadlines.drop(key)
    assert deadlines.next() == 10.0
    assert len(deadlines._heap) < 200
