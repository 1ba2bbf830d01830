"""The selection of stored samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

import polars as pl

from headgate.core import errors
from headgate.core.errors import did_you_mean
from headgate.storage.manifest import Part, Visible

_LISTED: Final = 10
"""Maximum names that an error lists."""


def require_named(what: str, names: Iterable[str], known: set[str]) -> None:
    """Return if the store has samples of every named model, environment or campaign.

    Raises:
        InvalidInputError: naming the first that it lacks, the nearest one that it has, and some others.
    """
    every = '`headgate query "select distinct campaign from samples"`' if what == "campaign" else "`headgate summary`"
    for name in sorted(set(names) - known):
        listed = ", ".join(sorted(known)[:_LISTED]) or "none at all"
        raise errors.InvalidInputError(
            f"the store has no sample of {what} {name!r}{did_you_mean(name, known, cutoff=0.5)}",
            next_step=f"It has samples of the {what}s: {listed}; {every} shows all of them.",
        )


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which samples to read, export or delete; empty and None select all.

    Attributes:
        models: keys (`name@revision`), or names, which select every revision.
        since: only samples that ended at this wall time or later.
        until: only samples that ended before this wall time.
        min_score: minimum score.
        successes: only samples that their environment considers a success.
        original: use the scores with which samples were stored, ignoring later ones.
    """

    COLUMNS: ClassVar[Sequence[str]] = ("model", "campaign", "finished_at", "score", "success")
    """The columns that `rows` needs."""

    models: frozenset[str] = frozenset()
    environments: frozenset[str] = frozenset()
    campaign: str | None = None
    since: float | None = None
    until: float | None = None
    min_score: float | None = None
    successes: bool = False
    original: bool = False

    def __post_init__(self) -> None:
        if self.min_score is not None and not 0.0 <= self.min_score <= 1.0:
            raise errors.InvalidInputError(f"min_score must be in [0, 1] (got {self.min_score})")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise errors.InvalidInputError(
                f"since must be before until (got {_moment(self.since)} and {_moment(self.until)})"
            )

    @property
    def bounds(self) -> tuple[object, ...]:
        """The criteria other than model and environment."""
        return self.campaign, self.since, self.until, self.min_score, self.successes

    def require_known(self, visible: Visible) -> None:
        """Return if the store has samples of every named model and environment.

        Raises:
            errors.InvalidInputError: naming the first of which it has none.
        """
        keys = {model for part in visible.parts for model in part.models}
        # A name without a revision selects every revision, and is compared with names without revisions.
        plain = {name for name in self.models if "@" not in name}
        require_named("model", plain, {key.rpartition("@")[0] for key in keys})
        require_named("model", self.models - plain, keys)
        require_named("environment", self.environments, {part.environment for part in visible.parts})

    def wants(self, part: Part) -> bool:
        """Return whether the part may contain selected rows, judging only by its manifest."""
        return (
            (not self.environments or part.environment in self.environments)
            and (self.since is None or part.max_finished_at >= self.since)
            and (self.until is None or part.min_finished_at < self.until)
        )

    def cut_from(self, part: Part) -> pl.Expr | None:
        """Return a condition for the part's rows that ended in the time span; None if all did, by its manifest."""
        since = -math.inf if self.since is None else self.since
        until = math.inf if self.until is None else self.until
        if since <= part.min_finished_at and part.max_finished_at < until:
            return None
        return pl.col("finished_at").is_between(since, until, closed="left")

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the selected rows of a part."""
        if self.models:
            name = pl.col("model").str.replace(r"@[^@]*$", "")
            frame = frame.filter(pl.col("model").is_in(list(self.models)) | name.is_in(list(self.models)))
        if self.campaign is not None:
            frame = frame.filter(pl.col("campaign") == self.campaign)
        if self.since is not None:
            frame = frame.filter(pl.col("finished_at") >= self.since)
        if self.until is not None:
            frame = frame.filter(pl.col("finished_at") < self.until)
        if self.min_score is not None:
            frame = frame.filter(pl.col("score") >= self.min_score)
        return frame.filter(pl.col("success")) if self.successes else frame


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
