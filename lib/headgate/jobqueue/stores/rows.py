"""Rows of the SQL stores: plain tuples in the order of the statements' columns, and what they become.

A group of changes becomes batches of rows, one per statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import orjson

from headgate import core
from headgate.jobqueue.job import Job, JobSpec, JobState
from headgate.jobqueue.records import Changes, Happening, HistoryEntry
from headgate.jobqueue.resource import Resource, ResourceSpec, ResourceState

Row = tuple[Any, ...]

NOT_COMPLETED: Final = -1
"""`completed_entry` of a job that was never completed: entries of the history start at 0."""

SEQ_COLUMN: Final = 9
"""Position of `seq` in a row of `job_columns`."""

# Looked up, not called: calling an enum takes ten times as long, and a listing has a thousand rows. In the other
# direction, `str` takes a third of the time of `value`.
_JOB_STATES: Final = {state.value: state for state in JobState}
_HAPPENINGS: Final = {happening.value: happening for happening in Happening}


def row_of_new_job(job: Job, completed_entry: int) -> Row:
    """Return the whole row of a job."""
    spec = job.spec
    return (
        spec.job_id, spec.team, spec.task, spec.instance, spec.pool, spec.resource_type, spec.payload, -spec.priority,
        spec.max_attempts, job.seq, job.submitted_at, str(job.state), job.epoch, job.failures, job.lease_id,
        job.worker, job.lease_s, job.claimed_at, job.finished_at, job.last_error, job.result, job.result_ref,
        job.checksum, completed_entry,
    )  # fmt: skip


def row_of_changed_job(job: Job, completed_entry: int) -> Row:
    """Return a job's `seq` and, after it, everything that can change."""
    return (
        job.seq, str(job.state), job.epoch, job.failures, job.lease_id, job.worker, job.lease_s, job.claimed_at,
        job.finished_at, job.last_error, job.result, job.result_ref, job.checksum, completed_entry,
    )  # fmt: skip


def row_of_history(entry: HistoryEntry) -> Row:
    """Return the row of an entry of the history."""
    return (
        entry.entry, entry.at, str(entry.what), entry.job_id, entry.epoch, entry.lease_id, entry.worker,
        entry.resource_id, entry.note,
    )  # fmt: skip


def row_of_resource(resource: Resource) -> Row:
    """Return the row of a server."""
    return (
        *_row_of_spec(resource.spec), resource.index, resource.state.value, resource.epoch, resource.lease_id,
        resource.job_id, resource.worker, resource.lease_s, resource.reserved_at, resource.note,
        orjson.dumps(storable(list(map(_row_of_spec, resource.also)))).decode(),
    )  # fmt: skip


def job_of_row(row: Row) -> Job:
    """Return the job of a row of `job_columns`."""
    spec = JobSpec(row[0], row[1], row[2], row[3], row[4], row[5], row[6], -row[7], row[8])
    return Job(spec, row[9], row[10], _JOB_STATES[row[11]], *row[12:23])


def history_of_row(row: Row) -> HistoryEntry:
    """Return the entry of a row of the history."""
    return HistoryEntry(row[0], row[1], _HAPPENINGS[row[2]], *row[3:])


def resource_of_row(row: Row) -> Resource:
    """Return the server of a row."""
    *named, index, state, epoch, lease_id, job_id, worker, lease_s, reserved_at, note, also = row
    spec, *others = map(_spec_of, (named, *orjson.loads(also)))
    rest = (epoch, lease_id, job_id, worker, lease_s, reserved_at, note)
    return Resource(spec, index, ResourceState(state), *rest, tuple(others))


def storable(rows: list[Row]) -> list[Row]:
    """Return the rows with U+FFFD in place of NUL and unpaired surrogates, which no database accepts.

    A column's texts are checked as one: checking each would take as long as writing them.
    """
    texts = ("".join(column) for column in zip(*rows, strict=True) if isinstance(column[0], str))
    if all(storable_text(text) is text for text in texts):
        return rows
    return [tuple(storable_text(value) if isinstance(value, str) else value for value in row) for row in rows]


def storable_text(text: str) -> str:
    """Return a text with U+FFFD in place of what no database accepts; the same object where nothing is replaced."""
    return core.storable(text.replace("\0", "\ufffd"))


def _text_of(tasks: frozenset[str]) -> str:
    return orjson.dumps(sorted(map(storable_text, tasks))).decode()


def _row_of_spec(spec: ResourceSpec) -> Row:
    only, never = _text_of(spec.compatible_task), _text_of(spec.not_compatible_task)
    return (spec.pool, spec.host, spec.port, only, never, spec.body)


def _spec_of(row: Row) -> ResourceSpec:
    pool, host, port, compatible, not_compatible, body = row
    only, never = (frozenset(orjson.loads(tasks)) for tasks in (compatible, not_compatible))
    return ResourceSpec(pool, host, port, only, never, body)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one statement."""

    statement: str
    rows: list[Row]
    must_match: bool = False


def batches_of(changes: Changes) -> list[Batch]:
    """Return what a store must write: at most one batch per statement."""
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
    yield "put_replies", [(one.key, one.fingerprint, one.status, one.body, one.at) for one in changes.replies.values()]
    if changes.forget_before is not None:
        for statement, before in zip(("forget_replies", "empty_late_results"), changes.forget_before, strict=True):
            yield statement, [(before,)]


def flaw_of(changes: Changes) -> str:
    """Return how the changes contradict themselves, or an empty text."""
    if both := changes.new_jobs.keys() & changes.changed_jobs.keys():
        return f"job {min(both)!r} is both new and changed"
    if len({job.seq for job in changes.new_jobs.values()}) < len(changes.new_jobs):
        return "two new jobs have the same seq"
    for earlier, later in pairwise(changes.history):
        if later.entry <= earlier.entry:
            return f"entry {later.entry} follows entry {earlier.entry}"
    return ""


def completions(changes: Changes) -> dict[str, int]:
    """Return the history entry of completion of each job in the changes that was completed, by job id."""
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
    """Return, for each pool with servers in the changes, a number greater than every index of its servers there.

    A server added and removed within one group of changes counts too: the history may contain its number.
    """
    used = [(resource.spec.pool, resource.index) for resource in changes.resources.values()]
    used.extend(map(pool_and_index, changes.removed_resources))
    return {pool: index + 1 for pool, index in sorted(used)}
