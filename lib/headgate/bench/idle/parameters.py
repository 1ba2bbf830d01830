"""Parameters of the idle suite."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.bench.idle.cases import Mode


@dataclass(frozen=True, slots=True)
class IdleParameters:
    """Parameters of the scenario.

    Attributes:
        mode: which form of the suite: the seed's quick one with 22 cases, or the full one with 28; our own beside them.
        cases: ids of the cases to run; all of the mode when empty. Behaviour of cases that were not run is not judged.
        baseline: what the figures are compared with: the summary of an earlier run, `none`, or empty for the one that
            Headgate comes with.
        real_time: whether each case is run once by the wall clock as well.
        clock_repeats: how often the combined case and its control take turns by the wall clock.
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
    clock_repeats: int = 5
    bar_utilisation: float = 0.677
    bar_frontier: float = 0.147
    bar_leased_wait: float = 10.0
    bar_wall: float = 1.25
    bar_combined: float = 0.005
    bar_cpu_us: float = 150.0
    bar_errors: int = 0
