"""Compaction: merges small parts of one environment and day, while readers see every row exactly once.

The store's compactions are numbered. Number n is planned from the manifests that number n - 1 left, and takes effect
in one step, when `manifests/compact-n.json` is created on condition that it does not exist: of two concurrent ones
one wins, and the other's parts stay invisible until a sweep deletes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from operator import attrgetter

import polars as pl

from headgate.storage.batches import encoded_parts
from headgate.storage.frames import read_parts
from headgate.storage.manifest import Manifest, Part, Problem, Visible, manifest_bytes
from headgate.storage.objects import ObjectStore, compaction_id, manifest_key
from headgate.storage.schema import COLUMNS


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When parts are merged.

    Attributes:
        target_rows: approximate maximum rows of a merged part.
        target_bytes: approximate maximum compressed bytes of a merged part; a merge takes several times that in memory.
        min_parts: minimum number of small parts per environment and day to merge, so that the day that is still
            being written is not merged again with every batch.
        merges_per_round: groups merged by one compaction; the rest waits for the next one.
        conversation_days: age in days from which samples lose their conversations, before merging; None keeps them.
    """

    target_rows: int = 100_000
    target_bytes: int = 16 * 2**20
    min_parts: int = 8
    merges_per_round: int = 256
    conversation_days: float | None = None


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of one or several consecutive compactions.

    Attributes:
        batch_id: id of the (latest) manifest, None if there was nothing to do or another compaction came first.
        duplicates: rows dropped because another row has the same task.
        was_first: False if another compaction took the number; the next call plans again from its result.
        swept_parts: invisible parts deleted after their grace period.
        problems: parts that cannot be read; they stay as they are.
        conversations: conversations dropped because of their age.
    """

    batch_id: str | None = None
    parts_before: int = 0
    parts_after: int = 0
    rows: int = 0
    duplicates: int = 0
    was_first: bool = True
    swept_parts: int = 0
    problems: tuple[Problem, ...] = ()
    conversations: int = 0

    def followed_by(self, other: Compacted) -> Compacted:
        """Return both results combined; one without a manifest adds only its problems."""
        problems = tuple(dict.fromkeys((*self.problems, *other.problems)))
        if other.batch_id is None:
            return replace(self, was_first=other.was_first, problems=problems)
        return Compacted(
            batch_id=other.batch_id,
            parts_before=self.parts_before + other.parts_before,
            parts_after=self.parts_after + other.parts_after,
            rows=self.rows + other.rows,
            duplicates=self.duplicates + other.duplicates,
            problems=problems,
        )


def plan(visible: Visible, policy: CompactionPolicy) -> list[tuple[Part, ...]]:
    """Return the groups of parts to merge now."""
    small: defaultdict[tuple[str, date], list[Part]] = defaultdict(list)
    for part in visible.parts:
        # Only parts of less than half the target are merged.
        if 2 * part.rows < policy.target_rows and 2 * part.size_bytes < policy.target_bytes:
            small[part.environment, part.day].append(part)
    crowded = [parts for parts in small.values() if len(parts) >= policy.min_parts]
    return [group for parts in crowded for group in _groups(parts, policy)][: policy.merges_per_round]


def _groups(parts: Sequence[Part], policy: CompactionPolicy) -> Iterator[tuple[Part, ...]]:
    group: list[Part] = []
    rows = size_bytes = 0
    for part in sorted(parts, key=attrgetter("min_finished_at", "path")):
        if group and (rows + part.rows > policy.target_rows or size_bytes + part.size_bytes > policy.target_bytes):
            if len(group) > 1:
                yield tuple(group)
            group, rows, size_bytes = [], 0, 0
        group.append(part)
        rows, size_bytes = rows + part.rows, size_bytes + part.size_bytes
    if len(group) > 1:
        yield tuple(group)


def compact(objects: ObjectStore, visible: Visible, policy: CompactionPolicy, now: float) -> Compacted:
    """Run one compaction and return what it did; one group of parts is in memory at a time.

    It may fail at any point: nothing changes for readers until its manifest exists, which changes everything at once.
    """
    batch_id = compaction_id(visible.last_compaction + 1)
    problems: list[Problem] = []
    merged: set[str] = set()
    made: list[Part] = []
    for number, group in enumerate(plan(visible, policy)):
        read = list(read_parts(objects, group, None, problems))
        if len(read) < 2:
            continue  # at most one of them can be read
        merged.update(part.path for part, _ in read)
        rows = pl.concat(rows for _, rows in read).sort("finished_at", "task_id", maintain_order=True)
        distinct = rows.unique("task_id", keep="first", maintain_order=True).select(COLUMNS)
        del read, rows
        for part, data in encoded_parts(distinct, f"{batch_id}-{number}"):
            objects.put_many([(part.path, data)])
            made.append(part)
    if not made:
        return Compacted(problems=tuple(problems))
    manifest = merged_manifest(batch_id, visible, merged, made, now)
    was_first = objects.create(manifest_key(batch_id), manifest_bytes(manifest))
    after = sum(part.rows for part in made)
    before = sum(part.rows for part in visible.parts if part.path in merged)
    return Compacted(
        batch_id=batch_id if was_first else None,
        parts_before=len(merged),
        parts_after=len(made),
        rows=after,
        duplicates=before - after,
        was_first=was_first,
        problems=tuple(problems),
    )


def merged_manifest(batch_id: str, visible: Visible, merged: set[str], made: Sequence[Part], now: float) -> Manifest:
    """Return the manifest that shows the new parts and hides the merged ones.

    It also hides what the compactions that it replaces hid, as far as that still exists.
    """
    left = {m.batch_id: [p.path for p in m.parts if p.path not in merged] for m in visible.manifests.values()}
    replaced = {one for one, paths in left.items() if not paths}
    removes: defaultdict[str, set[str]] = defaultdict(set)
    merges = []
    for one, manifest in visible.manifests.items():
        taken = {part.path for part in manifest.parts if part.path in merged}
        if taken:
            merges.append(one)
            removes[one] |= taken
        if one in replaced:
            for owner, paths in manifest.removes.items():
                removes[owner] |= set(paths)
    inherited = {one for gone in replaced for one in visible.manifests[gone].replaces if one in visible.replaced}
    return Manifest(
        batch_id=batch_id,
        parts=tuple(made),
        merges=tuple(merges),
        replaces=tuple(sorted(replaced | inherited)),
        removes={one: tuple(sorted(paths)) for one, paths in removes.items() if left.get(one)},
        created_at=now,
    )
