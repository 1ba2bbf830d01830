"""The simulated engine: answers slow each other down, exactly."""

from __future__ import annotations

import pytest

from headgate_replay.elastic import ReplayFailedError
from headgate_replay.elastic.driver import SimulatedEngine


def engine(*step_s: float, is_asleep: bool = False) -> SimulatedEngine:
    return SimulatedEngine("w", len(step_s), step_s, is_asleep=is_asleep)


def test_two_answers_at_once_take_as_long_as_the_batch_says() -> None:
    one = engine(1.0, 2.0)
    one.take(1)
    one.answer(1, 10, now=0.0)
    assert one.ends_at(0.0) == 10.0
    one.take(2)
    one.answer(2, 2, now=4.0)
    assert one.ends_at(4.0) == 8.0  # 2 steps of 2 s
    assert one.end(8.0) == 2
    assert one.ends_at(8.0) == 12.0  # 4 steps before, 2 beside the other, 4 left
    assert one.end(12.0) == 1
    assert one.ends_at(12.0) is None
    assert len(one) == 0


def test_a_call_that_is_dropped_leaves_the_others_faster() -> None:
    one = engine(1.0, 2.0)
    for call in (1, 2):
        one.take(call)
        one.answer(call, 4, now=0.0)
    turn = one.turn
    one.drop(2, now=2.0)
    assert one.turn > turn, "what was planned before is void"
    assert one.ends_at(2.0) == 5.0
    assert 2 not in one
    one.drop(2, now=2.0)
    assert one.ends_at(2.0) == 5.0


def test_a_prompt_takes_a_slot_and_slows_no_answer() -> None:
    one = engine(1.0, 2.0)
    one.take(1)
    one.answer(1, 4, now=0.0)
    one.take(2)
    assert one.ends_at(0.0) == 4.0
    with pytest.raises(ReplayFailedError, match="2 of 2 slots taken"):
        one.take(3)


@pytest.mark.parametrize("is_asleep", [True, False])
def test_what_it_cannot_take_is_an_error(is_asleep: bool) -> None:
    one = engine(1.0, 1.0, is_asleep=is_asleep)
    if not is_asleep:
        one.take(1)
    with pytest.raises(ReplayFailedError, match="cannot take it"):
        one.take(1)
