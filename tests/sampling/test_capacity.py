"""The capacity check names the limit that binds."""

from __future__ import annotations

import pytest

from headgate.core import Model
from headgate.sampling import CapacityCheck, capacity_check
from tests.sampling.table import MODELS, RATES


def _plan(models: list[Model], rates: dict[str, float], *, workers: int = 20, episode_s: float = 60.0) -> CapacityCheck:
    return capacity_check(
        models,
        rates,
        workers=workers,
        boost=3.0,
        episode_s=dict.fromkeys(rates, episode_s),
        is_measured=dict.fromkeys(rates, False),
    )


def test_the_seeds_table_asks_for_74_100_samples_a_day() -> None:
    plan = _plan(MODELS, RATES)
    assert plan.demanded_per_day == 95 * 780
    assert plan.boosted_per_day == 3 * 95 * 780


def test_workers_bind_where_episodes_are_long() -> None:
    plan = _plan(MODELS, RATES, workers=20, episode_s=60.0)
    assert plan.binding.name == "workers"
    assert plan.binding.carries_per_day == 20 * 86_400 / 60
    assert plan.binding.load == pytest.approx(74_100 / 28_800)
    assert not plan.fits
    assert _plan(MODELS, RATES, workers=52, episode_s=60.0).fits
    assert not _plan(MODELS, RATES, workers=51, episode_s=60.0).fits


@pytest.mark.parametrize("workers", [1, 20, 400])
def test_the_workers_needed_are_those_that_are_busy_on_average_whatever_there_are(workers: int) -> None:
    assert _plan(MODELS, RATES, workers=workers).workers_needed == pytest.approx(74_100 * 60 / 86_400)


def test_what_outside_workers_play_takes_no_worker_of_the_campaign() -> None:
    given = {"workers": 1, "boost": 1.0, "episode_s": {"e": 60.0, "robot": 600.0}, "is_measured": {}}
    models = [Model("acme/a"), Model("acme/b", uid=1)]
    plan = capacity_check(models, {"e": 720.0, "robot": 144.0}, **given, outside={"robot"})
    workers = next(limit for limit in plan.limits if limit.name == "workers")
    assert (workers.demanded_per_day, workers.carries_per_day) == (1_440.0, 1_440.0)
    assert (plan.workers_needed, plan.outside_needed) == (1.0, 2.0)


def test_a_models_parallel_limit_binds_where_workers_are_plenty() -> None:
    slow = Model("acme/slow", max_parallel=1)
    plan = _plan([*MODELS, slow], {"e": 1_000.0}, workers=10_000, episode_s=120.0)
    assert plan.binding.name == "model acme/slow@main"
    assert plan.binding.load == pytest.approx(1_000 * 120 / 86_400)


def test_models_of_one_endpoint_are_asked_of_it_together() -> None:
    models = [Model(f"acme/m{n}", base_url="http://one/v1", max_parallel=2) for n in range(3)]
    plan = _plan(models, {"e": 100.0}, workers=1_000)
    shared = next(limit for limit in plan.limits if limit.name == "endpoint http://one/v1")
    assert (shared.demanded_per_day, shared.carries_per_day) == (300.0, 6 * 86_400 / 60)
    assert [limit.load for limit in plan.limits] == sorted((limit.load for limit in plan.limits), reverse=True)


def test_the_mean_episode_is_weighed_by_the_rates() -> None:
    plan = capacity_check(
        [Model("a")],
        {"quick": 300.0, "slow": 100.0},
        workers=1,
        boost=3.0,
        episode_s={"quick": 10.0, "slow": 90.0},
        is_measured={"quick": True, "slow": False},
    )
    (model,) = (limit for limit in plan.limits if limit.name.startswith("model"))
    assert model.carries_per_day == Model("a").max_parallel * 86_400 / 30.0
    assert plan.is_measured == {"quick": True, "slow": False}


@pytest.mark.parametrize(("models", "rates"), [([], RATES), (MODELS, {})])
def test_nothing_asked_for_fits(models: list[Model], rates: dict[str, float]) -> None:
    plan = _plan(models, rates)
    assert plan.demanded_per_day == 0
    assert plan.fits
    assert plan.workers_needed == 0


def test_episodes_that_take_no_time_need_no_workers() -> None:
    plan = _plan(MODELS, RATES, episode_s=0.0)
    assert plan.fits
    assert plan.workers_needed == 0
