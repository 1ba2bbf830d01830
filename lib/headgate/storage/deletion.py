"""Deletion: removes samples, or only their conversations, from the store in one step, including their bytes.

It uses a compaction's number: it writes parts without the deleted data, then the manifest that shows them in place of
the old ones, and finally deletes the old parts. A failure in between changes nothing, or leaves parts for a sweep.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import polars as pl

from headgate.core import DAY_S
from headgate.core.audit import record_change
from headgate.storage.batches import encoded_parts
from headgate.storage.compaction import merged_manifest
from headgate.storage.frames import read_parts
from headgate.storage.manifest import Part, Problem, Visible, manifest_bytes, read_manifests
from headgate.storage.objects import QUARANTINE, SAMPLES, ObjectStore, compaction_id, manifest_key
from headgate.storage.selection import Chosen

GRACE_S: Final = DAY_S
"""Longer than any read or upload: a reader may still use an old list of parts, or a writer owe its manifest."""

FORGET_S: Final = 30 * DAY_S
"""How long a replaced manifest is kept, so that a batch that a delayed journal stores again is recognised."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep deleted, and any problems that kept it from deleting parts."""

    parts: int = 0
    manifests: int = 0
    temporary: int = 0
    problems: tuple[Problem, ...] = ()


def sweep(
    objects: ObjectStore, visible: Visible, now: float, *, grace_s: float = GRACE_S, forget_s: float = FORGET_S
) -> Swept:
    """Delete parts that no visible manifest names, manifests replaced long ago, and temporary files; return how many.

    A part is deleted if it is older than `grace_s` and was not replaced within that time. While any manifest cannot be
    read, no part is deleted, since it could belong to that manifest.
    """
    temporary = objects.sweep_temporary(now - grace_s)
    resting = [one for one, at in visible.replaced.items() if at > now - grace_s]
    problems = list(visible.problems)
    kept = {part.path for _, manifest in read_manifests(objects, resting, problems) for part in manifest.parts}
    if problems:
        return Swept(temporary=temporary, problems=tuple(problems))
    kept.update(part.path for part in visible.parts)
    kept.update(path for path, at in visible.removed.items() if at > now - grace_s)
    old = [o.key for o in objects.listing(SAMPLES) if o.key not in kept and o.modified_at < now - grace_s]
    objects.delete_many(old)
    forgotten = [manifest_key(one) for one, at in visible.replaced.items() if at < now - max(grace_s, forget_s)]
    objects.delete_many(forgotten)
    return Swept(len(old), len(forgotten), temporary)


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What to delete: the chosen samples, restricted to `task_ids` if given, or only their conversations."""

    chosen: Chosen
    task_ids: Collection[str] | None = None
    conversations_only: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was, or would be, deleted: samples, bytes of conversations, affected parts; and what cannot be read."""

    samples: int
    conversation_bytes: int
    parts: int
    problems: tuple[Problem, ...]


def forget(
    objects: ObjectStore, visible: Visible, what: Forgetting, now: float, *, dry_run: bool = False
) -> Forgotten | None:
    """Delete data and return how much; None if a compaction came first, and nothing has changed."""
    batch_id, problems = compaction_id(visible.last_compaction + 1), list(visible.problems)
    meant = [p for p in visible.parts if what.chosen.wants(p) and (p.has_conversations or not what.conversations_only)]
    old, made, samples, size = set[str](), list[Part](), 0, 0
    for number, (part, rows) in enumerate(read_parts(objects, meant, None, problems)):
        marks = rows["task_id"].is_in(what.chosen.rows(rows)["task_id"].to_list())
        if what.task_ids is not None:
            marks &= rows["task_id"].is_in(list(what.task_ids))
        spoken = rows["conversation"].str.len_bytes()
        marks &= (spoken > 0) | (not what.conversations_only)
        if not marks.any():
            continue
        old.add(part.path)
        samples, size = samples + int(marks.sum()), size + int(spoken.filter(marks).sum())
        if not dry_run:
            silent = pl.when(marks).then(pl.lit("")).otherwise("conversation").alias("conversation")
            left = rows.with_columns(silent) if what.conversations_only else rows.filter(~marks)
            for new, data in encoded_parts(left, f"{batch_id}-{number}"):
                objects.put_many([(new.path, data)])
                made.append(new)
    if old and not dry_run:
        manifest = merged_manifest(batch_id, visible, old, made, now)
        if not objects.create(manifest_key(batch_id), manifest_bytes(manifest)):
            return None
        objects.delete_many(sorted(old))
    done = Forgotten(samples, size, len(old), tuple(problems))
    if not dry_run:
        objects.delete_many(_quarantined(objects, what))
        if samples:
            kind = "conversations of samples" if what.conversations_only else "samples"
            record_change("samples forget", objects.url, after=f"{samples} {kind} deleted, {size} bytes of text")
    return done


def _quarantined(objects: ObjectStore, what: Forgetting) -> list[str]:
    """Return the quarantine objects older than the chosen age, if only age is chosen: they may lack everything else."""
    until = what.chosen.until
    if until is None or what.task_ids is not None or what.chosen != Chosen(until=until):
        return []
    return [found.key for found in objects.listing(QUARANTINE) if found.modified_at < until]
