"""Public traces of requests to language models: when each arrived, and how many tokens it had.

Two forms are read, told apart by the file's name:

- CSV with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`: AzureLLMInferenceTrace_code.csv and …_conv.csv of
  https://github.com/Azure/AzurePublicDataset (2023, CC-BY-4.0).
- JSON lines with `timestamp` in milliseconds, `input_length` and `output_length`: the traces of
  https://github.com/kvcache-ai/Mooncake.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import polars as pl
from pydantic import BaseModel, Field, ValidationError

from headgate.elastic.replay.errors import InvalidLoadError

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S%.f"
_WHERE: Final = "Download data/AzureLLMInferenceTrace_code.csv from https://github.com/Azure/AzurePublicDataset."


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request of a trace: seconds since the first one, tokens of its prompt and of its answer."""

    arrived_s: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival.

    Attributes:
        name: of the file, without its ending.
        requests: the first one arrives at 0.
        notes: what was changed to make it.
    """

    name: str
    requests: tuple[TracedRequest, ...]
    notes: tuple[str, ...] = ()

    @property
    def window_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.requests[-1].arrived_s


class _JsonLine(BaseModel):
    """A line of a trace in JSON; further fields are passed over."""

    timestamp: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    input_length: Annotated[int, Field(ge=1)]
    output_length: Annotated[int, Field(ge=1)]


def read_trace(path: Path) -> Trace:
    """Return the requests of a file.

    Raises:
        InvalidLoadError: the file cannot be read, or a line is no request; it names the line, the value and the rule.
    """
    found = _of_json_lines(path) if path.suffix in {".jsonl", ".json"} else _of_csv(path)
    if not found:
        raise InvalidLoadError(f"{path} has no request")
    found.sort(key=lambda request: request.arrived_s)
    first_s = found[0].arrived_s
    moved = (TracedRequest(one.arrived_s - first_s, one.prompt_tokens, one.answer_tokens) for one in found)
    return Trace(path.stem, tuple(moved))


def superposed(trace: Trace, copies: int, *, within_s: float = 60.0, seed: int = 0) -> Trace:
    """Return a trace with `copies` times the load and the same course: so many times as many users.

    Each request is there once as it was and `copies` - 1 times at a moment of its own, up to `within_s` later or
    earlier. So bursts of seconds do not pile up into larger ones, while whatever lasts a minute stays as it was.

    Raises:
        InvalidLoadError: `copies` is not at least 1, or `within_s` is below 0.
    """
    if copies < 1 or within_s < 0:
        raise InvalidLoadError(f"copies must be >= 1 and within_s >= 0 (got {copies} and {within_s:g})")
    if copies == 1:
        return trace
    chance = random.Random(f"copies/{seed}")
    last_s = trace.window_s
    requests = list(trace.requests)
    for one in trace.requests:
        for _ in range(copies - 1):
            at_s = _mirrored(one.arrived_s + chance.uniform(-within_s, within_s), last_s)
            requests.append(TracedRequest(at_s, one.prompt_tokens, one.answer_tokens))
    requests.sort(key=lambda request: request.arrived_s)
    note = f"{copies} copies of each request, all but one moved by up to {within_s:g} s either way (seed {seed})."
    return Trace(f"{trace.name} x{copies}", tuple(requests), (*trace.notes, note))


def _mirrored(at_s: float, last_s: float) -> float:
    """Return a moment that lies beyond the first or the last one as far inside: at the edges nothing piles up."""
    inside = abs(at_s)
    return min(max(0.0, 2 * last_s - inside), inside)


def _of_csv(path: Path) -> list[TracedRequest]:
    try:
        rows = pl.read_csv(path, infer_schema=False)
    except OSError as error:
        raise InvalidLoadError(
            f"the trace {path} cannot be read: {error.strerror or 'there is no such file'}", next_step=_WHERE
        ) from None
    except pl.exceptions.PolarsError as error:
        raise InvalidLoadError(f"{path} is not a CSV file: {str(error).splitlines()[0]}", next_step=_WHERE) from None
    missing = [name for name in _COLUMNS if name not in rows.columns]
    if missing:
        raise InvalidLoadError(f"{path} lacks the columns {', '.join(missing)} of a trace", next_step=_WHERE)
    written = rows.select(pl.col(name).str.strip_chars() for name in _COLUMNS)
    time, *tokens = _COLUMNS
    typed = written.with_columns(
        pl.col(time).str.to_datetime(_TIME_FORMAT, time_unit="ns", strict=False),
        pl.col(tokens).cast(pl.Int64, strict=False),
    )
    _refuse(path, written, typed[time].is_null(), time, "a moment such as 2023-11-16 18:17:03.979")
    for name in tokens:
        _refuse(path, written, typed[name].is_null() | (typed[name] < 1), name, "a whole number >= 1")
    since = typed.with_columns((pl.col(time) - pl.col(time).min()).dt.total_nanoseconds() / 1e9)
    return [TracedRequest(*row) for row in since.iter_rows()]


def _refuse(path: Path, written: pl.DataFrame, wrong: pl.Series, name: str, rule: str) -> None:
    lines = wrong.fill_null(value=True).arg_true()
    if len(lines):
        raise InvalidLoadError(f"{path}: line {lines[0] + 2}: {name} must be {rule} (got {written[name][lines[0]]!r})")


def _of_json_lines(path: Path) -> list[TracedRequest]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise InvalidLoadError(f"the trace {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidLoadError(f"{path} is not UTF-8 text (byte {error.start})") from None
    return [_of_line(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _of_line(path: Path, number: int, line: str) -> TracedRequest:
    try:
        read = _JsonLine.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        says = f"{field}: {problem['msg']}" if field else problem["msg"]
        raise InvalidLoadError(f"{path}: line {number}: {says} (got {problem['input']!r:.80})") from None
    return TracedRequest(read.timestamp / 1_000, read.input_length, read.output_length)
