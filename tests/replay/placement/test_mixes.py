"""Generated mixes and the simulated cluster."""

from __future__ import annotations

import pytest

from headgate.placement.amounts import amounts
from headgate.placement.errors import CannotFitError
from headgate_replay.placement import MIXES, InvalidTraceError, cluster_of, generated
from headgate_replay.placement.comparison import check_fits
from tests.replay.placement.conftest import job, small, trace


@pytest.mark.parametrize("mix", list(MIXES))
def test_the_same_seed_gives_the_same_jobs_and_another_seed_others(mix: str) -> None:
    cluster = cluster_of()
    assert generated(mix, cluster, hours=2, seed=7) == generated(mix, cluster, hours=2, seed=7)
    assert generated(mix, cluster, hours=2, seed=7).jobs != generated(mix, cluster, hours=2, seed=8).jobs


@pytest.mark.parametrize("mix", list(MIXES))
def test_a_mix_asks_for_about_the_load_that_it_was_asked_for(mix: str) -> None:
    cluster = cluster_of()
    found = [generated(mix, cluster, hours=24, load=0.8, seed=seed) for seed in range(3)]
    asked = [sum(each.gpus * each.duration_s for each in one.jobs) / (32 * 24 * 3600) for one in found]
    assert sum(asked) / len(asked) == pytest.approx(0.8, rel=0.15)


@pytest.mark.parametrize("mix", list(MIXES))
def test_every_job_of_a_mix_fits_the_cluster_that_it_was_made_for(mix: str) -> None:
    check_fits(generated(mix, cluster_of(), hours=4), cluster_of())


def test_training_is_made_of_gangs_with_the_highest_priority() -> None:
    jobs = generated("rlhf", cluster_of(), hours=12).jobs
    trains = [each for each in jobs if each.labels["role"] == "train"]
    assert trains
    assert all(len(each.bundles) >= 2 and each.priority == 9.0 for each in trains)


@pytest.mark.parametrize(("hours", "load"), [(0, 0.9), (24, 0), (24, 11), (float("inf"), 0.9)])
def test_numbers_that_make_no_mix_are_refused(hours: float, load: float) -> None:
    with pytest.raises(InvalidTraceError, match="hours must be in"):
        generated("rlhf", cluster_of(), hours=hours, load=load)


def test_an_unknown_mix_and_a_cluster_without_gpus_are_refused() -> None:
    with pytest.raises(InvalidTraceError, match="there are rlhf, gangs, storm"):
        generated("rlfh", cluster_of())
    with pytest.raises(InvalidTraceError, match="needs a simulated cluster with GPUs"):
        generated("rlhf", cluster_of(gpus=0))


def test_a_cluster_has_nodes_and_they_have_something() -> None:
    with pytest.raises(InvalidTraceError, match=r"at least 1 node \(got 0\)"):
        cluster_of(nodes=0)
    with pytest.raises(InvalidTraceError, match="got none of them"):
        cluster_of(gpus=0, cpus=0, memory_gib=0)


def test_a_job_larger_than_any_node_is_refused_with_its_name() -> None:
    with pytest.raises(CannotFitError, match="job big takes 1 CPU, 5 GPU"):
        check_fits(trace(job("ok", 0, 1), job("big", 1, 1, gpus=5)), small(nodes=3))


def test_a_gang_that_the_cluster_can_never_hold_is_refused() -> None:
    gang = job("gang", 0, 1, gpus=1, members=3, strategy="STRICT_SPREAD")
    with pytest.raises(CannotFitError, match=r"3 x 1 CPU, 1 GPU \(STRICT_SPREAD\)"):
        check_fits(trace(gang), small(nodes=2))
    check_fits(trace(gang), small(nodes=3))


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    import dataclasses

    odd = dataclasses.replace(job("odd", 0, 1), bundles=(amounts(custom={"tpu": 1}),))
    with pytest.raises(CannotFitError):
        check_fits(trace(odd), small())
