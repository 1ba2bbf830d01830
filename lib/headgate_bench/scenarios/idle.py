"""P11: DataDesigner's idle suite: how scheduling uses its capacity, in virtual time, next to fixed controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from markupsafe import Markup

from headgate_bench.artifact import Bar, bar_document
from headgate_bench.definition import Bench, Chart, Outcome, Progress, Scenario, Spread, spread_of
from headgate_bench.idle.bars import (
    BOTH,
    FRONTIER,
    LEASED_WAIT,
    NEITHER,
    UTILISATION,
    IdleParameters,
    bars_of,
    clock_bars_of,
    published,
)
from headgate_bench.idle.baseline import baseline_of
from headgate_bench.idle.charts import charts_of
from headgate_bench.idle.checks import Severity, summary_bytes
from headgate_bench.idle.metrics import MODEL
from headgate_bench.idle.suite import Suite, chosen_cases, granularity_s, run_in_real_time, run_suite, wall_ratios
from headgate_bench.page import bench_figures, templates


def measure(parameters: IdleParameters, bench: Bench) -> Outcome:
    """Return the figures of every case, the bars, and the summary, baseline and page as files."""
    virtual, real = _halves(bench.progress, parameters)
    suite = run_suite(
        parameters.mode, parameters.cases, seed=bench.seed, baseline=parameters.baseline, progress=virtual
    )
    by_the_clock = _by_the_clock(parameters, bench.seed, real)
    bars = [*bars_of(suite, parameters), *clock_bars_of(by_the_clock, parameters)]
    charts = charts_of(suite.cases, suite.runs, parameters.bar_wall)
    notes = _notes(suite, by_the_clock)
    page = idle_page(suite.summary, bars, charts, notes, by_the_clock)
    return Outcome(
        bars=bars,
        samples=[*_samples(suite), *by_the_clock],
        ratios=_clock_ratios(parameters, suite, bench.seed),
        charts=charts,
        notes=notes,
        files={
            "summary.json": summary_bytes(suite.summary),
            "baseline.json": summary_bytes(baseline_of(suite.summary)),
            "report.html": page,
        },
    )


def _samples(suite: Suite) -> list[dict[str, Any]]:
    names = (
        UTILISATION,
        f"{MODEL}_working_ratio",
        f"{MODEL}_starved_idle_ratio",
        FRONTIER,
        "mean_wall_time_seconds",
        "wall_time_over_ideal",
        "throughput_generations_per_second",
        "request_utilization_ratio",
        LEASED_WAIT,
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
    """Return the progress functions of the simulated and the real part."""
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


def _clock_ratios(parameters: IdleParameters, suite: Suite, seed: int) -> dict[str, Spread]:
    """Return the effect of both adaptations on the real wall time, over several runs."""
    if not parameters.real_time or not {NEITHER, BOTH} <= set(suite.cases):
        return {}
    neither, both = chosen_cases(parameters.mode, (NEITHER, BOTH))
    ratios = wall_ratios(both, neither, seed, parameters.clock_repeats)
    return {"wall time by the clock, advice and adaptive frontier / no advice": spread_of(ratios)}


def _notes(suite: Suite, by_the_clock: list[dict[str, Any]]) -> list[str]:
    notes = [
        "Virtual time: every figure but the CPU time is exact, and the same on every machine for the same seed.",
        "What DataDesigner published was measured by the wall clock, its scheduler's own time included.",
    ]
    severities: tuple[Severity, ...] = ("error", "warning")
    for severity in severities:
        names = suite.failures(severity)
        if names:
            notes.append(f"Failed ({severity}): {'; '.join(names[:10])}{' …' if len(names) > 10 else ''}.")
    if by_the_clock:
        slept_s = by_the_clock[0]["sleep_of_0.3_ms_takes_s"]
        notes.append(
            f"In wall-clock time a sleep of 0.3 ms takes {1e3 * slept_s:.2f} ms here, since the event loop waits in "
            "whole milliseconds: `ideal_of_machine_s` counts each service time as long as a sleep really takes."
        )
    return notes


def idle_page(
    summary: Mapping[str, Any],
    bars: Sequence[Bar],
    charts: Sequence[Chart],
    notes: Sequence[str],
    by_the_clock: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the page about a summary: verdict, bars, charts, all cases next to the published figures, all checks."""
    drawn = bench_figures([{"scenario": "idle", "charts": [asdict(chart) for chart in charts]}])
    checks = summary["checks"]
    page = templates().get_template("idle.html.j2")
    return page.render(
        summary=summary,
        bars=[bar_document(bar) for bar in bars],
        cases=summary["cases"],
        published=published(),
        checks=checks,
        failed=[check for check in checks["checks"] if not check["passed"]],
        figures=[(title, Markup(svg)) for title, svg in drawn.values()],  # noqa: S704 - drawn by us
        notes=notes,
        by_the_clock=by_the_clock,
    )


SCENARIO = Scenario(
    name="idle",
    quick=IdleParameters(),
    full=IdleParameters(mode="full", real_time=True),
    measure=measure,
)
