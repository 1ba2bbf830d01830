from .artifact import FORMAT as FORMAT, newest_artifacts as newest_artifacts
from .artifact import Bar as Bar, at_least as at_least, at_most as at_most
from .page import bench_figures as bench_figures, bench_page as bench_page
from .running import (
    scenario as scenario,
    scenario_names as scenario_names,
    scenario_summary as scenario_summary,
)
from .running import Finished as Finished, run_scenario as run_scenario
from .definition import (
    LOGGER as LOGGER,
    Bench as Bench,
    Chart as Chart,
    Outcome as Outcome,
    Progress as Progress,
    Scenario as Scenario,
    Size as Size,
    Spread as Spread,
    spread_of as spread_of,
)
