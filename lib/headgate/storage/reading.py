"""Reading samples back: parts chosen by environment and time, checked against their checksums, bad ones left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from headgate.core import errors
from headgate.storage.manifest import Part
from headgate.storage.objects import ObjectStore
from headgate.storage.schema import COLUMNS, FRAME_SCHEMA
from headgate.storage.visibility import Problem, Visible, problem_of
from headgate.storage.writing import decoded

_PARTS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are wanted.

    Attributes:
        environments: their names, None for all.
        since: rows that ended at this wall time or later.
        until: rows that ended before this wall time.
    """

    environments: frozenset[str] | None = None
    since: float | None = None
    until: float | None = None

    def wants(self, part: Part) -> bool:
        """Return whether the part can hold such rows; read from its manifest alone."""
        return (
            (self.environments is None or part.environment in self.environments)
            and (self.since is None or part.max_finished_at >= self.since)
            and (self.until is None or part.min_finished_at < self.until)
        )

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a part that are wanted."""
        if self.since is not None:
            frame = frame.filter(pl.col("finished_at") >= self.since)
        if self.until is not None:
            frame = frame.filter(pl.col("finished_at") < self.until)
        return frame


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows that were read.

    Attributes:
        frame: the rows, each task once.
        problems: manifests and parts that were left out.
        parts: number of parts read.
        duplicates: rows that were dropped because their task had been read already.
    """

    frame: pl.DataFrame
    problems: tuple[Problem, ...]
    parts: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of every visible object found; `problems` is empty when all is well."""

    manifests: int
    parts: int
    rows: int
    size_bytes: int
    problems: tuple[Problem, ...]


def scan(objects: ObjectStore, visible: Visible, selection: Selection, columns: Sequence[str] | None = None) -> Scan:
    """Return the rows that `selection` wants, ordered by part; of a task that is there twice the first.

    Raises:
        errors.InvalidInputError: if a column is not one of a sample.
        errors.StoreError: if the store itself fails; a single bad object is a problem in the result instead.
    """
    wanted = _checked_columns(columns)
    problems = list(visible.problems)
    frames = []
    parts = [part for part in visible.parts if selection.wants(part)]
    needed = [name for name in COLUMNS if name in {*wanted, "task_id", "finished_at"}]
    for _, rows in read_parts(objects, parts, needed, problems):
        frames.append(selection.rows(rows))
    every = pl.concat(frames) if frames else pl.DataFrame(schema={name: FRAME_SCHEMA[name] for name in needed})
    unique = every.unique("task_id", keep="first", maintain_order=True)
    return Scan(unique.select(wanted), tuple(problems), len(frames), every.height - unique.height)


def read_parts(
    objects: ObjectStore, parts: Sequence[Part], columns: Sequence[str] | None, problems: list[Problem]
) -> Iterator[tuple[Part, pl.DataFrame]]:
    """Yield the parts with their rows, some objects in memory at a time; bad ones are added to `problems` instead."""
    for start in range(0, len(parts), _PARTS_AT_ONCE):
        some = parts[start : start + _PARTS_AT_ONCE]
        for part, data in zip(some, objects.get_many([part.path for part in some]), strict=True):
            try:
                yield part, _rows(part, data, columns)
            except errors.StoreError as error:
                problems.append(problem_of(part.path, error))


def verify(objects: ObjectStore, visible: Visible) -> Verification:
    """Return the outcome of reading every visible part whole and comparing it with its manifest."""
    problems = list(visible.problems)
    parts = rows = size_bytes = 0
    for part, frame in read_parts(objects, visible.parts, None, problems):
        parts, rows, size_bytes = parts + 1, rows + frame.height, size_bytes + part.size_bytes
        if frame.schema != FRAME_SCHEMA:
            problems.append(Problem(part.path, "its columns are not those of a sample"))
    return Verification(len(visible.manifests), parts, rows, size_bytes, tuple(problems))


def _rows(part: Part, data: bytes | errors.StoreError, columns: Sequence[str] | None) -> pl.DataFrame:
    if isinstance(data, errors.StoreError):
        raise data
    return decoded(part, data, columns)


def _checked_columns(columns: Iterable[str] | None) -> list[str]:
    wanted = list(COLUMNS) if columns is None else list(columns)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise errors.InvalidInputError(
            f"there is no column {unknown[0]!r} in the sample store", next_step=f"The columns are {', '.join(COLUMNS)}."
        )
    return wanted
