"""Made-up loads: the ramp and the short ones."""

from __future__ import annotations

import pytest

from headgate_replay.elastic import Call, InvalidLoadError, backlog, load_of, ramp, steady, step
from headgate_replay.elastic.bounds import stretches


def in_flight_at(load, at: float) -> int:
    return sum(call.arrived_s <= at < call.arrived_s + load.alone_s(call) for call in load.calls)


def test_the_ramp_has_its_rates_and_mean_service() -> None:
    load = ramp(seed=1)
    assert load.window_s == 3600
    assert len(load.calls) == pytest.approx(37_260, rel=0.03)
    assert load.work_s * load.slots / len(load.calls) == pytest.approx(2.0, rel=0.03)
    for since, until, rate in ((0, 600, 2), (1950, 2100, 30.5), (2100, 2220, 48), (2220, 3000, 6), (3000, 3600, 0.2)):
        arrived = sum(since <= call.arrived_s < until for call in load.calls)
        assert arrived / (until - since) == pytest.approx(rate, rel=0.1 if rate >= 1 else 0.4)


def test_one_seed_gives_one_ramp() -> None:
    assert ramp(seed=2, scale=0.02) == ramp(seed=2, scale=0.02)
    assert ramp(seed=2, scale=0.02) != ramp(seed=3, scale=0.02)


def test_a_steady_load_has_so_many_in_flight_at_every_moment() -> None:
    load = steady(7, lasts_s=20)
    running = stretches((call.arrived_s, call.arrived_s + 2.0) for call in load.calls)
    assert {one.count for one in running if 2 <= one.from_s < 19 and one.to_s - one.from_s > 1e-6} == {7}


def test_a_step_fills_so_many_workers_from_one_moment_on() -> None:
    load = step(4, at_s=10, lasts_s=20)
    assert [in_flight_at(load, at) for at in (1.0, 9.0, 11.0, 29.0)] == [1, 1, 32, 32]


def test_a_backlog_is_there_at_once() -> None:
    load = backlog(500)
    assert {call.arrived_s for call in load.calls} == {0.0}
    assert len(load.calls) == 500


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: load_of("none", [], slots=8), "none has no request"),
        (lambda: load_of("l", [Call(0.0, 0.0, 1.0)], slots=0), r"slots of a worker must be >= 1 \(got 0\)"),
        (lambda: load_of("l", [Call(0.0, 0.0, 1.0)], slots=2, step_s=[1.0]), r"2 step times > 0 \(got 1\)"),
        (lambda: ramp(scale=0), r"must be > 0 \(got 0\)"),
    ],
    ids=["empty", "no slots", "speeds", "scale"],
)
def test_what_makes_no_load_is_refused(make, says: str) -> None:
    with pytest.raises(InvalidLoadError, match=says):
        make()
