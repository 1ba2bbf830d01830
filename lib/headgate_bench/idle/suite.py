"""The suite: every case run, its figures, its checks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.core.errors import InvalidInputError
from headgate.simulation import run_virtual
from headgate_bench.idle.baseline import committed_baseline, compared, read_baseline
from headgate_bench.idle.cases import Case, Mode, cases_of
from headgate_bench.idle.checks import Check, Severity, checks_of, committed_rules, summary_of, with_checks
from headgate_bench.idle.facts import Run
from headgate_bench.idle.metrics import metrics_of
from headgate_bench.idle.pipeline import run_case
from headgate_bench.scenario import Progress


@dataclass(frozen=True, slots=True)
class Suite:
    """What a run of the suite found.

    Attributes:
        summary: every figure and check; the same bytes for the same seed.
        runs: the facts of each case, by id.
        cpu_us: CPU time per generation by case, in microseconds.
    """

    summary: Mapping[str, Any]
    runs: Mapping[str, Run]
    cpu_us: Mapping[str, float]

    @property
    def cases(self) -> Mapping[str, Mapping[str, Any]]:
        """The figures by case."""
        cases: Mapping[str, Mapping[str, Any]] = self.summary["cases"]
        return cases

    def failures(self, severity: Severity) -> list[str]:
        """Return the names of the checks of a severity that fail."""
        checks = self.summary["checks"]["checks"]
        return [check["name"] for check in checks if check["severity"] == severity and not check["passed"]]

    @property
    def mean_cpu_us(self) -> float:
        """CPU time per generation over all cases, in microseconds."""
        generations = {name: int(case["generation_count"]) for name, case in self.cases.items()}
        return math.fsum(self.cpu_us[name] * n for name, n in generations.items()) / sum(generations.values())


def chosen_cases(mode: Mode, ids: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases of these ids, all of the mode without any.

    Raises:
        InvalidInputError: if the mode has no case of an id.
    """
    cases = {case.id: case for case in cases_of(mode)}
    unknown = [name for name in ids if name not in cases]
    if unknown:
        raise InvalidInputError(
            f"the {mode} idle suite has no case {unknown[0]!r}", next_step=f"It has {', '.join(cases)}."
        )
    return tuple(cases[name] for name in ids) or tuple(cases.values())


def run_suite(mode: Mode, ids: Sequence[str], *, seed: int, baseline: str, progress: Progress) -> Suite:
    """Run the cases in virtual time and judge them.

    Args:
        mode: which form of the suite.
        ids: the cases; all of the mode when empty.
        seed: of everything random.
        baseline: a file, `none`, or empty for the one that Headgate comes with.
        progress: told what is run.

    Raises:
        InvalidInputError: if an id or the baseline cannot be used; nothing is run then.
    """
    cases = chosen_cases(mode, ids)
    before = _baseline(mode, baseline)
    found: dict[str, dict[str, Any]] = {}
    runs: dict[str, Run] = {}
    cpu_us: dict[str, float] = {}
    for number, case in enumerate(cases):
        progress(number / len(cases), case.id)
        repeated = [_timed(case, seed) for _ in range(case.iterations)]
        runs[case.id] = repeated[0]
        found[case.id] = metrics_of(case, repeated[0]) | {
            "iterations_equal": len({run.fingerprint() for run in repeated}) == 1
        }
        cpu_us[case.id] = 1e6 * min(run.cpu_s for run in repeated) / case.generations
    summary = summary_of(found, mode, time="virtual", seed=seed)
    checks = _checks(summary, before, is_whole=not ids)
    return Suite(with_checks(summary, checks), runs, cpu_us)


def _timed(case: Case, seed: int) -> Run:
    began = time.process_time()
    run = run_virtual(run_case(case, seed))
    return Run(
        run.facts,
        run.limits,
        run.slots,
        run.leases_left,
        run.requests_left,
        run.waiters_left,
        time.process_time() - began,
    )


def _baseline(mode: Mode, given: str) -> Mapping[str, Any] | None:
    if given == "none":
        return None
    return read_baseline(Path(given), mode) if given else committed_baseline(mode)


def _checks(summary: Mapping[str, Any], before: Mapping[str, Any] | None, *, is_whole: bool) -> list[Check]:
    rules = committed_rules()
    checks = checks_of(summary, rules, is_whole=is_whole)
    if before is not None:
        checks += compared(summary, before, rules.tolerances, is_whole=is_whole)
    return checks


def worst_over_ideal(suite: Suite, mode: Mode) -> tuple[str, float]:
    """Return the case whose wall time is furthest above its ideal, and how far; controls are left out."""
    held = [case.id for case in cases_of(mode) if case.id in suite.cases and not case.is_control]
    if not held:
        return "", math.nan
    worst = max(held, key=lambda name: float(suite.cases[name]["wall_time_over_ideal"]))
    return worst, float(suite.cases[worst]["wall_time_over_ideal"])
