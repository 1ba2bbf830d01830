"""Lanes hand jobs out by their place, whatever part of them has been read, kept or committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.jobqueue import Job, JobState, working_set
from headgate.jobqueue.job import Lane, Place
from headgate.jobqueue.working_set import Fetched, Lanes
from tests.examples import examples
from tests.jobqueue.ledger.queue import Queue, ref, spec

LANE = Lane("team", "", "task")
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.lists(st.integers(0, 2), min_size=4, max_size=12)),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.sampled_from(("fail", "give_back", "withdraw", "requeue")), st.integers(0, 50)),
    st.tuples(st.sampled_from(("commit", "restart")), st.just(0)),
)


@pytest.fixture
def small_readings() -> Iterator[None]:
    """Lanes that read three jobs at a time and keep eight, so that few jobs reach every edge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(working_set, "_FETCHED", 3)
        patch.setattr(working_set, "_KEPT", 8)
        yield


@pytest.mark.usefixtures("small_readings")
@settings(max_examples=examples(40))
@given(st.lists(STEPS, min_size=15, max_size=60))  # without the lower bound, lists of five are usual
def test_the_next_job_is_the_first_of_all_that_wait(steps: list[tuple[str, object]]) -> None:  # noqa: C901, PLR0912 - one branch a step
    queue = Queue()
    submitted = 0
    held: list[Job] = []
    places: dict[str, Place] = {}
    dead: list[str] = []
    for what, value in steps:
        if what == "submit":
            specs = [
                spec(f"job-{submitted + n}", priority=priority, max_attempts=9) for n, priority in enumerate(value)
            ]
            queue.submit(*specs)
            for one in specs:
                places[one.job_id] = Place(-one.priority, 0, submitted)
                submitted += 1
        elif what == "claim":
            jobs = queue.claim(count=value)
            assert [one.job_id for one in jobs] == sorted(places, key=places.__getitem__)[:value]
            for one in jobs:
                del places[one.job_id]
            held += jobs
        elif what in ("fail", "give_back") and held:
            job = held.pop(value % len(held))
            if what == "fail":
                queue.fail(job)
            else:
                queue.ledger.claims.give_back(ref(job), queue.at)
            now = queue.job(job.job_id)
            if now.state is JobState.PENDING:
                places[job.job_id] = now.place
            else:
                dead.append(job.job_id)
        elif what == "withdraw" and places:
            job_id = sorted(places)[value % len(places)]
            queue.ledger.withdraw(job_id, "", queue.at)
            del places[job_id]
            dead.append(job_id)
        elif what == "requeue" and dead:
            job_id = dead.pop(value % len(dead))
            queue.ledger.requeue(job_id, queue.at)
            places[job_id] = queue.job(job_id).place
        elif what == "commit":
            queue.commit()
        elif what == "restart":
            queue.commit()
            queue.restart()
        queue.ledger.validate()
        assert queue.ledger.withdrawn(None) == sum(queue.job(job_id).is_withdrawn for job_id in dead)
        assert queue.ledger.lane_counts().get(LANE, {JobState.PENDING: 0})[JobState.PENDING] == len(places)


@pytest.mark.usefixtures("small_readings")
def test_a_large_submission_is_let_go_once_the_store_has_it() -> None:
    queue = Queue()
    queue.submit(spec("0"))
    assert queue.ids() == ["0"]  # the lane is read to its end now, so all that comes lines up
    queue.submit(*(spec(f"{n}") for n in range(1, 31)))
    view = dict(queue.ledger._working_set.lanes)[LANE]
    assert len(view.heads) == 30
    queue.commit()
    assert len(view.heads) == 4
    queue.submit(spec("urgent", priority=1))
    assert queue.ids(count=31) == ["urgent", *(f"{n}" for n in range(1, 31))]


@pytest.mark.usefixtures("small_readings")
def test_the_last_job_that_was_read_comes_back_to_its_place() -> None:
    queue = Queue()
    queue.submit(*(spec(f"{n}") for n in range(3)))
    queue.commit()
    queue.restart()
    *_, last = queue.claim(count=3)
    queue.ledger.claims.give_back(ref(last), queue.at)
    assert queue.ids(count=9) == ["2"]


def test_more_jobs_than_are_read_at_once_come_in_order() -> None:
    queue = Queue()
    queue.submit(*(spec(f"{n}") for n in range(200)))
    queue.commit()
    queue.restart()
    assert queue.ids(count=250) == [f"{n}" for n in range(200)]


def test_an_urgent_job_overtakes_those_that_are_read_already() -> None:
    queue = Queue()
    queue.submit(*(spec(f"{n}") for n in range(100)))
    queue.commit()
    queue.restart()
    assert queue.ids() == ["0"]
    queue.submit(spec("urgent", priority=1))
    assert queue.ids(count=2) == ["urgent", "1"]


def test_jobs_are_handed_out_by_submission_and_never_by_name() -> None:
    queue = Queue()
    queue.submit(spec("2"), spec("10"), spec("1"))
    queue.commit()
    queue.restart()
    assert queue.ids(count=3) == ["2", "10", "1"]


def test_a_job_that_lines_up_behind_what_was_read_is_left_to_the_store() -> None:
    reads: list[Place | None] = []
    jobs = [Job(spec(f"{n}"), n, 0.0) for n in range(4)]

    def fetch(lane: Lane, after: Place | None, limit: int) -> Fetched:
        reads.append(after)
        return Fetched(jobs[:2], jobs[1].place, False) if after is None else Fetched(jobs[2:], after, True)

    lanes = Lanes({LANE: {JobState.PENDING: 3}}, {}, fetch)
    lanes.moved(jobs[3], None)
    assert [lanes.pop(LANE).seq for _ in range(4)] == [0, 1, 2, 3]
    assert reads == [None, jobs[1].place]


def test_counts_follow_each_job() -> None:
    queue = Queue()
    queue.submit(spec("1"), spec("2"), spec("3", team="other"))
    job = queue.one()
    totals = queue.ledger._working_set.lanes.totals
    assert (totals[JobState.PENDING], totals[JobState.IN_PROGRESS]) == (2, 1)
    queue.fail(job, retry=False)
    assert (totals[JobState.PENDING], totals[JobState.DEAD]) == (2, 1)
    assert queue.ledger.lane_counts()[Lane("other", "", "task")][JobState.PENDING] == 1


def test_a_new_lane_is_not_looked_for_in_the_store() -> None:
    def fetch(lane: Lane, after: Place | None, limit: int) -> Fetched:
        raise AssertionError("the store has nothing of it")

    lanes = Lanes({}, {}, fetch)
    for seq in range(3):
        lanes.moved(Job(spec(f"{seq}"), seq, 0.0), None)
    assert [lanes.pop(LANE).seq for _ in range(3)] == [0, 1, 2]


def test_a_long_lane_is_left_to_the_store_once_it_is_stored() -> None:
    queue = Queue()
    for part in range(3):
        queue.submit(*(spec(f"{part}-{n}") for n in range(1_000)))
        queue.commit()
        ((_, view),) = queue.ledger._working_set.lanes
        assert len(view.heads) <= 128
    assert [job.spec.job_id for job in queue.claim(count=3_000)] == [f"{p}-{n}" for p in range(3) for n in range(1_000)]
