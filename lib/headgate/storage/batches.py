"""Stores a batch: checks the rows, writes the parts, and finally the manifest that makes them visible."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import polars as pl

from headgate.core import Sample, errors
from headgate.storage.manifest import Manifest, Part, manifest_bytes, manifest_of
from headgate.storage.objects import ObjectStore, manifest_key, part_key, quarantine_key
from headgate.storage.schema import COLUMNS, FRAME_SCHEMA, framed, lacking_columns, validated

DAY_OF: Final = pl.from_epoch(pl.col("finished_at").floor().cast(pl.Int64), time_unit="s").dt.date()
"""The UTC day on which a sample ended: its partition."""

_ZSTD_LEVEL: Final = 1
"""On samples with conversations, level 3 takes 50 % longer and saves nothing."""

_KEYS: Final = ["environment", "__day"]


def encoded_parts(frame: pl.DataFrame, batch_id: str) -> Iterator[tuple[Part, bytes]]:
    """Yield the parts of a batch with their bytes, by environment and day; equal frames give equal bytes."""
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
        rows.drop_in_place("__day")  # `drop` would run a separate query for every part
        buffer = io.BytesIO()
        rows.write_parquet(buffer, compression="zstd", compression_level=_ZSTD_LEVEL)
        data = buffer.getvalue()
        sha256 = hashlib.sha256(data).hexdigest()
        path = part_key(environment, day, batch_id, number, sha256)
        spoken = bool((rows["conversation"] != "").any())
        part = Part(path, environment, day, rows.height, len(data), sha256, first, last, tuple(models), spoken)
        yield part, data


def decoded(part: Part, data: bytes, columns: Sequence[str] | None = None, cut: pl.Expr | None = None) -> pl.DataFrame:
    """Return a part's rows from its object's `data`, all or those in `cut`; raises `CorruptDataError` on damage."""
    found = hashlib.sha256(data).hexdigest()
    if found != part.sha256:
        raise errors.CorruptDataError(f"{part.path} does not match its checksum (stated {part.sha256}, found {found})")
    wanted = COLUMNS if columns is None else columns
    lacking = lacking_columns(part.added)
    there = [name for name in wanted if name not in lacking]
    try:
        if cut is None:
            rows = pl.read_parquet(io.BytesIO(data), columns=there if columns is not None else None)
            height = rows.height
        else:  # lazy, so that long conversations of other rows are not even decoded
            lazy = pl.scan_parquet(io.BytesIO(data))
            height = lazy.select(pl.len()).collect().item()
            rows = lazy.filter(cut).select(there).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise errors.CorruptDataError(f"{part.path} cannot be read as Parquet: {error}") from error
    if height != part.rows:
        raise errors.CorruptDataError(f"{part.path} has {height} rows, its manifest says {part.rows}")
    if len(there) < len(wanted):
        values = (pl.lit(value, dtype=FRAME_SCHEMA[name]).alias(name) for name, value in lacking.items())
        rows = rows.with_columns(values).select(wanted)
    return rows


_PARTS_AT_ONCE: Final = 32
"""Parts that are in memory at once, and that one call uploads in parallel."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A stored batch.

    Attributes:
        rows: number of visible rows, without quarantined ones.
        parts: number of Parquet objects with these rows.
        quarantine_path: key of the object with the quarantined rows, None if there are none.
        reason: why the first of them is in quarantine, None if there are none.
    """

    batch_id: str
    rows: int
    parts: int
    quarantined_rows: int = 0
    quarantine_path: str | None = None
    reason: str | None = None


def put_batch(objects: ObjectStore, batch_id: str, samples: Sequence[Sample]) -> StoredBatch:
    """Store a batch and return it as stored; its rows are durable and visible when this returns.

    It may fail at any point and be called again with the same id, also by several processes at once: nothing is visible
    before the manifest exists, and the manifest is written once. No manifest names the objects of the losing call.
    """
    frame, misfits = framed(samples)
    sifted = validated(frame)
    refused: list[tuple[Mapping[str, Any], str]] = [
        ({name: getattr(sample, name) for name in COLUMNS}, reason) for sample, reason in misfits
    ]
    refused += [(row, row.pop("reason")) for row in sifted.bad.iter_rows(named=True)]
    path = None
    if refused:
        path = quarantine_key(batch_id)
        # The standard library's JSON, not orjson: a quarantined row may hold values that JSON cannot represent (NaN, a
        # lone surrogate, any object), and must be kept nevertheless.
        lines = (json.dumps({"reason": reason, "sample": row}, default=repr) + "\n" for row, reason in refused)
        objects.put_many([(path, "".join(lines).encode("ascii"))])
    parts: list[Part] = []
    encoded = encoded_parts(sifted.good, batch_id)
    while some := list(islice(encoded, _PARTS_AT_ONCE)):
        objects.put_many([(part.path, data) for part, data in some])
        parts += [part for part, _ in some]
    manifest = Manifest(batch_id, tuple(parts), len(refused), path, refused[0][1] if refused else None)
    key = manifest_key(batch_id)
    if not objects.create(key, manifest_bytes(manifest)):
        manifest = manifest_of(objects.get(key), key)
    return StoredBatch(
        batch_id,
        manifest.rows,
        len(manifest.parts),
        manifest.quarantined_rows,
        manifest.quarantine_path,
        manifest.quarantine_reason,
    )
