"""Which parts of the store are visible: those of every manifest that no compaction stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from headgate.core import errors
from headgate.storage.manifest import Manifest, Part, manifest_of
from headgate.storage.objects import (
    MANIFESTS,
    MissingObjectError,
    ObjectStore,
    batch_id_of,
    compaction_number,
    manifest_key,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """An object that was left out, and why; the rest of the store is not touched by it."""

    path: str
    reason: str


def problem_of(path: str, error: errors.StoreError) -> Problem:
    """Return the problem that an error about the object at `path` is."""
    return Problem(path, error.message.removeprefix(path).lstrip())


@dataclass(frozen=True, slots=True)
class Visible:
    """The store at one moment.

    Attributes:
        manifests: by batch id, those of which a part may be visible, without the parts that a compaction hides.
        replaced: id of every other manifest that is there -> wall time of the compaction that replaced it.
        removed: path of every single part that is hidden -> wall time of the compaction that hid it.
        last_compaction: number of the latest one, readable or not; 0 before the first.
        problems: manifests that cannot be read; their rows are left out.
    """

    manifests: Mapping[str, Manifest]
    replaced: Mapping[str, float]
    removed: Mapping[str, float]
    last_compaction: int
    problems: tuple[Problem, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The visible parts, ordered by their paths."""
        return tuple(sorted((p for m in self.manifests.values() for p in m.parts), key=attrgetter("path")))


class ManifestLog:
    """Reads manifests, each once: they never change. Owned by one store; calls must not overlap."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._read: dict[str, Manifest] = {}

    def visible(self) -> Visible:
        """Return what is visible now: one listing, and one read per manifest that is new.

        A listing that runs beside a compaction shows either the manifests that it takes parts from, which stay for a
        grace period, or its own manifest too, which hides them: never both and never neither.
        """
        listed = {batch_id for found in self._objects.listing(MANIFESTS) if (batch_id := batch_id_of(found.key))}
        numbered = sorted(batch_id for batch_id in listed if compaction_number(batch_id) is not None)
        problems = self._fetch(numbered)
        compactions = [self._read[one] for one in numbered if one in self._read]
        replaced = _first_times((one, m.created_at) for m in compactions for one in m.replaces if one in listed)
        removed = _first_times(
            (path, m.created_at) for m in compactions for paths in m.removes.values() for path in paths
        )
        problems += self._fetch(sorted(listed - replaced.keys() - set(numbered)))
        manifests = {
            one: _without(self._read[one], removed) for one in sorted(listed - replaced.keys()) if one in self._read
        }
        # Of a compaction that was replaced itself only what it hides is needed, not its parts.
        hidden = {m.batch_id: replace(m, parts=()) for m in compactions if m.batch_id in replaced}
        self._read = manifests | hidden
        last = max((compaction_number(one) or 0 for one in numbered), default=0)
        return Visible(manifests, replaced, removed, last, tuple(problems))

    def _fetch(self, batch_ids: Iterable[str]) -> list[Problem]:
        problems = []
        wanted = [batch_id for batch_id in batch_ids if batch_id not in self._read]
        keys = [manifest_key(batch_id) for batch_id in wanted]
        for batch_id, key, data in zip(wanted, keys, self._objects.get_many(keys), strict=True):
            try:
                self._read[batch_id] = read_manifest(data, key)
            except MissingObjectError:
                continue  # forgotten by a sweep since it was listed; what replaced it shows its rows
            except errors.StoreError as error:
                problems.append(problem_of(key, error))
        return problems


def read_manifest(data: bytes | errors.StoreError, key: str) -> Manifest:
    """Return the manifest in what `get_many` yielded for `key`; raises what it yielded, or `CorruptDataError`."""
    if isinstance(data, errors.StoreError):
        raise data
    return manifest_of(data, key)


def _first_times(events: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    times: dict[str, float] = {}
    for name, at in events:
        times[name] = min(times.get(name, float("inf")), at or 0.0)
    return times


def _without(manifest: Manifest, removed: Mapping[str, float]) -> Manifest:
    if not any(part.path in removed for part in manifest.parts):
        return manifest
    return replace(manifest, parts=tuple(part for part in manifest.parts if part.path not in removed))
