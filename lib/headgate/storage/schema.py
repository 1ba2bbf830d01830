"""The one schema of a stored sample: columns from `core.Sample`, rules per row, and the door that applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import polars as pl

from headgate.core import Sample, errors
from headgate.storage.rules import RULES

if TYPE_CHECKING:
    from pandera.api.polars.types import PolarsData
    from pandera.polars import DataFrameSchema

_TYPES: Final[Mapping[str, pl.DataType]] = MappingProxyType(
    {"str": pl.String(), "int": pl.Int64(), "float": pl.Float64(), "bool": pl.Boolean()}
)

COLUMNS: Final[tuple[str, ...]] = tuple(field.name for field in fields(Sample))
"""Names of the columns, in the order of `core.Sample`."""

FRAME_SCHEMA: Final = pl.Schema({field.name: _TYPES[str(field.type).split(" ")[0]] for field in fields(Sample)})
"""Column types of a frame of samples; nullable are those whose field may be None."""

NULLABLE: Final[frozenset[str]] = frozenset(field.name for field in fields(Sample) if "None" in str(field.type))

_GETTERS: Final = tuple(attrgetter(name) for name in COLUMNS)


# Rule by rule, and not their conjunction row by row: polars runs separate columns twice as fast for a small batch.
_RULES_HOLD: Final = [rule.holds.all().alias(f"{number}") for number, rule in enumerate(RULES)]


def _all_rules_hold(data: PolarsData) -> bool:
    return all(data.lazyframe.select(_RULES_HOLD).collect().row(0))


@cache
def sample_schema() -> DataFrameSchema:
    """Return the pandera schema of a frame of samples.

    Validate eager frames: of a LazyFrame pandera checks only the types. Pandera takes most of a second to import (it
    brings pandas), which who only reads samples need not wait for.
    """
    import pandera.polars as pa  # noqa: PLC0415

    return pa.DataFrameSchema(
        name="sample",
        columns={name: pa.Column(kind, nullable=name in NULLABLE) for name, kind in FRAME_SCHEMA.items()},
        # One check for all rules: pandera's cost per check (0.3 ms) times thirty rules would be ten times the cost of
        # the rules themselves for a batch of 300. Which rules a bad row breaks is computed only when there is one.
        checks=[pa.Check(_all_rules_hold, name="rules", error="a row breaks a rule of storage/rules.py")],
        strict=True,
        ordered=True,
    )


@cache
def row_checks() -> DataFrameSchema:
    """Return the same checks for a frame whose types are known: pandera takes 3 ms to look at 24 columns."""
    import pandera.polars as pa  # noqa: PLC0415 - as above

    return pa.DataFrameSchema(name="sample rows", checks=sample_schema().checks)


@dataclass(frozen=True, slots=True)
class Validated:
    """A frame sifted at the door.

    Attributes:
        good: the rows that hold every rule, in their order.
        bad: the others, with a further column `reason`.
    """

    good: pl.DataFrame
    bad: pl.DataFrame


def frame_of(samples: Sequence[Sample]) -> pl.DataFrame:
    """Return the samples as a frame of `FRAME_SCHEMA`, in their order.

    Raises:
        errors.InvalidInputError: if a field holds a value of another type (see `framed` for a batch that may).
    """
    try:
        return pl.DataFrame(
            [
                pl.Series(name, list(map(get, samples)), dtype=kind)
                for get, (name, kind) in zip(_GETTERS, FRAME_SCHEMA.items(), strict=True)
            ]
        )
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise errors.InvalidInputError(
            f"a sample does not fit the columns of the sample store: {str(error).splitlines()[0]}",
            next_step="Compare its fields with the types of headgate.core.Sample.",
        ) from error


def validated(frame: pl.DataFrame) -> Validated:
    """Return the rows of an eager frame sifted into good and bad, each bad one with the rules that it breaks.

    Raises:
        errors.InvalidInputError: if the columns or their types are not those of `FRAME_SCHEMA`.
    """
    if frame.schema != FRAME_SCHEMA:
        raise errors.InvalidInputError(
            f"the frame's columns are not those of a sample: {_difference(frame.schema)}",
            next_step="Build the frame with headgate.storage.frame_of.",
        )
    checks = row_checks()
    from pandera.config import ValidationDepth, config_context  # noqa: PLC0415 - imported by now
    from pandera.errors import SchemaErrors  # noqa: PLC0415

    try:
        # Variables of the environment can switch pandera off; this door stays on whatever they say.
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
            checks.validate(frame, lazy=True)
    except SchemaErrors:
        return _sifted(frame)
    return Validated(frame, frame.clear().with_columns(reason=pl.lit(None, dtype=pl.String)))


def _sifted(frame: pl.DataFrame) -> Validated:
    reasons = pl.concat_str([rule.reason for rule in RULES], separator="; ", ignore_nulls=True)
    marked = frame.with_columns(reason=reasons)
    is_bad = pl.col("reason").str.len_bytes() > 0
    return Validated(marked.filter(~is_bad).drop("reason"), marked.filter(is_bad))


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


@dataclass(frozen=True, slots=True)
class Misfit:
    """A sample that no column can hold (a text where a number belongs), with the reason."""

    sample: Sample
    reason: str


def framed(samples: Sequence[Sample]) -> tuple[pl.DataFrame, tuple[Misfit, ...]]:
    """Return the samples as one frame, and apart those whose values fit no column; never raises for a value."""
    try:
        return frame_of(samples), ()
    except errors.InvalidInputError:
        pass  # at least one misfit: found by taking the samples one by one
    fitting, misfits = [], []
    for sample in samples:
        try:
            frame_of([sample])
        except errors.InvalidInputError as error:
            misfits.append(Misfit(sample, error.message))
        else:
            fitting.append(sample)
    return frame_of(fitting), tuple(misfits)
