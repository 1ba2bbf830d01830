"""The order in which a store gives the pending jobs of a lane."""

from __future__ import annotations

import random

from headgate.jobqueue import Store
from headgate.jobqueue.job import Lane, Place
from tests.jobqueue.stores.values import a_job, changed, claimed, done, submitted

LANE = Lane("red", "p", "t")


def test_priority_comes_before_failures_and_those_before_submission(store: Store) -> None:
    jobs = [a_job(0), a_job(1, priority=5), a_job(2, priority=5)._replace(failures=1), a_job(3), a_job(4, priority=-1)]
    store.commit(submitted(*jobs))
    assert [job.seq for job in store.pending(LANE, None, 9)] == [1, 2, 0, 3, 4]


def test_only_pending_jobs_of_the_lane_come(store: Store) -> None:
    others = [a_job(1, team="blue"), a_job(2, pool="q"), a_job(3, task="u"), a_job(4), a_job(5)]
    store.commit(submitted(a_job(0), *others))
    store.commit(changed(claimed(a_job(4)), done(a_job(5))))
    assert store.pending(LANE, None, 9) == [a_job(0)]
    assert store.pending(Lane("nobody", "", ""), None, 9) == []


def test_a_place_is_left_behind_and_a_limit_is_kept(store: Store) -> None:
    store.commit(submitted(*(a_job(number) for number in range(10))))
    assert [job.seq for job in store.pending(LANE, None, 3)] == [0, 1, 2]
    assert [job.seq for job in store.pending(LANE, a_job(2).place, 3)] == [3, 4, 5]
    assert [job.seq for job in store.pending(LANE, a_job(8).place, 3)] == [9]
    assert store.pending(LANE, a_job(9).place, 3) == []


def test_a_place_needs_no_job_there(store: Store) -> None:
    store.commit(submitted(a_job(3), a_job(5, priority=1)))
    assert [job.seq for job in store.pending(LANE, Place(-1, 9, 0), 9)] == [3]
    assert [job.seq for job in store.pending(LANE, Place(-(2**40), 0, 0), 9)] == [5, 3]


def test_a_job_that_comes_back_takes_its_place_again(store: Store) -> None:
    jobs = [a_job(number) for number in range(3)]
    store.commit(submitted(*jobs))
    store.commit(changed(claimed(jobs[0]), claimed(jobs[1])))
    assert [job.seq for job in store.pending(LANE, None, 9)] == [2]
    store.commit(changed(jobs[0], jobs[1]._replace(failures=1)))
    assert [job.seq for job in store.pending(LANE, None, 9)] == [0, 2, 1]


def test_reading_a_lane_page_by_page_gives_each_job_once_in_order(store: Store) -> None:
    numbers = random.Random(7)
    jobs = [
        a_job(number, priority=numbers.randint(-2, 2))._replace(failures=numbers.randint(0, 2)) for number in range(300)
    ]
    store.commit(submitted(*jobs))
    gone = set(numbers.sample(range(300), 200))
    store.commit(changed(*(claimed(jobs[number]) for number in gone)))
    expected = sorted((job for job in jobs if job.seq not in gone), key=lambda job: job.place)
    found, after = [], None
    while page := store.pending(LANE, after, 7):
        found += page
        after = page[-1].place
    assert found == expected
