"""One group of changes as batches: which statement takes which rows, in the order in which they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.jobqueue.port import Changes
from headgate.jobqueue.stores.changes import completions, next_indexes, pool_and_index
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
