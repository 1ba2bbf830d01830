"""Whose job is next follows the stated order, and finding out costs the same however many tasks other teams have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.jobqueue import ClaimRequest, Completion, Instant, Job, JobState
from headgate.jobqueue.claims import Claims
from headgate.jobqueue.job import Lane
from headgate.jobqueue.resource import Resource, ResourceState
from headgate.jobqueue.working_set import Lanes
from tests.examples import examples
from tests.jobqueue.ledger.queue import POOL, Queue, ref, server, spec

TEAMS, TASKS, POOLS = "abc", ("t0", "t1", "t2"), ("", "p", "q")
JOBS = st.tuples(st.sampled_from(TEAMS), st.sampled_from(TASKS), st.sampled_from(POOLS), st.sampled_from((0, 0, 0, 1)))
ASKED = st.none() | st.sets(st.sampled_from((*TEAMS, *TASKS, *POOLS)), min_size=4).map(frozenset)
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.lists(JOBS, min_size=1, max_size=6)),
    st.tuples(st.just("claim"), st.tuples(st.sampled_from((1, 1, 4)), ASKED, ASKED, ASKED)),
    st.tuples(
        st.just("add"), st.tuples(st.integers(1, 4), st.sampled_from(POOLS[1:]), st.sets(st.sampled_from(TASKS)))
    ),
    st.tuples(st.just("change"), st.tuples(st.integers(0, 9), st.sampled_from(ResourceState))),
    st.tuples(st.sampled_from(("fail", "give_back", "complete", "withdraw", "reserve")), st.integers(0, 50)),
    st.tuples(st.sampled_from(("commit", "restart")), st.none()),
)


@pytest.fixture
def chosen() -> Iterator[None]:
    """Checks each choice of a claim against the rule, for which every lane is looked at."""
    start = Claims._start

    def checked(self: Claims, job: Job, request: ClaimRequest, at: Instant) -> Job:
        loads, lanes = self._servers.loads, self._working_set.lanes

        def turn(first: Job) -> tuple[object, ...]:
            team, pool, _ = lane = first.spec.lane
            return loads.of(lane), first.place[0], loads.share(team, pool), self._last_claims.get(team, -1), first.place

        firsts = [job if lane == job.spec.lane else lanes.first(lane) for lane, _ in lanes.waiting()]
        asked = [(request.teams, "team"), (request.tasks, "task"), (request.pools, "pool")]
        for only, what in asked:
            firsts = [one for one in firsts if only is None or getattr(one.spec, what) in only]
        assert job == min((one for one in firsts if loads.of(one.spec.lane) is not None), key=turn)
        return start(self, job, request, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claims, "_start", checked)
        yield


@pytest.mark.usefixtures("chosen")
@settings(max_examples=examples(100))
@given(st.lists(STEPS, min_size=15, max_size=60))
def test_each_job_of_a_claim_is_the_one_whose_turn_it_is(steps: list[tuple[str, object]]) -> None:  # noqa: C901, PLR0912 - one branch a step
    queue, numbers = Queue(), count()
    held: list[Job] = []
    for what, value in steps:
        if what == "submit":
            queue.submit(*(spec(f"{next(numbers)}", a, task=b, pool=c, priority=d) for a, b, c, d in value))
        elif what == "claim":
            number, teams, tasks, pools = value
            held += queue.claim(count=number, teams=teams, tasks=tasks, pools=pools)
        elif what == "add":
            port, pool, tasks = value
            queue.add(server(port, *tasks, pool=pool))
        elif what == "change" and (servers := sorted(queue.ledger.resources())):
            queue.ledger.change_resource(servers[value[0] % len(servers)], value[1], queue.at)
        elif what == "withdraw":
            job = queue.ledger.job(f"{value}")
            if job is not None and job.state is JobState.PENDING:
                queue.ledger.withdraw(job.job_id, "", queue.at)
        elif what == "reserve" and held and (job := held[value % len(held)]).spec.pool:
            queue.ledger.reserve(ref(job), queue.at)
        elif what in ("fail", "give_back", "complete") and held:
            job = held.pop(value % len(held))
            if what == "fail":
                queue.fail(job)
            elif what == "complete":
                queue.ledger.claims.complete(ref(job), Completion(), queue.at)
            else:
                queue.ledger.claims.give_back(ref(job), queue.at)
        elif what == "commit":
            queue.commit()
        elif what == "restart":
            queue.commit()
            queue.restart()
        queue.settle()


def crowded(lanes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Queue, list[object]]:
    """Return a queue in which one team has many tasks and another one has one, and all looks at a lane or a server."""
    queue = Queue()
    queue.add(*(server(port) for port in range(3)))
    queue.submit(*(spec(f"crowd-{n}", "crowd", task=f"task-{n}", pool=POOL) for n in range(lanes)))
    queue.submit(*(spec(f"{n}", "other", task="radio", pool=POOL) for n in range(20)))
    queue.claim(count=4)
    looks: list[object] = []
    first, serves = Lanes.first, Resource.serves
    monkeypatch.setattr(Lanes, "first", lambda self, lane: looks.append(lane) or first(self, lane))
    monkeypatch.setattr(Resource, "serves", lambda self, *asked: looks.append(asked) or serves(self, *asked))
    return queue, looks


@pytest.mark.parametrize("tasks", [None, frozenset({"radio"})], ids=["any task", "one task"])
def test_a_claim_and_a_reservation_cost_the_same_however_many_tasks_a_team_has(
    tasks: frozenset[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[list[int]] = []
    for lanes in (10, 1_000):
        with monkeypatch.context() as patch:
            queue, looks = crowded(lanes, patch)
            costs.append([])
            for _ in range(3):
                queue.reserved(*queue.claim(tasks=tasks))
                costs[-1].append(len(looks))
                looks.clear()
    assert costs[0] == costs[1]
    assert max(costs[1]) < 30


def test_the_first_claim_after_a_restart_reads_few_of_many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, looks = crowded(1_000, monkeypatch)
    queue.commit()
    queue.restart()
    assert queue.claim(count=4)
    assert 0 < sum(isinstance(one, Lane) for one in looks) < 30


def test_a_job_that_is_claimed_and_given_back_again_and_again_leaves_nothing_behind() -> None:
    queue = Queue()
    queue.submit(spec("1"), spec("2"))
    for _ in range(50):
        queue.ledger.claims.give_back(ref(queue.one()), queue.at)
    (heap,) = queue.ledger.servers.groups._heaps.values()
    assert len(heap) < 5
