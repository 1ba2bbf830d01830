"""Sweeping: deletes what nobody can see any more, long after it went out of sight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.core import DAY_S, errors
from headgate.storage.layout import SAMPLES, manifest_key
from headgate.storage.objects import MissingObjectError, ObjectStore
from headgate.storage.visibility import Problem, Visible, problem_of, read_manifest

GRACE_S: Final = DAY_S
"""Longer than any read or upload takes: until then a reader may hold an old list of parts, a writer a manifest."""

FORGET_S: Final = 30 * DAY_S
"""A replaced manifest stays this long, so that a batch that is put again by a late journal is known as stored."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep deleted, and the problems for which it deleted nothing."""

    parts: int = 0
    manifests: int = 0
    temporary: int = 0
    problems: tuple[Problem, ...] = ()


def sweep(
    objects: ObjectStore, visible: Visible, now: float, *, grace_s: float = GRACE_S, forget_s: float = FORGET_S
) -> Swept:
    """Delete parts that no visible manifest names, manifests long replaced, and temporary files; return how many.

    A part goes when it is older than `grace_s` and was not replaced within it. While any manifest cannot be read
    no part is deleted: it could be that manifest's.
    """
    temporary = objects.sweep_temporary(now - grace_s)
    resting = [one for one, at in visible.replaced.items() if at > now - grace_s]
    kept, problems = _paths(objects, resting)
    problems = (*visible.problems, *problems)
    if problems:
        return Swept(temporary=temporary, problems=problems)
    kept.update(part.path for part in visible.parts)
    kept.update(path for path, at in visible.removed.items() if at > now - grace_s)
    old = [o.key for o in objects.listing(SAMPLES) if o.key not in kept and o.modified_at < now - grace_s]
    objects.delete_many(old)
    forgotten = [manifest_key(one) for one, at in visible.replaced.items() if at < now - max(grace_s, forget_s)]
    objects.delete_many(forgotten)
    return Swept(len(old), len(forgotten), temporary)


def _paths(objects: ObjectStore, batch_ids: Iterable[str]) -> tuple[set[str], tuple[Problem, ...]]:
    keys = [manifest_key(batch_id) for batch_id in batch_ids]
    paths: set[str] = set()
    problems = []
    for key, data in zip(keys, objects.get_many(keys), strict=True):
        try:
            paths.update(part.path for part in read_manifest(data, key).parts)
        except MissingObjectError:
            continue  # another sweep was here
        except errors.StoreError as error:
            problems.append(problem_of(key, error))
    return paths, tuple(problems)
