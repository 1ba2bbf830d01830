"""The parts of the job queue's benchmark count what they say they count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue import (
    Changes,
    ClaimRequest,
    Completion,
    Happening,
    HistoryEntry,
    Instant,
    Job,
    JobSpec,
    LeaseRef,
    Ledger,
    ResourceSpec,
    Store,
)
from headgate.jobqueue.stores import open_store
from headgate_bench.artifact import Bar
from headgate_bench.definition import Bench, Outcome, percentile
from headgate_bench.jobqueue import batches as batches_part
from headgate_bench.jobqueue import part
from headgate_bench.jobqueue.batches import batches
from headgate_bench.jobqueue.burn_down import Burned, burn_down
from headgate_bench.jobqueue.faults import toll_of
from headgate_bench.jobqueue.part import JobQueueParameters, Site
from headgate_bench.jobqueue.served import QueueFailedError, run, start
from headgate_bench.jobqueue.waiting_rules import simulated
from headgate_bench.scenarios import jobqueue
from tests.bench.tiny import bench

AT = Instant(0.0, 1_000.0)


class Queue:
    """A queue in memory whose worker keeps a log, as killed workers do."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.store: Store = open_store("memory:").own("test")
        self.ledger = Ledger(self.store, Instant(0.0, 0.0))
        self.log = folder / "workers.log"
        self.log.touch()
        self.ledger.submit([JobSpec(f"job-{number}", "team", "task") for number in range(jobs)], AT)
        self.commit()

    def commit(self) -> None:
        self.store.commit(self.ledger.changes)
        self.ledger.committed()

    def say(self, text: str) -> None:
        with self.log.open("a") as log:
            log.write(text)

    def claim(self) -> Job:
        (job,) = self.ledger.claims.claim(ClaimRequest("worker"), AT)
        self.commit()
        self.say(f"ran {job.job_id} {job.epoch}\n")
        return job

    def complete(self, job: Job) -> None:
        self.ledger.claims.complete(LeaseRef(job.job_id, job.lease_id, job.epoch), Completion(), AT)
        self.commit()
        self.say(f"done {job.job_id} {job.epoch} {job.lease_id}\n")


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path, jobs=2)


def test_a_queue_that_kept_its_promises_has_no_toll(queue: Queue) -> None:
    for _ in range(2):
        queue.complete(queue.claim())
    found = toll_of(queue.store.reader(), 2, queue.log)
    assert (found.lost, found.counted_twice, found.ran_again, found.broken, found.wrong) == (0, 0, 0, 0, 0)


def test_a_job_that_is_not_done_is_lost(queue: Queue) -> None:
    queue.complete(queue.claim())
    assert toll_of(queue.store.reader(), 2, queue.log).lost == 1


def test_a_job_that_ran_again_after_its_worker_died_is_no_wrong(queue: Queue) -> None:
    job = queue.claim()
    queue.ledger.claims.give_back(LeaseRef(job.job_id, job.lease_id, job.epoch), AT)
    for _ in range(2):
        queue.complete(queue.claim())
    found = toll_of(queue.store.reader(), 2, queue.log)
    assert found.ran_again == 1
    assert found.wrong == 0


def test_a_completion_that_was_told_and_not_recorded_is_a_broken_promise(queue: Queue) -> None:
    for _ in range(2):
        queue.complete(queue.claim())
    queue.say(f"done job-0 1 {'0' * 32}\n")
    queue.say("done job-1 1 cut o")
    assert toll_of(queue.store.reader(), 2, queue.log).broken == 1


def test_two_completions_of_one_job_are_counted_twice_and_a_claim_of_a_claimed_one_is_seen(queue: Queue) -> None:
    jobs = [queue.claim() for _ in range(2)]
    for job in jobs:
        queue.complete(job)
    entry = queue.store.load().next_entry
    forged = [(Happening.CLAIMED, 2), (Happening.CLAIMED, 3), (Happening.COMPLETED, 3)]
    queue.store.commit(
        Changes(history=[HistoryEntry(entry + n, 0.0, what, "job-0", epoch) for n, (what, epoch) in enumerate(forged)])
    )
    found = toll_of(queue.store.reader(), 2, queue.log)
    assert (found.counted_twice, found.broken) == (1, 1)


def test_servers_for_which_workers_stand_in_line_are_busier_than_polled_ones() -> None:
    in_line = simulated(workers=24, hours=0.5, seed=1)
    polled = simulated(workers=24, hours=0.5, seed=1, poll_s=20.0)
    assert in_line.busy > 0.999
    assert 0.9 < polled.busy < 0.99
    assert max(in_line.gaps_s) == 0.0
    assert 0.0 < max(polled.gaps_s) <= 20.0


def test_the_same_seed_gives_the_same_simulated_use() -> None:
    first, again = (simulated(workers=14, hours=0.2, seed=5, poll_s=20.0) for _ in range(2))
    assert first == again


def test_with_as_few_workers_as_servers_loads_are_not_hidden() -> None:
    use = simulated(workers=8, hours=1.0, seed=1)
    assert use.busy == pytest.approx(60 / 90, abs=0.03)


def test_a_server_that_serves_one_task_is_used_where_jobs_are_not_bound_to_the_first_group() -> None:
    radio = frozenset({"radio"})
    one_pool = [ResourceSpec("team", "a", 1), ResourceSpec("team", "b", 1, compatible_task=radio)]
    groups = [ResourceSpec("team_1", "a", 1), ResourceSpec("team_2", "b", 1, compatible_task=radio)]
    ours, bound = (
        simulated(workers=8, hours=0.5, seed=1, servers=servers, jobs=[(pool, "radio"), (pool, "other")])
        for servers, pool in ((one_pool, "team"), (groups, "team_1"))
    )
    assert min(ours.by_server.values()) > 0.98
    assert bound.by_server["team_2/0"] == 0.0


def test_a_burn_down_counts_each_job_once(tmp_path: Path) -> None:
    burned = burn_down(f"sqlite:///{tmp_path / 'queue.db'}", 250, batch=100, workers=2)
    assert burned.jobs == 250
    assert burned.commits >= 4


def _bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str | None, missing: str = "") -> Bar:
    @contextmanager
    def database(_site: Site, _store: str) -> Iterator[str]:
        yield "postgresql://nobody"

    async def call(_rival: object, *_arguments: str) -> str | None:
        return says

    monkeypatch.setattr(Site, "database", database)
    monkeypatch.setattr(batches_part, "call", call)
    monkeypatch.setattr(batches_part, "is_installed", lambda rival: missing != rival.NAME)
    monkeypatch.setattr(batches_part, "burn_down", lambda *_, **__: Burned(100, 0.5, 0.1, 4, 1e4))
    (bar,) = batches(Site(JobQueueParameters(iterations=2), 0, tmp_path, None), lambda _share: None).bars
    return bar


def test_rivals_are_beside_ours_by_their_own_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bar = _bar(monkeypatch, tmp_path, "2.0\n")
    assert bar.value == 200.0
    assert dict(bar.beside) == {"procrastinate": 150.0, "pgqueuer": 5_000.0}


def test_a_rival_that_is_missing_or_does_not_run_is_named_and_is_no_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bar = _bar(monkeypatch, tmp_path, None, missing="pgqueuer")
    assert dict(bar.beside) == {"procrastinate": part.FAILED, "pgqueuer": part.NOT_INSTALLED}


def test_parts_and_stores_that_there_are_not_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="no part 'htp'"):
        JobQueueParameters(parts=("htp",)).check()
    with pytest.raises(InvalidInputError, match="no store 'mysql'"):
        JobQueueParameters(stores=("mysql",)).check()


def test_postgres_is_started_where_a_part_needs_it() -> None:
    assert JobQueueParameters().needs_postgres
    assert not JobQueueParameters(parts=("pickup", "saturation")).needs_postgres
    without = JobQueueParameters(stores=("sqlite",))
    assert not without.needs_postgres
    assert "postgres" not in without.chosen
    assert set(without.parts) - set(without.chosen) == {"postgres"}


def test_the_progress_of_chosen_parts_reaches_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def part_of_two_steps(_site: Site, tell: Callable[[float], None]) -> Outcome:
        tell(0.5)
        tell(1.0)
        return Outcome()

    monkeypatch.setattr(jobqueue, "_MEASURES", {"flat": part_of_two_steps, "faults": part_of_two_steps})
    told: list[tuple[float, str]] = []
    parameters = JobQueueParameters(parts=("flat", "faults"), stores=("sqlite",))
    jobqueue.measure(parameters, Bench(0, tmp_path, lambda share, what: told.append((share, what))))
    assert told == [(0.0, "starting"), (0.25, "flat"), (0.5, "flat"), (0.75, "faults"), (1.0, "faults")]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100)]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile(values, 1.0)) == (50.0, 95.0, 99.0)


@pytest.mark.slow
@pytest.mark.long
def test_kills_of_workers_and_server_cost_nothing_that_was_promised(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    changes = ("parts=faults", "stores=sqlite", "fault_jobs=60", "worker_kills=2", "server_kills=1")
    status, printed = bench(capsys, tmp_path, "jobqueue", *changes)
    assert status == 0
    assert [(bar["id"], bar["value"]) for bar in printed["bars"]] == [("P5.faults", 0)]


def test_a_server_that_does_not_start_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(QueueFailedError, match=r"its log ends with .*sqlite:"):
        run(start("mysql://somewhere", tmp_path))
