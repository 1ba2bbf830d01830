"""Policies on the real pool, in virtual time: what its users notice of them."""

from __future__ import annotations

import pytest

from headgate_replay.elastic import (
    Site,
    contender,
    drained_with_a_backlog,
    drawn,
    measured,
    operations_when_steady,
    ramp,
    roomy_site,
    starts_until_served,
    terms_of,
)

OURS = ("predictive", "target", "threshold")


@pytest.mark.parametrize("policy", OURS)
def test_a_constant_load_starts_and_drains_nobody(policy: str) -> None:
    assert operations_when_steady(policy) <= 1


@pytest.mark.parametrize("policy", OURS)
def test_nobody_is_drained_while_a_backlog_of_500_waits(policy: str) -> None:
    assert drained_with_a_backlog(policy) == 0


@pytest.mark.parametrize("start_s", [1.0, 30.0])
@pytest.mark.parametrize("policy", OURS)
def test_a_step_to_four_workers_is_served_by_four_within_two_starts(policy: str, start_s: float) -> None:
    assert starts_until_served(policy, start_s=start_s) <= 2


@pytest.mark.long  # steps, pauses and constant loads hold the policies, above and below
@pytest.mark.slow
def test_the_ramp_costs_little_and_waits_little_with_the_usual_settings() -> None:
    load = ramp()
    found = measured(load, contender("predictive").play(terms_of(load, Site(workers=16, start_s=1.0))))
    assert found.cost <= 1.65
    assert found.p99_s <= 0.5
    assert found.operations <= 45


@pytest.mark.long
@pytest.mark.slow
def test_on_the_ramp_few_wait_and_few_workers_are_moved_where_they_start_slowly() -> None:
    load = ramp()
    found = measured(load, contender("predictive").play(terms_of(load, Site(workers=16, start_s=30.0))))
    assert found.p99_s <= 1.5
    assert found.operations <= 45


def test_workers_whose_start_nobody_has_measured_are_kept_through_a_first_pause() -> None:
    load, site = roomy_site(drawn("on-off", seed=2), start_s=120.0)
    found = measured(load, contender("predictive").play(terms_of(load, site)))
    assert found.p99_s <= 10
    assert found.cost <= 2.4
    assert found.dropped == found.doubled == 0
