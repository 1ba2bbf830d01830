"""Manifests: the immutable objects that make parts visible, and their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from operator import attrgetter
from typing import Any, Final

import orjson

from headgate.core import errors
from headgate.storage.marks import NO_MARKS, Marks
from headgate.storage.objects import (
    MANIFESTS,
    MissingObjectError,
    ObjectStore,
    batch_id_of,
    compaction_number,
    manifest_key,
    whole,
)
from headgate.storage.schema import ADDED

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet object: rows of one environment and one UTC day of `finished_at`.

    Attributes:
        added: how many of the columns in `schema.ADDED` it has; a part of an earlier version lacks the later ones.
    """

    path: str
    environment: str
    day: date
    rows: int
    size_bytes: int
    sha256: str
    min_finished_at: float
    max_finished_at: float
    models: tuple[str, ...]
    has_conversations: bool = True
    added: int = len(ADDED)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one batch or compaction put into the store.

    Attributes:
        batch_id: id of the batch, or `compact-…`.
        parts: its parts, visible unless a compaction hides them.
        quarantined_rows: number of the batch's rows in `quarantine_path`.
        quarantine_path: key of the quarantined rows, None if there are none.
        quarantine_reason: why the first of them is in quarantine.
        merges: ids of the manifests from which a compaction took parts; empty for a batch.
        replaces: ids of the manifests that have no visible part left, and need not be read again.
        removes: batch id -> paths of hidden parts of a manifest that has other, visible ones.
        created_at: wall time of a compaction; None for a batch, whose manifest depends only on its samples.
    """

    batch_id: str
    parts: tuple[Part, ...]
    quarantined_rows: int = 0
    quarantine_path: str | None = None
    quarantine_reason: str | None = None
    merges: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    removes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    created_at: float | None = None

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.rows for part in self.parts)


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return JSON bytes of `content` with a checksum that `unsealed` verifies."""
    body = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return b'{"content":' + body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def unsealed(data: bytes, key: str) -> dict[str, Any]:
    """Return the content of sealed bytes.

    Raises:
        errors.CorruptDataError: if they are not JSON, have another format, or do not match their checksum.
    """
    try:
        outer = orjson.loads(data)
        content, stated = outer["content"], outer["sha256"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise errors.CorruptDataError(f"{key} cannot be read: {error}") from error
    found = hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
    if found != stated or not isinstance(content, dict):
        raise errors.CorruptDataError(f"{key} does not match its checksum (stated {stated}, found {found})")
    if content.get("format") != FORMAT:
        raise errors.CorruptDataError(
            f"{key} has format {content.get('format')!r}, this version of Headgate reads {FORMAT}",
            next_step="Read this store with the version of Headgate that wrote it, or a newer one.",
        )
    return content


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest; equal manifests have equal bytes."""
    parts = [_stored(part) for part in manifest.parts]
    return sealed({**asdict(manifest), "format": FORMAT, "rows": manifest.rows, "parts": parts})


def manifest_of(data: bytes, key: str) -> Manifest:
    """Return the manifest in `data`, the object at `key`.

    Raises:
        errors.CorruptDataError: if it cannot be read or does not match its checksum.
    """
    content = unsealed(data, key)
    try:
        made = {each.name: content[each.name] for each in fields(Manifest)}
        made["parts"] = tuple(map(_part, content["parts"]))
        made["removes"] = {batch_id: tuple(paths) for batch_id, paths in content["removes"].items()}
        return Manifest(**made | {name: tuple(made[name]) for name in ("merges", "replaces")})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.CorruptDataError(f"{key} lacks a field of a manifest: {error!r}") from error


_STORED_AS: Final = {"day": "date", "size_bytes": "bytes", "has_conversations": "conversations"}
"""Fields of a part that have another name in manifests."""

_FIRST_ADDED: Final = 2
"""Number of added columns of a part whose manifest has `added` as true instead of a number."""


def _stored(part: Part) -> dict[str, Any]:
    stored = {_STORED_AS.get(name, name): value for name, value in asdict(part).items()}
    if part.has_conversations:
        del stored["conversations"]
    return stored


def _part(stored: Mapping[str, Any]) -> Part:
    known = {"conversations": True, "added": 0, **stored}
    if known["added"] is True:
        known["added"] = _FIRST_ADDED
    made = {each.name: known[_STORED_AS.get(each.name, each.name)] for each in fields(Part)}
    return Part(**made | {"day": date.fromisoformat(made["day"]), "models": tuple(made["models"])})


@dataclass(frozen=True, slots=True)
class Problem:
    """An object that was left out, and why; it does not affect the rest of the store."""

    path: str
    reason: str


def problem_of(path: str, error: errors.StoreError) -> Problem:
    """Return an error about the object at `path` as a problem."""
    return Problem(path, error.message.removeprefix(path).lstrip())


@dataclass(frozen=True, slots=True)
class Visible:
    """The store at one moment.

    Attributes:
        manifests: batch id -> manifest that may have visible parts, without the parts that a compaction hides.
        replaced: id of every other existing manifest -> wall time of the compaction that replaced it.
        removed: path of every individually hidden part -> wall time of the compaction that hid it.
        last_compaction: number of the latest compaction, readable or not; 0 before the first.
        problems: manifests that cannot be read, whose rows are left out, and unreadable marks, which have no effect.
        marks: which samples do not count, and new scores.
    """

    manifests: Mapping[str, Manifest]
    replaced: Mapping[str, float]
    removed: Mapping[str, float]
    last_compaction: int
    problems: tuple[Problem, ...]
    marks: Marks = NO_MARKS

    @property
    def parts(self) -> tuple[Part, ...]:
        """The visible parts, ordered by their paths."""
        return tuple(sorted((p for m in self.manifests.values() for p in m.parts), key=attrgetter("path")))


def read_manifests(
    objects: ObjectStore, batch_ids: Iterable[str], problems: list[Problem]
) -> Iterator[tuple[str, Manifest]]:
    """Yield batch ids with their manifests; unreadable ones are added to `problems` instead.

    A missing manifest was deleted by a sweep since it was listed: the one that replaced it shows its rows.
    """
    keys = {manifest_key(batch_id): batch_id for batch_id in batch_ids}
    for key, data in zip(keys, objects.get_many(list(keys)), strict=True):
        try:
            yield keys[key], manifest_of(whole(data), key)
        except MissingObjectError:
            continue
        except errors.StoreError as error:
            problems.append(problem_of(key, error))


class ManifestLog:
    """Reads manifests, each once, since they never change. Owned by one store; calls must not overlap."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._read: dict[str, Manifest] = {}

    def visible(self) -> Visible:
        """Return what is visible now, with one listing, and one read per new manifest.

        A listing during a compaction has the manifests whose parts it merges, which stay for a grace period, and maybe
        the compaction's own manifest, which hides these parts. So each row is visible exactly once.
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
        # Of a replaced compaction, only the list of what it hides is still needed, not its parts.
        hidden = {m.batch_id: replace(m, parts=()) for m in compactions if m.batch_id in replaced}
        self._read = manifests | hidden
        last = max((compaction_number(one) or 0 for one in numbered), default=0)
        return Visible(manifests, replaced, removed, last, tuple(problems))

    def _fetch(self, batch_ids: Iterable[str]) -> list[Problem]:
        problems: list[Problem] = []
        wanted = [batch_id for batch_id in batch_ids if batch_id not in self._read]
        self._read.update(read_manifests(self._objects, wanted, problems))
        return problems


def _first_times(events: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    times: dict[str, float] = {}
    for name, at in events:
        times[name] = min(times.get(name, float("inf")), at or 0.0)
    return times


def _without(manifest: Manifest, removed: Mapping[str, float]) -> Manifest:
    if not any(part.path in removed for part in manifest.parts):
        return manifest
    return replace(manifest, parts=tuple(part for part in manifest.parts if part.path not in removed))
