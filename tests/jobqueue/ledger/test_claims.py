"""Which job a worker is given, and what becomes of it."""

from __future__ import annotations

import pytest

from headgate.jobqueue import Completion, Ended, Happening, JobState, LeaseRef
from headgate.jobqueue.claims import ERROR_CHARS
from headgate.jobqueue.outcomes import Renewed, Repeated, Stale, Unknown
from headgate.jobqueue.resource import ResourceState
from tests.jobqueue.ledger.queue import POOL, Queue, ref, server, spec


@pytest.fixture
def queue() -> Queue:
    return Queue()


# Whose job is next.


def test_jobs_go_to_the_server_with_the_fewest_jobs_ahead(queue: Queue) -> None:
    queue.add(server(1, pool="a"), server(2, pool="b"), server(3, pool="b"))
    queue.submit(*(spec(f"a{n}", "a", pool="a") for n in range(5)), *(spec(f"b{n}", "b", pool="b") for n in range(5)))
    assert queue.ids(count=6) == ["a0", "b0", "b1", "a1", "b2", "b3"]


def test_tasks_that_share_a_server_share_its_load(queue: Queue) -> None:
    queue.add(server(1), server(2, pool="other"))
    queue.submit(spec("r", task="radio", pool=POOL), spec("m", task="mugs", pool=POOL), spec("o", pool="other"))
    assert queue.ids(count=3) == ["r", "o", "m"]


def three_teams(servers: int = 4, jobs: int = 8) -> Queue:
    """A queue of teams a, b and c with jobs and servers of their own, whose jobs were submitted team by team."""
    queue = Queue()
    for team in "abc":
        queue.add(*(server(port, pool=team) for port in range(servers)))
        queue.submit(*(spec(f"{team}{n}", team, pool=team) for n in range(jobs)))
    return queue


@pytest.mark.parametrize("at_a_time", [1, 2, 5, 24])
def test_teams_with_servers_take_turns(at_a_time: int) -> None:
    queue = three_teams()
    taken = [job_id for _ in range(0, 24, at_a_time) for job_id in queue.ids(count=at_a_time)]
    assert taken == [f"{team}{n}" for n in range(8) for team in "abc"]


def test_one_worker_serves_all_teams_in_turn() -> None:
    queue = three_teams()
    teams = []
    for _ in range(9):
        job = queue.one()
        teams.append(job.spec.team)
        queue.ledger.claims.complete(ref(job), Completion(), queue.at)
    assert "".join(teams) == "abc" * 3


def test_whose_turn_it_is_survives_a_restart() -> None:
    queue = three_teams()
    teams = []
    for _ in range(7):
        (job,) = queue.claim()
        teams.append(job.spec.team)
        queue.ledger.claims.complete(ref(job), Completion(), queue.at)
        queue.commit()
        queue.restart()
    assert "".join(teams) == "abcabca"


def test_a_team_with_more_servers_gets_as_many_more_jobs(queue: Queue) -> None:
    queue.add(*(server(port, pool="a") for port in range(4)), *(server(port, pool="b") for port in range(2)))
    queue.submit(*(spec(f"{team}{n}", team, pool=team) for team in "ba" for n in range(9)))
    assert "".join(job.spec.team for job in queue.claim(count=12)) == "baa" * 4


def test_an_urgent_job_does_not_wait_for_its_teams_turn() -> None:
    queue = three_teams()
    queue.submit(*(spec(f"urgent{n}", "b", pool="b", priority=1) for n in range(5)))
    assert queue.ids(count=6) == ["urgent0", "urgent1", "urgent2", "urgent3", "a0", "c0"]


def test_an_urgent_job_for_a_busier_server_is_next_in_a_batch_once_the_others_are_as_busy(queue: Queue) -> None:
    queue.add(server(0, "x", pool="a"), server(1, "y", pool="a"), server(2, pool="b"))
    queue.submit(spec("b0", "b", pool="b"), spec("y0", "a", task="y", pool="a"))
    queue.claim(count=2)
    queue.submit(spec("b1", "b", pool="b"), *(spec(f"x{n}", "a", task="x", pool="a") for n in range(2)))
    queue.submit(spec("y1", "a", task="y", pool="a", priority=1))
    assert queue.ids(count=3) == ["x0", "y1", "b1"]


def test_a_team_that_comes_late_catches_up_nothing() -> None:
    queue = three_teams(jobs=40)
    for _ in range(30):
        queue.ledger.claims.complete(ref(queue.one()), Completion(), queue.at)
    queue.add(server(0, pool="late"))
    queue.submit(*(spec(f"late{n}", "late", pool="late") for n in range(9)))
    teams = []
    for _ in range(8):
        job = queue.one()
        teams.append(job.spec.team)
        queue.ledger.claims.complete(ref(job), Completion(), queue.at)
    assert teams == ["late", "a", "b", "c", "late", "a", "b", "c"]


def test_teams_of_one_pool_share_its_servers(queue: Queue) -> None:
    queue.add(*(server(port) for port in range(4)))
    queue.submit(*(spec(f"{team}{task}{n}", team, task, POOL) for team in "ab" for task in "xy" for n in range(4)))
    assert "".join(job.spec.team for job in queue.claim(count=16)) == "ab" * 8


def test_teams_without_servers_take_turns(queue: Queue) -> None:
    queue.submit(*(spec(f"a{n}", "a") for n in range(3)), *(spec(f"b{n}", "b") for n in range(3)))
    assert queue.ids(count=6) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_server_for_one_task_and_a_server_for_all_are_both_kept_busy(queue: Queue) -> None:
    queue.add(server(1), server(2, "radio"))
    queue.submit(*(spec(f"m{n}", task="mugs", pool=POOL) for n in range(9)))
    queue.submit(*(spec(f"r{n}", task="radio", pool=POOL) for n in range(9)))
    for _ in range(9):
        first, second = queue.claim(count=2)
        assert {first.spec.task, second.spec.task} == {"mugs", "radio"}
        assert {queue.reserved(first).index, queue.reserved(second).index} == {0, 1}
        for job in (first, second):
            queue.ledger.claims.complete(ref(job), Completion(), queue.at)
        queue.settle()


def test_both_servers_stay_busy_while_jobs_end_one_by_one(queue: Queue) -> None:
    queue.add(server(1), server(2, "radio"))
    tasks = ["radio", "mugs", "mugs", "radio", "mugs", "radio", "mugs", "radio"]
    queue.submit(*(spec(f"{n}", task=task, pool=POOL) for n, task in enumerate(tasks)))
    busy = [queue.one("w0"), queue.one("w1")]
    for _ in range(5):
        assert {queue.reserved(job).index for job in busy} == {0, 1}
        queue.ledger.claims.complete(ref(busy.pop(0)), Completion(), queue.at)
        queue.settle()
        busy.append(queue.one())


def test_jobs_that_no_open_server_serves_are_passed_over(queue: Queue) -> None:
    queue.add(server(1, "radio"))
    queue.submit(
        spec("mugs", task="mugs", pool=POOL), spec("radio", task="radio", pool=POOL), spec("none", pool="none")
    )
    assert queue.ids(count=3) == ["radio"]
    queue.add(server(2, "mugs"))
    assert queue.ids(count=3) == ["mugs"]


@pytest.mark.parametrize("state", [ResourceState.DRAINING, ResourceState.DOWN])
def test_jobs_of_a_server_that_is_not_open_wait_for_it(queue: Queue, state: ResourceState) -> None:
    (only,) = queue.add(server(1))
    queue.submit(spec("1", pool=POOL))
    queue.ledger.change_resource(only.resource_id, state, queue.at, "maintenance")
    assert queue.ids() == []
    queue.ledger.change_resource(only.resource_id, ResourceState.OPEN, queue.at)
    assert queue.ids() == ["1"]


def test_urgent_jobs_go_first_and_then_the_earliest(queue: Queue) -> None:
    queue.submit(spec("1"), spec("2", priority=5), spec("3", priority=5), spec("4", "other", priority=9))
    assert queue.ids(count=1) == ["4"]
    assert queue.ids(count=3) == ["2", "3", "1"]


def test_a_job_that_failed_goes_behind_those_that_did_not(queue: Queue) -> None:
    queue.submit(spec("1"), spec("2"), spec("3"))
    queue.fail(queue.one())
    assert queue.ids(count=3) == ["2", "3", "1"]


def test_filters_leave_other_jobs_alone(queue: Queue) -> None:
    queue.add(server(1), server(2, pool="other"))
    queue.submit(
        spec("1", "a", "radio"), spec("2", "b", "radio"), spec("3", "b", "mugs"), spec("4", "b", "mugs", pool=POOL)
    )
    assert queue.claim(count=9, teams=frozenset({"c"})) == []
    assert queue.claim(count=9, teams=frozenset()) == []
    assert [one.job_id for one in queue.claim(count=9, pools=frozenset({POOL}))] == ["4"]
    assert [one.job_id for one in queue.claim(count=9, tasks=frozenset({"mugs"}))] == ["3"]
    assert [one.job_id for one in queue.claim(count=9, teams=frozenset({"b"}))] == ["2"]
    assert queue.ids(count=9) == ["1"]


def test_a_claim_carries_what_its_holder_needs(queue: Queue) -> None:
    queue.submit(spec("1"))
    job = queue.one("worker-7")
    assert (job.state, job.epoch, job.worker, job.lease_s) == (JobState.IN_PROGRESS, 1, "worker-7", 90.0)
    assert job.lease_id
    assert job.claimed_at == queue.at.wall
    assert queue.ledger.claims.of_worker("worker-7") == [job]
    assert queue.ledger.claims.workers == 1


# Ends.


def test_a_completed_job_is_done_once(queue: Queue) -> None:
    queue.submit(spec("1"))
    job = queue.one()
    completion = Completion('{"score": 1}', "runs/1", "sha256:1")
    ended = queue.ledger.claims.complete(ref(job), completion, queue.at)
    assert isinstance(ended, Ended)
    assert ended.job == queue.job("1")
    assert (ended.job.state, ended.job.result, ended.job.lease_id) == (JobState.DONE, '{"score": 1}', job.lease_id)
    assert isinstance(queue.ledger.claims.complete(ref(job), completion, queue.at), Repeated)
    assert isinstance(queue.ledger.claims.complete(ref(job), Completion('{"score": 2}'), queue.at), Stale)
    assert queue.job("1").result == '{"score": 1}'
    assert [one.note for one in queue.entries(Happening.LATE_RESULT)] == ['{"score": 2}']
    assert len(queue.entries(Happening.COMPLETED)) == 1
    assert queue.ledger.claims.workers == 0


@pytest.mark.parametrize(
    ("lease_id", "epoch"), [("lease-1", 2), ("lease-1", 0), ("lease-2", 1), ("", 1), ("lease-2", 2)]
)
def test_a_lease_or_epoch_that_is_not_the_running_one_is_refused(queue: Queue, lease_id: str, epoch: int) -> None:
    queue.submit(spec("1"))
    queue.one()
    wrong = LeaseRef("1", lease_id, epoch)
    claims, at = queue.ledger.claims, queue.at
    for outcome in (claims.complete(wrong, Completion(), at), claims.fail(wrong, "", at), claims.give_back(wrong, at)):
        assert isinstance(outcome, Stale)
    assert isinstance(claims.renew(wrong, at), Stale)
    assert isinstance(queue.ledger.reserve(wrong, at), Stale)
    assert queue.state("1") is JobState.IN_PROGRESS


def test_a_late_result_is_recorded_and_does_not_count(queue: Queue) -> None:
    queue.submit(spec("1"))
    first = queue.one("slow")
    assert queue.passes(91) == ["1"]
    second = queue.one("quick")
    assert second.epoch == 2
    late = queue.ledger.claims.complete(ref(first), Completion('{"late": 1}'), queue.at)
    assert isinstance(late, Stale)
    assert "epoch 2" in late.reason
    assert queue.state("1") is JobState.IN_PROGRESS
    (entry,) = queue.entries(Happening.LATE_RESULT)
    assert (entry.job_id, entry.epoch, entry.lease_id, entry.note) == ("1", 1, first.lease_id, '{"late": 1}')
    assert isinstance(queue.ledger.claims.complete(ref(second), Completion(), queue.at), Ended)


@pytest.mark.parametrize("committed", [False, True])
def test_the_result_of_a_made_up_lease_is_not_kept(queue: Queue, committed: bool) -> None:
    queue.submit(spec("1"))
    job = queue.one()
    queue.passes(91)
    if committed:
        queue.commit()
        queue.restart()
    true = ref(job)
    for wrong in (true._replace(epoch=2), true._replace(lease_id="made-up"), LeaseRef("1", "made-up", 9)):
        for _ in range(2):
            assert isinstance(queue.ledger.claims.complete(wrong, Completion("x" * 9_000), queue.at), Stale)
    assert queue.entries(Happening.LATE_RESULT) == []


def test_of_late_results_each_lease_keeps_one_cut_and_a_job_three(queue: Queue) -> None:
    queue.submit(spec("1", max_attempts=9))
    former = []
    for _ in range(5):
        former.append(ref(queue.one()))
        queue.passes(91)
    for one in former:
        for text in ("x" * 9_000, "again"):
            assert isinstance(queue.ledger.claims.complete(one, Completion(text), queue.at), Stale)
    kept = queue.entries(Happening.LATE_RESULT)
    assert [(entry.lease_id, len(entry.note)) for entry in kept] == [(one.lease_id, 4_000) for one in former[:3]]


def test_jobs_that_nobody_submitted_are_unknown(queue: Queue) -> None:
    nobody = LeaseRef("nobody", "lease", 1)
    claims, at = queue.ledger.claims, queue.at
    for outcome in (
        claims.complete(nobody, Completion(), at),
        claims.fail(nobody, "", at),
        claims.give_back(nobody, at),
        claims.renew(nobody, at),
        queue.ledger.reserve(nobody, at),
        queue.ledger.requeue("nobody", at),
        queue.ledger.withdraw("nobody", "", at),
    ):
        assert outcome == Unknown("nobody")
    assert not queue.ledger.changes


def test_a_job_that_keeps_failing_is_dead_after_its_attempts(queue: Queue) -> None:
    queue.submit(spec("1", max_attempts=2))
    assert queue.fail(queue.one()).state is JobState.PENDING
    dead = queue.fail(queue.one())
    assert (dead.state, dead.failures, dead.last_error) == (JobState.DEAD, 2, "it broke")
    assert dead == queue.job("1")
    assert queue.ids() == []
    assert [one.what for one in queue.entries()] == ["submitted", "claimed", "failed", "claimed", "failed", "died"]


def test_a_job_that_kills_its_workers_is_dead_after_its_attempts(queue: Queue) -> None:
    queue.submit(spec("1", max_attempts=2))
    for worker in ("first", "second"):
        queue.one(worker)
        assert queue.passes(91) == ["1"]
    assert queue.state("1") is JobState.DEAD
    assert "'second'" in queue.job("1").last_error
    assert "90 s" in queue.job("1").last_error
    assert len(queue.entries(Happening.EXPIRED)) == 2


def test_a_failure_that_cannot_be_mended_is_the_last(queue: Queue) -> None:
    queue.submit(spec("1"))
    assert queue.fail(queue.one(), retry=False).state is JobState.DEAD


def test_an_endless_error_message_is_cut(queue: Queue) -> None:
    queue.submit(spec("1"))
    queue.ledger.claims.fail(ref(queue.one()), "x" * 10_000, queue.at)
    assert queue.job("1").last_error == "x" * ERROR_CHARS


def test_a_job_given_back_keeps_its_place_and_is_not_charged(queue: Queue) -> None:
    queue.submit(spec("1", max_attempts=1), spec("2"))
    for _ in range(3):
        outcome = queue.ledger.claims.give_back(ref(queue.one()), queue.at, "SIGTERM")
        assert isinstance(outcome, Ended)
        assert outcome.job == queue.job("1")
        assert (outcome.job.state, outcome.job.failures, outcome.job.lease_id) == (JobState.PENDING, 0, "")
    assert queue.ids(count=2) == ["1", "2"]
    assert [one.note for one in queue.entries(Happening.GIVEN_BACK)] == ["SIGTERM"] * 3


@pytest.mark.parametrize("how", ["fail", "expire", "give_back", "withdraw"])
def test_a_job_that_is_not_held_carries_no_lease(queue: Queue, how: str) -> None:
    queue.submit(spec("1", max_attempts=1))
    job = queue.one()
    if how == "fail":
        queue.fail(job)
    elif how == "expire":
        queue.passes(91)
    elif how == "give_back":
        queue.ledger.claims.give_back(ref(job), queue.at)
    else:
        queue.ledger.withdraw("1", "", queue.at)
    ended = queue.job("1")
    assert (ended.lease_id, ended.lease_s) == ("", 0.0)
    assert ended.worker == ("worker" if ended.state is JobState.DEAD else "")
    assert queue.ledger.claims.of_worker("worker") == []


# Time.


def test_a_claim_that_is_renewed_lasts(queue: Queue) -> None:
    queue.submit(spec("1"))
    job = queue.one()
    for _ in range(10):
        assert queue.passes(89) == []
        assert isinstance(queue.ledger.claims.renew(ref(job), queue.at), Renewed)
    assert queue.passes(90) == []
    assert queue.passes(0.1) == ["1"]
    assert isinstance(queue.ledger.claims.renew(ref(job), queue.at), Stale)


@pytest.mark.parametrize("wall", [3_600.0, -3_600.0])
def test_setting_the_wall_clock_ends_no_claim_and_delays_none(queue: Queue, wall: float) -> None:
    queue.submit(spec("1"))
    queue.one()
    assert queue.passes(89, wall) == []
    assert queue.passes(2, wall) == ["1"]


def test_claims_end_in_the_order_of_their_deadlines(queue: Queue) -> None:
    queue.submit(spec("1"), spec("2"), spec("3"))
    first, _, third = queue.claim(count=3)
    queue.passes(10)
    queue.ledger.claims.renew(ref(third), queue.at)
    queue.passes(10)
    queue.ledger.claims.renew(ref(first), queue.at)
    assert queue.ledger.next_deadline() == 1_090.0
    assert queue.passes(500) == ["2", "3", "1"]
    assert queue.ledger.next_deadline() is None


def test_renewals_write_nothing(queue: Queue) -> None:
    queue.submit(spec("1"))
    job = queue.one()
    queue.commit()
    assert queue.ledger.claims.renew(ref(job), queue.at) == Renewed(job, None)
    assert not queue.ledger.changes


def test_of_the_lanes_whose_servers_are_busier_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    queue.add(server(0, pool="a"), server(0, pool="b"))
    queue.submit(*(spec(f"{pool}{n}", task=f"task-{n}", pool=pool) for pool in "ab" for n in range(3)))
    assert queue.ids() == ["a0"]
    queue.commit()
    queue.restart()
    read: list[str] = []
    pending = queue.store.pending
    monkeypatch.setattr(queue.store, "pending", lambda lane, *others: read.append(lane.pool) or pending(lane, *others))
    assert queue.ids() == ["b0"]
    assert set(read) == {"b"}
