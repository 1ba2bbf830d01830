"""Samples out of the store, to files that other tools open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import orjson
import polars as pl

from headgate.core import Sample, errors
from headgate.storage.exchange.affine_results import Miner, affine_result, miners_of
from headgate.storage.exchange.affine_summary import affine_summary
from headgate.storage.exchange.appearing import appearing_file, workshop
from headgate.storage.exchange.chosen import ROWS_AT_ONCE, Chosen, Plan, Window, planned, read
from headgate.storage.exchange.conversations import messages_of
from headgate.storage.exchange.formats import EXPORT_FORMATS, ExportFormat, checked_format, is_one_log, missing_inspect
from headgate.storage.exchange.parquet_files import HubFolder, ParquetFile
from headgate.storage.store import SampleStore

Progress = Callable[[int, int], None]
"""Called with the samples done and the samples in all."""

_EVERY: Final = Chosen()


class _Writer(Protocol):
    """What turns windows into a format; its methods run in threads, one at a time."""

    def add(self, window: Window, frame: pl.DataFrame, /) -> int:
        """Write a window; return its rows in the export."""

    def finish(self) -> None:
        """Write what comes after the last window."""


async def export_samples(
    store: SampleStore,
    output: Path,
    form: ExportFormat = "jsonl",
    *,
    now: float,
    chosen: Chosen = _EVERY,
    miners: Mapping[str, Miner] | None = None,
    on_progress: Progress | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
) -> int:
    """Write the store's samples, which appear whole or not at all; return the number of rows written.

    What has the shape of a provider's key is masked in every format.

    Args:
        store: to read.
        output: file to write, replaced if it is there; for `inspect` and `hf` a folder, which must be empty or new.
        form: one of `EXPORT_FORMATS`.
        now: wall time of the summary.
        chosen: which samples; `affine-summary` is always of all.
        miners: uid and hotkey of models for Affine's formats; see `affine_results`.
        on_progress: told how far it is.
        rows_at_once: samples in memory at most.

    Raises:
        errors.InvalidInputError: if the format is unknown, or the output cannot be written.
        errors.MissingExtraError: if the format needs a package that is not installed.
        errors.StoreError: if the store cannot be read, or a part of it is corrupt: an export is whole or none.
    """
    checked_format(form, EXPORT_FORMATS)
    if form == "affine-summary":
        return await _export_summary(store, output, now, chosen, miners)
    plan = await planned(store, chosen, rows_at_once=rows_at_once)
    rows = done = 0
    with _writer(output, form, plan, miners) as writer:
        async for window, frame in read(store, plan):
            rows += await asyncio.to_thread(writer.add, window, frame)
            done += frame.height
            if on_progress is not None:
                on_progress(done, plan.rows)
        await asyncio.to_thread(writer.finish)
    return rows


async def _export_summary(
    store: SampleStore, output: Path, now: float, chosen: Chosen, miners: Mapping[str, Miner] | None
) -> int:
    if chosen != _EVERY:
        raise errors.InvalidInputError(
            "an affine-summary is of all samples, and some were chosen",
            next_step="Leave out what chooses samples, or export another format.",
        )
    summary = await store.summary(now, save=False)
    with appearing_file(output) as file:
        file.write(orjson.dumps(affine_summary(summary, miners=miners), option=orjson.OPT_INDENT_2) + b"\n")
    return len(summary.pairs)


@contextlib.contextmanager
def _writer(output: Path, form: ExportFormat, plan: Plan, miners: Mapping[str, Miner] | None) -> Iterator[_Writer]:
    match form:
        case "inspect":
            with workshop(output, makes_folder=not is_one_log(output)) as room:
                yield _inspect_logs(room, plan, output)
        case "hf":
            with workshop(output, makes_folder=True) as room:
                yield HubFolder(room, plan)
        case "parquet":
            with workshop(output, makes_folder=False) as room:
                yield ParquetFile(room)
        case "affine-results":
            with appearing_file(output) as file:
                yield _AffineResults(file, miners_of(plan.models, miners))
        case _:
            with appearing_file(output) as file:
                yield _Lines(file, _conversation if form == "openai" else _whole)


def _inspect_logs(room: Path, plan: Plan, output: Path) -> _Writer:
    try:
        from headgate.storage.exchange.inspect_logs import InspectLogs  # noqa: PLC0415 - needs an optional package
    except ImportError:
        raise missing_inspect() from None
    return InspectLogs(room, plan, output)


class _Lines:
    """One JSON object per line."""

    def __init__(self, file: BinaryIO, line_of: Callable[[dict[str, object]], object]) -> None:
        self._file = file
        self._line_of = line_of

    def add(self, _window: Window, frame: pl.DataFrame) -> int:
        rows = 0
        for row in frame.iter_rows(named=True):
            if (line := self._line_of(row)) is not None:
                self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
                rows += 1
        return rows

    def finish(self) -> None:
        pass


def _whole(row: dict[str, object]) -> object:
    return row


def _conversation(row: dict[str, object]) -> object:
    """Return a row in the form of OpenAI's files for fine-tuning; None when it has no messages."""
    words = messages_of(str(row.pop("conversation")))
    return (
        {"messages": [{"role": one.role, "content": one.content} for one in words], "metadata": row} if words else None
    )


class _AffineResults:
    """One JSON array of result objects."""

    def __init__(self, file: BinaryIO, miners: Mapping[str, Miner]) -> None:
        self._file = file
        self._miners = miners
        self._is_empty = True

    def add(self, _window: Window, frame: pl.DataFrame) -> int:
        for row in frame.iter_rows(named=True):
            result = affine_result(Sample(**row), self._miners[row["model"]])
            self._file.write((b"[\n" if self._is_empty else b",\n") + orjson.dumps(result))
            self._is_empty = False
        return frame.height

    def finish(self) -> None:
        self._file.write(b"[]\n" if self._is_empty else b"\n]\n")
