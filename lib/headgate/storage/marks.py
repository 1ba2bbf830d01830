"""Marks on stored samples: which no longer count, and new scores; the samples themselves stay unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, Self

import polars as pl

from headgate.core import record
from headgate.storage.schema import FRAME_SCHEMA


class Verb(StrEnum):
    """What a mark does to its samples; of several marks on one sample the latest is in force."""

    INVALIDATE = "invalidate"
    VALIDATE = "validate"
    RESCORE = "rescore"
    UNSCORE = "unscore"


@record
class Mark:
    """One change of the status or scores of some samples.

    Attributes:
        mark: id of the mark.
        marked_at: wall time; a later mark always has a later time, whatever the clock showed.
        reason: why, in the words of `marked_by`.
        scorer: source of the scores of a `rescore`; empty for others.
        resample: whether the tasks of invalidated samples are sampled again; such samples stay invalid.
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

_IN_FORCE: Final = ", ".join(f"if(scorer IS NULL, s.{name}, new_{name}) AS {name}" for name in SCORING)
EVERY_SAMPLE: Final = f"(SELECT s.* REPLACE ({_IN_FORCE}), invalid FROM stored s LEFT JOIN marked USING (task_id))"  # noqa: S608 - ours
"""What a query selects from for every stored sample, also an invalid one, with the score that holds."""

ROWS: Final = pl.Schema({"mark": pl.String, "task_id": pl.String} | {name: FRAME_SCHEMA[name] for name in SCORING})
"""Columns of a mark's row for one sample; those of a score are null in marks without scores."""

LOG: Final = pl.Schema(
    dict.fromkeys(("mark", "verb", "marked_by", "reason", "scorer"), pl.String)
    | {"marked_at": pl.Float64, "resample": pl.Boolean}
)

STATE: Final = pl.Schema(
    {"task_id": pl.String, "invalid": pl.Boolean, "resample": pl.Boolean, "scorer": pl.String}
    | {f"new_{name}": FRAME_SCHEMA[name] for name in SCORING}
)
"""Current state of each marked sample: `scorer` is null if its original score is in force."""


@dataclass(frozen=True)
class Marks:
    """All marks of a store at one moment.

    Attributes:
        log: the marks, oldest first.
        rows: their rows for single samples (`ROWS`).
        version: equal for equal marks; empty for none.
    """

    log: tuple[Mark, ...]
    rows: pl.DataFrame
    version: str = ""

    @classmethod
    def of(cls, marks: Iterable[Mark], rows: Iterable[pl.DataFrame]) -> Self:
        """Return the marks combined, without duplicates."""
        log = tuple(sorted({one.mark: one for one in marks}.values(), key=lambda one: (one.marked_at, one.mark)))
        every = pl.concat([pl.DataFrame(schema=ROWS), *rows]).unique(["mark", "task_id"], maintain_order=True)
        counts = dict(every.group_by("mark").len().iter_rows())
        said = " ".join(f"{one.mark}:{counts.get(one.mark, 0)}" for one in log)
        return cls(log, every, hashlib.sha256(said.encode()).hexdigest() if said else "")

    @cached_property
    def history(self) -> pl.DataFrame:
        """All marks of each sample, with author, time and reason, oldest first."""
        log = pl.DataFrame([asdict(one) for one in self.log], schema=LOG)
        return self.rows.join(log, on="mark").sort("marked_at", "mark", maintain_order=True)

    @cached_property
    def state(self) -> pl.DataFrame:
        """Current state of each marked sample (`STATE`)."""
        invalid = self._latest(Verb.INVALIDATE, Verb.VALIDATE).select("task_id", "resample", invalid=True)
        new = [pl.col(name).alias(f"new_{name}") for name in SCORING]
        scored = self._latest(Verb.RESCORE, Verb.UNSCORE).select("task_id", "scorer", *new)
        joined = invalid.join(scored, on="task_id", how="full", coalesce=True)
        return joined.with_columns(pl.col("invalid", "resample").fill_null(value=False)).select(*STATE)

    def _latest(self, verb: Verb, opposite: Verb) -> pl.DataFrame:
        """Return the rows of samples whose latest mark of the two verbs is `verb`, not its opposite."""
        said = self.history.filter(pl.col("verb").is_in([verb, opposite]))
        return said.unique("task_id", keep="last", maintain_order=True).filter(pl.col("verb") == verb)

    def applied(self, rows: pl.DataFrame, *, everything: bool = False, original: bool = False) -> pl.DataFrame:
        """Return the samples that count, with their current scores.

        Args:
            rows: samples with a column `task_id`.
            everything: keep all samples, and show in columns `invalid` and `resample` which do not count.
            original: keep the scores with which they were stored.
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


NO_MARKS: Final = Marks((), pl.DataFrame(schema=ROWS))  # created without polars' threads, which do not survive a fork
