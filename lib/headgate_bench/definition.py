"""A scenario: what it measures, at which sizes, and its outcome."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from headgate.core.errors import InvalidInputError, did_you_mean
from headgate.core.flaws import rule_in_words
from headgate_bench.artifact import Bar


def changed(parameters: P, changes: Sequence[str]) -> P:
    """Return the parameters with `changes` applied, each `name=value`; values of a list are separated by commas.

    Raises:
        InvalidInputError: if a change has another form, names no parameter, or has an invalid value.
    """
    known: dict[str, Any] = {f.name: getattr(parameters, f.name) for f in dataclasses.fields(parameters)}  # type: ignore[arg-type]
    for change in changes:
        name, equals, text = change.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidInputError(f"--set takes name=value (got {change!r})")
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidInputError(
                f"the benchmark has no parameter {name!r}{hint}", next_step=f"It has: {', '.join(known)}."
            )
        known[name] = tuple(text.split(",")) if isinstance(known[name], tuple) else text.strip()
    try:
        made = TypeAdapter(type(parameters)).validate_python(known)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise InvalidInputError(f"parameter {place}: {rule_in_words(problem)} (got {problem['input']!r:.80})") from None
    for change in changes:
        name = change.partition("=")[0].strip()
        _check(name, getattr(made, name))
    return made


def _check(name: str, value: object) -> None:
    """Refuse numbers with which no scenario can run; bars may be any, so that one can be missed on purpose.

    Raises:
        InvalidInputError: if a number is not finite, or, unless it is a bar, below 0 or a 0 that is not allowed.
    """
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        is_bar, may_be_0 = name.startswith("bar"), name.endswith(("_share", "_settings"))
        if math.isfinite(number) and (is_bar or number > 0 or (may_be_0 and number == 0)):
            continue
        rule = "finite" if is_bar else "finite and >= 0" if may_be_0 else "finite and > 0"
        raise InvalidInputError(f"parameter {name} must be {rule} (got {number!r})")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of `count` measurements."""

    median: float
    low: float
    high: float
    count: int


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of measurements; there must be at least one."""
    return Spread(median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie; `values` must not be empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


LOGGER: Final = "headgate_bench.campaign"
"""Logger of measured campaigns: it keeps their intended backpressure warnings apart."""

P = TypeVar("P")

Size = Literal["quick", "full"]

Progress = Callable[[float, str], None]
"""Takes the share that is done, in [0, 1], and a description of the current step."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for the report.

    Attributes:
        title: what it shows; screen readers read it, too.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        kind: `lines` over numbers, or `bars` over names.
        series: name -> points (x, y); x is a name if the kind is `bars`.
        level: y of a horizontal line that shows a bar.
        log: the logarithmic axes.
    """

    title: str
    x: str
    y: str
    kind: Literal["lines", "bars"]
    series: Mapping[str, Sequence[tuple[float | str, float]]]
    level: float | None = None
    log: Literal["", "x", "y", "xy"] = ""


@dataclass(slots=True)
class Outcome:
    """The outcome of a scenario or of a part of one.

    Attributes:
        bars: figures with bars.
        samples: measurements of each iteration, in order.
        ratios: comparisons and other derived figures with their spread.
        charts: charts for the report.
        notes: sentences that a reader needs to judge the figures.
        files: further documents by file name, stored in a folder beside the artifact.
    """

    bars: list[Bar] = field(default_factory=list)
    samples: list[Any] = field(default_factory=list)
    ratios: dict[str, Spread] = field(default_factory=dict)
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: dict[str, str | bytes] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Add the outcome of another part."""
        self.bars += other.bars
        self.samples += other.samples
        self.ratios |= other.ratios
        self.charts += other.charts
        self.notes += other.notes


@dataclass(frozen=True, slots=True)
class Bench:
    """The inputs of a run of a scenario, apart from its parameters.

    Attributes:
        seed: random seed.
        folder: an empty folder on a real disk, deleted afterwards.
        progress: to call now and then.
        traces: files to replay, for scenarios that read traces.
        service_times: table of the service times of the traces' requests; None without one.
    """

    seed: int
    folder: Path
    progress: Progress
    traces: Sequence[Path] = ()
    service_times: Path | None = None


@dataclass(frozen=True, slots=True)
class Scenario(Generic[P]):
    """One benchmark. Each is a module of `headgate_bench.scenarios` with a `SCENARIO`.

    Attributes:
        name: its name on the command line.
        quick: parameters that take less than a minute; a frozen dataclass.
        full: parameters whose figures may be published.
        measure: runs it, possibly as a coroutine; a missed bar is an outcome, not an error.
        reads_traces: whether it takes traces to replay.
    """

    name: str
    quick: P
    full: P
    measure: Callable[[P, Bench], Outcome | Coroutine[Any, Any, Outcome]]
    reads_traces: bool = False

    def parameters(self, size: Size) -> P:
        """Return the parameters of a size."""
        return self.quick if size == "quick" else self.full
