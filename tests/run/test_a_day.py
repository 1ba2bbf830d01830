"""A simulated day: exact counts, boost, spread, restarts."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.core import DAY_S
from headgate.core.events import BoostChanged
from headgate.sampling import NEW_PAIRS_PER_S
from headgate.simulation import ServiceTime
from tests.run.run_world import EIGHT, World, models

pytestmark = pytest.mark.usefixtures("day_long")

RARELY = {"batch_flush_interval": 60, "status_interval_s": 600}
"""What happens on the side in a day, which is not looked at here."""


def test_every_model_gets_its_daily_rate_in_every_environment(world: World) -> None:
    world.run(
        models(3),
        EIGHT,
        duration_s=DAY_S,
        service=ServiceTime(20.0, 0.5),
        settings={"low_sample_threshold": 0, "num_evaluation_workers": 64} | RARELY,
    )
    for environment, rate in EIGHT.items():
        for model, count in world.counts()[environment].items():
            assert abs(count - rate) <= 1, (environment, model, count)
    assert all(len(counts) == 3 for counts in world.counts().values())


def test_95_new_models_have_a_sample_in_every_environment_within_a_minute_and_no_herd(world: World) -> None:
    world.run(models(95), EIGHT, duration_s=60, settings={"num_evaluation_workers": 512})
    assert {environment: len(counts) for environment, counts in world.counts().items()} == dict.fromkeys(EIGHT, 95)
    per_second = Counter(int(sample.started_at) for sample in world.store.samples)
    assert max(per_second.values()) <= 2 * NEW_PAIRS_PER_S


def test_a_model_with_few_samples_is_sampled_three_times_as_fast_until_it_has_two_hundred(world: World) -> None:
    world.run(models(1), EIGHT, duration_s=DAY_S, settings={"num_evaluation_workers": 64} | RARELY)
    (change,) = world.of(BoostChanged)
    assert change.multiplier == 1.0
    assert change.samples_24h == 200
    until_boost_ends_s = 200 / (sum(EIGHT.values()) * 3) * DAY_S
    boosted = [s for s in world.store.samples if s.finished_at - 1_767_225_600.0 <= until_boost_ends_s * 1.1]
    assert 195 <= len(boosted) <= 225
    expected = 200 + sum(EIGHT.values()) * (DAY_S - until_boost_ends_s) / DAY_S
    assert abs(len(world.store.samples) - expected) <= 2 * len(EIGHT)


@pytest.mark.parametrize(
    "cut_s", [1.0, pytest.param(3_333.3, marks=pytest.mark.long), pytest.param(40_000.0, marks=pytest.mark.long)]
)
def test_a_restart_in_the_middle_changes_no_count(world: World, cut_s: float) -> None:
    rates = {"affine:sat": 240.0, "agentgym:babyai": 480.0}
    half_day = {"duration_s": DAY_S / 2, "settings": {"low_sample_threshold": 0} | RARELY}
    world.run(models(3), rates, **{**half_day, "duration_s": cut_s})
    world.run(models(3), rates, start_s=cut_s, **{**half_day, "duration_s": DAY_S / 2 - cut_s})
    for environment, rate in rates.items():
        for model, count in world.counts()[environment].items():
            assert abs(count - rate / 2) <= 1, (environment, model, count)
    for numbers in world.sequences().values():
        assert numbers == list(range(len(numbers)))


def test_a_restart_without_journal_takes_totals_and_numbers_from_the_store(world: World, tmp_path) -> None:
    rates = {"affine:sat": 7_200.0}
    world.run(models(1), rates, duration_s=3_600)
    assert world.of(BoostChanged), "the model reached 200 samples"
    world.folder = tmp_path / "another machine"
    world.events.clear()
    world.run(models(1), rates, start_s=3_700, duration_s=3_600)
    assert not world.of(BoostChanged), "history must keep the model from being boosted again"
    (numbers,) = world.sequences().values()
    assert numbers == list(range(len(numbers)))


def test_the_same_seed_gives_the_same_day(tmp_path) -> None:
    runs = []
    for name in ("a", "b"):
        world = World(tmp_path / name)
        world.run(models(4), EIGHT, duration_s=3_600, service=ServiceTime(5.0, 1.0))
        runs.append([(s.task_id, s.started_at, s.score) for s in world.store.samples])
    assert runs[0] == runs[1]
