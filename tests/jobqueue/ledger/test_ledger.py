"""What the ledger takes in, what survives a restart, and who is served of those who wait."""

from __future__ import annotations

import pytest

from headgate.jobqueue import ClaimRequest, Completion, Ended, Happening, ImportedJob, Job, JobState
from headgate.jobqueue.errors import InvalidJobError, JobConflictError, WrongStateError
from headgate.jobqueue.ledger import new_lease_id
from headgate.jobqueue.outcomes import Renewed, Repeated, Submitted, Waiting
from headgate.jobqueue.records import Reply
from headgate.jobqueue.resource import ResourceState
from tests.jobqueue.ledger.queue import POOL, Queue, ref, reservation, server, spec


@pytest.fixture
def queue() -> Queue:
    return Queue()


def waits(queue: Queue, worker: str = "worker", count: int = 1, **filters: frozenset[str]) -> int:
    outcome = queue.ledger.claim_or_wait(ClaimRequest(worker, count, **filters), queue.at)
    assert isinstance(outcome, Waiting)
    return outcome.ticket


def jobs_of(outcome: object) -> list[str]:
    assert isinstance(outcome, tuple)
    return [job.job_id for job in outcome if isinstance(job, Job)]


# Submission.


@pytest.mark.parametrize("committed", [True, False])
def test_jobs_submitted_again_are_counted_and_left_alone(queue: Queue, committed: bool) -> None:
    assert queue.ledger.submit([spec("1"), spec("2")], queue.at) == Submitted(2, 0)
    if committed:
        queue.commit()
    assert queue.ledger.submit([spec("2"), spec("3")], queue.at) == Submitted(1, 1)
    assert queue.ids(count=9) == ["1", "2", "3"]
    assert len(queue.entries(Happening.SUBMITTED)) == 3


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_in_any_state_is_known_by_its_name(queue: Queue, state: JobState) -> None:
    queue.submit(spec("1"))
    if state is not JobState.PENDING:
        job = queue.one()
        if state is JobState.DONE:
            queue.ledger.claims.complete(ref(job), Completion(), queue.at)
        elif state is JobState.DEAD:
            queue.fail(job, retry=False)
    queue.commit()
    queue.restart()
    before = queue.job("1")
    assert before.state is state
    assert queue.ledger.submit([spec("1")], queue.at) == Submitted(0, 1)
    with pytest.raises(JobConflictError):
        queue.submit(spec("1", task="another"))
    assert queue.job("1") == before
    assert not queue.ledger.changes


def test_one_conflict_keeps_all_out(queue: Queue) -> None:
    queue.submit(spec("1"))
    queue.commit()
    with pytest.raises(JobConflictError, match="'1' exists with other contents"):
        queue.submit(spec("2"), spec("1", priority=3), spec("3"))
    assert not queue.ledger.changes
    assert queue.ledger.job("2") is None
    queue.ledger.validate()


def test_a_job_named_twice_keeps_all_out(queue: Queue) -> None:
    with pytest.raises(InvalidJobError, match="'2' is named twice"):
        queue.submit(spec("1"), spec("2"), spec("2"))
    assert not queue.ledger.changes


def test_adopted_jobs_bring_along_what_happened_to_them(queue: Queue) -> None:
    adopted = [ImportedJob(spec("1"), is_done=True, attempts=1), ImportedJob(spec("2"), attempts=4)]
    assert queue.ledger.adopt(adopted, queue.at) == Submitted(2, 0)
    assert queue.ledger.adopt(adopted, queue.at) == Submitted(0, 2)
    assert (queue.state("1"), queue.job("1").epoch) == (JobState.DONE, 1)
    job = queue.one()
    assert (job.job_id, job.epoch) == ("2", 5)
    assert [one.note for one in queue.entries(Happening.SUBMITTED)] == ["already done", ""]


# Restarts.


def test_a_restart_gives_every_running_lease_a_full_period(queue: Queue) -> None:
    queue.add(server(0))
    queue.submit(spec("1", pool=POOL), spec("2"))
    by_id = {job.job_id: job for job in queue.claim(count=2)}
    queue.reserved(by_id["1"])
    queue.passes(80)
    queue.commit()
    queue.restart()
    assert queue.ledger.next_deadline() == queue.at.now + 90
    assert queue.passes(90) == []
    assert queue.ledger.servers.held_by("1") is not None
    assert set(queue.passes(1)) == {"1", "2"}
    assert queue.ledger.servers.held_by("1") is None


def test_a_restart_knows_who_holds_what(queue: Queue) -> None:
    queue.add(server(0), server(1))
    queue.submit(*(spec(f"{n}", pool=POOL) for n in range(3)))
    first, second = queue.claim("a"), queue.claim("b")
    held = queue.reserved(first[0])
    queue.commit()
    queue.restart()
    assert queue.ledger.claims.of_worker("a") == first
    assert queue.ledger.claims.of_worker("b") == second
    assert queue.ledger.claims.workers == 2
    assert queue.ledger.claims.renew(ref(first[0]), queue.at) == Renewed(first[0], held)
    assert queue.reserved(second[0]).index == 1
    assert isinstance(queue.ledger.claims.complete(ref(first[0]), Completion(), queue.at), Ended)


def test_what_was_not_committed_never_happened(queue: Queue) -> None:
    queue.submit(spec("1"))
    queue.commit()
    lost = queue.one()
    queue.ledger.claims.complete(ref(lost), Completion(), queue.at)
    queue.restart()
    assert queue.state("1") is JobState.PENDING
    again = queue.one()
    assert again.epoch == lost.epoch
    assert again.lease_id != lost.lease_id


def test_a_completion_is_known_after_a_restart(queue: Queue) -> None:
    queue.submit(spec("1"))
    job = queue.one()
    queue.ledger.claims.complete(ref(job), Completion('{"a": 1}'), queue.at)
    queue.commit()
    queue.restart()
    assert isinstance(queue.ledger.claims.complete(ref(job), Completion('{"a": 1}'), queue.at), Repeated)


def test_leases_get_a_full_period_when_nobody_could_be_heard(queue: Queue) -> None:
    queue.add(server(0))
    queue.submit(spec("1", pool=POOL))
    queue.reserved(queue.one())
    queue.at = queue.at._replace(now=queue.at.now + 10_000)
    queue.ledger.extend_all(queue.at)
    assert queue.ledger.expire(queue.at) == []
    assert queue.ledger.next_deadline() == queue.at.now + 90
    assert queue.ledger.servers.held_by("1") is not None


# Those who wait for jobs.


def test_a_submitted_job_goes_to_the_claim_that_waits_longest(queue: Queue) -> None:
    first, second, third = (waits(queue, worker) for worker in "abc")
    queue.submit(spec("1"), spec("2"))
    settled = queue.settle()
    assert {ticket: jobs_of(outcome) for ticket, outcome in settled.items()} == {first: ["1"], second: ["2"]}
    assert queue.ledger.waiting_claims == 1
    assert queue.job("1").worker == "a"
    queue.submit(spec("3"))
    assert list(queue.settle()) == [third]


def test_a_waiting_claim_gets_as_many_jobs_as_it_asked_for_and_there_are(queue: Queue) -> None:
    first, second = waits(queue, count=2), waits(queue, count=2)
    queue.submit(spec("1"), spec("2"), spec("3"))
    assert [jobs_of(one) for one in queue.settle().values()] == [["1", "2"], ["3"]]
    assert not queue.ledger.leave(first)
    assert not queue.ledger.leave(second)


def test_a_claim_that_admits_no_job_does_not_stand_in_the_way(queue: Queue) -> None:
    waits(queue, "picky", teams=frozenset({"other"}))
    second = waits(queue, "any")
    queue.submit(spec("1"))
    assert list(queue.settle()) == [second]
    assert queue.ledger.waiting_claims == 1


@pytest.mark.parametrize("how", ["give_back", "fail", "expire", "requeue", "server", "open"])
def test_whatever_makes_a_job_available_serves_a_waiting_claim(queue: Queue, how: str) -> None:
    queue.submit(spec("1", pool=POOL))
    if how != "server":
        (only,) = queue.add(server(0))
    if how == "open":
        queue.ledger.change_resource(only.resource_id, ResourceState.DOWN, queue.at)
    queue.settle()
    job = queue.one() if how in ("give_back", "fail", "expire", "requeue") else None
    if how == "requeue":
        queue.fail(job, retry=False)
    ticket = waits(queue)
    assert queue.settle() == {}
    match how:
        case "give_back":
            queue.ledger.claims.give_back(ref(job), queue.at)
        case "fail":
            queue.fail(job)
        case "expire":
            queue.passes(91)
        case "requeue":
            queue.ledger.requeue("1", queue.at)
        case "server":
            queue.add(server(0))
        case "open":
            queue.ledger.change_resource(only.resource_id, ResourceState.OPEN, queue.at)
    assert list(queue.settle()) == [ticket]


def test_a_claim_that_left_gets_nothing(queue: Queue) -> None:
    ticket = waits(queue)
    assert queue.ledger.leave(ticket)
    queue.submit(spec("1"))
    assert queue.settle() == {}
    assert queue.state("1") is JobState.PENDING


# The operator.


def test_a_requeued_job_has_all_its_attempts_again(queue: Queue) -> None:
    queue.submit(spec("1", max_attempts=1))
    queue.fail(queue.one())
    outcome = queue.ledger.requeue("1", queue.at)
    assert isinstance(outcome, Ended)
    assert outcome.job == queue.job("1")
    assert (outcome.job.state, outcome.job.failures, outcome.job.lease_id) == (JobState.PENDING, 0, "")
    again = queue.one()
    assert again.epoch == 2
    assert isinstance(queue.ledger.claims.complete(ref(again), Completion(), queue.at), Ended)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.IN_PROGRESS, JobState.DONE])
def test_only_dead_jobs_are_requeued(queue: Queue, state: JobState) -> None:
    queue.submit(spec("1"))
    if state is not JobState.PENDING:
        job = queue.one()
    if state is JobState.DONE:
        queue.ledger.claims.complete(ref(job), Completion(), queue.at)
    queue.commit()
    with pytest.raises(WrongStateError, match=f"'1' is {state}"):
        queue.ledger.requeue("1", queue.at)
    assert not queue.ledger.changes


@pytest.mark.parametrize("running", [True, False])
def test_a_withdrawn_job_is_dead_and_its_result_does_not_count(queue: Queue, running: bool) -> None:
    queue.submit(spec("1"), spec("2"))
    job = queue.one() if running else None
    outcome = queue.ledger.withdraw("1", "no more", queue.at)
    assert isinstance(outcome, Ended)
    assert outcome.job == queue.job("1")
    assert (outcome.job.state, outcome.job.last_error) == (JobState.DEAD, "withdrawn: no more")
    assert outcome.job.failures == 0
    queue.ledger.validate()
    assert queue.ids(count=9) == ["2"]
    if job is not None:
        assert not isinstance(queue.ledger.claims.complete(ref(job), Completion(), queue.at), Ended)
    assert [one.note for one in queue.entries(Happening.WITHDRAWN)] == ["no more"]


@pytest.mark.parametrize("state", [JobState.DONE, JobState.DEAD])
def test_only_jobs_that_have_not_ended_are_withdrawn(queue: Queue, state: JobState) -> None:
    queue.submit(spec("1"))
    job = queue.one()
    if state is JobState.DONE:
        queue.ledger.claims.complete(ref(job), Completion(), queue.at)
    else:
        queue.fail(job, retry=False)
    queue.commit()
    with pytest.raises(WrongStateError, match=f"'1' is {state}"):
        queue.ledger.withdraw("1", "no more", queue.at)
    assert not queue.ledger.changes


# Replies and the history.


def test_a_reply_is_given_again_until_it_is_forgotten(queue: Queue) -> None:
    reply = Reply("key", "print", 200, "{}", queue.at.wall)
    queue.ledger.remember(reply)
    assert queue.ledger.reply("key") == reply
    queue.commit()
    queue.restart()
    assert queue.ledger.reply("key") == reply
    assert queue.ledger.reply("other") is None
    queue.ledger.forget(replies_before=queue.at.wall + 1, late_results_before=0.0)
    queue.commit()
    assert queue.ledger.reply("key") is None


def test_every_step_of_a_job_stands_in_the_history(queue: Queue) -> None:
    queue.add(server(0))
    queue.submit(spec("1", pool=POOL))
    job = queue.one()
    held = queue.reserved(job)
    queue.ledger.release(reservation(held), queue.at)
    held = queue.reserved(job)
    queue.ledger.claims.complete(ref(job), Completion(), queue.at)
    entries = queue.entries()
    assert [(one.what, one.epoch, one.lease_id, one.resource_id) for one in entries] == [
        ("resource_added", 0, "", f"{POOL}/0"),
        ("submitted", 0, "", ""),
        ("claimed", 1, "lease-1", ""),
        ("reserved", 1, "lease-2", f"{POOL}/0"),
        ("released", 1, "lease-2", f"{POOL}/0"),
        ("reserved", 2, "lease-3", f"{POOL}/0"),
        ("completed", 1, "lease-1", f"{POOL}/0"),
        ("released", 2, "lease-3", f"{POOL}/0"),
    ]
    assert [one.entry for one in entries] == list(range(8))
    assert {one.job_id for one in entries[1:]} == {"1"}


def test_lease_ids_are_128_random_bits() -> None:
    ids = {new_lease_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(bytes.fromhex(one)) for one in ids} == {16}
