"""Takes samples out of every count and puts them back, by marks; the samples themselves stay unchanged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from headgate.core import errors
from headgate.core.audit import process_user, record_change
from headgate.storage.frames import scan
from headgate.storage.manifest import Problem, Visible
from headgate.storage.mark_log import MarkLog, new_mark
from headgate.storage.marks import Verb
from headgate.storage.objects import ObjectStore
from headgate.storage.selection import Chosen

MAX_REASON_CHARS: Final = 1_000

_DONE: Final = {
    Verb.INVALIDATE: "count no longer",
    Verb.VALIDATE: "count again",
    Verb.UNSCORE: "have their first score again",
}
_TASK: Final = ("campaign", "model", "environment", "sequence", "stage")
_COLUMNS: Final = ("task_id", *_TASK, "score", "success", "finished_at")


def checked_reason(reason: str) -> str:
    """Return a valid reason, stripped.

    Raises:
        errors.InvalidInputError: if it is empty or too long.
    """
    if not reason.strip() or len(reason) > MAX_REASON_CHARS:
        raise errors.InvalidInputError(
            f"a reason has 1 to {MAX_REASON_CHARS} characters (got {len(reason.strip())})",
            next_step="Say why in a sentence, for people who look at these samples later: --reason TEXT.",
        )
    return reason.strip()


@dataclass(frozen=True, slots=True)
class Invalidation:
    """Which samples to mark, how, and why.

    Attributes:
        reason: why, for people who look at the samples later.
        by: who marks them; the user of this process when empty.
        task_ids: restricts the choice to these tasks; None for all.
        resample: sample their tasks again, as another stage. That cannot be undone, since two samples of a task would
            count.
        undo: let invalidated samples count again.
        unscore: restore the scores with which samples were stored, without invalidating any.
    """

    chosen: Chosen
    reason: str
    by: str = ""
    task_ids: Collection[str] | None = None
    resample: bool = False
    undo: bool = False
    unscore: bool = False

    def __post_init__(self) -> None:
        checked_reason(self.reason)
        if sum((self.undo, self.resample, self.unscore)) > 1:
            raise errors.InvalidInputError("samples that count again are not sampled again: undo, or resample")


@dataclass(frozen=True, slots=True)
class Invalidated:
    """What was, or would be, marked.

    Attributes:
        mark: id of the mark; empty if there was nothing to mark, or for a dry run.
        pairs: model, environment, and number of samples that change.
        final: samples that an undo leaves invalid: another sample of their task counts, or is still to be taken.
        problems: what could not be read, and was skipped.
        is_undo: whether the samples count again.
        rows: the samples, without their conversations.
    """

    mark: str
    samples: int
    pairs: tuple[tuple[str, str, int], ...]
    final: int
    problems: tuple[Problem, ...]
    is_undo: bool
    rows: pl.DataFrame = field(repr=False, compare=False)


def invalidate(
    objects: ObjectStore, log: MarkLog, visible: Visible, what: Invalidation, now: float, *, dry_run: bool = False
) -> Invalidated:
    """Mark samples, in one step, and return how many; samples that already have the mark are left out."""
    found = scan(objects, visible, what.chosen, _COLUMNS, everything=True)
    rows = found.frame
    if what.task_ids is not None:
        rows = rows.filter(pl.col("task_id").is_in(list(what.task_ids)))
    final = 0
    if what.unscore:
        rescored = visible.marks.state.filter(pl.col("scorer").is_not_null())
        rows = rows.join(rescored, on="task_id", how="semi")
    elif what.undo:
        rows = rows.filter("invalid")
        others = Chosen(models=what.chosen.models, environments=what.chosen.environments)
        undone = _single(rows.filter(~pl.col("resample")), scan(objects, visible, others, _COLUMNS).frame)
        final, rows = rows.height - undone.height, undone
    else:
        rows = rows.filter(~pl.col("invalid") | (~pl.col("resample") & what.resample))
    name = ""
    if rows.height and not dry_run:
        verb = Verb.UNSCORE if what.unscore else Verb.VALIDATE if what.undo else Verb.INVALIDATE
        by = what.by or process_user()
        mark = new_mark(visible.marks, verb, now, by=by, reason=checked_reason(what.reason), resample=what.resample)
        log.add(mark, rows.select(pl.lit(mark.mark).alias("mark"), "task_id"))
        name = mark.mark
        done = _DONE[verb] + " and are taken again" * what.resample
        done = f"{rows.height} samples {done} ({name}): {mark.reason}"
        record_change("samples invalidate", objects.url, after=done, who=by)
    counts = rows.group_by("model", "environment").len().sort("model", "environment")
    return Invalidated(name, rows.height, tuple(counts.rows()), final, found.problems, what.undo, rows)


def _single(rows: pl.DataFrame, counting: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose task has no scored sample that counts; of several rows of a task only the last scored one.

    Tasks are also taken again without `resample`: by a ranking, or because an earlier sample of theirs was invalid.
    """
    of, keys = pl.col("stage").str.replace(r"^sample\.\d+$", "sample").alias("of"), [*_TASK[:-1], "of"]
    is_scored = pl.col("score").is_not_null()
    last = rows.with_columns(of).sort(is_scored, "finished_at").unique(keys, keep="last", maintain_order=True)
    taken = counting.filter(is_scored).select(*_TASK[:-1], of)
    return last.join(taken, on=keys, how="anti").select(rows.columns)
