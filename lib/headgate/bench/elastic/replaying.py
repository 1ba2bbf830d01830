"""The ramp and the traces that were given, under our default policy and beside it the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.bench.elastic.parameters import STARTS, ElasticParameters
from headgate.bench.scenario import Bench
from headgate.core.errors import InvalidInputError
from headgate.elastic.replay import (
    OURS,
    Comparison,
    Hardware,
    Load,
    Measures,
    Site,
    compared,
    contender,
    measured,
    ramp,
    roomy_site,
    terms_of,
    traced_load,
)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """One load at one start time.

    Attributes:
        name: of the load, as ids of bars have it.
        start: `1s` or `30s`.
        comparison: ours and the others.
        ours: our figures: one for each seed, the first of the comparison.
    """

    name: str
    start: str
    comparison: Comparison
    ours: tuple[Measures, ...]

    @property
    def others(self) -> tuple[Measures, ...]:
        """The figures of the rest."""
        return tuple(each for each in self.comparison.measures if each.policy != OURS)


def ramps(parameters: ElasticParameters, bench: Bench, tell: Tell) -> list[Played]:
    """Replay the ramp at both start times."""
    loads = [ramp(seed=bench.seed + number, scale=parameters.scale) for number in range(parameters.seeds)]
    return [_ramp(parameters, start, loads, tell) for start in STARTS]


def _ramp(parameters: ElasticParameters, start: str, loads: list[Load], tell: Tell) -> Played:
    site = Site(workers=parameters.workers, start_s=STARTS[start])
    comparison = _compared(parameters, loads[0], site, tell)
    ours = [comparison.of(OURS)]
    for number, load in enumerate(loads[1:], start=1):
        tell(f"ramp, {OURS}, seed {number}")
        ours.append(measured(load, contender(OURS).play(terms_of(load, site))))
    return Played("ramp", start, comparison, tuple(ours))


def traces(parameters: ElasticParameters, bench: Bench, tell: Tell) -> list[Played]:
    """Replay the traces that were given at both start times; none without any.

    Raises:
        InvalidInputError: traces were given without service times or the other way round, or one cannot be read.
    """
    if not bench.traces and bench.service_times is None:
        return []
    if not bench.traces or bench.service_times is None:
        raise InvalidInputError(
            "--trace and --service-times belong together: a trace tells tokens, and a table how long they take",
            next_step="Give both, or neither; perf_model.csv of https://github.com/Mutinifni/splitwise-sim is a table.",
        )
    found = []
    for path, name in zip(bench.traces, short_names(bench.traces), strict=True):
        load = traced_load(
            path,
            bench.service_times,
            hardware=Hardware(*parameters.hardware),
            mean_workers=parameters.trace_workers,
            seed=bench.seed,
        )
        for start, start_s in STARTS.items():
            comparison = _compared(parameters, *roomy_site(load, workers=parameters.trace_site, start_s=start_s), tell)
            found.append(Played(name, start, comparison, (comparison.of(OURS),)))
    return found


def _compared(parameters: ElasticParameters, load: Load, site: Site, tell: Tell) -> Comparison:
    return compared(
        load,
        site,
        policies=(OURS, *(name for name in parameters.rivals if name != OURS)),
        frontiers=parameters.frontiers,
        tell=lambda what: tell(f"{load.name}, {site.start_s:g} s to start: {what}"),
    )


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a name of each file for ids: `code` and `conv` for Azure's files, else the file's own, each once."""
    names: list[str] = []
    for path in paths:
        stem = path.stem.lower()
        name = next((word for word in ("code", "conv") if word in stem), re.sub(r"[^a-z0-9_]+", "_", stem))
        same = sum(each.partition("-")[0] == name for each in names)
        names.append(f"{name}-{same + 1}" if same else name)
    return names
