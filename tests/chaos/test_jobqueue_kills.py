"""kill -9 of the workers and of the server of a job queue, at random points, on both databases."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headgate.jobqueue import Happening, JobState
from tests.chaos.queue_fixtures import (
    LONG_FORM_KILLS,
    chaos_postgres,
    nursery,
    place,
    postgres_place,
    sqlite_place,
)
from tests.chaos.queue_place import Process, QueuePlace, Verdict

__all__ = ["chaos_postgres", "nursery", "place", "postgres_place", "sqlite_place"]

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_800)]

WORKERS = 8
WORKER_KILLS = 17
SERVER_KILLS = 7
"""Kills of each kind for one of `--kills` in the long form: `make chaos` comes to 510 and 210."""

LATE_S = 1.0
"""A job is back so long after its lease at the latest, in the long form, which has the machine to itself."""

RESTART_S = 3.0
"""A server is back so long after its start at the latest, with 100 000 jobs, in the long form."""


def _number_of(kills_of_a_kind: int, kills: int) -> int:
    return kills * (kills_of_a_kind if kills >= LONG_FORM_KILLS else 4)


# Workers.


def test_killed_workers_lose_and_double_nothing_and_their_jobs_are_back_after_their_leases(
    place: QueuePlace, kills: int, chaos_seed: int, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(chaos_seed)
    place.start_server()
    place.register(servers=WORKERS)
    crowd = [place.start_worker() for _ in range(WORKERS)]
    killed_at: dict[str, float] = {}
    for kill in range(_number_of(WORKER_KILLS, kills)):
        place.keep_fed()
        # Every tenth may die while it starts.
        number = rng.randrange(WORKERS) if kill % 10 == 9 else _busy_one(place, crowd, rng)
        time.sleep(rng.uniform(0.0, 0.15))  # anywhere in its work: the moment is what is tried here
        crowd[number].kill()
        killed_at[crowd[number].name] = time.time()
        crowd[number] = place.start_worker()
    place.until_all_ended(60)
    verdict = place.judge()
    place.assert_kept(verdict)
    lateness = list(_lateness(verdict, killed_at))
    assert kills < LONG_FORM_KILLS or max(lateness) <= place.real_lease_s + LATE_S
    record_property("kills", len(killed_at))
    record_property("claims that ended by a kill", len(lateness))
    record_property("back after at most, s", round(max(lateness), 2))
    record_property("jobs", len(verdict.jobs))
    record_property("killed after", _last_words(place, killed_at))


def _busy_one(place: QueuePlace, crowd: list[Process], rng: random.Random) -> int:
    """Return one of those who are the next to be told something."""
    before = [place.amount_told(worker.name) for worker in crowd]
    busy: list[int] = []

    def look() -> list[int]:
        busy[:] = [n for n, worker in enumerate(crowd) if place.amount_told(worker.name) > before[n]]
        return busy

    place.until(look, 20)
    return rng.choice(busy)


def _lateness(verdict: Verdict, killed_at: dict[str, float]) -> Iterator[float]:
    """Yield for each claim that ended with its worker how long after the kill its job was back."""
    for entry in verdict.entries:
        if entry.what is Happening.EXPIRED:
            assert entry.worker in killed_at, f"{entry.worker} lived, and its lease on job {entry.job_id} ran out"
            yield entry.at - killed_at[entry.worker]


def _last_words(place: QueuePlace, names: dict[str, float]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for name in names:
        facts = place.facts(name)
        last = facts[-1]["what"] if facts else "nothing"
        counted[last] = counted.get(last, 0) + 1
    return counted


# The server.


@contextmanager
def submitting(place: QueuePlace) -> Iterator[None]:
    """Submit jobs for as long as the context is open, whether the server is there or not."""
    end = threading.Event()

    def submit() -> None:
        while not end.wait(0.05):
            place.submit(2)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(60)


def test_a_killed_server_keeps_every_acknowledgement_and_its_workers_go_on(
    place: QueuePlace, kills: int, chaos_seed: int, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(chaos_seed)
    place.speed, place.lease_s = 1.0, 60.0
    place.start_server()
    for _ in range(10 if kills >= LONG_FORM_KILLS else 1):
        place.submit(10_000, team="ballast")
    place.register(servers=4)
    for _ in range(WORKERS):
        place.start_worker(ends=True, load_s=0.01, run_s=0.02, results="")
    starts: list[float] = []
    with submitting(place):
        failpoint: tuple[str, int] | None = None
        for kill in range(_number_of(SERVER_KILLS, kills)):
            _end_server(place, None if failpoint else rng)
            failpoint = None if kill % 4 == 3 else _failpoint(rng)
            starts.append(place.start_server(failpoint))
        _end_server(place, None if failpoint else rng)
        starts.append(place.start_server())
    place.until_all_ended(120)
    verdict = place.judge()
    place.assert_kept(verdict)
    assert verdict.count(Happening.EXPIRED) == 0, "a lease did not survive its server"
    assert kills < LONG_FORM_KILLS or max(starts) <= RESTART_S
    record_property("restarts", len(starts))
    record_property("slowest restart, s", round(max(starts), 2))
    record_property("jobs", len(verdict.jobs))
    record_property("acknowledged", len(place.told()))


def _failpoint(rng: random.Random) -> tuple[str, int]:
    return rng.choice(("statement", "statement", "commit", "answer")), rng.randrange(1, 50)


def _end_server(place: QueuePlace, rng: random.Random | None) -> None:
    """Kill the server at a random moment after it did something, or let its failpoint do so."""
    assert place.server is not None
    if rng is None:
        assert place.server.has_ended(60), f"the failpoint was not reached\n{place.said()}"
        return
    before = place.amount_told()
    place.until(lambda: place.amount_told() > before, 60)
    time.sleep(rng.uniform(0.0, 0.2))
    place.kill_server()


# One worker that stands still.


def test_a_worker_that_stood_still_longer_than_its_lease_is_refused_everything(sqlite_place: QueuePlace) -> None:
    place = sqlite_place
    place.start_server()
    place.register(servers=1)
    place.submit(5, max_attempts=2)
    zombie = place.start_holder(releases=True)
    place.until(lambda: place.facts(zombie.name), 20)
    zombie.send(signal.SIGSTOP)
    job_id = place.running()[0].id
    place.start_worker()
    place.until_all_ended(30)
    zombie.send(signal.SIGCONT)
    place.go.touch()
    assert zombie.has_ended(20), place.said()
    answers = {fact["what"]: fact for fact in place.facts(zombie.name)}
    assert answers["renewal"]["status"] == "lost"
    assert answers["release"]["status"] == 409
    assert (answers["completion"]["status"], answers["completion"]["body"]["code"]) == (409, "stale_lease")
    assert answers["publication"]["status"] == "ResultRefusedError"
    verdict = place.judge()
    place.assert_kept(verdict)
    late = [entry for entry in verdict.entries if entry.what is Happening.LATE_RESULT]
    assert [(entry.job_id, entry.epoch) for entry in late] == [(job_id, 1)]
    assert f'"from":"{zombie.name}"' in late[0].note
    done = next(job for job in verdict.jobs if job.job_id == job_id)
    assert (done.epoch, done.failures) == (2, 1)


# Jobs that are to blame.


def test_poison_jobs_die_of_their_own_error_and_the_others_are_each_done_at_once(sqlite_place: QueuePlace) -> None:
    place = sqlite_place
    place.speed *= 2
    place.start_server()
    place.register(servers=WORKERS)
    place.submit(90, max_attempts=3)
    for payload in ('{"poison":"raise"}', '{"poison":"crash"}'):
        place.submit(5, payload=payload, max_attempts=3)
    crowd = [place.start_worker(load_s=0.01, run_s=0.02) for _ in range(4)]

    def replace_the_dead() -> None:
        for number, worker in enumerate(crowd):
            if not worker.is_alive:
                crowd[number] = place.start_worker(load_s=0.01, run_s=0.02)

    place.until_all_ended(60, replace_the_dead)
    verdict = place.judge()
    assert verdict.found == []
    executions = verdict.executions()
    for job in verdict.jobs:
        poison = json.loads(job.spec.payload).get("poison")
        error = {
            None: "",
            "raise": f"ValueError: no such scene for {job.job_id}",
            "crash": "sent no heartbeat for 10 s",
        }
        assert job.state is (JobState.DEAD if poison else JobState.DONE)
        assert error[poison] in job.last_error
        assert executions[job.job_id] == (3 if poison else 1)
    assert all(one.is_free for one in verdict.resources)
