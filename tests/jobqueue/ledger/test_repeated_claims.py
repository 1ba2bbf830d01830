"""A claim that is asked for again with its key finds what it was given, although nobody could remember the answer."""

from __future__ import annotations

from headgate.jobqueue import ClaimRequest, JobState
from headgate.jobqueue.outcomes import Settled, Waiting
from tests.jobqueue.ledger.queue import Queue, ref, spec

REQUEST = ClaimRequest("w", count=2, key="7c9e6679")


def _served(queue: Queue) -> None:
    """Let the request stand in line and be given two jobs."""
    assert isinstance(queue.ledger.claim_or_wait(REQUEST, queue.at), Waiting)
    queue.submit(spec("1"), spec("2"))
    (settled,) = queue.ledger.settle(queue.at)
    assert isinstance(settled, Settled)


def test_jobs_of_a_request_that_stood_in_line_are_found_again_after_a_restart() -> None:
    queue = Queue()
    _served(queue)
    queue.commit()
    queue.restart()
    again = queue.ledger.claims.again(REQUEST, queue.at)
    assert {job.job_id for job in again} == {"1", "2"}
    assert {job.epoch for job in again} == {1}
    assert len({job.lease_id for job in again}) == 2
    queue.ledger.validate()


def test_neither_another_request_nor_another_worker_finds_them() -> None:
    queue = Queue()
    _served(queue)
    assert queue.ledger.claims.again(ClaimRequest("w", count=2, key="other"), queue.at) == ()
    assert queue.ledger.claims.again(ClaimRequest("v", count=2, key="7c9e6679"), queue.at) == ()
    assert queue.ledger.claims.again(ClaimRequest("w", count=2), queue.at) == ()


def test_a_job_that_was_asked_for_again_is_not_taken_back_from_its_worker() -> None:
    queue = Queue()
    _served(queue)
    one, two = queue.ledger.claims.again(REQUEST, queue.at)
    queue.ledger.claims.take_back(one, queue.at, "the worker had hung up")
    assert queue.ledger.job(one.job_id) == one
    queue.ledger.claims.give_back(ref(two), queue.at)
    queue.ledger.validate()


def test_a_job_of_which_nobody_was_told_is_taken_back_without_blame() -> None:
    queue = Queue()
    queue.submit(spec("1"))
    (job,) = queue.ledger.claims.claim(REQUEST, queue.at)
    queue.ledger.claims.take_back(job, queue.at, "the worker had hung up")
    back = queue.ledger.job("1")
    assert back is not None
    assert (back.state, back.failures) == (JobState.PENDING, 0)
    assert queue.ledger.claims.again(REQUEST, queue.at) == ()
    (second,) = queue.ledger.claims.claim(REQUEST, queue.at)
    assert second.lease_id != job.lease_id
