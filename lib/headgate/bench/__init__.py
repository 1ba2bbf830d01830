"""Benchmarks: scenarios beside their rivals, artifacts with everything that a figure depends on, and their report."""

from headgate.bench.artifact import FORMAT, newest_artifacts
from headgate.bench.bars import Bar, at_least, at_most
from headgate.bench.fleet import LOGGER
from headgate.bench.page import bench_figures, bench_page
from headgate.bench.registry import scenario, scenario_names, scenario_summary
from headgate.bench.running import Finished, run_scenario
from headgate.bench.scenario import Bench, Chart, Outcome, Progress, Scenario, Size, Spread, spread_of

__all__ = [
    "FORMAT",
    "LOGGER",
    "Bar",
    "Bench",
    "Chart",
    "Finished",
    "Outcome",
    "Progress",
    "Scenario",
    "Size",
    "Spread",
    "at_least",
    "at_most",
    "bench_figures",
    "bench_page",
    "newest_artifacts",
    "run_scenario",
    "scenario",
    "scenario_names",
    "scenario_summary",
    "spread_of",
]
