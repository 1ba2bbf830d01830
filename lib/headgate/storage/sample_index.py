"""An in-memory index of the stored samples, without their conversations, that lists them in various orders."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import orjson
import polars as pl

from headgate.storage.frames import each_task_once, read_parts
from headgate.storage.manifest import Part, Problem, Visible
from headgate.storage.marks import NO_MARKS
from headgate.storage.objects import ObjectStore
from headgate.storage.schema import ADDED, COLUMNS, FRAME_SCHEMA

MOST_ROWS: Final = 4_000_000
"""Maximum number of indexed samples, the newest ones; a million take about 150 MB."""

_STEP_PARTS: Final = 32
_LISTED: Final = {"cost_micro", "judge_cost_micro", "finish_reason"}
_LEFT: Final = frozenset({"seed", "sequence", "trace_id", "conversation", *ADDED}) - _LISTED
_STORED: Final = tuple(name for name in COLUMNS if name not in _LEFT)
_REPEATED: Final = ("campaign", "model", "environment", "stage")
"""Columns with few distinct values, which are stored once."""

_SAID_CHARS: Final = 160
"""Characters kept of a reason and of an error; the sample itself has the rest."""

_SCHEMA: Final = pl.Schema(
    {name: pl.Categorical() if name in _REPEATED else FRAME_SCHEMA[name] for name in _STORED}
    | {"finish_reason": pl.Categorical(), "part": pl.UInt32()}
)


class Order(StrEnum):
    """The order in which samples are listed."""

    NEWEST = "newest"
    WORST = "worst"
    BEST = "best"
    LONGEST = "longest"


_KEYS: Final[Mapping[Order, tuple[pl.Expr, ...]]] = {
    # All ascending: ordered by score, unscored samples come last, and among equals the newest first.
    Order.NEWEST: (-pl.col("finished_at"),),
    Order.WORST: (pl.col("score").fill_null(2.0), -pl.col("finished_at")),
    Order.BEST: (-pl.col("score").fill_null(-1.0), -pl.col("finished_at")),
    Order.LONGEST: (-pl.col("latency_s"), -pl.col("finished_at")),
}


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Which samples to list; empty and None select all.

    Attributes:
        model: key (`name@revision`), or a name, which selects every revision.
        error: a kind, `any`, `none`, or `cut off` for an answer that ended at its token limit.
        min_score: minimum score.
        max_score: maximum score.
        min_latency_s: minimum duration of the episode in seconds.
        max_latency_s: maximum duration of the episode in seconds.
        since: only samples that ended at this wall time or later.
        index: index of the environment's task.
        invalid: only samples that no longer count (True), or only those that do (False).
        text: text in the conversation, the reason or the error, ignoring case.
    """

    model: str = ""
    environment: str = ""
    error: str = ""
    min_score: float | None = None
    max_score: float | None = None
    min_latency_s: float | None = None
    max_latency_s: float | None = None
    since: float | None = None
    index: int | None = None
    invalid: bool | None = None
    text: str = ""

    def condition(self) -> pl.Expr:
        """Return the condition for selected rows of the index, without `text`."""
        column, found = pl.col, []
        if self.environment:
            found.append(column("environment") == self.environment)
        if self.model:
            key = column("model").cast(pl.String)
            found.append(key == self.model if "@" in self.model else key.str.starts_with(f"{self.model}@"))
        if self.error in {"any", "none"}:
            found.append(column("error_kind").is_null() if self.error == "none" else column("error_kind").is_not_null())
        elif self.error:
            name, wanted = ("finish_reason", "length") if self.error == "cut off" else ("error_kind", self.error)
            found.append(column(name) == wanted)
        for name, low, high in (
            ("score", self.min_score, self.max_score),
            ("latency_s", self.min_latency_s, self.max_latency_s),
            ("finished_at", self.since, None),
            ("index", self.index, self.index),
        ):
            found += [column(name) >= low] if low is not None else []
            found += [column(name) <= high] if high is not None else []
        if self.invalid is not None:
            found.append(column("invalid") == self.invalid)
        return pl.all_horizontal(found) if found else pl.lit(value=True)


@dataclass(frozen=True, slots=True)
class SamplePage:
    """A page of the selected samples, in order.

    Attributes:
        rows: the requested number of samples, or fewer at an end of the list.
        total: number of all selected samples.
        has_before: whether there are samples before the page.
    """

    rows: pl.DataFrame
    total: int
    has_before: bool
    has_after: bool


@dataclass(frozen=True)
class SampleIndex:
    """The visible samples at one moment, each task once. Immutable: `caught_up` returns a newer index.

    Attributes:
        rows: a row per sample, without its conversation, with its current score; `part` is a key of `parts`, `invalid`
            and `resample` come from marks.
        stored: the same rows as they were stored.
        parts: the parts read so far, by number; numbers are not reused.
        marks: version of the marks.
        revision: grows with each change.
        pending: number of visible parts not read yet, of which the newest is read next.
        left_out: number of rows older than the `MOST_ROWS` newest.
        problems: what could not be read.
    """

    rows: pl.DataFrame = field(default_factory=lambda: NO_MARKS.applied(pl.DataFrame(schema=_SCHEMA), everything=True))
    stored: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_SCHEMA))
    parts: Mapping[int, Part] = field(default_factory=dict)
    marks: str = ""
    revision: int = 0
    pending: int = 0
    left_out: int = 0
    problems: tuple[Problem, ...] = ()

    def caught_up(self, objects: ObjectStore, visible: Visible, within_s: float = 1.0) -> SampleIndex:
        """Return an index of what is visible now, as far as it can be read in `within_s`, newest parts first."""
        ends_at = time.monotonic() + within_s
        wanted = {part.path: part for part in visible.parts}
        known = {part.path: number for number, part in self.parts.items()}
        gone = [number for path, number in known.items() if path not in wanted]
        stored = self.stored.filter(~pl.col("part").is_in(gone)) if gone else self.stored
        parts = {number: part for number, part in self.parts.items() if part.path in wanted}
        fresh = sorted((part for part in wanted.values() if part.path not in known), key=attrgetter("max_finished_at"))
        room, problems = MOST_ROWS - stored.height, [] if fresh else list(self.problems)
        frames, number = [stored], max(self.parts, default=-1)
        while fresh and room > 0 and time.monotonic() < ends_at:
            some = [fresh.pop() for _ in range(min(_STEP_PARTS, len(fresh)))]
            for part, read in read_parts(objects, some, _STORED, problems):
                number += 1
                parts[number] = part
                room -= read.height
                frames.append(_indexed(read, number))
        if len(frames) > 1:
            stored = each_task_once(pl.concat(frames)).rechunk()
        changed = bool(gone) or len(frames) > 1 or self.marks != visible.marks.version
        rows = visible.marks.applied(stored, everything=True) if changed else self.rows
        pending = 0 if room <= 0 else len(fresh)
        left_out = sum(part.rows for part in fresh) if room <= 0 else 0
        revision = self.revision + (changed or pending != self.pending)
        marks = visible.marks.version
        return SampleIndex(rows, stored, parts, marks, revision, pending, left_out, (*visible.problems, *problems))

    @cached_property
    def names(self) -> Mapping[str, Sequence[str]]:
        """The models, environments and kinds of errors of all samples, sorted, by column."""
        columns = ("model", "environment", "error_kind")
        return {column: sorted(map(str, self.rows[column].drop_nulls().unique())) for column in columns}

    def page(
        self,
        chosen: SampleFilter,
        order: Order = Order.NEWEST,
        *,
        after: str = "",
        before: str = "",
        size: int = 50,
        tasks: Collection[str] | None = None,
    ) -> SamplePage:
        """Return the first selected samples, or those next to one of them.

        Args:
            chosen: which samples; its text is ignored in favour of `tasks`.
            order: order of the list.
            after: task id of the sample that precedes the page.
            before: task id of the sample that follows the page.
            size: maximum number of samples.
            tasks: only these tasks, such as those in which a text was found.
        """
        keys = (*_KEYS[order], pl.col("task_id"))
        found = (
            self.chosen(chosen, tasks).lazy().with_columns(key.alias(f"key{number}") for number, key in enumerate(keys))
        )
        names = [f"key{number}" for number in range(len(keys))]
        anchor = self.rows.lazy().filter(pl.col("task_id") == (after or before)).select(keys).collect().rows()
        is_back = bool(before) and bool(anchor)
        some = found.filter(_beyond(names, anchor[0], is_back=is_back)) if anchor else found
        listed, counts = pl.collect_all([some.sort(names, descending=is_back).head(size + 1), found.select(pl.len())])
        has_more, listed = listed.height > size, listed.head(size)
        if is_back:
            listed = listed.reverse()
        beside = bool(anchor)
        return SamplePage(
            listed.drop(names), counts.item(), has_more if is_back else beside, beside if is_back else has_more
        )

    def parts_of(self, chosen: SampleFilter) -> list[Part]:
        """Return the parts with selected samples, ignoring their text."""
        found = self.rows.lazy().filter(chosen.condition()).select(pl.col("part").unique()).collect()["part"]
        return [self.parts[number] for number in found]

    def chosen(self, chosen: SampleFilter, tasks: Collection[str] | None = None) -> pl.DataFrame:
        """Return all selected samples, in no particular order; see `page`."""
        found = self.rows.lazy().filter(chosen.condition())
        return (found if tasks is None else found.filter(pl.col("task_id").is_in(list(tasks)))).collect()

    def row(self, task_id: str) -> dict[str, Any] | None:
        """Return the indexed columns of a sample; None if it is not in the index."""
        return next(self.rows.lazy().filter(pl.col("task_id") == task_id).collect().iter_rows(named=True), None)


def _indexed(read: pl.DataFrame, number: int) -> pl.DataFrame:
    said = [pl.col(name).str.slice(0, _SAID_CHARS) for name in ("why", "error")]
    cut = pl.when(pl.col("finish_reason") == "length").then("finish_reason")  # others are whatever a provider says
    repeated = [column.cast(pl.Categorical()) for column in (pl.col(_REPEATED), cut)]
    return read.with_columns(*said, *repeated, pl.lit(number, pl.UInt32()).alias("part")).select(_SCHEMA.names())


def _beyond(names: Sequence[str], anchor: Sequence[Any], *, is_back: bool) -> pl.Expr:
    """Return the condition that a row comes after (`is_back`: before) the anchor, by the first key that differs."""
    condition = pl.lit(value=False)
    for name, value in reversed(list(zip(names, anchor, strict=True))):
        column, own = pl.col(name), pl.lit(value)
        condition = (column < own if is_back else column > own) | ((column == own) & condition)
    return condition


MOST_FOUND: Final = 10_000
"""Number of found samples at which a text search stops; a narrower search finds the rest."""


class TextSearch:
    """A text search, part by part; each part is read once, since parts never change. Calls must not overlap."""

    def __init__(self, text: str) -> None:
        # The plain text for reasons and errors, and its JSON form for conversations.
        self._needles = [text, orjson.dumps(text).decode()[1:-1]]
        self._read: dict[str, list[str]] = {}

    def go_on(self, objects: ObjectStore, parts: Sequence[Part], within_s: float) -> int:
        """Read unread parts, newest first, for `within_s` seconds; return how many are left."""
        ends_at, problems = time.monotonic() + within_s, list[Problem]()
        left = sorted((part for part in parts if part.path not in self._read), key=attrgetter("max_finished_at"))
        while left and time.monotonic() < ends_at and sum(map(len, self._read.values())) < MOST_FOUND:
            some = [left.pop() for _ in range(min(_STEP_PARTS, len(left)))]
            self._read |= {part.path: [] for part in some}
            for part, rows in read_parts(objects, some, ["task_id", "conversation", "why", "error"], problems):
                has = pl.col("conversation", "why", "error").str.contains_any(
                    self._needles, ascii_case_insensitive=True
                )
                self._read[part.path] = rows.filter(pl.any_horizontal(has))["task_id"].to_list()
        return len(left)

    def found(self) -> list[str]:
        """Return the task ids of the samples that contain the text."""
        return [task_id for tasks in self._read.values() for task_id in tasks]


def whole_sample(objects: ObjectStore, part: Part, task_id: str) -> dict[str, Any] | None:
    """Return every column of a sample as stored; None if the part no longer has it."""
    found = (rows.filter(pl.col("task_id") == task_id) for _, rows in read_parts(objects, [part], None, []))
    return next((row for rows in found for row in rows.iter_rows(named=True)), None)
