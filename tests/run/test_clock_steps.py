"""A clock that was set between two starts, ahead or back, stops nothing: no time is believed that cannot be true."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.core import ErrorKind
from headgate.core.events import ClockStepped, ModelPaused
from tests.run.run_world import World, models
from tests.run.test_pauses import failing

MINUTE_S, HOUR_S, DAY_S = 60.0, 3_600.0, 86_400.0
BEGIN_S = 500 * DAY_S
RATES = {"affine:sat": 1_440.0}
STEPS = [
    pytest.param(4 * MINUTE_S, id="four minutes", marks=pytest.mark.long),
    pytest.param(HOUR_S, id="an hour, as of a clock in local time"),
    pytest.param(20 * HOUR_S, id="less than a day", marks=pytest.mark.long),
    pytest.param(2 * DAY_S, id="two days", marks=pytest.mark.long),
    pytest.param(400 * DAY_S, id="more than a year"),
]


def _sampled(world: World, start_s: float, duration_s: float) -> int:
    rules = {"low_sample_threshold": 0}
    return world.run(models(2), RATES, start_s=start_s, duration_s=duration_s, settings=rules).samples


@pytest.mark.parametrize("step_s", STEPS)
@pytest.mark.parametrize("way", [1, -1], ids=["ahead", "back"])
def test_one_start_by_a_wrong_clock_costs_the_next_one_nothing(tmp_path: Path, step_s: float, way: int) -> None:
    world = World(tmp_path)
    _sampled(world, BEGIN_S, HOUR_S)
    _sampled(world, BEGIN_S + HOUR_S + way * step_s, 2 * MINUTE_S)
    after = _sampled(world, BEGIN_S + HOUR_S + 2 * MINUTE_S, HOUR_S)
    assert 110 <= after <= 130
    numbers = world.sequences()
    assert all(found == list(range(len(found))) for found in numbers.values())


def test_a_journal_ahead_of_the_clock_is_told_at_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    _sampled(world, BEGIN_S + 2 * DAY_S, 5 * MINUTE_S)
    assert world.of(ClockStepped) == []
    _sampled(world, BEGIN_S, 5 * MINUTE_S)
    (told,) = world.of(ClockStepped)
    assert told.ahead_s == pytest.approx(2 * DAY_S, abs=10 * MINUTE_S)
    _sampled(world, BEGIN_S + 10 * MINUTE_S, 5 * MINUTE_S)
    assert len(world.of(ClockStepped)) == 1


@pytest.mark.parametrize("step_s", STEPS)
def test_a_pause_of_a_wrong_clock_lasts_no_longer_than_its_own_length(tmp_path: Path, step_s: float) -> None:
    world = World(tmp_path)
    down = failing("m000", ErrorKind.AUTH, 1e12)
    world.run(models(1), RATES, start_s=BEGIN_S + step_s, duration_s=5 * MINUTE_S, script=down)
    assert len(world.of(ModelPaused)) == 1
    before = len(world.store.samples)
    world.run(models(1), RATES, start_s=BEGIN_S, duration_s=20 * MINUTE_S)
    assert len(world.store.samples) > before


def test_what_a_wrong_clock_has_stored_does_not_stop_a_new_journal(tmp_path: Path) -> None:
    world = World(tmp_path / "old")
    _sampled(world, BEGIN_S + 2 * DAY_S, 5 * MINUTE_S)
    world.folder = tmp_path / "new"
    assert _sampled(world, BEGIN_S, 10 * MINUTE_S) >= 18
