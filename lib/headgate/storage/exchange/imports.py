"""Imports samples into the store from files that an export or another tool wrote."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import orjson

from headgate.core import Sample, errors, json_value
from headgate.core.audit import record_change
from headgate.storage.exchange.affine_results import samples_of_shard
from headgate.storage.exchange.formats import IMPORT_FORMATS, ImportFormat, checked_format, needs_inspect
from headgate.storage.exchange.parquet_files import samples_of_parquet
from headgate.storage.manifest import Problem
from headgate.storage.schema import COLUMNS, frame_of, validated
from headgate.storage.spool import without_secrets
from headgate.storage.store import SampleStore

_ROWS_AT_ONCE: Final = 10_000

_NOT_LOGS: Final = frozenset({"listing.json", "logs.json", "eval-set.json"})
"""Files that inspect_ai writes beside its logs."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        rows: number of samples that are new in the store.
        problems: samples of inspect_ai's logs that cannot be scored: where they are, and why.
    """

    rows: int
    problems: tuple[Problem, ...] = ()


async def import_samples(
    store: SampleStore,
    source: Path,
    form: ImportFormat = "jsonl",
    *,
    campaign: str = "main",
    on_progress: Callable[[int], None] | None = None,
) -> Imported:
    """Store the samples of a file, or of a folder's files sorted by name, and return how many are new.

    Args:
        store: the store to write to; samples whose tasks it already has are skipped, so an import may be repeated.
        source: a file from `export_samples`, any result shard of Affine, any log of inspect_ai, or a folder of these.
        form: one of `IMPORT_FORMATS`.
        campaign: the campaign of samples of other programs.
        on_progress: called with the number of samples read.

    Raises:
        errors.InvalidInputError: if the format is unknown, or a file cannot be read or has something that is not a
            sample; the message says where. What was stored before stays, and the import can be repeated.
        errors.MissingExtraError: if the format needs a package that is not installed.
        errors.StoreError: if the store cannot be read or written.
    """
    checked_format(form, IMPORT_FORMATS)
    known: dict[str, set[str]] = {}
    problems: list[Problem] = []
    rows = read = 0
    for file in await asyncio.to_thread(_files, source, form):
        samples = _samples(file, form, campaign, problems)
        while some := await asyncio.to_thread(list, islice(samples, _ROWS_AT_ONCE)):
            rows += await _store_new(store, some, known, file)
            read += len(some)
            if on_progress is not None:
                on_progress(read)
    if rows:
        await asyncio.to_thread(record_change, "samples import", store.url, after=f"{rows} samples of {source}")
    return Imported(rows, tuple(problems))


def _files(source: Path, form: ImportFormat) -> list[Path]:
    if not source.is_dir():
        return [source]
    suffixes = {"inspect": (".eval", ".json"), "parquet": (".parquet",)}.get(form)
    if suffixes is None:
        return sorted(path for path in source.iterdir() if path.is_file())
    found = [p for p in source.rglob("*") if p.is_file() and p.suffix in suffixes and p.name not in _NOT_LOGS]
    if not found:
        raise errors.InvalidInputError(
            f"folder {source} holds no file that ends in {' or '.join(suffixes)}",
            next_step="Name the folder with the files, or one file.",
        )
    return sorted(found)


async def _store_new(store: SampleStore, samples: Sequence[Sample], known: dict[str, set[str]], file: Path) -> int:
    bad = (await asyncio.to_thread(lambda: validated(frame_of(samples)))).bad
    if bad.height:
        raise errors.InvalidInputError(f"sample {bad['task_id'][0]} in {file} breaks a rule: {bad['reason'][0]}")
    for environment in {sample.environment for sample in samples} - known.keys():
        found = await store.scan([environment], columns=["task_id"], everything=True)
        known[environment] = set(found.frame["task_id"])
    new = {s.task_id: without_secrets(s) for s in samples if s.task_id not in known[s.environment]}
    if not new:
        return 0
    digest = hashlib.sha256("".join(new).encode()).hexdigest()
    stored = await store.put_batch(f"import-{digest[:32]}", list(new.values()))
    for sample in new.values():
        known[sample.environment].add(sample.task_id)
    return stored.rows


def _samples(file: Path, form: ImportFormat, campaign: str, problems: list[Problem]) -> Iterator[Sample]:
    try:
        file.open("rb").close()  # checks that it exists and is readable
        match form:
            case "inspect":
                with needs_inspect():
                    from headgate.storage.exchange.inspect_logs import samples_of_log  # noqa: PLC0415
                yield from samples_of_log(file, campaign=campaign, problems=problems)
            case "parquet":
                yield from samples_of_parquet(file)
            case "affine-results":
                yield from samples_of_shard(file.read_bytes(), shard=file.stem, campaign=campaign)
            case "jsonl":
                with file.open("rb") as lines:
                    for number, line in enumerate(lines, start=1):
                        if line.strip():
                            yield _sample_of_line(line, f"line {number} of {file}")
    except OSError as error:
        raise errors.InvalidInputError(f"{file} cannot be read: {error.strerror or error}") from error


def _sample_of_line(line: bytes, where: str) -> Sample:
    try:
        return Sample(**json_value(line))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise errors.InvalidInputError(
            f"{where} is not a sample: {error}",
            next_step=f"Each line is an object with the fields {', '.join(COLUMNS)}.",
        ) from error
