"""The checks on a summary: its shape, the correctness of each run, the figures, and the behaviour that they show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from headgate.bench.idle.rules import Rule, Rules

CHECKS_SCHEMA: Final = "async-scheduling-idle-checks-v1"

Category = Literal["shape", "correctness", "metrics", "optimization", "baseline"]
Severity = Literal["error", "warning"]

RATIOS: Final = (
    "llm_wait_utilization_ratio",
    "llm_wait_idle_ratio",
    "llm_wait_starved_idle_ratio",
    "llm_wait_frontier_dependency_horizon_idle_ratio",
    "request_utilization_ratio",
    "request_idle_ratio",
    "request_starved_idle_ratio",
    "request_frontier_dependency_horizon_idle_ratio",
)
_CLEAN: Final = (
    "validation_passed",
    "final_zero_task_leases",
    "final_zero_request_leases",
    "final_zero_request_waiters",
)
_LARGEST: Final = 8_192
"""Generations of the largest case of a whole run, at least (the seed's rule)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: unique in a list of checks.
        category: what kind.
        severity: whether a failure fails the run.
        passed: whether it holds.
        observed: what was seen.
        expected: what should be seen, in words.
    """

    name: str
    category: Category
    severity: Severity
    passed: bool
    observed: float | str | bool
    expected: str


def failures(checks: Sequence[Check], severity: Severity) -> list[Check]:
    """Return the checks of a severity that do not hold."""
    return [check for check in checks if check.severity == severity and not check.passed]


def checks_document(checks: Sequence[Check]) -> dict[str, Any]:
    """Return checks as the summary shows them."""
    errors, warnings = failures(checks, "error"), failures(checks, "warning")
    return {
        "checks_schema_version": CHECKS_SCHEMA,
        "passed": not errors,
        "error_count": len(errors),
        "warning_count": len(warnings),
        "checks": [asdict(check) for check in checks],
    }


def checks_of(summary: Mapping[str, Any], rules: Rules, *, is_whole: bool) -> list[Check]:
    """Return every check on a summary.

    Args:
        summary: of a run; see `summary.py`.
        rules: what it is held to.
        is_whole: whether all cases of the mode were to be run; behaviour of cases that were not is not judged.
    """
    cases: Mapping[str, Any] = summary["cases"]
    checks = list(_shape(summary, rules)) if is_whole else []
    for name, case in sorted(cases.items()):
        checks += _correctness(name, case)
        checks += _metrics(name, case)
    for rule in rules.behaviour_in(summary["mode"]):
        if is_whole or {rule.case, rule.minus or rule.case} <= set(cases):
            checks.append(_behaviour(rule, cases))
    return checks


def _shape(summary: Mapping[str, Any], rules: Rules) -> Iterator[Check]:
    largest = int(summary["largest_generation_count"])
    yield _error("large generation case present", "shape", largest >= _LARGEST, largest, f">= {_LARGEST} generations")
    for name in rules.required_in(summary["mode"]):
        is_there = name in summary["cases"]
        yield _error(f"required case {name}", "shape", is_there, is_there, "present")


def _correctness(name: str, case: Mapping[str, Any]) -> Iterator[Check]:
    for what in _CLEAN:
        yield _error(f"{name} {what}", "correctness", case[what] is True, bool(case[what]), "true")
    if "iterations_equal" in case:
        is_same = case["iterations_equal"]
        yield _error(f"{name} iterations agree", "correctness", is_same, is_same, "the same events at the same times")
    hidden = case["hidden_scheduler_resource_waiters"]
    yield _error(f"{name} hidden waiters", "correctness", hidden == 0, hidden, "0 workers without a task lease")


def _metrics(name: str, case: Mapping[str, Any]) -> Iterator[Check]:
    for metric in RATIOS:
        value = float(case[metric])
        is_ratio = math.isfinite(value) and -1e-9 <= value <= 1 + 1e-9
        yield _error(f"{name} {metric}", "metrics", is_ratio, value, "a ratio from 0 to 1")
    age = float(case["llm_wait_scheduler_queue_age_p95_seconds"])
    yield _error(f"{name} queue age", "metrics", math.isfinite(age) and age >= 0, age, "seconds >= 0")
    idle, starved = float(case["llm_wait_idle_ratio"]), float(case["llm_wait_starved_idle_ratio"])
    off = idle - starved - float(case["llm_wait_frontier_dependency_horizon_idle_ratio"])
    yield _error(f"{name} idle dominates starved idle", "metrics", idle + 1e-9 >= starved, idle - starved, ">= 0")
    yield _error(f"{name} idle partition", "metrics", abs(off) <= 1e-6, off, "starved + frontier idle = idle")


def _behaviour(rule: Rule, cases: Mapping[str, Any]) -> Check:
    missing = [name for name in (rule.case, rule.minus) if name and name not in cases]
    if missing:
        return _error(rule.name, "optimization", False, f"{missing[0]} is missing", rule.expectation())
    value = cases[rule.case].get(rule.metric)
    if rule.equals is not None:
        return _error(rule.name, "optimization", value == rule.equals, str(value), rule.expectation())
    observed = _number(value)
    is_excused = False
    if rule.minus:
        subtracted = _number(cases[rule.minus].get(rule.metric))
        observed -= subtracted
        is_excused = rule.unless_at_least is not None and subtracted >= rule.unless_at_least
    # Comparisons with a value that is not a number are false, as they should be.
    is_enough = rule.at_least is None or observed >= rule.at_least
    is_little = rule.at_most is None or observed <= rule.at_most
    passed = is_excused or (is_enough and is_little)
    return _error(rule.name, "optimization", passed, observed, rule.expectation())


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _error(name: str, category: Category, passed: bool, observed: float | str | bool, expected: str) -> Check:
    return Check(name, category, "error", passed, observed, expected)
