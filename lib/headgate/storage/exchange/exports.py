"""Exports samples from the store to files for other tools."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO, Final, Protocol

import orjson
import polars as pl

from headgate.core import Sample, errors
from headgate.storage.exchange.affine_results import Miner, affine_result, miners_of
from headgate.storage.exchange.formats import (
    EXPORT_FORMATS,
    ExportFormat,
    checked_format,
    is_one_log,
    messages_of,
    needs_inspect,
)
from headgate.storage.exchange.parquet_files import HubFolder, ParquetFile
from headgate.storage.exchange.windows import ROWS_AT_ONCE, Plan, Window, planned, read
from headgate.storage.selection import Chosen
from headgate.storage.store import SampleStore
from headgate.storage.summary import PairSummary, Summary

_SCHEMA_VERSION: Final = "1.0.0"


def affine_summary(summary: Summary, *, miners: Mapping[str, Miner] | None = None) -> dict[str, Any]:
    """Return the summary in the form of Affine's `weights/summary-{block}.json`.

    Headgate makes no payments: `weight` is 0 and `layer_points` is empty. A miner is eligible if it has scored samples
    in every environment; the winner of an environment has the highest mean, the first by name among equals.
    """
    scored = [pair for pair in summary.pairs if pair.count]
    environments = sorted({pair.environment for pair in scored})
    by_model: defaultdict[str, dict[str, PairSummary]] = defaultdict(dict)
    for pair in scored:
        by_model[pair.model][pair.environment] = pair
    known = miners_of(list(by_model), miners)
    winners: dict[str, str] = {}
    for pair in sorted(scored, key=lambda pair: (-(pair.mean_score or 0.0), pair.model)):
        winners.setdefault(pair.environment, pair.model)
    entries = {
        known[model].hotkey: _entry(model, known[model], pairs, environments, winners)
        for model, pairs in sorted(by_model.items())
    }
    eligible = sum(entry["eligible"] for entry in entries.values())
    return {
        "schema_version": _SCHEMA_VERSION,
        "timestamp": int(summary.generated_at),
        "block": 0,
        "data": {
            "header": ["UID", "Model", "Rev", *environments, "Total"],
            "rows": [_row(entry, environments) for entry in entries.values()],
            "miners": entries,
            "stats": {
                "eligible_count": eligible,
                "active_count": len(entries),
                "queryable_count": len(entries),
                "total_miners": len(entries),
            },
            "env_winners": {name: known[model].hotkey for name, model in sorted(winners.items())},
            "environments": environments,
        },
    }


def _entry(
    model: str,
    miner: Miner,
    pairs: Mapping[str, PairSummary],
    environments: list[str],
    winners: Mapping[str, str],
) -> dict[str, Any]:
    name, _, revision = model.rpartition("@")
    return {
        "uid": miner.uid,
        "hotkey": miner.hotkey,
        "model": name,
        "revision": revision,
        "environments": {
            environment: {
                "accuracy": pair.mean_score,
                "count": pair.count,
                "count_24h": pair.count_24h,
                "confidence_interval": {"lower": pair.interval.low, "upper": pair.interval.high},
                "is_winner": winners[environment] == model,
            }
            for environment, pair in sorted(pairs.items())
        },
        "layer_points": {},
        "total_score": fmean(pair.mean_score or 0.0 for pair in pairs.values()),
        "eligible": len(pairs) == len(environments),
        "first_block": 0,
        "weight": 0.0,
    }


def _row(entry: Mapping[str, Any], environments: list[str]) -> list[Any]:
    found = entry["environments"]
    scores = [found[name]["accuracy"] if name in found else None for name in environments]
    return [entry["uid"], entry["model"], entry["revision"], *scores, entry["total_score"]]


Progress = Callable[[int, int], None]
"""Called with the number of samples written and the total."""

_EVERY: Final = Chosen()


class _Writer(Protocol):
    """Writes windows in a format; its methods run in threads, one at a time."""

    def add(self, window: Window, frame: pl.DataFrame, /) -> int:
        """Write a window; return its rows in the export."""

    def finish(self) -> None:
        """Write what follows the last window."""


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
    """Write the store's samples to `output`, atomically; return the number of rows written.

    Text in the form of a provider's key is masked in every format.

    Args:
        store: the store to read.
        output: file to write, replaced if it exists; for `inspect` and `hf` a folder, which must be empty or new.
        form: one of `EXPORT_FORMATS`.
        now: wall time of the summary.
        chosen: which samples; `affine-summary` always covers all.
        miners: uid and hotkey of models for Affine's formats; see `affine_results`.
        on_progress: called with the progress.
        rows_at_once: maximum samples in memory.

    Raises:
        errors.InvalidInputError: if the format is unknown, or the output cannot be written.
        errors.MissingExtraError: if the format needs a package that is not installed.
        errors.StoreError: if the store cannot be read, or a part of it is corrupt: an export is never incomplete.
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
            "an affine-summary covers all samples, but some were chosen",
            next_step="Leave out the options that choose samples, or export another format.",
        )
    summary = await store.summary(now, save=False)
    with appearing_file(output) as file:
        file.write(orjson.dumps(affine_summary(summary, miners=miners), option=orjson.OPT_INDENT_2) + b"\n")
    return len(summary.pairs)


@contextlib.contextmanager
def _writer(output: Path, form: ExportFormat, plan: Plan, miners: Mapping[str, Miner] | None) -> Iterator[_Writer]:
    match form:
        case "inspect":
            with needs_inspect():
                from headgate.storage.exchange.inspect_logs import InspectLogs  # noqa: PLC0415
            with workshop(output, makes_folder=not is_one_log(output)) as room:
                yield InspectLogs(room, plan, output)
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
                yield _Lines(file, _conversation if form == "openai" else dict)


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


def _conversation(row: dict[str, object]) -> object:
    """Return a row in the form of OpenAI's fine-tuning files; None if it has no messages."""
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


@contextlib.contextmanager
def appearing_file(output: Path) -> Iterator[BinaryIO]:
    """Yield a file to write that is renamed to `output` on success, and removed on failure.

    A device, pipe or link is written in place.
    """
    if not output.exists() or output.is_file() or output.is_dir():
        with workshop(output, makes_folder=False) as room, (room / "made").open("wb") as file:
            yield file
        return
    try:
        with output.open("wb") as file:
            yield file
    except OSError as error:
        raise _unwritable(output, error) from error


@contextlib.contextmanager
def workshop(output: Path, *, makes_folder: bool) -> Iterator[Path]:
    """Yield an empty folder beside `output`; its entry `made` is renamed to `output` on success.

    An existing file is replaced. A folder is replaced only if it is empty, since it may hold other files.
    """
    place = output.resolve()
    room = place.with_name(f".{place.name}.partial")
    try:
        _refuse_taken(output, makes_folder=makes_folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(room, ignore_errors=True)  # left by a killed export
        room.mkdir()
        yield room
        (room / "made").replace(place)
    except OSError as error:
        raise _unwritable(output, error) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _refuse_taken(output: Path, *, makes_folder: bool) -> None:
    refused = None
    if not makes_folder and output.is_dir():
        refused = f"{output} cannot be written: it is a folder, and this format is one file", "Name a file in it."
    elif makes_folder and output.exists() and not output.is_dir():
        refused = f"{output} is a file, and this format is a folder of files", "Name a folder that is not there yet."
    elif makes_folder and output.is_dir() and any(output.iterdir()):
        refused = (
            f"folder {output} is not empty, and an export replaces files only",
            "Name a folder that is not there yet, or empty this one.",
        )
    if refused is not None:
        raise errors.InvalidInputError(refused[0], next_step=refused[1])


def _unwritable(output: Path, error: OSError) -> errors.InvalidInputError:
    # The error of `mkdir` for a path where a file exists is misleading.
    why = "a folder of its path is a file" if isinstance(error, FileExistsError) else error.strerror or error
    return errors.InvalidInputError(
        f"{output} cannot be written: {why}",
        next_step="Choose a writable folder with free space.",
    )
