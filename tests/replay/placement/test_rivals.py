"""What each rival does: the behaviour that its docstring states."""

from __future__ import annotations

import pytest

from headgate.placement.amounts import amounts
from headgate.placement.pool import GroupShape
from headgate_replay.placement import Latencies
from headgate_replay.placement.engine import replayed
from headgate_replay.placement.peers import Easy, PlainRay, StrictFifo
from headgate_replay.placement.single_victim import SingleVictim
from tests.replay.placement.conftest import job, small, trace, waits

ROLES = {"role": {"train": ("rollout",)}}


def seed(*, victims_return: bool = True) -> SingleVictim:
    return SingleVictim(ROLES, victims_return=victims_return)


def test_plain_ray_serves_the_newest_group_first() -> None:
    jobs = trace(job("holds", 0, 10, gpus=4), job("older", 1, 10, gpus=4), job("newer", 2, 10, gpus=4))
    found = waits(jobs, small(), PlainRay())
    assert found == {"holds": 0, "older": 19, "newer": 8}


def test_plain_ray_starves_a_gang_while_smaller_groups_keep_coming() -> None:
    singles = [job(f"s{n}", 0.5 * n, 2, gpus=1) for n in range(40)]
    jobs = trace(*singles, job("gang", 1, 2, gpus=1, members=4, priority=9.0))
    found = waits(jobs, small(), PlainRay())
    assert (found["gang"] or 0) > 15


def test_plain_ray_notices_at_its_tick_what_became_free() -> None:
    jobs = trace(job("a", 0, 10, gpus=4), job("b", 1, 10, gpus=4))
    cluster = small(latencies=Latencies(create_s=0, start_s=0, untuned_s=1.0))
    assert waits(jobs, cluster, PlainRay())["b"] == pytest.approx(10.0)


def test_strict_fifo_lets_nobody_overtake() -> None:
    jobs = trace(job("holds", 0, 10, gpus=3), job("gang", 1, 10, gpus=4), job("small", 2, 1, gpus=1))
    assert waits(jobs, small(), StrictFifo()) == {"holds": 0, "gang": 9, "small": 18}


def test_backfill_overtakes_where_it_delays_nobody() -> None:
    jobs = trace(
        job("holds", 0, 10, gpus=3),
        job("gang", 1, 10, gpus=4),
        job("too-long", 2, 9, gpus=1),
        job("short", 3, 7, gpus=1),
    )
    assert waits(jobs, small(), Easy(by_priority=False)) == {"holds": 0, "gang": 9, "too-long": 18, "short": 0}


def test_backfill_of_any_length_may_take_what_the_reservation_leaves() -> None:
    jobs = trace(job("holds", 0, 10, gpus=3), job("next", 1, 10, gpus=3), job("long", 2, 100, gpus=1))
    assert waits(jobs, small(), Easy(by_priority=False)) == {"holds": 0, "next": 9, "long": 0}


def test_backfill_trusts_no_work_of_unknown_duration() -> None:
    jobs = trace(job("holds", 0, 10, gpus=3), job("gang", 1, 10, gpus=4), job("unknown", 3, 1, gpus=1, estimated_s=0.0))
    assert waits(jobs, small(), Easy(by_priority=False))["unknown"] == 17


def test_backfill_by_priority_reserves_for_the_highest() -> None:
    jobs = trace(
        job("holds", 0, 10, gpus=4), job("low", 1, 10, gpus=4, priority=2.0), job("high", 2, 10, gpus=4, priority=9.0)
    )
    assert waits(jobs, small(), Easy(by_priority=True)) == {"holds": 0, "low": 19, "high": 8}
    assert waits(jobs, small(), Easy(by_priority=False)) == {"holds": 0, "low": 9, "high": 18}


def test_the_seed_stops_one_victim_that_covers_the_request_alone() -> None:
    jobs = trace(
        job("large", 0, 100, gpus=2, priority=5.0),
        job("small-1", 0, 100, gpus=1, priority=2.0),
        job("small-2", 0, 100, gpus=1, priority=2.0),
        job("urgent", 10, 5, gpus=2, priority=9.0),
    )
    outcome = replayed(jobs, small(), seed())
    stopped = [jobs.jobs[each.job].job_id for each in outcome.attempts if not each.is_last]
    assert stopped == ["large"]
    (decision,) = outcome.decisions
    # The two small ones would have lost as much; the seed does not look for sets.
    assert decision.lost_share_s == pytest.approx(decision.least_share_s)


def test_the_seed_takes_the_victim_with_the_longest_remaining_time_whatever_it_loses() -> None:
    jobs = trace(
        job("old", 0, 1000, gpus=2, priority=5.0),
        job("young", 90, 100, gpus=2, priority=5.0),
        job("urgent", 100, 5, gpus=2, priority=9.0),
    )
    outcome = replayed(jobs, small(), seed())
    (decision,) = outcome.decisions
    assert jobs.jobs[decision.victims[0]].job_id == "old"
    assert decision.lost_share_s == pytest.approx(10 * decision.least_share_s)


def test_the_seed_waits_where_no_single_victim_covers_the_request() -> None:
    ones = [job(f"one-{n}", 0, 100, gpus=1, priority=2.0) for n in range(4)]
    jobs = trace(*ones, job("urgent", 10, 5, gpus=2, priority=9.0))
    outcome = replayed(jobs, small(), seed())
    assert not outcome.decisions
    assert outcome.finished_s[-1] == 105


def test_the_seed_leaves_work_of_nearly_the_same_priority_alone() -> None:
    jobs = trace(job("a", 0, 100, gpus=4, priority=5.0), job("b", 10, 5, gpus=4, priority=5.9))
    assert waits(jobs, small(), seed())["b"] == 90


def test_a_label_rule_of_the_seed_stops_even_slightly_higher_priorities() -> None:
    jobs = trace(
        job("r", 0, 100, gpus=4, priority=5.4, labels={"role": "rollout"}),
        job("t", 10, 5, gpus=4, priority=5.0, labels={"role": "train"}),
    )
    assert waits(jobs, small(), seed())["t"] == 0


def test_victims_of_the_seed_are_forgotten_unless_their_callers_return() -> None:
    jobs = trace(
        job("victim", 0, 100, gpus=4, priority=2.0, checkpoint_every_s=10), job("urgent", 15, 5, gpus=4, priority=9.0)
    )
    assert replayed(jobs, small(), seed(victims_return=False)).finished_s == (None, 20.0)
    assert replayed(jobs, small(), seed(victims_return=True)).finished_s == (110.0, 20.0)


def test_reserved_groups_of_the_seed_are_lent_to_nobody() -> None:
    cluster = small(reserved=(GroupShape((amounts(cpu=1, gpu=2),), "PACK"),))
    jobs = trace(
        job("low-1", 0, 50, gpus=2, priority=2.0),
        job("low-2", 0, 50, gpus=2, priority=2.0),
        job("high", 10, 5, gpus=2, priority=8.0),
    )
    assert waits(jobs, cluster, seed()) == {"low-1": 0, "low-2": 50, "high": 0}


def test_a_reserved_group_of_the_seed_is_gone_after_a_preemption() -> None:
    cluster = small(reserved=(GroupShape((amounts(cpu=1, gpu=2),), "PACK"),))
    jobs = trace(
        job("fills", 0, 1000, gpus=2, priority=2.0, preemptible=False),
        job("high", 1, 1000, gpus=2, priority=8.0),
        job("higher", 60, 10, gpus=2, priority=9.5),
        job("low", 80, 5, gpus=2, priority=2.0),
    )
    assert replayed(jobs, cluster, seed(victims_return=False)).finished_s == (1000.0, None, 70.0, 85.0)


def test_work_that_must_not_be_stopped_is_left_alone_by_the_seed_here() -> None:
    jobs = trace(job("a", 0, 100, gpus=4, priority=1.0, preemptible=False), job("b", 10, 5, gpus=4, priority=9.0))
    assert waits(jobs, small(), seed())["b"] == 90
