"""Benchmarks: scenarios beside their rivals, artifacts with everything that a figure depends on, and their report."""

from headgate_bench.artifact import FORMAT, newest_artifacts
from headgate_bench.bars import Bar, at_least, at_most
from headgate_bench.fleet import LOGGER
from headgate_bench.page import bench_figures, bench_page
from headgate_bench.registry import scenario, scenario_names, scenario_summary
from headgate_bench.running import Finished, run_scenario
from headgate_bench.scenario import Bench, Chart, Outcome, Progress, Scenario, Size, Spread, spread_of

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
