"""What every store makes of a group of changes before it writes them, and which statement takes which rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from headgate.jobqueue.port import Changes, Happening
from headgate.jobqueue.stores.rows import (
    NOT_COMPLETED,
    Row,
    row_of_changed_job,
    row_of_history,
    row_of_new_job,
    row_of_reply,
    row_of_resource,
    storable,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one statement.

    Attributes:
        statement: its name.
        rows: at least one.
        must_match: whether every row has to be found in the database.
    """

    statement: str
    rows: list[Row]
    must_match: bool = False


def batches_of(changes: Changes) -> list[Batch]:
    """Return what a store writes; at most one batch per statement."""
    return [
        Batch(statement, storable(rows), must_match=statement == "change_jobs")
        for statement, rows in _rows_of(changes)
        if rows
    ]


def _rows_of(changes: Changes) -> Iterator[tuple[str, list[Row]]]:
    of = completions(changes).get
    yield "add_jobs", [row_of_new_job(job, of(job_id, NOT_COMPLETED)) for job_id, job in changes.new_jobs.items()]
    # In order of the key, so that neighbours on disk are written together.
    changed = sorted(changes.changed_jobs.values(), key=lambda job: job.seq)
    yield "change_jobs", [row_of_changed_job(job, of(job.job_id, NOT_COMPLETED)) for job in changed]
    yield "add_history", list(map(row_of_history, changes.history))
    yield "put_resources", list(map(row_of_resource, changes.resources.values()))
    yield "remove_resources", list(map(pool_and_index, changes.removed_resources))
    yield "grow_pools", list(next_indexes(changes).items())
    yield "put_replies", list(map(row_of_reply, changes.replies.values()))
    if changes.forget_replies_before is not None:
        yield "forget_replies", [(changes.forget_replies_before,)]


def flaw_of(changes: Changes) -> str:
    """Return why the changes contradict themselves, or an empty text."""
    if both := changes.new_jobs.keys() & changes.changed_jobs.keys():
        return f"job {min(both)!r} is both new and changed"
    if len({job.seq for job in changes.new_jobs.values()}) < len(changes.new_jobs):
        return "two new jobs have the same seq"
    for earlier, later in pairwise(changes.history):
        if later.entry <= earlier.entry:
            return f"entry {later.entry} follows entry {earlier.entry}"
    return ""


def completions(changes: Changes) -> dict[str, int]:
    """Return the entry at which each of the jobs that the changes carry was completed, by job id."""
    return {
        entry.job_id: entry.entry
        for entry in changes.history
        if entry.what is Happening.COMPLETED
        and (entry.job_id in changes.changed_jobs or entry.job_id in changes.new_jobs)
    }


def pool_and_index(resource_id: str) -> tuple[str, int]:
    """Return the pool and the number of a server's id; a pool's name may hold a slash."""
    pool, _, number = resource_id.rpartition("/")
    return pool, int(number)


def next_indexes(changes: Changes) -> dict[str, int]:
    """Return, for the pools whose servers the changes name, a number greater than every index that they name.

    A server that came and went within one group of changes counts too: its number may stand in the history.
    """
    used = [(resource.spec.pool, resource.index) for resource in changes.resources.values()]
    used.extend(map(pool_and_index, changes.removed_resources))
    return {pool: index + 1 for pool, index in sorted(used)}
