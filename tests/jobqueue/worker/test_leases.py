"""When a worker renews, and when it stops believing."""

from __future__ import annotations

import pytest

from headgate.jobqueue.wire import JobLeaseIn
from headgate.jobqueue.worker.leases import FENCE_MARGIN_S, JobLease, Leases


def ref(number: int) -> JobLeaseIn:
    return JobLeaseIn(job_id=str(number), lease_id=f"{number:032x}", epoch=1)


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture(autouse=True)
def lease(leases: Leases) -> JobLease:
    return leases.add(ref(1), 90.0, asked_at=99.0, now=100.0)


def test_a_lease_is_renewed_after_a_third_of_its_time(leases: Leases, lease: JobLease) -> None:
    assert leases.next_renewal() == 129.0
    assert leases.due(128.9) == []
    assert leases.due(129.0) == [lease]
    leases.confirmed(lease, sent_at=129.0)
    assert leases.next_renewal() == 159.0
    leases.validate()


def test_one_request_renews_everything_as_soon_as_one_is_due(leases: Leases, lease: JobLease) -> None:
    other = leases.add(ref(2), 90.0, asked_at=120.0, now=120.0)
    assert leases.due(129.0) == [lease, other]


def test_a_claim_whose_answer_took_long_is_renewed_at_once(leases: Leases) -> None:
    leases.add(ref(2), 90.0, asked_at=50.0, now=100.0)
    assert leases.next_renewal() == 100.0
    leases.validate()


def test_a_renewal_that_fails_is_tried_again_long_before_the_fence(leases: Leases, lease: JobLease) -> None:
    leases.unconfirmed([lease], 130.0)
    assert leases.next_renewal() == 133.0


def test_a_lease_is_fenced_before_the_server_can_give_the_job_away(leases: Leases) -> None:
    deadline = leases.next_deadline()
    assert deadline == 190.0 - FENCE_MARGIN_S
    assert leases.fenced(deadline - 0.01) == []
    assert [one.ref for one in leases.fenced(deadline)] == [ref(1)]


def test_work_that_takes_long_to_stop_is_stopped_earlier_but_not_before_half_of_its_lease(
    leases: Leases, lease: JobLease
) -> None:
    lease.stop_s = 10.0
    assert leases.next_deadline() == 190.0 - FENCE_MARGIN_S - 10.0
    lease.stop_s = 1_000.0
    assert leases.next_deadline() == 145.0


def test_a_renewal_counts_from_when_it_was_sent_and_never_backwards(leases: Leases, lease: JobLease) -> None:
    leases.confirmed(lease, sent_at=130.0)
    leases.confirmed(lease, sent_at=120.0)
    assert lease.confirmed_at == 130.0


def test_who_tells_the_server_of_the_end_is_not_fenced(leases: Leases, lease: JobLease) -> None:
    lease.is_ending = True
    assert leases.fenced(1_000.0) == []
    assert leases.next_deadline() is None
    assert leases.due(1_000.0) == [lease]


def test_work_that_does_not_go_on_is_stalled(leases: Leases, lease: JobLease) -> None:
    lease.stall_after_s = 20.0
    assert leases.next_deadline() == 120.0
    assert leases.stalled(119.0) == []
    lease.moved_at = 110.0
    assert leases.stalled(120.0) == []
    assert leases.stalled(130.0) == [lease]


def test_a_lease_that_is_dropped_is_forgotten(leases: Leases, lease: JobLease) -> None:
    leases.drop(lease)
    leases.drop(lease)
    assert lease not in leases
    assert (leases.next_renewal(), leases.next_deadline(), leases.due(1e9)) == (None, None, [])
