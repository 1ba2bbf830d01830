"""Who may be stopped for whom: each rule alone, at its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.placement.amounts import NOTHING, amounts
from headgate.placement.pool import Pool
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import PreemptionRules, checked_rules
from headgate.placement.victims import lost_work, promoted_band, reason, refusal

_RULES = checked_rules(label_rules={"role": {"train": ["reward"], "reward": ["rollout"]}})
_LOW = PlacementRequest("low", "p", (amounts(cpu=1),), priority=3.0)
_TOP = PlacementRequest("top", "p", (amounts(cpu=1),), priority=9.0)
_POOL = Pool("p", amounts(cpu=8))
_NOW = 1_000.0


def _running(request: PlacementRequest = _LOW, **changes: Any) -> Occupancy:
    return replace(
        Occupancy(request, "driver", 0.0, 0, stage=Stage.RUNNING, started_at=0.0),
        **changes,
    )


def _rule(
    victim: Occupancy, preemptor: PlacementRequest = _TOP, rules: PreemptionRules = _RULES, **more: Any
) -> str | None:
    found = refusal(preemptor, victim, more.pop("pool", _POOL), rules, more.pop("now", _NOW), **more)
    assert found is None or victim.request_id in found.says
    return None if found is None else found.rule


def test_running_work_far_below_may_be_stopped() -> None:
    assert _rule(_running()) is None


@pytest.mark.parametrize("stage", [each for each in Stage if each is not Stage.RUNNING])
def test_only_what_runs_is_stopped(stage: Stage) -> None:
    expected = "already_stopping" if stage is Stage.STOPPING else "not_running"
    assert _rule(_running(stage=stage)) == expected


def test_a_loan_is_taken_back_whatever_its_age_and_priority() -> None:
    lent = _running(replace(_TOP, request_id="lent", preemptible=False), started_at=_NOW, preemptions=9)
    assert _rule(lent, _LOW) == "not_preemptible"
    assert _rule(lent, _LOW, reclaim=True) is None
    lent.stage = Stage.PLACING
    assert _rule(lent, _LOW, reclaim=True) is None
    lent.stage = Stage.STOPPING
    assert _rule(lent, _LOW, reclaim=True) == "already_stopping"
    lent.stage = Stage.WAITING
    assert _rule(lent, _LOW, reclaim=True) == "not_running"


def test_what_is_not_preemptible_is_never_stopped() -> None:
    assert _rule(_running(replace(_LOW, preemptible=False))) == "not_preemptible"


def test_work_stopped_too_often_is_spared_and_waits_a_band_higher() -> None:
    often, rarely = _running(preemptions=3), _running(preemptions=2)
    assert _rule(often) == "preempted_too_often"
    assert _rule(rarely) is None
    assert (promoted_band(often, _RULES), promoted_band(rarely, _RULES)) == (4, 3)
    never = checked_rules(max_preemptions=0)
    assert _rule(rarely, rules=never) == "preempted_too_often"
    assert promoted_band(rarely, never) == 3
    assert promoted_band(_running(replace(_LOW, priority=-0.5)), _RULES) == -1


def test_young_work_is_left_until_it_ran_long_enough() -> None:
    young = _running(started_at=970.5)
    found = refusal(_TOP, young, _POOL, _RULES, _NOW)
    assert found is not None
    assert (found.rule, found.until) == ("too_young", 1_000.5)
    assert "29.5 s" in found.says
    assert _rule(young, now=1_000.5) is None
    assert _rule(_running(replace(_LOW, min_runtime_s=0.0), started_at=_NOW)) is None
    assert _rule(_running(replace(_LOW, min_runtime_s=2_000.0))) == "too_young"
    assert _rule(_running(started_at=None)) == "too_young"


def test_work_about_to_end_is_waited_for() -> None:
    ends = _running(replace(_LOW, estimated_duration_s=1_000.5))
    found = refusal(_TOP, ends, _POOL, _RULES, _NOW)
    assert found is not None
    assert (found.rule, found.until) == ("ends_soon", 1_000.5)
    assert _rule(ends, now=999.5) is None
    assert _rule(ends, now=1_000.5) is None, "it runs longer than it was said to"


def test_work_of_other_pools_is_stopped_only_when_allowed() -> None:
    other = _running(replace(_LOW, pool="q"))
    pool, crossing = Pool("q", amounts(cpu=8)), checked_rules(cross_pool=True)
    assert _rule(other, pool=pool) == "other_pool"
    assert _rule(other, pool=pool, rules=crossing) is None
    assert _rule(other, pool=replace(pool, protected=True), rules=crossing) == "protected_pool"
    assert _rule(other, replace(_TOP, priority=7.999), pool=pool, rules=crossing) == "priority_difference"
    assert _rule(other, replace(_TOP, priority=8.0), pool=pool, rules=crossing) is None


def test_a_protected_pool_does_not_protect_from_its_own_work() -> None:
    assert _rule(_running(), pool=replace(_POOL, protected=True)) is None


def test_labels_do_not_cross_pools_unless_allowed() -> None:
    rollout = _running(replace(_LOW, pool="q", labels={"role": "rollout"}))
    reward = replace(_LOW, request_id="reward", labels={"role": "reward"})
    pool = Pool("q", amounts(cpu=8))
    assert _rule(rollout, reward, pool=pool) == "other_pool"
    crossing = checked_rules(cross_pool=True, label_rules=_RULES.label_rules)
    assert _rule(rollout, reward, pool=pool, rules=crossing) is None
    assert _rule(rollout, reward, pool=replace(pool, protected=True), rules=crossing) == "protected_pool"


@pytest.mark.parametrize(("mine", "rule"), [(4.0, None), (3.999, "priority_difference"), (3.0, "priority_difference")])
def test_priority_must_be_ahead_by_the_threshold(mine: float, rule: str | None) -> None:
    assert _rule(_running(), replace(_TOP, priority=mine)) == rule


def test_priorities_are_compared_in_thousandths() -> None:
    rules = checked_rules(label_threshold=0.1, same_pool_threshold=0.2)
    assert _rule(_running(replace(_LOW, priority=0.1)), replace(_TOP, priority=0.3), rules) is None


def test_labels_stop_equal_and_slightly_higher_priorities() -> None:
    reward = replace(_TOP, labels={"role": "reward"}, priority=3.0)
    rollout = replace(_LOW, labels={"role": "rollout"})
    assert _rule(_running(rollout), reward) is None
    assert _rule(_running(replace(rollout, priority=3.499)), reward) is None
    assert _rule(_running(replace(rollout, priority=3.5)), reward) == "label_difference"
    single = checked_rules(label_rules={"role": {"reward": ["rollout"]}})
    assert _rule(_running(replace(rollout, priority=3.5)), reward, single) is None
    assert _rule(_running(replace(rollout, priority=3.501)), reward, single) == "label_difference"


def test_what_labels_put_first_is_never_stopped_from_below() -> None:
    train = _running(replace(_LOW, labels={"role": "train"}))
    assert _rule(train, replace(_TOP, labels={"role": "rollout"})) == "outranked_by_label"
    assert _rule(train, _TOP) is None


def test_the_reason_names_the_rule() -> None:
    rollout, train = replace(_LOW, labels={"role": "rollout"}), replace(_TOP, labels={"role": "train"})
    assert reason(train, rollout, _RULES) == "label_based_preemption"
    assert reason(train, replace(rollout, pool="q"), _RULES) == "label_based_preemption"
    assert reason(_TOP, _LOW, _RULES) == "same_pool_preemption"
    assert reason(_TOP, replace(_LOW, pool="q"), _RULES) == "cross_pool_preemption"
    assert reason(train, rollout, _RULES, reclaim=True) == "reclaimed"


def test_lost_work_counts_from_the_last_checkpoint() -> None:
    cluster = amounts(cpu=4, gpu=8)
    request = replace(_LOW, bundles=(amounts(cpu=1, gpu=1), amounts(cpu=1, gpu=1)), restart_s=6.0)
    assert lost_work(_running(request, saved_at=900.0), cluster, _NOW) == 0.5 * (100 + 6)
    assert lost_work(_running(replace(request, checkpoints=False), saved_at=900.0), cluster, _NOW) == 0.5 * 1_006
    assert lost_work(_running(request, started_at=950.0), cluster, _NOW) == 0.5 * 56
    assert lost_work(_running(request, saved_at=1_001.0), cluster, _NOW) == 3.0
    assert lost_work(_running(request, started_at=None), cluster, _NOW) == 3.0
    assert lost_work(_running(request), NOTHING, _NOW) == 0.0
