"""Parts: Parquet bytes of the rows of one environment and day, made and read back."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import polars as pl

from headgate.core import errors
from headgate.storage.layout import part_key
from headgate.storage.manifest import Part

DAY_OF: Final = pl.from_epoch(pl.col("finished_at").floor().cast(pl.Int64), time_unit="s").dt.date()
"""The UTC day on which a sample ended: its partition."""

_ZSTD_LEVEL: Final = 1
"""On samples with conversations level 3 takes half as long again and saves nothing (measured by `storage.measure`)."""

_KEYS: Final = ["environment", "__day"]


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """A part and its bytes, before it is stored."""

    part: Part
    data: bytes


def encoded_parts(frame: pl.DataFrame, batch_id: str) -> Iterator[EncodedPart]:
    """Return the parts of a batch one by one, in the order of environment and day; equal frames give equal bytes."""
    marked = frame.with_columns(__day=DAY_OF)
    facts = marked.group_by(_KEYS).agg(
        pl.col("finished_at").min().alias("first"),
        pl.col("finished_at").max().alias("last"),
        pl.col("model").unique().sort().alias("models"),
    )
    slices = marked.partition_by(_KEYS, as_dict=True, include_key=True, maintain_order=True)
    for number, row in enumerate(facts.sort(_KEYS).iter_rows()):
        environment, day, first, last, models = row
        rows = slices[environment, day]
        rows.drop_in_place("__day")  # `drop` would run a query of its own, for every part
        yield _encoded(rows, batch_id, number, environment, day, first, last, models)


def _encoded(
    rows: pl.DataFrame,
    batch_id: str,
    number: int,
    environment: str,
    day: date,
    first: float,
    last: float,
    models: Sequence[str],
) -> EncodedPart:
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", compression_level=_ZSTD_LEVEL)
    data = buffer.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    path = part_key(environment, day, batch_id, number, sha256)
    spoken = bool((rows["conversation"] != "").any())
    part = Part(path, environment, day, rows.height, len(data), sha256, first, last, tuple(models), spoken)
    return EncodedPart(part, data)


def decoded(part: Part, data: bytes, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of a part whose object holds `data`.

    Raises:
        errors.CorruptDataError: if `data` does not match the part's checksum or row count, or cannot be read.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != part.sha256:
        raise errors.CorruptDataError(f"{part.path} does not match its checksum (stated {part.sha256}, found {found})")
    try:
        rows = pl.read_parquet(io.BytesIO(data), columns=None if columns is None else list(columns))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise errors.CorruptDataError(f"{part.path} cannot be read as Parquet: {error}") from error
    if rows.height != part.rows:
        raise errors.CorruptDataError(f"{part.path} has {rows.height} rows, its manifest says {part.rows}")
    return rows
