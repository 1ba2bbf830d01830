"""When a worker renews, and when it stops believing."""

from __future__ import annotations

import pytest

from headgate.jobqueue.wire import JobLeaseIn
from headgate.jobqueue.worker.heartbeat import FENCE_MARGIN_S, Leases


def ref(number: int) -> JobLeaseIn:
    return JobLeaseIn(job_id=str(number), lease_id=f"{number:032x}", epoch=1)


@pytest.fixture
def leases() -> Leases:
    found = Leases()
    found.add(ref(1), 90.0, asked_at=99.0, now=100.0)
    return found


def test_a_lease_is_renewed_after_a_third_of_its_time(leases: Leases) -> None:
    assert leases.next_renewal() == 129.0
    assert leases.due(128.9) == []
    assert leases.due(129.0) == [ref(1)]
    leases.confirmed(ref(1).lease_id, sent_at=129.0)
    assert leases.next_renewal() == 159.0
    leases.validate()


def test_one_request_renews_everything_as_soon_as_one_is_due(leases: Leases) -> None:
    leases.add(ref(2), 90.0, asked_at=120.0, now=120.0)
    assert leases.due(129.0) == [ref(1), ref(2)]


def test_a_claim_whose_answer_took_long_is_renewed_at_once(leases: Leases) -> None:
    leases.add(ref(2), 90.0, asked_at=50.0, now=100.0)
    assert leases.next_renewal() == 100.0
    leases.validate()


def test_a_renewal_that_fails_is_tried_again_long_before_the_fence(leases: Leases) -> None:
    leases.unconfirmed([ref(1)], 130.0)
    assert leases.next_renewal() == 133.0


def test_a_lease_is_fenced_before_the_server_can_give_the_job_away(leases: Leases) -> None:
    deadline = leases.next_deadline()
    assert deadline == 190.0 - FENCE_MARGIN_S
    assert leases.fenced(deadline - 0.01) == []
    assert [tenure.ref for tenure in leases.fenced(deadline)] == [ref(1)]


def test_work_that_takes_long_to_stop_is_stopped_earlier_but_not_before_half_of_its_lease(leases: Leases) -> None:
    tenure = leases.get(ref(1).lease_id)
    assert tenure is not None
    tenure.stop_s = 10.0
    assert leases.next_deadline() == 190.0 - FENCE_MARGIN_S - 10.0
    tenure.stop_s = 1_000.0
    assert leases.next_deadline() == 145.0


def test_a_renewal_counts_from_when_it_was_sent_and_never_backwards(leases: Leases) -> None:
    leases.confirmed(ref(1).lease_id, sent_at=130.0)
    leases.confirmed(ref(1).lease_id, sent_at=120.0)
    tenure = leases.get(ref(1).lease_id)
    assert tenure is not None
    assert tenure.confirmed_at == 130.0


def test_who_tells_the_server_of_the_end_is_not_fenced(leases: Leases) -> None:
    tenure = leases.get(ref(1).lease_id)
    assert tenure is not None
    tenure.is_ending = True
    assert leases.fenced(1_000.0) == []
    assert leases.next_deadline() is None
    assert leases.due(1_000.0) == [ref(1)]


def test_work_that_does_not_go_on_is_stalled(leases: Leases) -> None:
    tenure = leases.get(ref(1).lease_id)
    assert tenure is not None
    tenure.stall_after_s = 20.0
    assert leases.next_deadline() == 120.0
    assert leases.stalled(119.0) == []
    tenure.moved_at = 110.0
    assert leases.stalled(120.0) == []
    assert leases.stalled(130.0) == [tenure]


def test_a_lease_that_is_dropped_is_forgotten(leases: Leases) -> None:
    leases.drop(ref(1).lease_id)
    leases.drop(ref(1).lease_id)
    leases.confirmed(ref(1).lease_id, 1.0)
    leases.unconfirmed([ref(1)], 1.0)
    assert (len(leases), leases.next_renewal(), leases.next_deadline(), leases.due(1e9)) == (0, None, None, [])
