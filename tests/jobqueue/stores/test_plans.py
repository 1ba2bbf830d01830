"""How the databases find rows: by ranges of an index, however long the queue is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headgate.durable.databases import PostgresAddress
from headgate.jobqueue import Changes, Happening, Job, JobState, Store, stores
from headgate.jobqueue.job import Lane
from headgate.jobqueue.stores import SqliteStore, open_store
from headgate.jobqueue.stores.postgres import columns_of, connected
from headgate.jobqueue.stores.rows import batches_of
from headgate.jobqueue.stores.sql import statements
from tests.jobqueue.stores.values import a_job, claimed, done, entry, submitted

LANE = Lane("red", "p", "t")
PENDING = {**LANE._asdict(), "descending_priority": 0, "failures": 0, "seq": 500, "limit": 50}
JOBS = 20_000
ONE_LEASE = {"job_id": "job-7", "what": "claimed", "lease_id": "a"}
LISTINGS = [
    ("finished", " AND team = :team", {"team": "blue"}, "jobs_completed_of_team"),
    ("finished", "", {}, "jobs_completed"),
    ("listed_jobs", " AND state = 'dead'", {}, "jobs_dead"),
    ("listed_jobs", " AND state = 'in_progress'", {}, "jobs_in_progress"),
    ("listed_jobs", " AND team = :team", {"team": "blue"}, "jobs_of_team"),
    ("history", " AND job_id = :job_id", {"job_id": "job-7"}, "history_of_job"),
    (
        "entries_of_job",
        " AND lease_id = :lease_id",
        {"job_id": "1", "what": "claimed", "lease_id": "a"},
        "history_of_job",
    ),
    ("history", " AND what = :what", {"what": "died"}, "history_of_kind"),
]


def a_long_queue() -> Changes:
    """Many pending jobs of one lane among many of other lanes and states."""
    changes = submitted(*(_varied(number) for number in range(JOBS)))
    ends = [job_id for job_id, job in changes.new_jobs.items() if job.state is JobState.DONE]
    changes.history += [entry(JOBS + at, Happening.COMPLETED, job_id) for at, job_id in enumerate(ends)]
    return changes


def _varied(number: int) -> Job:
    job = a_job(number, team="red" if number % 50 else "blue", task="t" if number % 3 else "u")
    if number % 500 == 1:
        return job._replace(state=JobState.DEAD)
    if number % 4 == 0:
        return done(job)
    return claimed(job) if number % 100 == 1 else job


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path_factory.mktemp("plans") / "queue.db").own("me")
    store.commit(a_long_queue())
    yield store
    store.close()


def test_pending_jobs_are_a_range_of_an_index_in_sqlite(sqlite: SqliteStore) -> None:
    plan = sqlite._db.execute("EXPLAIN QUERY PLAN " + statements("sqlite")["pending"], PENDING).fetchall()
    (step,) = [row[3] for row in plan]
    assert step.startswith("SEARCH jobs USING INDEX jobs_pending (team=? AND pool=? AND task=? AND ")
    assert step.endswith("(descending_priority,failures,seq)>(?,?,?))")


@pytest.mark.parametrize(("name", "filters", "values", "index"), LISTINGS)
def test_listings_use_an_index_in_sqlite(
    sqlite: SqliteStore, name: str, filters: str, values: dict[str, str], index: str
) -> None:
    sql = statements("sqlite", filters)[name]
    plan = sqlite._db.execute("EXPLAIN QUERY PLAN " + sql, {**values, "after": 10, "limit": 50}).fetchall()
    (step,) = [row[3] for row in plan]
    assert f" {index} (" in step


def _plan(db: Any, sql: str, parameters: object) -> dict[str, Any]:
    ((plan,),) = db.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, parameters).fetchall()
    return (plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _grown(store: Store) -> None:
    store.commit(a_long_queue())


def _grown_and_analyzed(store: Store) -> None:
    store.commit(a_long_queue())
    store._db.execute("ANALYZE")


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [lambda store: None, _grown, _grown_and_analyzed])
def test_pending_jobs_are_a_range_of_an_index_in_postgres(postgres_url: str, prepare: Callable[[Store], None]) -> None:
    store = open_store(postgres_url).own("me")
    prepare(store)
    limit, join, scan, rest = _nodes(_plan(store._db, statements("postgres")["pending"], PENDING))
    store.close()
    assert (limit["Node Type"], join["Node Type"]) == ("Limit", "Nested Loop")
    assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "jobs_pending")
    assert "ROW(descending_priority, failures, seq) >" in scan["Index Cond"]
    assert (rest["Node Type"], rest["Index Name"]) == ("Index Scan", "submitted_pkey")
    assert scan["Actual Rows"] <= PENDING["limit"], "what is not handed out is not read"
    assert limit["Shared Hit Blocks"] + limit["Shared Read Blocks"] < 5 * PENDING["limit"]


@pytest.mark.slow
def test_a_plan_that_was_made_for_a_short_queue_serves_a_long_one(postgres_url: str) -> None:
    """Plans are kept; the tables grow by far before statistics tell PostgreSQL to plan anew."""
    store = open_store(postgres_url).own("me")
    changes = Changes(changed_jobs={"job-0": claimed(a_job(0))}, history=[entry(1)], removed_resources={"p/0"})
    sql = {
        batch.statement: (statements("postgres")[batch.statement], columns_of(batch.rows))
        for batch in batches_of(changes)
    }
    store.commit(submitted(a_job(0)))
    for statement, parameters in sql.values():
        nodes = list(_nodes(_plan(store._db, statement, parameters)))
        assert not {"Seq Scan", "Hash Join", "Merge Join", "Sort"} & {node["Node Type"] for node in nodes}
        store._db.execute("DELETE FROM history WHERE entry = 1")
    store.close()


@pytest.fixture(scope="module")
def long_postgres_url(postgres_server: Any) -> Iterator[str]:
    with postgres_server.fresh_database() as url:
        store = open_store(url).own("me")
        _grown_and_analyzed(store)
        store.close()
        yield url


@pytest.mark.slow
@pytest.mark.parametrize(("name", "filters", "values", "index"), LISTINGS)
def test_listings_use_an_index_in_postgres(
    long_postgres_url: str, name: str, filters: str, values: dict[str, str], index: str
) -> None:
    sql = statements("postgres", filters)[name]
    with closing(connected(PostgresAddress(long_postgres_url), "test", writes=False)) as db:
        nodes = list(_nodes(_plan(db, sql, {**values, "after": 10, "limit": 50})))
    assert index in {node.get("Index Name") for node in nodes}
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}


@pytest.mark.slow
@pytest.mark.parametrize("filters", ["", " AND state = 'done'", " AND team = :team"])
def test_a_listing_in_postgres_begins_at_its_cursor(long_postgres_url: str, filters: str) -> None:
    sql = statements("postgres", filters)["listed_jobs"]
    with closing(connected(PostgresAddress(long_postgres_url), "test", writes=False)) as db:
        plan = _plan(db, sql, {"team": "red", "after": JOBS * 3 // 4, "limit": 50})
    assert plan["Actual Rows"] == 50
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 4 * 50


def test_files_of_statements_name_each_statement_once() -> None:
    folder = Path(str(stores.__file__)).parent
    for dialect in ("sqlite", "postgres"):
        names = [
            line for file in ("reading.sql", f"{dialect}.sql") for line in (folder / file).read_text().splitlines()
            if line.startswith("-- name:")
        ]  # fmt: skip
        assert len(names) == len(set(names)) == len(statements(dialect))
