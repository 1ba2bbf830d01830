"""Samples out to files and in from files: JSON lines, and the formats of seed 000."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal

import orjson
import polars as pl

from headgate.core import Sample, errors
from headgate.storage.schema import COLUMNS, frame_of, validated
from headgate.storage.seed_results import Miner, miners_of, samples_of_shard, seed_result
from headgate.storage.seed_summary import seed_summary
from headgate.storage.store import SampleStore

ExchangeFormat = Literal["jsonl", "seed-results", "seed-summary"]

_ROWS_AT_ONCE: Final = 10_000


async def export_samples(
    store: SampleStore,
    output: Path,
    form: ExchangeFormat = "jsonl",
    *,
    now: float,
    miners: Mapping[str, Miner] | None = None,
) -> int:
    """Write the store's samples to a file, which appears whole or not at all; return the number of rows in it.

    Args:
        store: to read; one environment at a time is in memory.
        output: file to write; one that is there is replaced.
        form: `jsonl` (one object per sample with all columns), `seed-results` (a result shard) or `seed-summary`.
        now: wall time of the summary.
        miners: uid and hotkey of models for the seed's formats; see `seed_results`.

    Raises:
        errors.InvalidInputError: if the file cannot be written.
        errors.StoreError: if the store cannot be read, or a part of it is corrupt: an export is whole or none.
    """
    if form == "seed-summary":
        summary = await store.summary(now, save=False)
        with _appearing(output) as file:
            file.write(orjson.dumps(seed_summary(summary, miners=miners), option=orjson.OPT_INDENT_2) + b"\n")
        return len(summary.pairs)
    parts = (await store.visible()).parts
    known = miners_of(sorted({model for part in parts for model in part.models}), miners)
    rows = 0
    with _appearing(output) as file:
        for environment in sorted({part.environment for part in parts}):
            found = await store.scan([environment])
            if found.problems:
                raise errors.CorruptDataError(f"{found.problems[0].path}: {found.problems[0].reason}")
            rows += await asyncio.to_thread(_write, file, found.frame, form, known, rows)
        if form == "seed-results":
            file.write(b"\n]\n" if rows else b"[]\n")
    return rows


async def import_samples(
    store: SampleStore, source: Path, form: ExchangeFormat = "jsonl", *, campaign: str = "main"
) -> int:
    """Store the samples of a file, or of a folder's files by name, and return how many were not there before.

    Args:
        store: to write to; samples whose tasks it has already are left out, so an import may be repeated.
        source: what `export_samples` wrote; for `seed-results` any result shard of the seed.
        form: `jsonl` or `seed-results`.
        campaign: that samples of other programs are counted to.

    Raises:
        errors.InvalidInputError: if a file cannot be read or holds something that is no sample; the message says where.
        errors.StoreError: if the store cannot be read or written.
    """
    if form == "seed-summary":
        raise errors.InvalidInputError(
            "a summary holds counts and no samples, so there is nothing to import",
            next_step="Import the result shards instead, with --format seed-results.",
        )
    known: dict[str, set[str]] = {}
    rows = 0
    for file in await asyncio.to_thread(_files, source):
        samples = _samples(file, form, campaign)
        while some := await asyncio.to_thread(_next, samples):
            rows += await _store_new(store, some, known, file)
    return rows


def _files(source: Path) -> list[Path]:
    return sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]


def _next(samples: Iterator[Sample]) -> list[Sample]:
    return list(islice(samples, _ROWS_AT_ONCE))


async def _store_new(store: SampleStore, samples: Sequence[Sample], known: dict[str, set[str]], file: Path) -> int:
    bad = (await asyncio.to_thread(lambda: validated(frame_of(samples)))).bad
    if bad.height:
        raise errors.InvalidInputError(f"sample {bad['task_id'][0]} in {file} breaks a rule: {bad['reason'][0]}")
    for environment in {sample.environment for sample in samples} - known.keys():
        known[environment] = set((await store.scan([environment], columns=["task_id"])).frame["task_id"])
    new = {s.task_id: s for s in samples if s.task_id not in known[s.environment]}
    if not new:
        return 0
    digest = hashlib.sha256("".join(new).encode()).hexdigest()
    stored = await store.put_batch(f"import-{digest[:32]}", list(new.values()))
    for sample in new.values():
        known[sample.environment].add(sample.task_id)
    return stored.rows


def _samples(file: Path, form: ExchangeFormat, campaign: str) -> Iterator[Sample]:
    try:
        if form == "seed-results":
            yield from samples_of_shard(file.read_bytes(), shard=file.stem, campaign=campaign)
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _sample_of_line(line, f"line {number} of {file}")
    except OSError as error:
        raise errors.InvalidInputError(f"{file} cannot be read: {error.strerror or error}") from error


def _sample_of_line(line: bytes, where: str) -> Sample:
    try:
        return Sample(**orjson.loads(line))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise errors.InvalidInputError(
            f"{where} is no sample: {error}", next_step=f"Each line is an object with the fields {', '.join(COLUMNS)}."
        ) from error


def _write(file: BinaryIO, frame: pl.DataFrame, form: ExchangeFormat, miners: Mapping[str, Miner], before: int) -> int:
    """Write the rows of a frame after `before` others; return their number."""
    for number, row in enumerate(frame.iter_rows(named=True)):
        if form == "jsonl":
            file.write(orjson.dumps(row) + b"\n")
        else:
            result = seed_result(Sample(**row), miners[row["model"]])
            file.write((b",\n" if before + number else b"[\n") + orjson.dumps(result))
    return frame.height


@contextlib.contextmanager
def _appearing(output: Path) -> Iterator[BinaryIO]:
    """Give a file to write that takes the name `output` when all went well, and else leaves nothing.

    A device or a pipe is written as it is, and stays; so does a link.
    """
    place = output.resolve()
    partial = place.with_name(f".{place.name}.partial")
    try:
        if output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            yield file
        partial.replace(place)
    except OSError as error:
        raise errors.InvalidInputError(f"{output} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
