"""Marks on stored samples: what counts no longer, and scores that were given anew; the samples stay as they are."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Self

import polars as pl

from headgate.core import errors, record
from headgate.storage.manifest import FORMAT, Problem, problem_of, sealed, unsealed
from headgate.storage.objects import MissingObjectError, ObjectStore, whole
from headgate.storage.schema import FRAME_SCHEMA


class Verb(StrEnum):
    """What a mark says of its samples; of several marks on one sample the latest holds."""

    INVALIDATE = "invalidate"
    VALIDATE = "validate"
    RESCORE = "rescore"
    UNSCORE = "unscore"


@record
class Mark:
    """What somebody said of some samples.

    Attributes:
        mark: its id.
        verb: what it says.
        marked_at: wall time; that of a later mark is higher, whatever its clock said.
        marked_by: who made it.
        reason: why, in the words of whoever made it.
        scorer: what gave the scores of a `rescore`; empty for others.
        resample: whether the tasks of invalidated samples are taken again; such samples stay invalid.
    """

    mark: str
    verb: Verb
    marked_at: float
    marked_by: str
    reason: str
    scorer: str = ""
    resample: bool = False


SCORING: Final = ("score", "success", "why", "error_kind", "error")
"""Columns of a sample that a new score replaces."""

ROWS: Final = pl.Schema({"mark": pl.String, "task_id": pl.String} | {name: FRAME_SCHEMA[name] for name in SCORING})
"""Columns of what marks say of single samples; those of a score are null in marks that give none."""

LOG: Final = pl.Schema(
    dict.fromkeys(("mark", "verb", "marked_by", "reason", "scorer"), pl.String)
    | {"marked_at": pl.Float64, "resample": pl.Boolean}
)

STATE: Final = pl.Schema(
    {"task_id": pl.String, "invalid": pl.Boolean, "resample": pl.Boolean, "scorer": pl.String}
    | {f"new_{name}": FRAME_SCHEMA[name] for name in SCORING}
)
"""What holds of each marked sample: `scorer` is null where its first score does."""


@dataclass(frozen=True)
class Marks:
    """All marks of a store at one moment.

    Attributes:
        log: the marks, the oldest first.
        rows: what they say of single samples (`ROWS`).
        version: equal for marks that say the same; empty for none.
    """

    log: tuple[Mark, ...]
    rows: pl.DataFrame
    version: str = ""

    @classmethod
    def of(cls, marks: Iterable[Mark], rows: Iterable[pl.DataFrame]) -> Self:
        """Return the marks as one; those that are there twice count once."""
        log = tuple(sorted({one.mark: one for one in marks}.values(), key=lambda one: (one.marked_at, one.mark)))
        every = pl.concat([pl.DataFrame(schema=ROWS), *rows]).unique(["mark", "task_id"], maintain_order=True)
        counts = dict(every.group_by("mark").len().iter_rows())
        said = " ".join(f"{one.mark}:{counts.get(one.mark, 0)}" for one in log)
        return cls(log, every, hashlib.sha256(said.encode()).hexdigest() if said else "")

    @cached_property
    def history(self) -> pl.DataFrame:
        """What was said of each sample, by whom, when and why, the oldest first."""
        log = pl.DataFrame([asdict(one) for one in self.log], schema=LOG)
        return self.rows.join(log, on="mark").sort("marked_at", "mark", maintain_order=True)

    @cached_property
    def state(self) -> pl.DataFrame:
        """What holds of each marked sample (`STATE`)."""
        invalid = self._latest(Verb.INVALIDATE, Verb.VALIDATE).select("task_id", "resample", invalid=True)
        new = [pl.col(name).alias(f"new_{name}") for name in SCORING]
        scored = self._latest(Verb.RESCORE, Verb.UNSCORE).select("task_id", "scorer", *new)
        joined = invalid.join(scored, on="task_id", how="full", coalesce=True)
        return joined.with_columns(pl.col("invalid", "resample").fill_null(value=False)).select(*STATE)

    def _latest(self, verb: Verb, opposite: Verb) -> pl.DataFrame:
        """Return the rows of samples of which `verb` was said last, and not its opposite."""
        said = self.history.filter(pl.col("verb").is_in([verb, opposite]))
        return said.unique("task_id", keep="last", maintain_order=True).filter(pl.col("verb") == verb)

    def applied(self, rows: pl.DataFrame, *, everything: bool = False, original: bool = False) -> pl.DataFrame:
        """Return the samples that count, with the scores that hold.

        Args:
            rows: have a `task_id`.
            everything: leave none out, and say in columns `invalid` and `resample` which do not count.
            original: with the scores that they were stored with.
        """
        if not self.log:
            return rows.with_columns(invalid=False, resample=False) if everything else rows
        found = rows.join(self.state, on="task_id", how="left", maintain_order="left")
        found = found.with_columns(pl.col("invalid", "resample").fill_null(value=False))
        if not original:
            is_new = pl.col("scorer").is_not_null()
            scores = [name for name in SCORING if name in rows.columns]
            found = found.with_columns(
                pl.when(is_new).then(f"new_{name}").otherwise(name).alias(name) for name in scores
            )
        if everything:
            return found.select(*rows.columns, "invalid", "resample")
        return found.filter(~pl.col("invalid")).select(rows.columns)


NO_MARKS: Final = Marks.of((), ())


MARKS: Final = "marks/"
MANY: Final = 16
"""So many objects of marks are worth merging."""

_MERGED: Final = re.compile(r"marks/merged-(\d{9})\.json")
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class _Held:
    """One object: marks with their rows, and the keys of the objects that it stands for."""

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
        """Return what holds now, and the objects that cannot be read: one listing, and one read per new object."""
        for _ in range(_ATTEMPTS):
            problems: list[Problem] = []
            self._listed = {found.key: found.modified_at for found in self._objects.listing(MARKS)}
            is_missing = self._fetch(sorted(key for key in self._listed if _MERGED.fullmatch(key)), problems)
            current = self._listed.keys() - self._replaced()
            if not (self._fetch(sorted(current), problems) or is_missing):
                break  # else what was merged meanwhile is in an object that this listing does not show
        kept = {key: self._held[key] for key in sorted(current) if key in self._held}
        if self._read[0] != kept.keys():
            every = Marks.of((m for held in kept.values() for m in held.marks), (held.rows for held in kept.values()))
            self._read = frozenset(kept), every
        return self._read[1], tuple(problems)

    def add(self, mark: Mark, rows: pl.DataFrame, number: int = 0) -> None:
        """Write what a mark says of some samples; it holds, durably, when this returns.

        Columns of `ROWS` that `rows` has not are null.
        """
        filled = pl.concat([pl.DataFrame(schema=ROWS), rows], how="diagonal")
        self._objects.put_many([(f"{MARKS}{mark.mark}-{number:06d}.json", _bytes(_Held((mark,), filled, ())))])

    def merge(self, *, without: Collection[str] = ()) -> None:
        """Merge all objects into one, without what they say of some tasks.

        The objects that it stands for are deleted at once where something was left out, and by `tidy` otherwise.
        """
        while True:
            marks, problems = self.marks()
            rows = marks.rows.filter(~pl.col("task_id").is_in(list(without)))
            if problems or (without and rows.height == marks.rows.height):
                return  # what cannot be read now may be read again
            numbers = [int(found[1]) for key in self._listed if (found := _MERGED.fullmatch(key))]
            key = f"{MARKS}merged-{max(numbers, default=0) + 1:09d}.json"
            if self._objects.create(key, _bytes(_Held(marks.log, rows, tuple(sorted(self._listed))))):
                break  # else another process was first
        if without:
            self._objects.delete_many(sorted(self._listed))

    def tidy(self, before: float) -> None:
        """Merge objects when they are many, and delete those that others have stood for since `before`, wall time."""
        if self.marks()[1]:
            return
        replaced = self._replaced()
        self._objects.delete_many(sorted(key for key, at in replaced.items() if key in self._listed and at < before))
        if len(self._listed.keys() - replaced) >= MANY:
            self.merge()

    def _replaced(self) -> dict[str, float]:
        """Return the keys of objects that others stand for, and when those were written."""
        held = {key: self._held[key] for key in sorted(self._listed) if key in self._held}
        return {old: self._listed[key] for key, one in held.items() for old in one.replaces}

    def _fetch(self, keys: Collection[str], problems: list[Problem]) -> bool:
        """Read the objects that are new, and add those that cannot be read to `problems`; True if one was missing."""
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
    """Return a mark that comes after all others."""
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
