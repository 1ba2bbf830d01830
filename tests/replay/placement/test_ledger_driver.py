"""The placement ledger under a trace: what it must do better than every rival, and that nothing is overcommitted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.placement.amounts import amounts
from headgate.placement.pool import GroupShape
from headgate.placement.rules import PreemptionRules
from headgate_replay.placement import Cluster, Outcome, Trace, cluster_of, generated, measured, through_ledger
from headgate_replay.placement.engine import replayed
from headgate_replay.placement.peers import Easy
from headgate_replay.placement.single_victim import SingleVictim
from tests.examples import examples
from tests.replay.placement.conftest import job, small, trace, waits_of

ROLES = {"role": {"train": ("reward", "rollout"), "reward": ("rollout",), "urgent": ("batch",)}}
RULES = PreemptionRules(label_rules=ROLES)


def played(jobs: Trace, cluster: Cluster, rules: PreemptionRules = RULES) -> Outcome:
    return through_ledger(jobs, cluster, rules, validates=True)


def stopped(jobs: Trace, outcome: Outcome) -> set[str]:
    return {jobs.jobs[each.job].job_id for each in outcome.attempts if not each.is_last}


def test_work_that_fits_starts_at_once() -> None:
    jobs = trace(job("a", 0, 10, gpus=2), job("b", 5, 10, gpus=2))
    assert waits_of(jobs, played(jobs, small())) == pytest.approx({"a": 0, "b": 0})


def test_several_small_victims_are_stopped_where_no_single_one_is_enough() -> None:
    ones = [job(f"one-{n}", 0, 500, gpus=1, priority=2.0, checkpoint_every_s=10) for n in range(4)]
    jobs = trace(*ones, job("urgent", 100, 5, gpus=2, priority=9.0))
    outcome = played(jobs, small())
    assert waits_of(jobs, outcome)["urgent"] == pytest.approx(0, abs=0.5)
    assert len(stopped(jobs, outcome)) == 2
    assert None not in outcome.finished_s


def test_the_victim_is_who_loses_least_and_not_who_has_most_left() -> None:
    jobs = trace(
        job("old", 0, 1000, gpus=2, priority=5.0),
        job("young", 90, 100, gpus=2, priority=5.0),
        job("urgent", 150, 5, gpus=2, priority=9.0),
    )
    outcome = played(jobs, small())
    assert stopped(jobs, outcome) == {"young"}
    (decision,) = outcome.decisions
    assert decision.lost_share_s == pytest.approx(decision.least_share_s)


def test_nobody_is_stopped_where_what_is_free_helps() -> None:
    jobs = trace(job("a", 0, 500, gpus=2, priority=2.0), job("b", 100, 5, gpus=2, priority=9.0))
    assert not stopped(jobs, played(jobs, small()))


def test_a_gang_at_the_head_is_not_starved_by_smaller_work() -> None:
    singles = [job(f"s{n}", 5.0 * n, 20, gpus=1) for n in range(60)]
    jobs = trace(*singles, job("gang", 12, 10, gpus=1, members=4, priority=5.5))
    found = waits_of(jobs, played(jobs, small()))
    assert (found["gang"] or 0) <= 40


def test_reserved_groups_are_used_by_right_and_lent_otherwise() -> None:
    cluster = small(gpus=4, reserved=(GroupShape((amounts(cpu=1, gpu=2),), "PACK"),))
    jobs = trace(
        job("low-1", 0, 500, gpus=2, priority=2.0, checkpoint_every_s=10),
        job("low-2", 0, 500, gpus=2, priority=2.0, checkpoint_every_s=10),
        job("high", 100, 10, gpus=2, priority=9.0),
    )
    outcome = played(jobs, cluster)
    found = waits_of(jobs, outcome)
    assert found["low-1"] == pytest.approx(0, abs=200)
    assert found["high"] == pytest.approx(0, abs=0.5)
    assert len(stopped(jobs, outcome)) == 1
    assert None not in outcome.finished_s


@pytest.mark.parametrize("mix", ["rlhf", "gangs"])
def test_on_a_mix_high_priority_waits_less_than_by_backfill_and_the_seeds_rule(mix: str) -> None:
    cluster = cluster_of(nodes=2)
    jobs = generated(mix, cluster, hours=3, seed=1)
    ours = measured(jobs, cluster, through_ledger(jobs, cluster, RULES))
    seeds = measured(jobs, cluster, replayed(jobs, cluster, SingleVictim(ROLES, victims_return=True)))
    easy = measured(jobs, cluster, replayed(jobs, cluster, Easy(by_priority=True)))
    assert ours.never_done == 0
    assert ours.victims_done == ours.victims
    assert (ours.high.p95_s or 0) < min(seeds.high.p95_s or 0, easy.high.p95_s or 0)
    assert (ours.decisions > 0, ours.exact_share) == (True, 1.0)
    assert ours.lost_over_least_in_band is not None
    assert ours.lost_over_least_in_band <= 1.2


def test_the_same_trace_gives_the_same_record() -> None:
    cluster = cluster_of(nodes=1)
    jobs = generated("rlhf", cluster, hours=4, seed=2)
    first, second = (through_ledger(jobs, cluster, RULES) for _ in range(2))
    assert (first.attempts, first.finished_s) == (second.attempts, second.finished_s)


def _job(number: int, row: tuple[int, int, int, int, float, Any]) -> Any:
    at, lasts, gpus, members, priority, every = row
    return job(
        f"j{number}", at, lasts, gpus=gpus, members=members, priority=priority, checkpoint_every_s=every, restart_s=1.0
    )


JOBS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(1, 200),
        st.integers(1, 4),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([2.0, 5.0, 8.0, 9.0]),
        st.sampled_from([None, 10.0, 60.0]),
    ),
    min_size=1,
    max_size=15,
).map(lambda rows: trace(*(_job(number, row) for number, row in enumerate(rows))))


@given(JOBS)
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_every_job_is_done_and_no_node_is_overcommitted(jobs: Trace) -> None:
    cluster = cluster_of(nodes=2, gpus=4, cpus=64, memory_gib=64)
    outcome = played(jobs, cluster)
    assert None not in outcome.finished_s
    for decision in outcome.decisions:
        assert decision.lost_share_s >= decision.least_share_s - 1e-9
        assert decision.least_in_band_share_s >= decision.least_share_s - 1e-9
