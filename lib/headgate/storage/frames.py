"""Reads rows of the visible parts as frames: chosen rows, all rows of some parts, or every row to verify it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from headgate.core import errors
from headgate.storage.batches import decoded
from headgate.storage.manifest import Part, Problem, Visible, problem_of
from headgate.storage.objects import ObjectStore, whole
from headgate.storage.schema import COLUMNS, FRAME_SCHEMA
from headgate.storage.selection import Chosen


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan.

    Attributes:
        frame: the rows, each task once.
        problems: manifests and parts that were left out.
        duplicates: rows dropped because their task had already been read.
    """

    frame: pl.DataFrame
    problems: tuple[Problem, ...]
    parts: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check of every visible object; `problems` is empty if all are intact."""

    manifests: int
    parts: int
    rows: int
    size_bytes: int
    problems: tuple[Problem, ...]


def scan(
    objects: ObjectStore,
    visible: Visible,
    chosen: Chosen,
    columns: Sequence[str] | None = None,
    *,
    everything: bool = False,
) -> Scan:
    """Return the chosen rows, ordered by part; of a task that occurs twice only the row that ended first.

    With `everything`, also rows that no longer count, and two further columns: see `Marks.applied`.
    """
    wanted = _checked_columns(columns)
    marks, shown = visible.marks, [*wanted, *(("invalid", "resample") if everything else ())]
    problems = list(visible.problems)
    frames = []
    parts = [part for part in visible.parts if chosen.wants(part)]
    needed = [name for name in COLUMNS if name in {*wanted, "task_id", "finished_at"}]
    for _, rows in read_parts(objects, parts, needed, problems, chosen.cut_from):
        frames.append(chosen.rows(marks.applied(rows, everything=everything, original=chosen.original)))
    nothing = pl.DataFrame(schema={name: FRAME_SCHEMA[name] for name in needed})
    every = pl.concat(frames or [marks.applied(nothing, everything=everything)])
    unique = each_task_once(every)
    return Scan(unique.select(shown), tuple(problems), len(frames), every.height - unique.height)


def each_task_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in their order; of a task that two journals or an import stored twice, the one that ended first.

    A compaction keeps that one, too, so the same samples count before and after it.
    """
    once = rows.unique("task_id", keep="first", maintain_order=True)
    if once.height == rows.height:
        return rows
    is_first = pl.col("finished_at") == pl.col("finished_at").min().over("task_id")
    return rows.filter(is_first).unique("task_id", keep="first", maintain_order=True)


def read_parts(
    objects: ObjectStore,
    parts: Sequence[Part],
    columns: Sequence[str] | None,
    problems: list[Problem],
    cut: Callable[[Part], pl.Expr | None] = lambda _: None,
) -> Iterator[tuple[Part, pl.DataFrame]]:
    """Yield the parts with the rows that `cut` selects, all if None; unreadable parts are added to `problems`."""
    for part, data in zip(parts, objects.get_many([part.path for part in parts]), strict=True):
        try:
            yield part, decoded(part, whole(data), columns, cut(part))
        except errors.StoreError as error:
            problems.append(problem_of(part.path, error))


def verify(objects: ObjectStore, visible: Visible) -> Verification:
    """Read every visible part completely, compare it with its manifest, and return the result."""
    problems = list(visible.problems)
    parts = rows = size_bytes = 0
    for part, frame in read_parts(objects, visible.parts, None, problems):
        parts, rows, size_bytes = parts + 1, rows + frame.height, size_bytes + part.size_bytes
        if frame.schema != FRAME_SCHEMA:
            problems.append(Problem(part.path, "its columns are not those of a sample"))
    return Verification(len(visible.manifests), parts, rows, size_bytes, tuple(problems))


def _checked_columns(columns: Iterable[str] | None) -> list[str]:
    wanted = list(COLUMNS) if columns is None else list(columns)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise errors.InvalidInputError(
            f"there is no column {unknown[0]!r} in the sample store", next_step=f"The columns are {', '.join(COLUMNS)}."
        )
    return wanted
