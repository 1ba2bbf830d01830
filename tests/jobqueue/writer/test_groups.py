"""What came in together is committed together, and nobody is answered before."""

from __future__ import annotations

import threading

import pytest

from headgate.jobqueue import Changes, Completion, Happening, Instant, JobState, Ledger, LedgerWriter
from headgate.jobqueue.errors import JobConflictError, StoreFailedError, StoreInUseError
from headgate.jobqueue.outcomes import Renewed, Submitted
from headgate.jobqueue.records import Reply
from tests.jobqueue.ledger.queue import ref, spec
from tests.jobqueue.writer.rig import SOON_S, HandClock, Rig


def test_operations_that_came_in_together_are_one_commit(rig: Rig) -> None:
    before = rig.store.commits
    with rig.held_up():
        futures = [rig.writer.submit(lambda ledger, at, n=n: ledger.submit([spec(f"{n}")], at)) for n in range(100)]
        assert rig.writer.depth == 100
    assert [future.result(SOON_S) for future in futures] == [Submitted(1, 0)] * 100
    assert rig.store.commits == before + 1
    assert rig.writer.figures.commits == rig.store.commits


def test_a_flood_of_operations_is_committed_in_groups(rig: Rig) -> None:
    before = rig.store.commits
    with rig.held_up():
        futures = [rig.writer.submit(lambda ledger, at, n=n: ledger.submit([spec(f"{n}")], at)) for n in range(1_500)]
    for future in futures:
        future.result(SOON_S)
    assert 3 <= rig.store.commits - before <= 4


def test_operations_are_done_in_the_order_in_which_they_came(rig: Rig) -> None:
    seen: list[int] = []
    with rig.held_up():
        futures = [rig.writer.submit(lambda ledger, at, n=n: seen.append(n)) for n in range(50)]
    for future in futures:
        future.result(SOON_S)
    assert seen == list(range(50))


def test_an_answer_is_in_the_store_before_it_is_given(rig: Rig) -> None:
    with rig.held_up():
        future = rig.writer.submit(lambda ledger, at: ledger.submit([spec("1")], at))
        future.add_done_callback(lambda _: stored.append(rig.store.jobs(["1"])))
        stored: list[dict[str, object]] = []
    future.result(SOON_S)
    rig.turn()
    assert [list(one) for one in stored] == [["1"]]


def test_ten_thousand_renewals_write_nothing(rig: Rig) -> None:
    rig.submit(*(spec(f"{n}") for n in range(10_000)))
    jobs = rig.claim(count=10_000)
    before = rig.store.commits
    operations = rig.writer.figures.operations
    renewed = rig.do(lambda ledger, at: [ledger.claims.renew(ref(job), at) for job in jobs])
    assert len(renewed) == 10_000
    assert all(isinstance(one, Renewed) for one in renewed)
    assert rig.store.commits == before
    assert rig.writer.figures.operations == operations + 1


def test_a_refused_operation_does_not_disturb_the_others(rig: Rig) -> None:
    rig.submit(spec("1"))
    with rig.held_up():
        first = rig.writer.submit(lambda ledger, at: ledger.submit([spec("2")], at))
        refused = rig.writer.submit(lambda ledger, at: ledger.submit([spec("3"), spec("1", task="other")], at))
        last = rig.writer.submit(lambda ledger, at: ledger.submit([spec("4")], at))
    assert (first.result(SOON_S), last.result(SOON_S)) == (Submitted(1, 0), Submitted(1, 0))
    with pytest.raises(JobConflictError):
        refused.result(SOON_S)
    assert rig.writer.figures.reloads == 0
    assert sorted(rig.store.jobs(["1", "2", "3", "4"])) == ["1", "2", "4"]


def test_when_a_commit_fails_nobody_is_answered_and_nothing_happened(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.submit(spec("1"))
    with rig.held_up():
        rig.store.is_broken = True
        claimed = rig.writer.submit(lambda ledger, at: ledger.claims.of_worker("worker"))
        submitted = rig.writer.submit(lambda ledger, at: ledger.submit([spec("2")], at))
    for future in (claimed, submitted):
        with pytest.raises(StoreFailedError, match="the disk is full"):
            future.result(SOON_S)
    rig.store.is_broken = False
    assert rig.do(lambda ledger, at: ledger.job("2")) is None
    assert [job.job_id for job in rig.claim(count=9)] == ["1"]
    assert rig.writer.figures.reloads == 1
    assert "The job queue's database failed: the disk is full" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_claim_of_a_failed_commit_is_handed_out_again_with_another_lease(rig: Rig) -> None:
    rig.submit(spec("1"))
    rig.store.is_broken = True
    with pytest.raises(StoreFailedError):
        rig.claim()
    rig.store.is_broken = False
    (job,) = rig.claim()
    assert job.epoch == 1


def test_an_unexpected_error_is_reported_and_the_ledger_built_anew(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def half_done(ledger: Ledger, at: Instant) -> None:
        ledger.submit([spec("half")], at)
        raise ZeroDivisionError("a defect")

    rig.submit(spec("1"))
    with rig.held_up():
        before = rig.writer.submit(lambda ledger, at: ledger.submit([spec("2")], at))
        broken = rig.writer.submit(half_done)
        after = rig.writer.submit(lambda ledger, at: ledger.submit([spec("3")], at))
    for future in (before, broken, after):
        with pytest.raises(StoreFailedError, match=r"the ledger failed \(ZeroDivisionError\)"):
            future.result(SOON_S)
    assert "a defect" in caplog.text
    assert rig.do(lambda ledger, at: ledger.job("half")) is None
    rig.submit(spec("2"))
    assert [job.job_id for job in rig.claim(count=9)] == ["1", "2"]
    assert rig.writer.figures.reloads == 1


@pytest.mark.parametrize("trouble", ["is_taken", "is_confused"])
def test_a_store_that_cannot_be_opened_again_is_tried_again_later(
    rig: Rig, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig.submit(spec("1"))
    rig.store.is_broken = True
    setattr(rig.store, trouble, True)
    with pytest.raises(StoreFailedError, match="the disk is full"):
        rig.submit(spec("2"))
    rig.store.is_broken = False
    setattr(rig.store, trouble, False)
    with pytest.raises(StoreFailedError, match="cannot be used at the moment"):
        rig.submit(spec("2"))
    rig.clock.now += 1.0
    rig.submit(spec("2"))
    assert [job.job_id for job in rig.claim(count=9)] == ["1", "2"]
    assert "again" in caplog.text


def test_a_future_cannot_be_cancelled_behind_the_desk(rig: Rig) -> None:
    with rig.held_up():
        future = rig.writer.submit(lambda ledger, at: ledger.submit([spec("1")], at))
        assert not future.cancel()
    assert future.result(SOON_S) == Submitted(1, 0)
    assert rig.writer.figures.reloads == 0


# Deadlines.


def test_a_lease_that_is_not_renewed_ends(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.submit(spec("1"))
    rig.claim("silent")
    rig.passes(90.0)
    assert rig.job("1").state is JobState.IN_PROGRESS
    rig.passes(0.5)
    assert rig.job("1").state is JobState.PENDING
    assert rig.writer.figures.expired == 1
    assert "Job 1 reclaimed after heartbeat timeout (worker=silent)" in caplog.text


def test_the_desk_wakes_by_itself_when_a_lease_ends(rig: Rig) -> None:
    rig.submit(spec("1"))
    rig.claim()
    committed = threading.Event()
    commit = rig.store.commit

    def watched(changes: Changes) -> None:
        commit(changes)
        committed.set()

    rig.store.commit = watched  # type: ignore[method-assign]
    # The wait for the next deadline is worked out anew after each group: this one finds it at hand.
    rig.do(lambda ledger, at: _goes_on(rig.clock, 90.5))
    assert committed.wait(SOON_S)
    assert rig.job("1").state is JobState.PENDING


def _goes_on(clock: HandClock, seconds: float) -> None:
    clock.now += seconds


def test_a_renewal_that_had_arrived_counts_before_the_lease_ends(rig: Rig) -> None:
    rig.submit(spec("1"))
    (job,) = rig.claim()
    with rig.held_up():
        rig.clock.now += 90.5
        renewed = rig.writer.submit(lambda ledger, at: ledger.claims.renew(ref(job), at))
    assert isinstance(renewed.result(SOON_S), Renewed)
    rig.turn()
    assert rig.job("1").state is JobState.IN_PROGRESS
    assert rig.writer.figures.expired == 0


def test_after_standing_still_every_lease_has_a_full_new_period(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.submit(spec("1"), spec("2"))
    rig.claim(count=2)
    rig.passes(90.0 + 300.0)
    assert "stalled while a lease expired" in caplog.text
    assert rig.writer.figures.expired == 0
    rig.passes(90.0)
    assert rig.writer.figures.expired == 0
    rig.passes(0.5)
    assert rig.writer.figures.expired == 2


def test_old_replies_are_forgotten_after_a_day(rig: Rig) -> None:
    reply = Reply("key", "print", 200, "{}", rig.clock.wall())
    rig.do(lambda ledger, at: ledger.remember(reply))
    rig.passes(24 * 3600.0)
    assert rig.do(lambda ledger, at: ledger.reply("key")) == reply
    rig.passes(601.0)
    assert rig.do(lambda ledger, at: ledger.reply("key")) is None


def test_late_results_are_emptied_after_a_week(rig: Rig) -> None:
    rig.submit(spec("1"))
    (job,) = rig.claim()
    rig.passes(91.0)
    rig.do(lambda ledger, at: ledger.claims.complete(ref(job), Completion('{"late": 1}'), at))

    def kept() -> list[str]:
        return [entry.note for entry in rig.store.entries("1", Happening.LATE_RESULT, 9)]

    rig.passes(7 * 86_400.0)
    assert kept() == ['{"late": 1}']
    rig.passes(601.0)
    assert kept() == [""]


# Opening and closing.


def test_closing_finishes_what_has_arrived(rig: Rig) -> None:
    closing = threading.Thread(target=rig.writer.close)
    with rig.held_up():
        arrived = [rig.writer.submit(lambda ledger, at, n=n: ledger.submit([spec(f"{n}")], at)) for n in range(600)]
        closing.start()
        while not rig.writer.submit(lambda ledger, at: None).done():
            pass  # until the door is shut
    closing.join(SOON_S)
    assert [future.result(0) for future in arrived] == [Submitted(1, 0)] * 600
    assert len(rig.store.own("next").jobs([f"{n}" for n in range(600)])) == 600


def test_after_closing_nothing_is_taken_in(rig: Rig) -> None:
    rig.writer.close()
    with pytest.raises(StoreFailedError, match="the job queue is closing"):
        rig.submit(spec("1"))
    rig.writer.close()


def test_a_closed_desk_leaves_the_store_to_the_next(rig: Rig) -> None:
    rig.submit(spec("1"))
    (job,) = rig.claim()
    with pytest.raises(StoreInUseError):
        LedgerWriter(rig.store, rig.clock, "other").open()
    rig.writer.close()
    other = LedgerWriter(rig.store, HandClock(), "other")
    other.open()
    other.submit(lambda ledger, at: ledger.claims.complete(ref(job), Completion(), at)).result(SOON_S)
    other.close()
    assert rig.store.own("test").jobs(["1"])["1"].state is JobState.DONE


def test_a_desk_that_could_not_open_can_be_closed(rig: Rig) -> None:
    rig.store.is_taken = True
    writer = LedgerWriter(rig.store, rig.clock, "other")
    with pytest.raises(StoreInUseError):
        writer.open()
