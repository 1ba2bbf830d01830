"""What every store makes of a group of changes before it writes them."""

from __future__ import annotations

from itertools import pairwise

from headgate.jobqueue.port import Changes, Happening


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
