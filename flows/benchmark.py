"""The benchmarks, on your own worker."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="benchmark", flow_run_name="benchmark, {size}")
async def benchmark(
    scenarios: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    size: p.Size = "quick",
    seed: p.Seed = 0,
    changes: dict[p.Name, list[str]] = {},  # noqa: B006
    baseline: str = "",
    reports: p.Block = "",
    fail_on_missed: bool = True,
) -> dict[str, Any]:
    """Run benchmark scenarios on this worker: bars, figures and a page as artifacts.

    Args:
        scenarios: Scenarios to run, e.g. idle. `headgate bench list` lists them. Empty: all of them.
        size: quick takes under a minute per scenario, full several.
        seed: Random seed.
        changes: Changed parameters by scenario, e.g. {"queue": ["tasks=1000"]}.
        baseline: What to compare the idle suite with: a summary.json, or none. Empty: the baseline built into Headgate.
        reports: Name of a Report Store block. Empty: the folder .headgate/reports.
        fail_on_missed: A missed bar makes the run Failed.

    Returns:
        Number of bars, the missed ones, and where the page is.
    """
    return await orchestration.run_benchmark(orchestration.BenchOrder(**locals()))
