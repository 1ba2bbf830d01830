"""The checks of the idle suite and the comparison with a baseline: what is worse fails, and says so."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.core.errors import InvalidInputError
from headgate_bench.idle.baseline import baseline_of, compared, read_baseline
from headgate_bench.idle.checks import (
    RATIOS,
    SUMMARY_SCHEMA,
    Check,
    Rule,
    Rules,
    checks_document,
    checks_of,
    committed_rules,
    failures,
    summary_bytes,
    summary_of,
    with_checks,
)

NAME = "row-scale/rows-64"


def _case(**changes: Any) -> dict[str, Any]:
    ratios: dict[str, Any] = dict.fromkeys(RATIOS, 0.0)
    return (
        ratios
        | {
            "generation_count": 8_192,
            "llm_wait_utilization_ratio": 0.8,
            "llm_wait_idle_ratio": 0.2,
            "llm_wait_starved_idle_ratio": 0.15,
            "llm_wait_frontier_dependency_horizon_idle_ratio": 0.05,
            "llm_wait_scheduler_queue_age_p95_seconds": 0.1,
            "throughput_generations_per_second": 1_000.0,
            "hidden_scheduler_resource_waiters": 0,
            "validation_passed": True,
            "final_zero_task_leases": True,
            "final_zero_request_leases": True,
            "final_zero_request_waiters": True,
        }
        | changes
    )


def _summary(**cases: dict[str, Any]) -> dict[str, Any]:
    return summary_of(cases or {NAME: _case()}, "quick", time="virtual", seed=0)


def _rules(*behaviour: Rule, required: tuple[str, ...] = ()) -> Rules:
    committed = committed_rules()
    return committed.model_copy(
        update={
            "behaviour": behaviour,
            "required": committed.required | {"both": required, "quick": ()},
        }
    )


def _failed(checks: list[Check]) -> list[str]:
    return [check.name for check in failures(checks, "error")]


def test_a_good_summary_passes_every_check() -> None:
    checks = checks_of(_summary(), _rules(required=(NAME,)), is_whole=True)
    assert _failed(checks) == []
    assert checks_document(checks)["passed"] is True


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"validation_passed": False}, f"{NAME} validation_passed"),
        ({"final_zero_request_leases": False}, f"{NAME} final_zero_request_leases"),
        ({"hidden_scheduler_resource_waiters": 1}, f"{NAME} hidden waiters"),
        ({"request_idle_ratio": 1.2}, f"{NAME} request_idle_ratio"),
        ({"request_idle_ratio": float("nan")}, f"{NAME} request_idle_ratio"),
        ({"llm_wait_idle_ratio": 0.3}, f"{NAME} idle partition"),
        ({"llm_wait_scheduler_queue_age_p95_seconds": -1.0}, f"{NAME} queue age"),
        ({"generation_count": 100}, "large generation case present"),
    ],
)
def test_what_is_wrong_with_a_case_fails_one_check_that_names_it(changes: dict[str, Any], failed: str) -> None:
    checks = checks_of(_summary(**{NAME: _case(**changes)}), _rules(), is_whole=True)
    assert _failed(checks) == [failed]


def test_a_required_case_that_is_missing_fails_a_whole_run_only() -> None:
    rules = _rules(required=("adaptations/not-run",))
    assert _failed(checks_of(_summary(), rules, is_whole=True)) == ["required case adaptations/not-run"]
    assert _failed(checks_of(_summary(), rules, is_whole=False)) == []


UTIL = "llm_wait_utilization_ratio"


@pytest.mark.parametrize(
    ("rule", "passes"),
    [
        ({"case": "high", "at_least": 0.8}, True),
        ({"case": "high", "at_least": 0.9}, False),
        ({"case": "high", "at_most": 0.8}, True),
        ({"case": "high", "minus": "low", "at_least": 0.4}, True),
        ({"case": "high", "minus": "low", "at_least": 0.6}, False),
        ({"case": "high", "minus": "low", "at_least": 0.6, "unless_at_least": 0.3}, True),
        ({"case": "high", "minus": "low", "at_most": 0.4}, False),
        ({"case": "high", "metric": "first", "equals": "z_open"}, True),
        ({"case": "low", "metric": "first", "equals": "z_open"}, False),
        ({"case": "high", "metric": "not a figure", "at_least": 0.0}, False),
        ({"case": "absent", "at_least": 0.0}, False),
        ({"case": "high", "minus": "absent", "at_least": 0.0}, False),
        ({"case": "absent", "mode": "full", "at_least": 0.0}, True),
    ],
)
def test_a_behaviour_is_judged_by_its_rule(rule: dict[str, Any], passes: bool) -> None:
    cases = {
        "high": _case(llm_wait_utilization_ratio=0.8, first="z_open"),
        "low": _case(llm_wait_utilization_ratio=0.3, first="a_pressured"),
    }
    rules = _rules(Rule.model_validate({"name": "it", "metric": UTIL} | rule))
    assert _failed(checks_of(_summary(**cases), rules, is_whole=True)) == ([] if passes else ["it"])


def test_the_committed_rules_name_cases_that_are_run() -> None:
    from headgate_bench.idle.cases import Mode, cases_of

    modes: tuple[Mode, ...] = ("quick", "full")
    for mode in modes:
        ids = {case.id for case in cases_of(mode)}
        rules = committed_rules()
        assert set(rules.required_in(mode)) <= ids
        assert {name for rule in rules.behaviour_in(mode) for name in (rule.case, rule.minus) if name} <= ids


def _against(worse: dict[str, Any]) -> list[Check]:
    before = baseline_of(_summary())
    return compared(_summary(**{NAME: _case(**worse)}), before, committed_rules().tolerances, is_whole=True)


def test_a_run_equal_to_its_baseline_passes() -> None:
    assert all(check.passed for check in _against({}))


@pytest.mark.parametrize(
    ("worse", "failed"),
    [
        ({"llm_wait_utilization_ratio": 0.76}, []),
        ({"llm_wait_utilization_ratio": 0.74}, [UTIL]),
        ({"llm_wait_idle_ratio": 0.26}, ["llm_wait_idle_ratio"]),
        ({"llm_wait_starved_idle_ratio": 0.21}, ["llm_wait_starved_idle_ratio"]),
        ({"llm_wait_frontier_dependency_horizon_idle_ratio": 0.09}, []),
    ],
)
def test_a_worse_run_fails_beyond_the_tolerance(worse: dict[str, Any], failed: list[str]) -> None:
    assert _failed(_against(worse)) == [f"{NAME} {metric} against the baseline" for metric in failed]


def test_a_slower_run_is_a_warning_and_no_error() -> None:
    checks = _against({"throughput_generations_per_second": 740.0})
    assert _failed(checks) == []
    assert [check.name for check in failures(checks, "warning")] == [f"{NAME} throughput against the baseline"]
    assert checks_document(checks)["warning_count"] == 1


def test_a_case_that_the_baseline_has_and_the_run_lacks_is_an_error() -> None:
    baseline = baseline_of(_summary(**{NAME: _case(), "row-scale/rows-128": _case()}))
    tolerances = committed_rules().tolerances
    assert _failed(compared(_summary(), baseline, tolerances, is_whole=True)) == ["row-scale/rows-128 in the baseline"]
    assert _failed(compared(_summary(), baseline, tolerances, is_whole=False)) == []


def _written(tmp_path: Path, changes: dict[str, Any]) -> Path:
    path = tmp_path / "baseline.json"
    path.write_bytes(summary_bytes(copy.deepcopy(baseline_of(_summary())) | changes))
    return path


def test_a_summary_and_its_baseline_form_are_both_read(tmp_path: Path) -> None:
    summary = with_checks(_summary(), [])
    path = tmp_path / "summary.json"
    path.write_bytes(summary_bytes(summary))
    assert read_baseline(path, "quick")["cases"][NAME]["validation_passed"] is True
    assert read_baseline(_written(tmp_path, {}), "quick")["summary_schema_version"] == SUMMARY_SCHEMA


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"summary_schema_version": "other-v2"}, "has the schema 'other-v2', not 'async-scheduling-idle-summary-v1'"),
        ({"mode": "full"}, "is of the mode 'full', and this run of 'quick'"),
        ({"cases": {}}, "has no cases"),
        ({"cases": {NAME: {UTIL: "high"}}}, f"gives no number for {UTIL} of {NAME}"),
    ],
)
def test_a_file_of_another_form_is_refused_with_what_is_wrong(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_baseline(_written(tmp_path, changes), "quick")


def test_a_file_that_is_absent_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_baseline(tmp_path / "absent.json", "quick")
    (tmp_path / "text.json").write_text("no")
    with pytest.raises(InvalidInputError, match="is not JSON"):
        read_baseline(tmp_path / "text.json", "quick")


def test_the_summary_states_schema_suite_cases_and_counts_of_what_failed() -> None:
    checks = [Check("a", "shape", "error", False, 1, "2"), Check("b", "baseline", "warning", False, 0.5, "0.75")]
    document = json.loads(summary_bytes(with_checks(_summary(), checks)))
    assert document["summary_schema_version"] == "async-scheduling-idle-summary-v1"
    assert (document["suite_id"], document["suite_version"]) == ("async-scheduling-idle-regression", "1.1")
    assert (document["mode"], document["case_count"], document["largest_generation_count"]) == ("quick", 1, 8_192)
    assert set(document["cases"]) == {NAME}
    found = document["checks"]
    assert (found["passed"], found["error_count"], found["warning_count"]) == (False, 1, 1)
    assert found["checks"][0] == {
        "name": "a",
        "category": "shape",
        "severity": "error",
        "passed": False,
        "observed": 1,
        "expected": "2",
    }
