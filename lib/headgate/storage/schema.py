"""The schema of a stored sample: columns from `core.Sample`, rules per row, and the validation that applies them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import polars as pl

from headgate.core import COUNTS, ErrorKind, Sample, errors

EARLIEST_S: Final = 946_684_800.0
"""2000-01-01 UTC. An earlier time is a monotonic reading or a clock that was never set."""

LATEST_S: Final = 4_102_444_800.0
"""2100-01-01 UTC. A later time is in milliseconds."""

MAX_CLOCK_STEP_S: Final = 86_400.0
"""Wall time may be set back while an episode runs; more than a day is not a correction of a clock."""

_MAX_NAME_CHARS: Final = 200
"""As in `core.checked_name`."""

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._:@/+-]*$"
_TASK_ID: Final = r"^t-[0-9a-f]{24}$"
_TRACE_ID: Final = r"^[0-9a-f]{32}$"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over one or more columns of a row.

    Attributes:
        columns: the columns that it reads; shown in the reason.
        says: the rule, as the end of a sentence that begins with the first column's name.
        holds: true for a row that satisfies the rule, otherwise false, never null.
        reason: the sentence for a row that breaks it, otherwise null.
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
    # A forbidden null makes a comparison null, which breaks the rule.
    return Rule(tuple(columns.split()), says, holds.fill_null(value=False))


def _name(column: str, *, chars: int = _MAX_NAME_CHARS, also: str = "") -> Rule:
    value = pl.col(column)
    holds = value.str.contains(_NAME) & ~value.str.contains("..", literal=True) & (value.str.len_bytes() <= chars)
    says = f"be a name of at most {chars} letters, digits or . _ : @ / + - without '..'"
    if also:
        holds, says = holds & value.str.contains(also, literal=True), f"{says}, with {also!r} in it"
    return _rule(column, says, holds)


def _whole_from_zero(column: str) -> Rule:
    return _rule(column, "be >= 0", pl.col(column) >= 0)


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
    yield from map(_whole_from_zero, ("sequence", "index", "seed"))
    # polars orders NaN above every number, so it is not between 0 and 1.
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
    for column in ("started_at", "finished_at"):
        is_time = pl.col(column).is_finite() & pl.col(column).is_between(EARLIEST_S, LATEST_S)
        yield _rule(column, "be a time between the years 2000 and 2100, in seconds since 1970", is_time)
    yield _rule(
        "finished_at started_at",
        "be after started_at, but for a clock set back by less than a day",
        finished - started >= -MAX_CLOCK_STEP_S,
    )
    for column in ("latency_s", "queue_wait_s", "request_wait_s"):
        yield _rule(column, "be a finite number >= 0", pl.col(column).is_finite() & (pl.col(column) >= 0))
    yield from map(_whole_from_zero, (*COUNTS, "turns", "attempts"))
    for column in ("cost_micro", "judge_cost_micro", "request_seed"):
        yield _rule(column, "be null or >= 0", pl.col(column).is_null() | (pl.col(column) >= 0))
    yield _rule("lane", "be now or batch", pl.col("lane").is_in(["now", "batch"]))
    yield _rule("trace_id", "be 32 hex digits", pl.col("trace_id").str.contains(_TRACE_ID))


RULES: Final[tuple[Rule, ...]] = tuple(_rules())


if TYPE_CHECKING:
    from pandera.api.polars.types import PolarsData
    from pandera.polars import DataFrameSchema

_TYPES: Final[Mapping[str, pl.DataType]] = MappingProxyType(
    {"str": pl.String(), "int": pl.Int64(), "float": pl.Float64(), "bool": pl.Boolean()}
)

COLUMNS: Final[tuple[str, ...]] = tuple(field.name for field in fields(Sample))
"""Names of the columns, in the order of `core.Sample`."""

ADDED: Final[Mapping[str, str | int | None]] = MappingProxyType(
    {"served_model": None, "system_fingerprint": None, "cached_tokens": 0, "reasoning_tokens": 0, "cost_micro": None}
    | {"lane": "now", "request_seed": None, "answer": None, "judge_cost_micro": None, "finish_reason": None}
)
"""Columns that stores of earlier versions lack, in the order in which they were added, with their values there."""

FRAME_SCHEMA: Final = pl.Schema({field.name: _TYPES[str(field.type).split(" ")[0]] for field in fields(Sample)})
"""Column types of a frame of samples; columns whose field may be None are nullable."""

NULLABLE: Final[frozenset[str]] = frozenset(field.name for field in fields(Sample) if "None" in str(field.type))


def lacking_columns(added: int) -> dict[str, str | int | None]:
    """Return the columns that a part with only the first `added` columns of `ADDED` lacks, with their values."""
    return dict(islice(ADDED.items(), added, None))


_GETTERS: Final = tuple(attrgetter(name) for name in COLUMNS)


# One column per rule instead of one conjunction: polars evaluates that twice as fast for a small batch.
_RULES_HOLD: Final = [rule.holds.all().alias(f"{number}") for number, rule in enumerate(RULES)]


@cache
def sample_schema() -> DataFrameSchema:
    """Return the pandera schema of a frame of samples.

    Validate eager frames: of a LazyFrame pandera checks only the types. Importing pandera takes most of a second (it
    imports pandas), so readers of samples do not import it.
    """
    import pandera.polars as pa  # noqa: PLC0415

    def rules_hold(data: PolarsData) -> bool:
        return all(data.lazyframe.select(_RULES_HOLD).collect().row(0))

    return pa.DataFrameSchema(
        name="sample",
        columns={name: pa.Column(kind, nullable=name in NULLABLE) for name, kind in FRAME_SCHEMA.items()},
        # One check for all rules: with thirty checks, pandera's overhead (0.3 ms each) would be ten times the cost of
        # the rules themselves for a batch of 300. Which rules a bad row breaks is computed only if there is one.
        checks=[pa.Check(rules_hold, name="rules", error="a row breaks a rule of headgate.storage.schema")],
        strict=True,
        ordered=True,
    )


@cache
def row_checks() -> DataFrameSchema:
    """Return the same checks for a frame of known types, since pandera takes 3 ms to check 24 column types."""
    import pandera.polars as pa  # noqa: PLC0415 - as above

    return pa.DataFrameSchema(name="sample rows", checks=sample_schema().checks)


@dataclass(frozen=True, slots=True)
class Validated:
    """A validated frame.

    Attributes:
        good: the rows that satisfy every rule, in order.
        bad: the other rows, with a further column `reason`.
    """

    good: pl.DataFrame
    bad: pl.DataFrame


def frame_of(samples: Sequence[Sample]) -> pl.DataFrame:
    """Return the samples as a frame of `FRAME_SCHEMA`, in their order.

    Raises:
        errors.InvalidInputError: if a field holds a value of another type (see `framed` for a batch that may).
    """
    columns = []
    for get, (name, kind) in zip(_GETTERS, FRAME_SCHEMA.items(), strict=True):
        try:
            columns.append(pl.Series(name, list(map(get, samples)), dtype=kind))
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise errors.InvalidInputError(
                f"a sample does not fit the columns of the sample store: {name}: {str(error).splitlines()[0]}",
                next_step="Compare its fields with the types of headgate.core.Sample.",
            ) from error
    return pl.DataFrame(columns)


def validated(frame: pl.DataFrame) -> Validated:
    """Return the rows of an eager frame separated into good and bad ones, each bad one with the rules that it breaks.

    Raises:
        errors.InvalidInputError: if the columns or their types are not those of `FRAME_SCHEMA`.
    """
    if frame.schema != FRAME_SCHEMA:
        raise errors.InvalidInputError(
            f"the frame's columns are not those of a sample: {_difference(frame.schema)}",
            next_step="Build the frame with headgate.storage.schema.frame_of.",
        )
    checks = row_checks()
    from pandera.config import ValidationDepth, config_context  # noqa: PLC0415 - already imported
    from pandera.errors import SchemaErrors  # noqa: PLC0415

    try:
        # Environment variables can disable pandera; this validation stays enabled regardless.
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
            checks.validate(frame, lazy=True)
    except SchemaErrors:
        reasons = pl.concat_str([rule.reason for rule in RULES], separator="; ", ignore_nulls=True)
        marked, is_bad = frame.with_columns(reason=reasons), pl.col("reason").str.len_bytes() > 0
        return Validated(marked.filter(~is_bad).drop("reason"), marked.filter(is_bad))
    return Validated(frame, frame.clear().with_columns(reason=pl.lit(None, dtype=pl.String)))


def _difference(schema: pl.Schema) -> str:
    missing = [name for name in FRAME_SCHEMA if name not in schema]
    extra = [name for name in schema if name not in FRAME_SCHEMA]
    other = [
        f"{name} is {schema[name]} and not {kind}"
        for name, kind in FRAME_SCHEMA.items()
        if name in schema and schema[name] != kind
    ]
    found = [f"missing {missing}"] * bool(missing) + [f"unknown {extra}"] * bool(extra) + other
    return "; ".join(found) or "their order differs"


def framed(samples: Sequence[Sample]) -> tuple[pl.DataFrame, list[tuple[Sample, str]]]:
    """Return the samples as one frame, and separately those with a value of a wrong type, with the reason."""
    try:
        return frame_of(samples), []
    except errors.InvalidInputError:
        pass  # at least one does not fit; the loop below finds which
    fitting, misfits = [], []
    for sample in samples:
        try:
            frame_of([sample])
        except errors.InvalidInputError as error:
            misfits.append((sample, error.message))
        else:
            fitting.append(sample)
    return frame_of(fitting), misfits
