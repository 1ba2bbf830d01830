"""Progress through stops and new starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_replay.placement.engine import Work
from tests.replay.placement.conftest import job


def test_work_without_stops_takes_its_duration_and_loses_nothing() -> None:
    work = Work(0, job("a", 0, 100))
    work.hold((0,), 4.0)
    assert work.begin(5.0) == 105.0
    done = work.end(105.0)
    assert (done.held_s, done.began_s, done.ended_s, done.lost_s, done.is_last) == (4.0, 5.0, 105.0, 0.0, True)


def test_a_stop_loses_what_was_done_since_the_last_checkpoint() -> None:
    work = Work(0, job("a", 0, 100, checkpoint_every_s=10, restart_s=5))
    work.hold((0,), 0.0)
    work.begin(0.0)
    assert work.checkpoint_s(27.0) == 20.0
    assert work.stop(27.0).lost_s == pytest.approx(7.0)
    work.hold((0,), 50.0)
    assert work.begin(50.0) == pytest.approx(50 + 5 + 80)
    assert work.end(135.0).lost_s == 5.0


def test_a_stop_of_work_without_checkpoints_loses_all_of_it() -> None:
    work = Work(0, job("a", 0, 100))
    work.hold((0,), 0.0)
    work.begin(0.0)
    assert work.stop(99.0).lost_s == 99.0
    assert work.left_s == 100.0


def test_a_stop_while_it_restarts_loses_the_restart_alone() -> None:
    work = Work(0, job("a", 0, 100, checkpoint_every_s=10, restart_s=5))
    work.hold((0,), 0.0)
    work.begin(0.0)
    work.stop(20.0)
    work.hold((0,), 30.0)
    work.begin(30.0)
    assert work.checkpoint_s(33.0) == 30.0
    assert work.stop(33.0).lost_s == 3.0
    assert work.left_s == 85.0


def test_work_that_had_not_begun_was_not_interrupted() -> None:
    work = Work(0, job("a", 0, 100, restart_s=5))
    work.hold((0,), 0.0)
    work.begin(2.0)
    assert work.stop(1.0).lost_s == 0.0
    work.hold((0,), 3.0)
    assert work.stop(4.0).lost_s == 0.0
    assert work.left_s == 100.0


@given(
    lasts=st.floats(1, 1000),
    every=st.one_of(st.none(), st.floats(0.5, 300)),
    restart=st.floats(0, 50),
    ran=st.lists(st.floats(0, 400), max_size=6),
)
def test_time_on_nodes_is_work_done_plus_work_lost(
    lasts: float, every: float | None, restart: float, ran: list[float]
) -> None:
    work = Work(0, job("a", 0, lasts, checkpoint_every_s=every, restart_s=restart))
    now, held, lost = 0.0, 0.0, 0.0
    for seconds in ran:
        work.hold((0,), now)
        ends = work.begin(now)
        if now + seconds >= ends:
            break
        now += seconds
        attempt = work.stop(now)
        held, lost = held + seconds, lost + attempt.lost_s
        assert -1e-6 <= attempt.lost_s <= seconds + 1e-6
    work.hold((0,), now)
    ends = work.begin(now)
    lost += work.end(ends).lost_s
    assert held + (ends - now) - lost == pytest.approx(lasts, abs=1e-6)
