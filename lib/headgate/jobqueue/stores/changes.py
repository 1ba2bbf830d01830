"""What every store makes of a group of changes before it writes them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from headgate.jobqueue.port import Changes


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


def next_indexes(changes: Changes, known: Mapping[str, int]) -> dict[str, int]:
    """Return, for the pools whose servers the changes name, a number greater than every index ever used there.

    A server that came and went within one group of changes counts too: its number may stand in the history.
    """
    grown: dict[str, int] = {}
    used = [(resource.spec.pool, resource.index) for resource in changes.resources.values()]
    for resource_id in changes.removed_resources:
        pool, _, number = resource_id.rpartition("/")
        used.append((pool, int(number)))
    for pool, index in used:
        grown[pool] = max(grown.get(pool, known.get(pool, 0)), index + 1)
    return grown
