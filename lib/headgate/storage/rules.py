"""The rules that a row of the sample store holds, each with the sentence that a quarantined row is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from headgate.core import ErrorKind

EARLIEST_S: Final = 946_684_800.0
"""2000-01-01 UTC. An earlier time is a monotonic reading or a clock that was never set."""

LATEST_S: Final = 4_102_444_800.0
"""2100-01-01 UTC. A later time is in milliseconds."""

MAX_CLOCK_STEP_S: Final = 86_400.0
"""Wall time may be set back while an episode runs; by more than a day it is no correction of a clock."""

_MAX_NAME_CHARS: Final = 200
"""As `core.checked_name` has it."""

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._:@/+-]*$"
_TASK_ID: Final = r"^t-[0-9a-f]{24}$"
_TRACE_ID: Final = r"^[0-9a-f]{32}$"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over one or more columns of a row.

    Attributes:
        columns: what it reads; shown in the reason.
        says: the rule, as the end of a sentence that begins with the first column's name.
        holds: true for a row that keeps it, false else, never null.
        reason: the sentence for a row that breaks it, null else.
    """

    columns: tuple[str, ...]
    says: str
    holds: pl.Expr

    @property
    def reason(self) -> pl.Expr:
        """The sentence for a row that breaks the rule (value and rule), null for others."""
        shown = [pl.col(name).cast(pl.String).str.slice(0, 60).fill_null("null") for name in self.columns]
        got = ", ".join("{}" if len(shown) == 1 else f"{name} {{}}" for name in self.columns)
        return pl.when(~self.holds).then(pl.format(f"{self.columns[0]} must {self.says} (got {got})", *shown))


def _rule(columns: str, says: str, holds: pl.Expr) -> Rule:
    # A null where none may be makes a comparison null: that breaks the rule.
    return Rule(tuple(columns.split()), says, holds.fill_null(value=False))


def _name(column: str, *, chars: int = _MAX_NAME_CHARS, also: str = "") -> Rule:
    value = pl.col(column)
    holds = value.str.contains(_NAME) & ~value.str.contains("..", literal=True) & (value.str.len_bytes() <= chars)
    says = f"be a name of at most {chars} letters, digits or . _ : @ / + - without '..'"
    if also:
        holds, says = holds & value.str.contains(also, literal=True), f"{says}, with {also!r} in it"
    return _rule(column, says, holds)


def _finite_from_zero(column: str) -> Rule:
    return _rule(column, "be a finite number >= 0", pl.col(column).is_finite() & (pl.col(column) >= 0))


def _whole_from_zero(column: str) -> Rule:
    return _rule(column, "be >= 0", pl.col(column) >= 0)


def _time(column: str) -> Rule:
    holds = pl.col(column).is_finite() & pl.col(column).is_between(EARLIEST_S, LATEST_S)
    return _rule(column, "be a time between the years 2000 and 2100, in seconds since 1970", holds)


def _rules() -> Iterator[Rule]:
    score, kind, started, finished = (pl.col(c) for c in ("score", "error_kind", "started_at", "finished_at"))
    kinds = [str(one) for one in ErrorKind]
    unscored = [str(one) for one in ErrorKind if not one.is_scored]
    own_doing = [str(one) for one in ErrorKind if one.is_scored]

    yield _rule("task_id", "be 't-' and 24 hex digits", pl.col("task_id").str.contains(_TASK_ID))
    yield _name("campaign")
    yield _name("model", chars=2 * _MAX_NAME_CHARS + 1, also="@")
    yield _name("environment")
    yield _name("stage")
    yield from (_whole_from_zero(column) for column in ("sequence", "index", "seed"))
    # NaN compares as greater than every number, so it is not between 0 and 1.
    yield _rule("score", "be null or in [0, 1]", score.is_null() | score.is_between(0.0, 1.0))
    yield _rule(
        "score error_kind",
        f"be null exactly when error_kind is set and is none of {', '.join(own_doing)}",
        score.is_null() == kind.is_in(unscored).fill_null(value=False),
    )
    yield _rule(
        "success score",
        "be set, and false where nothing was scored",
        pl.col("success").is_not_null() & (~pl.col("success") | score.is_not_null()),
    )
    yield _rule("error_kind", f"be null or one of {', '.join(kinds)}", kind.is_null() | kind.is_in(kinds))
    yield from (_rule(column, "be set", pl.col(column).is_not_null()) for column in ("why", "conversation"))
    yield from (_time(column) for column in ("started_at", "finished_at"))
    yield _rule(
        "finished_at started_at",
        "be after started_at, but for a clock set back by less than a day",
        finished - started >= -MAX_CLOCK_STEP_S,
    )
    yield from (_finite_from_zero(column) for column in ("latency_s", "queue_wait_s", "request_wait_s"))
    yield from (_whole_from_zero(column) for column in ("prompt_tokens", "completion_tokens", "turns", "attempts"))
    yield _rule("trace_id", "be 32 hex digits", pl.col("trace_id").str.contains(_TRACE_ID))


RULES: Final[tuple[Rule, ...]] = tuple(_rules())
