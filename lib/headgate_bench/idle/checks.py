"""The summary of a run and its checks: of its shape, each run's correctness, the figures, and the committed rules."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from headgate_bench.idle.cases import Mode

_FILE: Final = Path(__file__).with_name("checks.toml")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tolerances(_Strict):
    """How far a run may fall behind its baseline."""

    utilisation: float = Field(ge=0)
    idle: float = Field(ge=0)
    throughput: float = Field(ge=0, le=1)


class Rule(_Strict):
    """One rule that the figures must meet."""

    name: str
    case: str
    metric: str
    mode: Mode | None = None
    minus: str = ""
    at_least: float | None = None
    at_most: float | None = None
    equals: bool | float | str | None = None
    unless_at_least: float | None = None

    def expectation(self) -> str:
        """Return the expectation as text."""
        said = f"{self.metric} of {self.case}"
        if self.minus:
            said += f" less that of {self.minus}"
        for sign, level in ((">=", self.at_least), ("<=", self.at_most), ("=", self.equals)):
            if level is not None:
                said += f" {sign} {level}"
        return said + (f", unless that is >= {self.unless_at_least}" if self.unless_at_least is not None else "")


class Rules(_Strict):
    """The file of rules."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    version: Literal["headgate-idle-rules-v1"] = Field(alias="schema")
    tolerances: Tolerances
    required: dict[Literal["both", "quick", "full"], tuple[str, ...]]
    behaviour: tuple[Rule, ...] = Field(alias="check")

    def required_in(self, mode: Mode) -> tuple[str, ...]:
        """Return the ids of the cases that a run of a mode must have."""
        return tuple(sorted((*self.required["both"], *self.required[mode])))

    def behaviour_in(self, mode: Mode) -> tuple[Rule, ...]:
        """Return the rules that apply to a mode."""
        return tuple(rule for rule in self.behaviour if rule.mode in {None, mode})


@cache
def committed_rules() -> Rules:
    """Return the rules built into Headgate."""
    return Rules.model_validate(tomllib.loads(_FILE.read_text("utf-8")))


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
"""Minimum number of generations of the largest case in a whole run (DataDesigner's rule)."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str  # unique in a list of checks
    category: Category  # kind of check
    severity: Severity  # whether a failure fails the run
    passed: bool  # whether it passed
    observed: float | str | bool  # the observed value
    expected: str  # the expectation as text


def failures(checks: Sequence[Check], severity: Severity) -> list[Check]:
    """Return the failed checks of a severity."""
    return [check for check in checks if check.severity == severity and not check.passed]


def checks_document(checks: Sequence[Check]) -> dict[str, Any]:
    """Return checks in the form of the summary."""
    errors, warnings = failures(checks, "error"), failures(checks, "warning")
    return {
        "checks_schema_version": CHECKS_SCHEMA,
        "passed": not errors,
        "error_count": len(errors),
        "warning_count": len(warnings),
        "checks": [asdict(check) for check in checks],
    }


def checks_of(summary: Mapping[str, Any], rules: Rules, *, is_whole: bool) -> list[Check]:
    """Return all checks of a summary; rules about cases that were not selected are skipped."""
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
    # Comparisons with NaN are false, as they should be.
    is_enough = rule.at_least is None or observed >= rule.at_least
    is_little = rule.at_most is None or observed <= rule.at_most
    passed = is_excused or (is_enough and is_little)
    return _error(rule.name, "optimization", passed, observed, rule.expectation())


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _error(name: str, category: Category, passed: bool, observed: float | str | bool, expected: str) -> Check:
    return Check(name, category, "error", passed, observed, expected)


SUMMARY_SCHEMA: Final = "async-scheduling-idle-summary-v1"
SUITE: Final = "async-scheduling-idle-regression"
SUITE_VERSION: Final = "1.1"

Time = Literal["virtual", "real"]


def summary_of(cases: Mapping[str, Mapping[str, Any]], mode: Mode, *, time: Time, seed: int) -> dict[str, Any]:
    """Return the summary of the measured cases, by id, in DataDesigner's schema; `with_checks` adds the checks."""
    return {
        "summary_schema_version": SUMMARY_SCHEMA,
        "suite_id": SUITE,
        "suite_version": SUITE_VERSION,
        "mode": mode,
        "scheduler": "headgate",
        "time": time,
        "seed": seed,
        "case_count": len(cases),
        "largest_generation_count": max((case["generation_count"] for case in cases.values()), default=0),
        "cases": {name: dict(case) for name, case in sorted(cases.items())},
    }


def with_checks(summary: Mapping[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    """Return a summary with its checks."""
    return dict(summary) | {"checks": checks_document(checks)}


def summary_bytes(summary: Mapping[str, Any]) -> bytes:
    """Return a summary as the bytes of a file: the same figures give the same bytes."""
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
