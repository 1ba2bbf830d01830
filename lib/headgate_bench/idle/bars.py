"""P11: the bars of the idle suite's figures, and the figures that they are compared with."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.idle.cases import Mode
from headgate_bench.idle.metrics import MODEL
from headgate_bench.idle.suite import Suite, worst_over_ideal


@dataclass(frozen=True, slots=True)
class IdleParameters:
    """Parameters of the scenario."""

    mode: Mode = "quick"  # DataDesigner's quick suite of 22 cases, or its full one of 28; our own cases are added
    # Ids of the cases to run; empty for all cases of the mode. Behaviour of cases that were not run is not checked.
    cases: tuple[str, ...] = ()
    # Summary of an earlier run to compare the figures with, `none`, or empty for the one built into Headgate.
    baseline: str = ""
    real_time: bool = False  # whether each case also runs once by the wall clock
    clock_repeats: int = 5  # runs of the combined case and its control by the wall clock, taking turns
    bar_utilisation: float = 0.677  # minimum share of the model capacity leased with an adaptive frontier
    bar_frontier: float = 0.147  # maximum share of the model capacity that is idle for want of open work
    bar_leased_wait: float = 10.0  # factor by which advice shortens a task's wait for its provider
    bar_wall: float = 1.25  # maximum wall time over its ideal, in the worst case
    bar_combined: float = 0.005  # minimum gain in the use of the providers' slots by advice, while one is pressed
    bar_cpu_us: float = 150.0  # maximum CPU time per generation over all cases, including the recording of events
    bar_errors: int = 0  # maximum number of failed checks


_FILE: Final = Path(__file__).with_name("published.toml")


@cache
def published() -> Mapping[str, Mapping[str, Any]]:
    """Return the figures published by DataDesigner's authors, by case: shares of capacity, generations/s, seconds."""
    cases: Mapping[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text("utf-8"))["cases"]
    return cases


ADAPTIVE: Final = "adaptations/adaptive-row-groups-adaptive"
FIXED_LOW: Final = "adaptations/adaptive-row-groups-fixed-low"
FIXED_HIGH: Final = "adaptations/adaptive-row-groups-fixed-high"
PRESSED: Final = "adaptations/request-pressure-control"
ADVISED: Final = "adaptations/request-pressure-advisory"
NEITHER: Final = "adaptations/adaptive-request-pressure-control"
BOTH: Final = "adaptations/adaptive-request-pressure-combined"
_STRICT: Final = "headgate/heavy-root-peer-arrival-strict"
_BORROWING: Final = "headgate/heavy-root-peer-arrival-bounded"
_RESERVING: Final = "headgate/heavy-root-peer-arrival-reserve"
_STRICT_ADVICE: Final = "headgate/adaptive-request-pressure-strict"
_PASSED_OVER: Final = "headgate/request-pressure-passed-over"
_PASSED_OVER_SAID: Final = "with advice, started to wait when nothing else can run"
_VARIED: Final = "headgate/adaptive-row-groups-varied"
_COOLDOWN: Final = "headgate/cross-provider-cooldown"

UTILISATION: Final = f"{MODEL}_utilization_ratio"
FRONTIER: Final = f"{MODEL}_frontier_dependency_horizon_idle_ratio"
_WHILE_PRESSED: Final = "request_utilization_while_pressed_ratio"
LEASED_WAIT: Final = "request_wait_seconds_while_task_leased_mean"


Cases = Mapping[str, Mapping[str, Any]]


def bars_of(suite: Suite, parameters: IdleParameters) -> Iterator[Bar]:
    """Yield the bars of the cases that were run."""
    cases = suite.cases
    if ADAPTIVE in cases:
        yield at_least(
            "P11.adaptive",
            "model capacity leased with an adaptive frontier",
            cases[ADAPTIVE][UTILISATION],
            parameters.bar_utilisation,
            "of capacity",
            _beside_adaptive(cases, UTILISATION, "utilisation"),
        )
        yield at_most(
            "P11.frontier",
            "model capacity idle with an adaptive frontier, since open work gave it nothing",
            cases[ADAPTIVE][FRONTIER],
            parameters.bar_frontier,
            "of capacity",
            _beside_adaptive(cases, FRONTIER, "frontier"),
        )
    if {PRESSED, ADVISED} <= set(cases):
        yield from _pressure_bars(cases, parameters)
    if {NEITHER, BOTH} <= set(cases):
        yield from _combined_bars(cases, parameters)
    yield from _own_bars(cases)
    worst, over = worst_over_ideal(suite, parameters.mode)
    if worst:
        controls = {name.partition("/")[2]: (name, "wall_time_over_ideal") for name in (PRESSED, NEITHER, _STRICT)}
        what = f"wall time over its ideal in the worst case, {worst}"
        yield at_most("P11.wall", what, over, parameters.bar_wall, "×", _figures(cases, controls))
    dearest = max(suite.cpu_us, key=lambda name: suite.cpu_us[name])
    what = "CPU time of one generation, over all cases"
    beside = {f"dearest case, {dearest}": suite.cpu_us[dearest]}
    yield at_most("P11.cpu", what, suite.mean_cpu_us, parameters.bar_cpu_us, "µs", beside)
    what = "checks of the suite that fail, those against the baseline included"
    unit = f"of {len(suite.summary['checks']['checks'])}"
    errors, warnings = len(suite.failures("error")), len(suite.failures("warning"))
    yield at_most("P11.checks", what, errors, parameters.bar_errors, unit, {"warnings": warnings})


def _figures(cases: Cases, wanted: Mapping[str, tuple[str, str]], factor: float = 1) -> dict[str, float | str]:
    """Return figures by label; `wanted` has a case and a metric for each. Cases that were not run are left out."""
    return {label: factor * cases[case][metric] for label, (case, metric) in wanted.items() if case in cases}


def _published(wanted: Mapping[str, tuple[str, str]], factor: float = 1) -> dict[str, float | str]:
    return _figures(published(), wanted, factor)


def _beside_adaptive(cases: Cases, metric: str, name: str) -> dict[str, float | str]:
    """Return a figure for the fixed frontiers, and the published figures."""
    ours = {
        "one group, fixed": (FIXED_LOW, metric),
        "eight groups, fixed": (FIXED_HIGH, metric),
        "adaptive, service times ± 90 %": (_VARIED, metric),
    }
    theirs = {"published, adaptive": (ADAPTIVE, name), "published, one group": (FIXED_LOW, name)}
    return _figures(cases, ours) | _published(theirs)


def _pressure_bars(cases: Cases, parameters: IdleParameters) -> Iterator[Bar]:
    first = cases[ADVISED]["first_model_dispatch_column"]
    what = "first model task is for the provider that is open (1) and not for the one that is pressed (0)"
    beside = {"without advice": cases[PRESSED]["first_model_dispatch_column"], "with advice": first}
    yield at_least("P11.first", what, float(first == "z_open"), 1.0, "", beside)
    ours = {_PASSED_OVER_SAID: (_PASSED_OVER, LEASED_WAIT), "without advice": (PRESSED, LEASED_WAIT)}
    theirs = {
        "published, with advice": (ADVISED, "leased_wait_s"),
        "published, without": (PRESSED, "leased_wait_s"),
    }
    what = f"wait for the provider under a task's lease, with advice; 1/{parameters.bar_leased_wait:g} of that without"
    yield _leased_wait("P11.leased_wait", what, cases, parameters, _figures(cases, ours, 1e3) | _published(theirs, 1e3))


def _leased_wait(
    name: str, what: str, cases: Cases, parameters: IdleParameters, beside: Mapping[str, float | str]
) -> Bar:
    with_ms, without_ms = (1e3 * cases[case][LEASED_WAIT] for case in (ADVISED, PRESSED))
    return at_most(name, what, with_ms, without_ms / parameters.bar_leased_wait, "ms", beside)


def _combined_bars(cases: Cases, parameters: IdleParameters) -> Iterator[Bar]:
    neither, both = cases[NEITHER], cases[BOTH]
    named = {
        "": _WHILE_PRESSED,
        "over the whole run, ": "request_utilization_ratio",
        "leased, ": UTILISATION,
        "leased and working, ": f"{MODEL}_working_ratio",
    }
    wanted = {
        f"{prefix}{how}": (case, metric)
        for prefix, metric in named.items()
        for how, case in (("with", BOTH), ("without", NEITHER))
    }
    wanted |= {"with strict advice": (_STRICT_ADVICE, _WHILE_PRESSED), "leased, strict": (_STRICT_ADVICE, UTILISATION)}
    what = "providers' slots in use while one is pressed, with advice and an adaptive frontier, less without advice"
    gained = both[_WHILE_PRESSED] - neither[_WHILE_PRESSED]
    yield at_least("P11.combined", what, gained, parameters.bar_combined, "of capacity", _figures(cases, wanted))
    # Rounded, since both are sums of the same service times in a different order.
    ratio = round(both["mean_wall_time_seconds"] / neither["mean_wall_time_seconds"], 9)
    beside = {"published": published()[BOTH]["wall_s"] / published()[NEITHER]["wall_s"]}
    yield at_most("P11.combined_wall", "wall time with both over that without advice", ratio, 1.0, "×", beside)


def _own_bars(cases: Cases) -> Iterator[Bar]:
    hidden = max(case["hidden_scheduler_resource_waiters"] for case in cases.values())
    yield at_most("P11.hidden", "workers at any time that were started and held no task lease", hidden, 0, "workers")
    if {_STRICT, _BORROWING} <= set(cases):
        wanted = {
            "strict shares": (_STRICT, "peer_first_wait_seconds"),
            "p95 of its waits": (_BORROWING, "peer_wait_p95_seconds"),
            "p95, strict shares": (_STRICT, "peer_wait_p95_seconds"),
            "wall": (_BORROWING, "mean_wall_time_seconds"),
            "wall, strict shares": (_STRICT, "mean_wall_time_seconds"),
            "p95, 3/8 reserved": (_RESERVING, "peer_wait_p95_seconds"),
            "wall, 3/8 reserved": (_RESERVING, "mean_wall_time_seconds"),
        }
        what = "first wait of a peer that arrives while a heavy group holds the workers, borrowing bounded"
        first_s = cases[_BORROWING]["peer_first_wait_seconds"]
        yield at_most("P11.peer", what, first_s, 0.01, "s", _figures(cases, wanted))
    if _COOLDOWN in cases:
        what = "time that an open provider idled with work for it, while another cooled down"
        yield at_most("P11.cooldown", what, cases[_COOLDOWN]["open_provider_starved_idle_ratio"], 0.0, "of capacity")


def clock_bars_of(by_the_clock: Sequence[Mapping[str, Any]], parameters: IdleParameters) -> Iterator[Bar]:
    """Yield the bars by the wall clock, by which the published figures were measured."""
    found = {sample["case"]: sample for sample in by_the_clock}
    if ADAPTIVE in found:
        beside = (
            _figures(found, {"one group, fixed": (FIXED_LOW, UTILISATION)})
            | _published({"published": (ADAPTIVE, "utilisation")})
            | _figures(found, {"generations/s": (ADAPTIVE, "throughput_generations_per_second")})
            | _published({"published, generations/s": (ADAPTIVE, "per_s")})
        )
        what = "by the wall clock: model capacity leased with an adaptive frontier"
        leased = found[ADAPTIVE][UTILISATION]
        yield at_least("P11.clock_adaptive", what, leased, parameters.bar_utilisation, "of capacity", beside)
    if {PRESSED, ADVISED} <= set(found):
        what = "by the wall clock: wait for the provider under a task's lease, with advice"
        beside = _figures(found, {"without advice": (PRESSED, LEASED_WAIT)}, 1e3)
        yield _leased_wait("P11.clock_leased_wait", what, found, parameters, beside)
