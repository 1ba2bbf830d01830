"""The judge of job queues finds what was done wrong, and nothing in a queue that did right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.jobqueue import Completion, Happening, HistoryEntry, Job, JobState
from headgate.jobqueue.resource import Resource
from tests.jobqueue.checker import Told, violations, violations_in
from tests.jobqueue.ledger.queue import POOL, Queue, ref, reservation, server, spec

SERVER = f"{POOL}/0"


def history(*lines: tuple[str, str] | tuple[str, str, int] | tuple[str, str, int, str]) -> list[HistoryEntry]:
    """Entries `(what, job, epoch, lease)`; those of servers concern the one server there is."""
    entries = []
    for number, line in enumerate(lines):
        what, job_id, epoch, lease = (*line, *(0, "")[len(line) - 2 :])
        happening = Happening(what)
        about_server = what.startswith(("reserv", "releas", "resource"))
        entries.append(
            HistoryEntry(
                number, float(number), happening, job_id, epoch, lease, "worker", SERVER if about_server else ""
            )
        )
    return entries


def job(
    job_id: str = "j", state: JobState = JobState.PENDING, epoch: int = 0, failures: int = 0, lease: str = ""
) -> Job:
    worker = "worker" if lease else ""
    return Job(
        spec(job_id, pool=POOL),
        0,
        0.0,
        state,
        epoch=epoch,
        failures=failures,
        lease_id=lease,
        worker=worker,
        result="{}",
    )


DONE = job(state=JobState.DONE, epoch=1, lease="a")
START = (("submitted", "j"), ("claimed", "j", 1, "a"))
FREE = Resource(server(0), 0)

WRONG = {
    "claimed while claimed": (
        [*START, ("claimed", "j", 2, "b"), ("completed", "j", 2, "b")],
        job(state=JobState.DONE, epoch=2, lease="b"),
        "the job was in_progress",
    ),
    "claimed after it was done": (
        [*START, ("completed", "j", 1, "a"), ("claimed", "j", 2, "b")],
        job(state=JobState.IN_PROGRESS, epoch=2, lease="b"),
        "the job was done",
    ),
    "an epoch used twice": (
        [*START, ("given_back", "j", 1, "a"), ("claimed", "j", 1, "b")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="b"),
        "epoch 1 follows 1",
    ),
    "an epoch left out": (
        [("submitted", "j"), ("claimed", "j", 2, "a")],
        job(state=JobState.IN_PROGRESS, epoch=2, lease="a"),
        "epoch 2 follows 0",
    ),
    "a lease used twice": (
        [*START, ("given_back", "j", 1, "a"), ("claimed", "j", 2, "a")],
        job(state=JobState.IN_PROGRESS, epoch=2, lease="a"),
        "lease 'a' was used before",
    ),
    "a completion of a lease that had ended": (
        [*START, ("given_back", "j", 1, "a"), ("completed", "j", 1, "a")],
        job(state=JobState.DONE, epoch=1),
        "the job was pending",
    ),
    "a completion with another lease": (
        [*START, ("completed", "j", 1, "b")],
        DONE,
        "the job was in_progress (epoch 1, lease 'a')",
    ),
    "a completion with another epoch": ([*START, ("completed", "j", 2, "a")], DONE, "the job was in_progress (epoch 1"),
    "two completions": (
        [*START, ("completed", "j", 1, "a"), ("completed", "j", 1, "a")],
        DONE,
        "2 results were accepted",
    ),
    "the running claim's result taken for a late one": (
        [*START, ("late_result", "j", 1, "a")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "the result came from the running claim",
    ),
    "submitted twice": ([("submitted", "j"), ("submitted", "j")], job(), "the job had been submitted"),
    "claimed and never submitted": ([("claimed", "j", 1, "a")], None, "nobody had submitted the job"),
    "dead without a failure": (
        [("submitted", "j"), ("died", "j")],
        job(state=JobState.DEAD),
        "the job was pending after submitted",
    ),
    "requeued while it ran": ([*START, ("requeued", "j", 1)], job(epoch=1), "the job was in_progress"),
    "withdrawn when done": (
        [*START, ("completed", "j", 1, "a"), ("withdrawn", "j", 1, "a")],
        job(state=JobState.DEAD, epoch=1),
        "the job was done",
    ),
    "lost": ([("submitted", "j")], None, "job 'j' was submitted and is lost"),
    "from nowhere": ([], job(), "job 'j' is stored and was never submitted"),
    "stored otherwise than told": (
        [*START, ("completed", "j", 1, "a")],
        job(epoch=1),
        "job 'j' is pending 1 0 - -, and by its history done",
    ),
    "alive after its last attempt": (
        [
            line
            for n in (1, 2, 3)
            for line in ((("submitted", "j"),) if n == 1 else ())
            + (("claimed", "j", n, f"l{n}"), ("failed", "j", n, f"l{n}"))
        ],
        job(epoch=3, failures=3),
        "failed 3 times and is pending",
    ),
    "a server held twice": (
        [("resource_added", ""), *START, ("reserved", "j", 1, "r"), ("reserved", "j", 2, "s")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "the server was held by 'j'",
    ),
    "a server that nobody registered": (
        [*START, ("reserved", "j", 1, "r")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "there was no such server",
    ),
    "a release without a reservation": (
        [("resource_added", ""), *START, ("released", "j", 1, "r")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "the server was held by 'nobody'",
    ),
    "released twice": (
        [
            ("resource_added", ""),
            *START,
            ("reserved", "j", 1, "r"),
            ("released", "j", 1, "r"),
            ("released", "j", 1, "r"),
        ],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "the server was held by 'nobody'",
    ),
    "reserved for a job that does not run": (
        [("resource_added", ""), ("submitted", "j"), ("reserved", "j", 1, "r")],
        job(),
        "the job was pending",
    ),
    "a server's epoch left out": (
        [("resource_added", ""), *START, ("reserved", "j", 2, "r")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "epoch 2 follows 0",
    ),
    "a server kept by a job that failed": (
        [("resource_added", ""), *START, ("reserved", "j", 1, "r"), ("failed", "j", 1, "a")],
        job(epoch=1, failures=1),
        "server robots/0 is held by job 'j', which is pending",
    ),
    "a server kept into the next claim": (
        [
            ("resource_added", ""),
            *START,
            ("reserved", "j", 1, "r"),
            ("failed", "j", 1, "a"),
            ("claimed", "j", 2, "b"),
        ],
        job(state=JobState.IN_PROGRESS, epoch=2, failures=1, lease="b"),
        "an earlier claim still holds server",
    ),
    "a number given twice": (
        [("resource_added", ""), ("resource_removed", ""), ("resource_added", "")],
        None,
        "this number had been given to a server",
    ),
    "removed while held": (
        [("resource_added", ""), *START, ("reserved", "j", 1, "r"), ("resource_removed", "")],
        job(state=JobState.IN_PROGRESS, epoch=1, lease="a"),
        "the server was held by 'j'",
    ),
}


@pytest.mark.parametrize(("lines", "stored", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_history_is_found_out(lines: list[tuple[str, str]], stored: Job | None, said: str) -> None:
    found = violations(history(*lines), [stored] if stored else [])
    assert any(said in one for one in found), found


def test_a_missing_entry_is_found_out() -> None:
    entries = history(*START, ("completed", "j", 1, "a"))
    assert violations(entries, [DONE]) == []
    late = [*entries[:2], entries[2]._replace(entry=7)]
    assert violations(late, [DONE]) == ["entry 7, completed j: follows entry 1"]


def test_a_server_stored_otherwise_than_told_is_found_out() -> None:
    entries = history(("resource_added", ""))
    assert violations(entries, [], [FREE]) == []
    assert violations(entries, [], []) == [f"server {SERVER} is not there, and by its history 0 - -"]
    held = replace(FREE, epoch=1, lease_id="r", job_id="j", worker="worker")
    assert len(violations(entries, [], [held])) == 1


@pytest.mark.parametrize(
    "told",
    [
        Told(Happening.SUBMITTED, "lost"),
        Told(Happening.CLAIMED, "j", "b", 1),
        Told(Happening.CLAIMED, "j", "a", 2),
        Told(Happening.FAILED, "j", "a", 1),
        Told(Happening.COMPLETED, "j", "a", 1, result='{"other": 1}'),
        Told(Happening.RESERVED, "j", "r", 1, resource_id=SERVER),
    ],
)
def test_what_was_told_and_is_not_in_the_books_is_found_out(told: Told) -> None:
    entries = history(*START, ("completed", "j", 1, "a"))
    true = [Told(Happening.SUBMITTED, "j"), Told(Happening.CLAIMED, "j", "a", 1)]
    true.append(Told(Happening.COMPLETED, "j", "a", 1, result="{}"))
    assert violations(entries, [DONE], told=true) == []
    assert len(violations(entries, [DONE], told=[*true, told])) >= 1


def test_one_claim_told_to_two_workers_is_found_out() -> None:
    entries = history(*START)
    running = job(state=JobState.IN_PROGRESS, epoch=1, lease="a")
    told = [Told(Happening.CLAIMED, "j", "a", 1, worker) for worker in ("first", "first", "second")]
    assert violations(entries, [running], told=told) == ["epoch 1 of job 'j' was given to 'first' and to 'second'"]


def test_a_queue_that_did_right_has_no_violations() -> None:
    queue = Queue()
    queue.add(server(0), server(1))
    queue.submit(*(spec(f"{n}", pool=POOL, max_attempts=1) for n in range(6)))
    done, failed, returned, withdrawn, expired = queue.claim(count=5)
    for one in (done, failed):
        queue.reserved(one)
    queue.ledger.claims.complete(ref(done), Completion(), queue.at)
    queue.ledger.claims.complete(ref(done), Completion('{"late": 1}'), queue.at)
    queue.fail(failed)
    queue.ledger.release(reservation(queue.reserved(expired)), queue.at)
    queue.reserved(expired)
    queue.ledger.claims.give_back(ref(returned), queue.at)
    queue.ledger.withdraw(withdrawn.job_id, "", queue.at)
    queue.passes(91)
    queue.ledger.requeue(failed.job_id, queue.at)
    queue.ledger.remove_resource(f"{POOL}/1", queue.at)
    queue.claim(count=2)
    queue.commit()
    told = [Told(Happening.COMPLETED, done.job_id, done.lease_id, done.epoch, "worker", result="{}")]
    reader = queue.store.reader()
    assert violations_in(reader, list(queue.ledger.resources().values()), told) == []
    assert len(reader.history(-1, 100)) > 20
