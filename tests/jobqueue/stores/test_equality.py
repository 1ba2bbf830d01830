"""Whatever is committed, every store answers every question alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.jobqueue import (
    Changes,
    Happening,
    HistoryEntry,
    Job,
    JobQuery,
    JobSpec,
    JobState,
    Reader,
    ResourceSpec,
    Store,
)
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import Lane
from headgate.jobqueue.records import Reply
from headgate.jobqueue.resource import Resource, ResourceState
from headgate.jobqueue.stores import MemoryStore, open_store
from tests.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
TEAMS = st.sampled_from(["red", "blue", "ü"])
POOLS = st.sampled_from(["", "p", "p/q"])
TASKS = st.sampled_from(["t", "T", "a/b"])
NUMBERS = st.integers(0, 3)
TIMES = st.floats(0, 2e9)
IDS = [f"job-{number}" for number in range(12)]
SPECS = st.builds(JobSpec, st.just(""), TEAMS, TASKS, TEXTS, POOLS, TEXTS, TEXTS, st.integers(-2, 2), NUMBERS)
PROGRESS = st.fixed_dictionaries(
    {
        "state": st.sampled_from(JobState), "epoch": NUMBERS, "failures": NUMBERS, "lease_id": TEXTS, "worker": TEXTS,
        "lease_s": TIMES, "claimed_at": TIMES, "finished_at": TIMES, "last_error": TEXTS, "result": TEXTS,
        "result_ref": TEXTS, "checksum": TEXTS,
    }
)  # fmt: skip
TASK_SETS = st.frozensets(TEXTS, max_size=2)
SERVER_SPECS = st.builds(ResourceSpec, POOLS, TEXTS, NUMBERS, TASK_SETS, TASK_SETS, TEXTS)
SERVERS = st.builds(
    Resource, SERVER_SPECS, NUMBERS, st.sampled_from(ResourceState), NUMBERS, TEXTS, TEXTS, TEXTS, TIMES, TIMES, TEXTS,
    st.lists(SERVER_SPECS, max_size=2).map(tuple),
)  # fmt: skip
ENTRIES = st.builds(
    HistoryEntry, st.integers(1, 3), TIMES, st.sampled_from(Happening), st.sampled_from(["", *IDS]), NUMBERS, TEXTS,
    TEXTS, TEXTS, TEXTS,
)  # fmt: skip
REPLIES = st.builds(Reply, st.sampled_from("abc"), TEXTS, NUMBERS, TEXTS, TIMES)


@st.composite
def histories(draw: st.DrawFn) -> list[Changes]:
    """Draw groups of changes as a ledger makes them, and now and then one that no store may take."""
    known: dict[str, Job] = {}
    last_entry = -1
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        changes = Changes()
        for job_id in draw(st.lists(st.sampled_from(IDS), max_size=5, unique=True)):
            if job_id in known:
                changes.changed_jobs[job_id] = known[job_id]._replace(**draw(PROGRESS))
            else:
                spec = replace(draw(SPECS), job_id=job_id)
                job = Job(spec, len(known) + len(changes.new_jobs), draw(TIMES), **draw(PROGRESS))
                changes.new_jobs[job_id] = job
        entry = last_entry
        for one in draw(st.lists(ENTRIES, max_size=5)):
            entry += one.entry  # gaps are legal
            changes.history.append(one._replace(entry=entry))
        changes.resources = {server.resource_id: server for server in draw(st.lists(SERVERS, max_size=3))}
        changes.removed_resources = draw(st.sets(st.sampled_from(["/0", "p/0", "p/3", "p/q/1"]), max_size=2))
        changes.replies = {reply.key: reply for reply in draw(st.lists(REPLIES, max_size=2))}
        changes.forget_before = draw(st.none() | st.tuples(TIMES, TIMES))
        if draw(st.integers(0, 5)) or not _spoilt(changes, known, last_entry):
            known |= changes.new_jobs | changes.changed_jobs
            last_entry = entry
        groups.append(changes)
    return groups


def _spoilt(changes: Changes, known: dict[str, Job], last_entry: int) -> bool:
    """Make a group contradict what is stored; False where there is nothing to contradict."""
    if known:
        job = next(iter(known.values()))
        changes.changed_jobs.pop(job.job_id, None)
        changes.new_jobs[job.job_id] = job
    elif last_entry >= 0:
        changes.history.insert(0, HistoryEntry(last_entry, 0.0, Happening.CLAIMED))
    return bool(known) or last_entry >= 0


def answers(store: Store, reader: Reader) -> Iterator[object]:
    """Give what a store answers to every kind of question."""
    yield store.load()
    yield store.jobs([*IDS, "other"])
    yield [store.reply(key) for key in "abcd"]
    for lane in sorted(Lane(team, pool, task) for team in ["red", "ü"] for pool in ["", "p"] for task in ["t", "T"]):
        whole = store.pending(lane, None, 99)
        yield whole
        yield [store.pending(lane, job.place, 2) for job in whole]
    for teams in (None, frozenset({"red", "ü"}), frozenset[str]()):
        for after in (-1, 2):
            yield reader.finished(after, 3, teams)
            yield reader.jobs(JobQuery(teams=teams, after=after, limit=3))
            yield [reader.jobs(JobQuery(state, teams, "t", "p", after)) for state in JobState]
    yield [reader.history(after, 4) for after in (-1, 3)]
    yield [reader.history(-1, 9, job_id=job_id) for job_id in IDS]
    yield reader.history(-1, 3, what=[Happening.CLAIMED, Happening.COMPLETED])


def outcome(store: Store, changes: Changes) -> str:
    try:
        store.commit(changes)
    except StoreFailedError:
        return "refused"
    return "committed"


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=histories())
def test_postgres_answers_as_sqlite_does(groups: list[Changes], postgres_url: str) -> None:
    with ExitStack() as stack:
        sqlite = stack.enter_context(closing(MemoryStore())).own("me")
        postgres = stack.enter_context(closing(open_store(postgres_url))).own("me")
        postgres._db.execute("DROP SCHEMA headgate_jobqueue CASCADE")
        postgres.close()
        postgres.own("me")
        for changes in groups:
            assert outcome(postgres, changes) == outcome(sqlite, changes)
        readers = [stack.enter_context(closing(store.reader())) for store in (sqlite, postgres)]
        for expected, found in zip(answers(sqlite, readers[0]), answers(postgres, readers[1]), strict=True):
            assert found == expected
