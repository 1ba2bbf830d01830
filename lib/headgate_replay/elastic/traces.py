"""Reads a load from files.

Public traces of requests to language models tell when each arrived and how many tokens it had. Two formats are read;
the file's name tells them apart:

- CSV with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`: AzureLLMInferenceTrace_code.csv and …_conv.csv of
  https://github.com/Azure/AzurePublicDataset (2023, CC-BY-4.0).
- JSON lines with `timestamp` in milliseconds, `input_length` and `output_length`: the traces of
  https://github.com/kvcache-ai/Mooncake.

How long engines take for them was measured in https://github.com/Mutinifni/splitwise-sim, data/perf_model.csv (MIT):
the time of a prompt by its size, and of one token of an answer by the number of answers in progress.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import polars as pl
from pydantic import BaseModel, Field

from headgate_replay.elastic.load import SLOTS, Call, InvalidLoadError, Load, load_of
from headgate_replay.files import Form

_MOVED_S: Final = 60.0
"""Maximum shift of a request's copies, to earlier or later."""

_LONGEST_DAYS: Final = 31
"""Several times the longest public trace of these forms; a day takes a policy about two seconds."""

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S%.f"
_WORDS: Final = ("model", "hardware")
_NUMBERS: Final = ("tensor_parallel", "prompt_size", "batch_size", "prompt_time", "token_time")

_TRACE: Final = Form(
    "trace",
    InvalidLoadError,
    "Download data/AzureLLMInferenceTrace_code.csv from https://github.com/Azure/AzurePublicDataset.",
)
_TIMES: Final = Form(
    "table of service times",
    InvalidLoadError,
    "Download data/perf_model.csv from https://github.com/Mutinifni/splitwise-sim.",
)


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request of a trace: seconds since the first one, and the tokens of its prompt and answer."""

    arrived_s: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival."""

    name: str
    requests: tuple[TracedRequest, ...]
    notes: tuple[str, ...] = ()


class _JsonLine(BaseModel):
    """A line of a trace in JSON; other fields are ignored."""

    timestamp: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    input_length: Annotated[int, Field(ge=1)]
    output_length: Annotated[int, Field(ge=1)]

    def request(self) -> TracedRequest:
        return TracedRequest(self.timestamp / 1_000, self.input_length, self.output_length)


def read_trace(path: Path) -> Trace:
    """Return the requests of a file.

    Raises:
        InvalidLoadError: if the file cannot be read or a line is not a request; it tells line, value and rule.
    """
    if path.suffix in {".jsonl", ".json"}:
        found = _TRACE.json_lines(path, _JsonLine, _JsonLine.request)
    else:
        found = _of_csv(path)
    if not found:
        raise InvalidLoadError(f"{path} has no request")
    found.sort(key=lambda request: request.arrived_s)
    first_s = found[0].arrived_s
    moved = (TracedRequest(one.arrived_s - first_s, one.prompt_tokens, one.answer_tokens) for one in found)
    return Trace(path.stem, tuple(moved))


def superposed(trace: Trace, copies: int, *, seed: int = 0) -> Trace:
    """Return a trace with `copies` times the load and the same course, as if there were `copies` times as many users.

    Each request appears once unchanged and `copies` - 1 times at random moments up to a minute earlier or later.
    So bursts of seconds do not add up to larger ones, while patterns longer than a minute are preserved.

    Raises:
        InvalidLoadError: if `copies` is below 1.
    """
    if copies < 1:
        raise InvalidLoadError(f"copies must be >= 1 (got {copies})")
    if copies == 1:
        return trace
    chance = random.Random(f"copies/{seed}")
    last_s = trace.requests[-1].arrived_s
    requests = list(trace.requests)
    for one in trace.requests:
        for _ in range(copies - 1):
            # Moments beyond the first or last are mirrored to the inside, so that nothing piles up at the edges.
            at_s = abs(one.arrived_s + chance.uniform(-_MOVED_S, _MOVED_S))
            at_s = min(max(0.0, 2 * last_s - at_s), at_s)
            requests.append(TracedRequest(at_s, one.prompt_tokens, one.answer_tokens))
    requests.sort(key=lambda request: request.arrived_s)
    note = f"{copies} copies of each request, all but one moved by up to {_MOVED_S:g} s either way (seed {seed})."
    return Trace(f"{trace.name} x{copies}", tuple(requests), (*trace.notes, note))


def _of_csv(path: Path) -> list[TracedRequest]:
    written = _TRACE.csv(path, _COLUMNS)
    time, *tokens = _COLUMNS
    typed = written.with_columns(
        pl.col(time).str.to_datetime(_TIME_FORMAT, time_unit="ns", strict=False),
        pl.col(tokens).cast(pl.Int64, strict=False),
    )
    _TRACE.check(path, written, typed[time].is_null(), time, "a moment such as 2023-11-16 18:17:03.979")
    for name in tokens:
        _TRACE.check(path, written, typed[name].is_null() | (typed[name] < 1), name, "a whole number >= 1")
    since = typed.with_columns((pl.col(time) - pl.col(time).min()).dt.total_nanoseconds() / 1e9)
    return [TracedRequest(*row) for row in since.iter_rows()]


Curve = tuple[tuple[float, float], ...]
"""Measured points by increasing x."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The key of the table's measurements: the model, its hardware, and how many GPUs it is split over."""

    model: str = "llama2-70b"
    hardware: str = "h100-80gb"
    tensor_parallel: int = 8

    def __str__(self) -> str:
        return f"{self.model} on {self.tensor_parallel} x {self.hardware}"


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """The measurements of one model on one kind of worker.

    `prompt_s` maps the tokens of a prompt that is processed alone to seconds, `token_s` the number of answers in
    progress to the seconds that each of their tokens takes.
    """

    hardware: Hardware
    prompt_s: Curve
    token_s: Curve

    def load(self, trace: Trace, *, slots: int = SLOTS) -> Load:
        """Return the load of a trace on workers with this number of slots.

        Times are interpolated linearly between measured points. Beyond the last point they are extrapolated from the
        last two, and a note says for how many requests; before the first point they are those of the first.
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
            f"Service times: {self.hardware}, {slots} requests at once, as measured by splitwise-sim. A prompt is "
            "processed at the same time as the answers in progress and does not slow them down; a token takes longer "
            "the more answers are in progress at that moment."
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
        InvalidLoadError: if the file cannot be read, lacks a column, or has no such model or hardware.
    """
    wanted = hardware or Hardware()
    written = _TIMES.csv(path, (*_WORDS, *_NUMBERS))
    rows = written.with_columns(pl.col(_NUMBERS).cast(pl.Float64, strict=False))
    for name in _NUMBERS:
        _TIMES.check(path, written, rows[name].is_null() | ~(rows[name] > 0), name, "a number > 0")
    rows = rows.with_columns(pl.col("tensor_parallel").cast(pl.Int64))
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
    """Return the value of a curve at `x`; `ServiceTimes.load` describes values outside of it."""
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


def traced_load(
    trace: Path,
    service_times: Path,
    *,
    hardware: Hardware | None = None,
    slots: int = SLOTS,
    copies: int | None = None,
    mean_workers: float = 4.0,
    seed: int = 0,
) -> Load:
    """Return the load that the requests of a trace put on workers; its notes state all assumptions.

    Each request appears `copies` times, see `superposed`; by default at least once, and as often as is needed to keep
    `mean_workers` workers busy on average.

    Raises:
        InvalidLoadError: if a file cannot be read or has another form, or a number is invalid.
    """
    requests = read_trace(trace)
    times = read_service_times(service_times, hardware)
    if copies is None:
        once = times.load(requests, slots=slots)
        copies = max(1, math.ceil(mean_workers * once.window_s / once.work_s))
    load = times.load(superposed(requests, copies, seed=seed), slots=slots)
    if (days := max(call.arrived_s + load.crowded_s(call) for call in load.calls) / 86_400) > _LONGEST_DAYS:
        raise InvalidLoadError(
            f"{trace.name} must end within {_LONGEST_DAYS} days of its first request (got {days:,.1f} days)",
            next_step="Correct its times (`timestamp` is in milliseconds) and lengths, or cut it.",
        )
    return load
