"""How long engines take, as measured: from tokens of a request to the seconds that it keeps a slot.

The measurements are those of https://github.com/Mutinifni/splitwise-sim, data/perf_model.csv (MIT): the time of a
prompt by its size, and of one token of an answer by how many answers are under way at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import polars as pl

from headgate.elastic.replay.errors import InvalidLoadError
from headgate.elastic.replay.load import Call, Load, load_of
from headgate.elastic.replay.ramp import SLOTS
from headgate.elastic.replay.traces import Trace

_WORDS: Final = ("model", "hardware")
_NUMBERS: Final = ("tensor_parallel", "prompt_size", "batch_size", "prompt_time", "token_time")
_WHERE: Final = "Download data/perf_model.csv from https://github.com/Mutinifni/splitwise-sim."

Curve = tuple[tuple[float, float], ...]
"""Measured points, x rising."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A line of the table that belongs together: which model, on what, split over how many GPUs."""

    model: str = "llama2-70b"
    hardware: str = "h100-80gb"
    tensor_parallel: int = 8

    def __str__(self) -> str:
        return f"{self.model} on {self.tensor_parallel} x {self.hardware}"


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """What was measured of one model on one kind of worker.

    Attributes:
        hardware: which.
        prompt_s: tokens of a prompt that is processed alone -> seconds.
        token_s: answers under way -> seconds that each of their tokens takes.
    """

    hardware: Hardware
    prompt_s: Curve
    token_s: Curve

    def load(self, trace: Trace, *, slots: int = SLOTS) -> Load:
        """Return what a trace asks of workers with so many slots.

        Between measured points times lie on a straight line. Beyond the last one they go on along the line of the last
        two, and a note says for how many requests; before the first they are those of the first.
        """
        calls = [
            Call(
                arrived_s=one.arrived_s,
                first_s=interpolated(self.prompt_s, one.prompt_tokens),
                steps=float(one.answer_tokens),
                tokens=one.prompt_tokens,
            )
            for one in trace.requests
        ]
        step_s = [interpolated(self.token_s, batch) for batch in range(1, slots + 1)]
        return load_of(trace.name, calls, slots=slots, step_s=step_s, notes=[*trace.notes, *self._notes(trace, slots)])

    def _notes(self, trace: Trace, slots: int) -> list[str]:
        largest, most = self.prompt_s[-1][0], self.token_s[-1][0]
        beyond = sum(one.prompt_tokens > largest for one in trace.requests)
        measured = (
            f"Service times: {self.hardware}, {slots} requests at once, as measured by splitwise-sim. A prompt takes "
            "its time beside the answers that are under way, which it does not slow down; a token takes the longer the "
            "more answers are under way at that moment."
        )
        notes = [measured]
        if beyond:
            notes.append(
                f"{beyond} of {len(trace.requests)} prompts are longer than the longest that was measured "
                f"({largest:g} tokens): their times are extrapolated."
            )
        if slots > most:
            notes.append(f"Batches of more than {most:g} were not measured: their times are extrapolated.")
        return notes


def read_service_times(path: Path, hardware: Hardware | None = None) -> ServiceTimes:
    """Return the times of one model and hardware from a table of measurements.

    Raises:
        InvalidLoadError: the file cannot be read, lacks a column, or has no such model or hardware.
    """
    wanted = hardware or Hardware()
    rows = _rows(path)
    found = rows.filter(
        pl.col("model") == wanted.model,
        pl.col("hardware") == wanted.hardware,
        pl.col("tensor_parallel") == wanted.tensor_parallel,
    )
    if found.is_empty():
        keys = rows.select(*_WORDS, "tensor_parallel").unique().sort(*_WORDS, "tensor_parallel").iter_rows()
        measured = "; ".join(str(Hardware(*key)) for key in keys)
        raise InvalidLoadError(f"{path} has no measurement of {wanted}", next_step=f"It has: {measured}.")
    alone = found.filter(pl.col("batch_size") == 1)
    return ServiceTimes(wanted, _curve(alone, "prompt_size", "prompt_time"), _curve(found, "batch_size", "token_time"))


def interpolated(curve: Curve, x: float) -> float:
    """Return the value of a curve at `x`; see `ServiceTimes.load` for what lies outside of it."""
    if x <= curve[0][0] or len(curve) == 1:
        return curve[0][1]
    for (left, low), (right, high) in pairwise(curve):
        if x <= right:
            return low + (high - low) * (x - left) / (right - left)
    (left, low), (right, high) = curve[-2:]
    return high + max(0.0, high - low) * (x - right) / (right - left)


def _curve(rows: pl.DataFrame, x: str, y: str) -> Curve:
    """Return the medians of repeated measurements, in seconds."""
    medians = rows.group_by(x).agg(pl.median(y) / 1_000).sort(x)
    return tuple((float(at), float(value)) for at, value in medians.iter_rows())


def _rows(path: Path) -> pl.DataFrame:
    try:
        rows = pl.read_csv(path, infer_schema=False)
    except OSError as error:
        raise InvalidLoadError(
            f"the table of service times {path} cannot be read: {error.strerror or 'there is no such file'}",
            next_step=_WHERE,
        ) from None
    except pl.exceptions.PolarsError as error:
        raise InvalidLoadError(f"{path} is not a CSV file: {str(error).splitlines()[0]}", next_step=_WHERE) from None
    missing = [name for name in (*_WORDS, *_NUMBERS) if name not in rows.columns]
    if missing:
        raise InvalidLoadError(f"{path} lacks the columns {', '.join(missing)} of a table of times", next_step=_WHERE)
    typed = rows.select(*_WORDS, *(pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in _NUMBERS))
    _refuse(path, rows, typed, _NUMBERS)
    return typed.with_columns(pl.col("tensor_parallel").cast(pl.Int64))


def _refuse(path: Path, rows: pl.DataFrame, typed: pl.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        wrong = (typed[name].is_null() | ~(typed[name] > 0)).fill_null(value=True).arg_true()
        if len(wrong):
            raise InvalidLoadError(
                f"{path}: line {wrong[0] + 2}: {name} must be a number > 0 (got {rows[name][wrong[0]]!r})"
            )
