"""Storage of marks: sealed objects under `marks/`, each written once, and merged when there are many."""

from __future__ import annotations

import base64
import io
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from headgate.core import errors
from headgate.storage.manifest import FORMAT, Problem, problem_of, sealed, unsealed
from headgate.storage.marks import NO_MARKS, ROWS, Mark, Marks, Verb
from headgate.storage.objects import MissingObjectError, ObjectStore, whole

MARKS: Final = "marks/"
MANY: Final = 16
"""Number of mark objects from which they are merged."""

_MERGED: Final = re.compile(r"marks/merged-(\d{9})\.json")
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class _Held:
    """One object: marks with their rows, and the keys of the objects that it replaces."""

    marks: tuple[Mark, ...]
    rows: pl.DataFrame
    replaces: tuple[str, ...]


class MarkLog:
    """Reads marks, each object once, and writes them. Owned by one store; calls must not overlap."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._held: dict[str, _Held] = {}
        self._listed: dict[str, float] = {}
        self._read: tuple[frozenset[str], Marks] = (frozenset(), NO_MARKS)

    def marks(self) -> tuple[Marks, tuple[Problem, ...]]:
        """Return the current marks, and the unreadable objects, with one listing, and one read per new object."""
        for _ in range(_ATTEMPTS):
            problems: list[Problem] = []
            self._listed = {found.key: found.modified_at for found in self._objects.listing(MARKS)}
            is_missing = self._fetch(sorted(key for key in self._listed if _MERGED.fullmatch(key)), problems)
            current = self._listed.keys() - self._replaced()
            if not (self._fetch(sorted(current), problems) or is_missing):
                break  # else objects were merged meanwhile into one that is not in this listing
        kept = {key: self._held[key] for key in sorted(current) if key in self._held}
        if self._read[0] != kept.keys():
            every = Marks.of((m for held in kept.values() for m in held.marks), (held.rows for held in kept.values()))
            self._read = frozenset(kept), every
        return self._read[1], tuple(problems)

    def add(self, mark: Mark, rows: pl.DataFrame, number: int = 0) -> None:
        """Write a mark's rows for some samples; it is durable and in force when this returns.

        Columns of `ROWS` that `rows` lacks become null.
        """
        filled = pl.concat([pl.DataFrame(schema=ROWS), rows], how="diagonal")
        self._objects.put_many([(f"{MARKS}{mark.mark}-{number:06d}.json", _bytes(_Held((mark,), filled, ())))])

    def merge(self, *, without: Collection[str] = ()) -> None:
        """Merge all objects into one, dropping the rows of the tasks in `without`.

        The merged objects are deleted at once if rows were dropped, and later by `tidy` otherwise.
        """
        while True:
            marks, problems = self.marks()
            rows = marks.rows.filter(~pl.col("task_id").is_in(list(without)))
            if problems or (without and rows.height == marks.rows.height):
                return  # an unreadable object may become readable again, so nothing is merged now
            numbers = [int(found[1]) for key in self._listed if (found := _MERGED.fullmatch(key))]
            key = f"{MARKS}merged-{max(numbers, default=0) + 1:09d}.json"
            if self._objects.create(key, _bytes(_Held(marks.log, rows, tuple(sorted(self._listed))))):
                break  # else another process was first
        if without:
            self._objects.delete_many(sorted(self._listed))

    def tidy(self, before: float) -> None:
        """Merge objects if there are many, and delete those that were replaced before wall time `before`."""
        if self.marks()[1]:
            return
        replaced = self._replaced()
        self._objects.delete_many(sorted(key for key, at in replaced.items() if key in self._listed and at < before))
        if len(self._listed.keys() - replaced) >= MANY:
            self.merge()

    def _replaced(self) -> dict[str, float]:
        """Return the keys of replaced objects, and when their replacement was written."""
        held = {key: self._held[key] for key in sorted(self._listed) if key in self._held}
        return {old: self._listed[key] for key, one in held.items() for old in one.replaces}

    def _fetch(self, keys: Collection[str], problems: list[Problem]) -> bool:
        """Read new objects, add unreadable ones to `problems`, and return whether one was missing."""
        wanted, is_missing = [key for key in keys if key not in self._held], False
        for key, data in zip(wanted, self._objects.get_many(wanted), strict=True):
            try:
                self._held[key] = _held(whole(data), key)
            except MissingObjectError:
                is_missing = True
            except errors.StoreError as error:
                problems.append(problem_of(key, error))
        return is_missing


def new_mark(marks: Marks, verb: Verb, now: float, *, by: str, reason: str, **more: Any) -> Mark:
    """Return a new mark, later than all others."""
    at = max([now, *(one.marked_at + 0.001 for one in marks.log[-1:])])
    return Mark(f"{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}", verb, at, by, reason, **more)


def _bytes(held: _Held) -> bytes:
    buffer = io.BytesIO()
    held.rows.select(*ROWS).write_parquet(buffer, compression="zstd")
    marks = [asdict(one) for one in held.marks]
    rows = base64.b64encode(buffer.getvalue()).decode()
    return sealed({"format": FORMAT, "marks": marks, "replaces": held.replaces, "rows": rows})


def _held(data: bytes, key: str) -> _Held:
    content: Mapping[str, Any] = unsealed(data, key)
    try:
        marks = tuple(Mark(**one | {"verb": Verb(one["verb"])}) for one in content["marks"])
        rows = pl.read_parquet(io.BytesIO(base64.b64decode(content["rows"]))).select(*ROWS)
        return _Held(marks, rows, tuple(content["replaces"]))
    except (KeyError, TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
        raise errors.CorruptDataError(f"{key} holds no marks: {error!r}") from error
