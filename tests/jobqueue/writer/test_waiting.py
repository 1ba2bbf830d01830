"""Who stands in line is told at once when his turn comes, and what nobody takes goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from headgate.jobqueue import ClaimRequest, Completion, Happening, Instant, Job, JobState, Ledger, Reserved
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.outcomes import Stale, Waiting
from headgate.jobqueue.resource import Resource
from tests.jobqueue.ledger.queue import POOL, ref, reservation, server, spec
from tests.jobqueue.writer.rig import SOON_S, Rig

LONG_S = 3_600.0


def claim(ledger: Ledger, at: Instant) -> tuple[Job, ...] | Waiting:
    return ledger.claim_or_wait(ClaimRequest("waiter"), at)


def in_line(rig: Rig) -> int:
    return rig.do(lambda ledger, at: ledger.waiting_claims + len(ledger.servers.lines))


async def begun(one: Awaitable[object]) -> asyncio.Task[object]:
    """A task that has handed in its operation."""
    task = asyncio.ensure_future(one)
    await asyncio.sleep(0)
    return task


async def waiting_claim(rig: Rig) -> asyncio.Task[object]:
    """A task that stands in line for a job."""
    task = await begun(rig.writer.wait_for(claim, LONG_S))
    await rig.writer.do(lambda ledger, at: None)
    return task


def reserve(job: Job) -> object:
    return lambda ledger, at: ledger.reserve(ref(job), at, wait=True)


async def waiting_reservation(rig: Rig) -> tuple[asyncio.Task[object], Job, Resource]:
    """A task that stands in line for a server, its job, and the server, which another job holds."""
    rig.do(lambda ledger, at: ledger.add_resources([server(0)], at))
    rig.submit(spec("holder", pool=POOL), spec("waiter", pool=POOL))
    holder, waiter = rig.claim(count=2)
    held = rig.do(lambda ledger, at: ledger.reserve(ref(holder), at)).resource
    task = await begun(rig.writer.wait_for(reserve(waiter), LONG_S))
    await rig.writer.do(lambda ledger, at: None)
    assert in_line(rig) == 1
    return task, waiter, held


async def hung_up(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_what_is_there_is_given_at_once(rig: Rig) -> None:
    rig.submit(spec("1"))
    (job,) = await rig.writer.wait_for(claim, 0.0)
    assert job.job_id == "1"


async def test_a_waiting_claim_is_handed_the_next_job_without_asking_again(rig: Rig) -> None:
    task = await waiting_claim(rig)
    operations = rig.writer.figures.operations
    await rig.writer.do(lambda ledger, at: ledger.submit([spec("1")], at))
    (job,) = await task
    assert (job.job_id, job.worker) == ("1", "waiter")
    assert rig.writer.figures.operations == operations + 1
    assert rig.job("1").state is JobState.IN_PROGRESS


async def test_a_waiting_reservation_is_handed_the_freed_server(rig: Rig) -> None:
    task, waiter, held = await waiting_reservation(rig)
    assert await rig.writer.do(lambda ledger, at: ledger.release(reservation(held), at))
    outcome = await task
    assert isinstance(outcome, Reserved)
    assert outcome.resource.job_id == waiter.job_id


async def test_claims_are_served_in_the_order_in_which_they_came(rig: Rig) -> None:
    tasks = [await waiting_claim(rig) for _ in range(5)]
    for n, task in enumerate(tasks):
        await rig.writer.do(lambda ledger, at, n=n: ledger.submit([spec(f"{n}")], at))
        (job,) = await task
        assert job.job_id == f"{n}"
        assert not any(other.done() for other in tasks[n + 1 :])


async def test_a_turn_that_does_not_come_in_time_is_none(rig: Rig) -> None:
    assert await rig.writer.wait_for(claim, 0.0) is None
    assert in_line(rig) == 0
    rig.submit(spec("1"))
    assert rig.job("1").state is JobState.PENDING


async def test_a_turn_that_comes_with_the_end_of_the_wait_is_taken(rig: Rig) -> None:
    task = await begun(rig.writer.wait_for(claim, 0.0))
    rig.turn()
    with rig.held_up():
        submitted = rig.writer.submit(lambda ledger, at: ledger.submit([spec("1")], at))
        while rig.writer.depth < 2:  # noqa: ASYNC110 - until the task, whose time is over, asks to leave
            await asyncio.sleep(0)
    submitted.result()
    # Leaving came after the submission, and before the line was served: nobody was given the job.
    assert await task is None
    assert rig.job("1").state is JobState.PENDING


async def test_a_turn_that_came_before_the_end_of_the_wait_is_taken(rig: Rig) -> None:
    task = await begun(rig.writer.wait_for(claim, 0.0))
    rig.turn()
    rig.submit(spec("1"))
    rig.turn()
    (job,) = await task
    assert job.job_id == "1"


async def test_who_hangs_up_leaves_the_line(rig: Rig) -> None:
    task = await waiting_claim(rig)
    await hung_up(task)
    assert in_line(rig) == 0
    rig.submit(spec("1"))
    assert rig.job("1").state is JobState.PENDING


async def test_a_job_given_to_who_has_just_hung_up_goes_back(rig: Rig) -> None:
    task = await waiting_claim(rig)
    rig.submit(spec("1", max_attempts=1))
    rig.turn()  # the job is given; the task has had no chance to see it
    await hung_up(task)
    rig.turn()
    job = rig.job("1")
    assert (job.state, job.epoch, job.failures) == (JobState.PENDING, 1, 0)
    (entry,) = rig.store.reader().history(-1, 9, what=[Happening.GIVEN_BACK])
    assert entry.note == "the worker had hung up"


async def test_a_job_given_at_once_to_who_has_hung_up_goes_back(rig: Rig) -> None:
    rig.submit(spec("1"))
    with rig.held_up():
        await hung_up(await begun(rig.writer.wait_for(claim, LONG_S)))
    rig.turn()
    job = rig.job("1")
    assert (job.state, job.epoch, job.failures) == (JobState.PENDING, 1, 0)


async def test_who_hangs_up_before_he_stands_in_line_does_not_stay_there(rig: Rig) -> None:
    with rig.held_up():
        await hung_up(await begun(rig.writer.wait_for(claim, LONG_S)))
    rig.turn()
    assert in_line(rig) == 0


async def test_who_hangs_up_while_leaving_the_line_loses_nothing(rig: Rig) -> None:
    task = await begun(rig.writer.wait_for(claim, 0.0))
    rig.turn()
    rig.submit(spec("1"))
    rig.turn()
    with rig.held_up():
        while rig.writer.depth < 1:  # noqa: ASYNC110 - until the task, whose time is over, asks to leave
            await asyncio.sleep(0)
        await hung_up(task)
    rig.turn()
    assert rig.job("1").state is JobState.PENDING
    assert rig.job("1").failures == 0


async def test_a_server_given_to_who_has_just_hung_up_is_free_again(rig: Rig) -> None:
    task, _, held = await waiting_reservation(rig)
    rig.do(lambda ledger, at: ledger.release(reservation(held), at))
    rig.turn()
    await hung_up(task)
    rig.turn()
    assert rig.do(lambda ledger, at: ledger.resources()[held.resource_id].is_free)


async def test_a_server_that_its_worker_has_asked_for_again_stays_with_it(rig: Rig) -> None:
    task, waiter, held = await waiting_reservation(rig)
    rig.do(lambda ledger, at: ledger.release(reservation(held), at))
    rig.turn()
    again = rig.do(reserve(waiter))
    assert isinstance(again, Reserved)
    await hung_up(task)
    rig.turn()
    assert rig.do(lambda ledger, at: ledger.resources()[held.resource_id]) == again.resource


async def test_a_server_that_comes_in_the_group_in_which_its_waiter_hung_up_is_free_again(rig: Rig) -> None:
    task, _, held = await waiting_reservation(rig)
    holder = rig.job("holder")
    with rig.held_up():
        rig.writer.submit(lambda ledger, at: ledger.release(reservation(held), at))
        # The holder, who asks again, finds it given to the waiter; who is told after the commit, and has gone by then.
        rig.writer.submit(lambda ledger, at: ledger.reserve(ref(holder), at))
        await hung_up(task)
    rig.turn()
    rig.turn()
    assert rig.do(lambda ledger, at: ledger.resources()[held.resource_id].is_free)


async def test_a_job_that_ends_in_the_group_in_which_its_waiter_hung_up_holds_nobody_up(rig: Rig) -> None:
    task, waiter, _ = await waiting_reservation(rig)
    with rig.held_up():
        completed = rig.writer.submit(lambda ledger, at: ledger.claims.complete(ref(waiter), Completion(), at))
        await hung_up(task)
    completed.result(30.0)
    rig.turn()
    assert rig.job(waiter.job_id).state is JobState.DONE


async def test_who_waits_with_a_claim_that_ends_is_told_so(rig: Rig) -> None:
    task, waiter, _ = await waiting_reservation(rig)
    await rig.writer.do(lambda ledger, at: ledger.withdraw(waiter.job_id, "no more", at))
    assert isinstance(await task, Stale)


async def test_who_waits_when_the_store_fails_is_told_so(rig: Rig) -> None:
    task = await waiting_claim(rig)
    rig.store.is_broken = True
    with pytest.raises(StoreFailedError):
        await rig.writer.do(lambda ledger, at: ledger.submit([spec("1")], at))
    with pytest.raises(StoreFailedError):
        await task
    rig.store.is_broken = False
    assert in_line(rig) == 0


async def test_who_waits_when_the_desk_closes_is_told_so(rig: Rig) -> None:
    task = await waiting_claim(rig)
    rig.writer.close()
    with pytest.raises(StoreFailedError, match="closing"):
        await task


async def test_a_cancelled_caller_does_not_undo_its_operation(rig: Rig) -> None:
    with rig.held_up():
        await hung_up(await begun(rig.writer.do(lambda ledger, at: ledger.submit([spec("1")], at))))
    assert rig.job("1").state is JobState.PENDING


def test_who_was_sent_away_does_not_push_another_one_out_of_line(rig: Rig) -> None:
    """A ledger that was built anew counts its numbers from 1 again."""
    gone = rig.writer.submit(claim).result(SOON_S)
    rig.store.is_broken = True
    with pytest.raises(StoreFailedError):
        rig.submit(spec("lost"))
    rig.store.is_broken = False
    later = rig.writer.submit(claim).result(SOON_S)
    assert later.ticket == gone.ticket
    assert not rig.do(lambda ledger, at: rig.writer._left(ledger, gone))
    assert in_line(rig) == 1
    rig.submit(spec("1"))
    (job,) = later.future.result(SOON_S)
    assert job.job_id == "1"
    assert isinstance(gone.future.exception(SOON_S), StoreFailedError)
