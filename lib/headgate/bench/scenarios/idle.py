"""P11: seed 004's idle suite on Headgate's scheduling loop, beside fixed frontiers and selection without advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.bench.bars import Bar, at_least, at_most
from headgate.bench.idle.baseline import baseline_of
from headgate.bench.idle.cases import Mode
from headgate.bench.idle.charts import charts_of
from headgate.bench.idle.metrics import MODEL
from headgate.bench.idle.page import idle_page
from headgate.bench.idle.published import published
from headgate.bench.idle.real_time import granularity_s, run_in_real_time
from headgate.bench.idle.suite import Suite, chosen_cases, run_suite, worst_over_ideal
from headgate.bench.idle.summary import summary_bytes
from headgate.bench.scenario import Bench, Outcome, Progress, Scenario

_ADAPTIVE: Final = "adaptations/adaptive-row-groups-adaptive"
_FIXED_LOW: Final = "adaptations/adaptive-row-groups-fixed-low"
_FIXED_HIGH: Final = "adaptations/adaptive-row-groups-fixed-high"
_PRESSED: Final = "adaptations/request-pressure-control"
_ADVISED: Final = "adaptations/request-pressure-advisory"
_NEITHER: Final = "adaptations/adaptive-request-pressure-control"
_BOTH: Final = "adaptations/adaptive-request-pressure-combined"
_STRICT: Final = "headgate/heavy-root-peer-arrival-strict"
_BORROWING: Final = "headgate/heavy-root-peer-arrival-bounded"
_STRICT_ADVICE: Final = "headgate/adaptive-request-pressure-strict"
_COOLDOWN: Final = "headgate/cross-provider-cooldown"

_UTILISATION: Final = f"{MODEL}_utilization_ratio"
_FRONTIER: Final = f"{MODEL}_frontier_dependency_horizon_idle_ratio"
_WHILE_PRESSED: Final = "request_utilization_while_pressed_ratio"
_LEASED_WAIT: Final = "request_wait_seconds_while_task_leased_mean"


@dataclass(frozen=True, slots=True)
class IdleParameters:
    """Parameters of the scenario.

    Attributes:
        mode: which form of the suite: the seed's quick one with 22 cases, or the full one with 28; our own beside them.
        cases: ids of the cases to run; all of the mode when empty. Behaviour of cases that were not run is not judged.
        baseline: what the figures are compared with: the summary of an earlier run, `none`, or empty for the one that
            Headgate comes with.
        real_time: whether each case is run once by the wall clock as well.
        bar_utilisation: share of the model capacity that an adaptive frontier leases at least.
        bar_frontier: share that is idle for want of open work at most.
        bar_leased_wait: how much shorter a task waits for its provider with advice than without.
        bar_wall: wall time over its ideal in the worst case at most.
        bar_combined: what advice adds to the use of the providers' slots while one of them is pressed.
        bar_cpu_us: CPU time per generation over all cases at most, the events' recording included.
        bar_errors: checks that may fail.
    """

    mode: Mode = "quick"
    cases: tuple[str, ...] = ()
    baseline: str = ""
    real_time: bool = False
    bar_utilisation: float = 0.677
    bar_frontier: float = 0.147
    bar_leased_wait: float = 10.0
    bar_wall: float = 1.25
    bar_combined: float = 0.005
    bar_cpu_us: float = 150.0
    bar_errors: int = 0


def measure(parameters: IdleParameters, bench: Bench) -> Outcome:
    """Return the figures of every case, the bars, and the summary, baseline and page as files."""
    virtual, real = _halves(bench.progress, parameters)
    suite = run_suite(
        parameters.mode, parameters.cases, seed=bench.seed, baseline=parameters.baseline, progress=virtual
    )
    by_the_clock = _by_the_clock(parameters, bench.seed, real)
    bars = list(_bars(suite, parameters))
    charts = charts_of(suite.cases, suite.runs, parameters.bar_wall)
    notes = _notes(suite, by_the_clock)
    page = idle_page(suite.summary, bars, charts, notes)
    return Outcome(
        bars=bars,
        samples=[*_samples(suite), *by_the_clock],
        charts=charts,
        notes=notes,
        files={
            "summary.json": summary_bytes(suite.summary),
            "baseline.json": summary_bytes(baseline_of(suite.summary)),
            "report.html": page,
        },
    )


def _bars(suite: Suite, parameters: IdleParameters) -> Iterator[Bar]:
    """Give the bars of the cases that were run."""
    cases = suite.cases
    if _ADAPTIVE in cases:
        yield at_least(
            "P11.adaptive",
            "model capacity leased with an adaptive frontier",
            cases[_ADAPTIVE][_UTILISATION],
            parameters.bar_utilisation,
            "of capacity",
            _beside(cases, _UTILISATION, "utilisation"),
        )
        yield at_most(
            "P11.frontier",
            "model capacity idle with an adaptive frontier, since open work gave it nothing",
            cases[_ADAPTIVE][_FRONTIER],
            parameters.bar_frontier,
            "of capacity",
            _beside(cases, _FRONTIER, "frontier"),
        )
    if {_PRESSED, _ADVISED} <= set(cases):
        yield from _pressure_bars(cases, parameters)
    if {_NEITHER, _BOTH} <= set(cases):
        yield from _combined_bars(cases, parameters)
    yield from _own_bars(cases)
    worst, over = worst_over_ideal(suite, parameters.mode)
    if worst:
        yield at_most(
            "P11.wall",
            f"wall time over its ideal in the worst case, {worst}",
            over,
            parameters.bar_wall,
            "×",
            {name.partition("/")[2]: cases[name]["wall_time_over_ideal"] for name in _controls(cases)},
        )
    dearest = max(suite.cpu_us, key=lambda name: suite.cpu_us[name])
    yield at_most(
        "P11.cpu",
        "CPU time of one generation, over all cases",
        suite.mean_cpu_us,
        parameters.bar_cpu_us,
        "µs",
        {f"dearest case, {dearest}": suite.cpu_us[dearest]},
    )
    errors = failures_of(suite, "error")
    yield at_most(
        "P11.checks",
        "checks of the suite that fail, those against the baseline included",
        len(errors),
        parameters.bar_errors,
        f"of {len(suite.summary['checks']['checks'])}",
        {"warnings": len(failures_of(suite, "warning"))},
    )


def failures_of(suite: Suite, severity: str) -> list[str]:
    """Return the names of the checks of a severity that fail."""
    checks = suite.summary["checks"]["checks"]
    return [check["name"] for check in checks if check["severity"] == severity and not check["passed"]]


def _controls(cases: Mapping[str, Any]) -> list[str]:
    return [name for name in (_PRESSED, _NEITHER, _STRICT) if name in cases]


def _beside(cases: Mapping[str, Mapping[str, Any]], metric: str, name: str) -> dict[str, float | str]:
    """Return a figure of the fixed frontiers, and what was published."""
    beside: dict[str, float | str] = {}
    for label, case in (("one group, fixed", _FIXED_LOW), ("eight groups, fixed", _FIXED_HIGH)):
        if case in cases:
            beside[label] = cases[case][metric]
    beside["published, adaptive"] = published()[_ADAPTIVE][name]
    beside["published, one group"] = published()[_FIXED_LOW][name]
    return beside


def _pressure_bars(cases: Mapping[str, Mapping[str, Any]], parameters: IdleParameters) -> Iterator[Bar]:
    first = cases[_ADVISED]["first_model_dispatch_column"]
    yield at_least(
        "P11.first",
        "first model task is for the provider that is open (1) and not for the one that is pressed (0)",
        float(first == "z_open"),
        1.0,
        "",
        {"without advice": cases[_PRESSED]["first_model_dispatch_column"], "with advice": first},
    )
    without_s, with_s = cases[_PRESSED][_LEASED_WAIT], cases[_ADVISED][_LEASED_WAIT]
    yield at_most(
        "P11.leased_wait",
        f"wait for the provider under a task's lease, with advice; 1/{parameters.bar_leased_wait:g} of that without",
        1e3 * with_s,
        1e3 * without_s / parameters.bar_leased_wait,
        "ms",
        {
            "without advice": 1e3 * without_s,
            "published, with advice": 1e3 * published()[_ADVISED]["leased_wait_s"],
            "published, without": 1e3 * published()[_PRESSED]["leased_wait_s"],
        },
    )


def _combined_bars(cases: Mapping[str, Mapping[str, Any]], parameters: IdleParameters) -> Iterator[Bar]:
    neither, both = cases[_NEITHER], cases[_BOTH]
    strict = cases.get(_STRICT_ADVICE)
    yield at_least(
        "P11.combined",
        "providers' slots in use while one is pressed, with advice and an adaptive frontier, less without advice",
        both[_WHILE_PRESSED] - neither[_WHILE_PRESSED],
        parameters.bar_combined,
        "of capacity",
        {
            "with": both[_WHILE_PRESSED],
            "without": neither[_WHILE_PRESSED],
            "over the whole run, with": both["request_utilization_ratio"],
            "over the whole run, without": neither["request_utilization_ratio"],
            "leased, with": both[_UTILISATION],
            "leased, without": neither[_UTILISATION],
            "leased and working, with": both[f"{MODEL}_working_ratio"],
            "leased and working, without": neither[f"{MODEL}_working_ratio"],
        }
        | ({"with strict advice": strict[_WHILE_PRESSED], "leased, strict": strict[_UTILISATION]} if strict else {}),
    )
    yield at_most(
        "P11.combined_wall",
        "wall time with both over that without advice",
        # Both are sums of the same service times, in another order.
        round(both["mean_wall_time_seconds"] / neither["mean_wall_time_seconds"], 9),
        1.0,
        "×",
        {"published": published()[_BOTH]["wall_s"] / published()[_NEITHER]["wall_s"]},
    )


def _own_bars(cases: Mapping[str, Mapping[str, Any]]) -> Iterator[Bar]:
    yield at_most(
        "P11.hidden",
        "workers at any time that were started and held no task lease",
        max(case["hidden_scheduler_resource_waiters"] for case in cases.values()),
        0,
        "workers",
    )
    if {_STRICT, _BORROWING} <= set(cases):
        yield at_most(
            "P11.peer",
            "first wait of a peer that arrives while a heavy group holds the workers, borrowing bounded",
            cases[_BORROWING]["peer_first_wait_seconds"],
            0.01,
            "s",
            {
                "strict shares": cases[_STRICT]["peer_first_wait_seconds"],
                "p95 of its waits": cases[_BORROWING]["peer_wait_p95_seconds"],
                "p95, strict shares": cases[_STRICT]["peer_wait_p95_seconds"],
                "wall": cases[_BORROWING]["mean_wall_time_seconds"],
                "wall, strict shares": cases[_STRICT]["mean_wall_time_seconds"],
            },
        )
    if _COOLDOWN in cases:
        yield at_most(
            "P11.cooldown",
            "time that an open provider idled with work for it, while another cooled down",
            cases[_COOLDOWN]["open_provider_starved_idle_ratio"],
            0.0,
            "of capacity",
        )


def _samples(suite: Suite) -> list[dict[str, Any]]:
    names = (
        _UTILISATION,
        f"{MODEL}_working_ratio",
        f"{MODEL}_starved_idle_ratio",
        _FRONTIER,
        "mean_wall_time_seconds",
        "wall_time_over_ideal",
        "throughput_generations_per_second",
        "request_utilization_ratio",
        _LEASED_WAIT,
        "request_pressure_advisory_skip_count",
        "first_model_dispatch_column",
        "row_group_admission_observed_max_target",
        "fingerprint",
    )
    return [
        {"case": case, "time": "virtual", "cpu_us_per_generation": suite.cpu_us[case]}
        | {name: figures[name] for name in names}
        for case, figures in suite.cases.items()
    ]


def _halves(tell: Progress, parameters: IdleParameters) -> tuple[Progress, Progress]:
    """Return how the simulated and the real part tell their progress."""
    share = 0.5 if parameters.real_time else 1.0
    return lambda done, what: tell(share * done, what), lambda done, what: tell(share + (1 - share) * done, what)


def _by_the_clock(parameters: IdleParameters, seed: int, tell: Progress) -> list[dict[str, Any]]:
    if not parameters.real_time:
        return []
    granularity = granularity_s()
    cases = chosen_cases(parameters.mode, parameters.cases)
    found = []
    for number, case in enumerate(cases):
        tell(number / len(cases), f"{case.id}, by the clock")
        found.append(run_in_real_time(case, seed, granularity))
    return found


def _notes(suite: Suite, by_the_clock: list[dict[str, Any]]) -> list[str]:
    notes = [
        "Virtual time: every figure but the CPU time is exact, and the same on every machine for the same seed.",
        "What was published with the seed was measured by the wall clock, its scheduler's own time included.",
    ]
    for severity in ("error", "warning"):
        names = failures_of(suite, severity)
        if names:
            notes.append(f"Failed ({severity}): {'; '.join(names[:10])}{' …' if len(names) > 10 else ''}.")
    if by_the_clock:
        slept_s = by_the_clock[0]["sleep_of_0.3_ms_takes_s"]
        notes.append(
            f"By the wall clock a sleep of 0.3 ms takes {1e3 * slept_s:.2f} ms here, since the event loop waits in "
            "whole milliseconds: `ideal_of_machine_s` counts each service time as long as a sleep really takes."
        )
    return notes


SCENARIO = Scenario(
    name="idle",
    what="P11: seed 004's idle suite: how scheduling uses its capacity, in virtual time; beside its fixed controls",
    quick=IdleParameters(),
    full=IdleParameters(mode="full", real_time=True),
    measure=measure,
)
