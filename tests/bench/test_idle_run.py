"""The idle suite, run: on the real dispatch loop and request admission, in virtual time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.main import main
from headgate.simulation import run_virtual
from headgate_bench.idle.cases import cases_of
from headgate_bench.idle.checks import summary_bytes
from headgate_bench.idle.metrics import metrics_of
from headgate_bench.idle.suite import run_case, run_suite
from tests.bench.tiny import EASY, TINY, bench

CASES = {case.id: case for case in cases_of("quick")}


def _figures(name: str) -> dict[str, Any]:
    return metrics_of(CASES[name], run_virtual(run_case(CASES[name], seed=0)))


def _summary(*ids: str, seed: int = 0) -> bytes:
    return summary_bytes(run_suite("quick", ids, seed=seed, baseline="none", progress=lambda _s, _w: None).summary)


@pytest.mark.long
def test_the_same_seed_gives_the_same_summary_to_the_byte() -> None:
    ids = ("adaptations/adaptive-request-pressure-combined", "row-scale/rows-64", "headgate/cross-provider-cooldown")
    assert _summary(*ids) == _summary(*ids)


@pytest.mark.long
def test_another_seed_draws_other_service_times_where_they_vary() -> None:
    case = CASES["headgate/adaptive-row-groups-varied"]
    runs = [run_virtual(run_case(case, seed)) for seed in (0, 0, 1)]
    assert runs[0].fingerprint() == runs[1].fingerprint() != runs[2].fingerprint()
    assert all(metrics_of(case, run)["llm_wait_utilization_ratio"] > 0.9 for run in runs)


def test_a_frontier_of_one_row_leaves_all_but_one_unit_idle_and_an_adaptive_one_does_not() -> None:
    fixed = _figures("adaptations/adaptive-row-groups-fixed-low")
    assert fixed["llm_wait_utilization_ratio"] == pytest.approx(1 / 8)
    assert fixed["llm_wait_frontier_dependency_horizon_idle_ratio"] == pytest.approx(7 / 8)
    adaptive = _figures("adaptations/adaptive-row-groups-adaptive")
    assert adaptive["llm_wait_utilization_ratio"] > 0.9
    assert adaptive["row_group_admission_observed_max_target"] == 8


def test_without_advice_the_pressed_provider_is_asked_first_and_the_open_one_waits() -> None:
    control = _figures("adaptations/request-pressure-control")
    assert control["first_model_dispatch_column"] == "a_pressured"
    assert control["request_wait_seconds_while_task_leased_mean"] == pytest.approx(0.05)
    assert control["open_provider_starved_idle_ratio"] > 0.49


def test_with_advice_the_open_provider_is_asked_first_and_no_lease_waits() -> None:
    advised = _figures("adaptations/request-pressure-advisory")
    assert advised["first_model_dispatch_column"] == "z_open"
    assert advised["request_wait_seconds_while_task_leased_mean"] == 0.0
    assert advised["open_provider_starved_idle_ratio"] == 0.0
    assert advised["wall_time_over_ideal"] == pytest.approx(1.0)


def test_row_groups_are_opened_for_the_open_provider_before_a_worker_waits_for_the_pressed_one() -> None:
    control = _figures("adaptations/adaptive-request-pressure-control")
    combined = _figures("adaptations/adaptive-request-pressure-combined")
    in_use = "request_utilization_while_pressed_ratio"
    assert combined[in_use] > control[in_use]
    assert combined["llm_wait_utilization_ratio"] > 0.99
    assert combined["mean_wall_time_seconds"] <= control["mean_wall_time_seconds"] + 1e-9


def test_a_provider_in_cooldown_is_asked_again_when_it_is_over_and_idles_no_other() -> None:
    figures = _figures("headgate/cross-provider-cooldown")
    assert figures["validation_passed"]
    assert figures["open_provider_starved_idle_ratio"] == 0.0
    assert figures["wall_time_over_ideal"] == pytest.approx(1.0)


def test_a_task_takes_a_slot_per_request_and_none_without() -> None:
    figures = _figures("headgate/dynamic-request-count")
    assert figures["requests_per_task"] == pytest.approx(5 / 3)
    assert figures["final_zero_request_leases"]


def test_a_peer_that_arrives_waits_for_a_heavy_task_to_end_unless_borrowing_is_bounded() -> None:
    assert _figures("headgate/heavy-root-peer-arrival-strict")["peer_first_wait_seconds"] == pytest.approx(0.45)
    assert _figures("headgate/heavy-root-peer-arrival-bounded")["peer_first_wait_seconds"] == 0.0


def test_thousands_of_ready_tasks_have_no_worker_before_they_have_a_lease() -> None:
    figures = _figures("headgate/hidden-waiters")
    assert figures["hidden_scheduler_resource_waiters"] == 0
    assert figures["validation_passed"]


def test_the_committed_baselines_have_every_case_of_their_mode() -> None:
    from headgate_bench.idle.baseline import committed_baseline
    from headgate_bench.idle.cases import Mode

    modes: tuple[Mode, ...] = ("quick", "full")
    for mode in modes:
        assert set(committed_baseline(mode)["cases"]) == {case.id for case in cases_of(mode)}


def _run(capsys: pytest.CaptureFixture[str], output: Path, *changes: str) -> tuple[int, dict[str, Any]]:
    return bench(capsys, output, "idle", *TINY["idle"], *EASY["idle"], *changes)


def test_a_run_leaves_its_summary_a_baseline_and_a_page_that_needs_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, printed = _run(capsys, tmp_path)
    assert status == 0
    files = {Path(path).name: Path(path) for path in printed["files"]}
    assert set(files) == {"summary.json", "baseline.json", "report.html"}
    summary = json.loads(files["summary.json"].read_text())
    assert summary["summary_schema_version"] == "async-scheduling-idle-summary-v1"
    assert summary["case_count"] == len(summary["cases"]) == 5
    page = files["report.html"].read_text()
    assert page.count("<svg") == 3
    assert "0 errors and 0 warnings" in page
    assert "<script" not in page
    assert re.findall(r'(?:href|src)="(?!#)([^"]*)"', page) == []
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.long
def test_a_run_worse_than_its_baseline_misses_a_bar_and_says_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, printed = _run(capsys, tmp_path)
    better = json.loads(Path(printed["files"][1]).read_text())
    better["cases"]["adaptations/adaptive-row-groups-fixed-low"]["llm_wait_utilization_ratio"] = 0.9
    path = tmp_path / "better.txt"
    path.write_text(json.dumps(better))
    status, printed = _run(capsys, tmp_path, f"baseline={path}")
    assert status == 4
    assert [bar["id"] for bar in printed["bars"] if not bar["met"]] == ["P11.checks"]
    notes = json.loads(Path(printed["artifact"]).read_text())["notes"]
    said = "adaptations/adaptive-row-groups-fixed-low llm_wait_utilization_ratio against the baseline"
    assert any(said in note for note in notes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("cases=row-scale/rows-65", "has no case 'row-scale/rows-65'"),
        ("baseline=absent.json", "baseline absent.json cannot be read"),
        ("mode=fast", "parameter mode"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_next_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: str, said: str
) -> None:
    assert main(["bench", "idle", "--output", str(tmp_path), "--set", change]) == 2
    assert said in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_by_the_wall_clock_a_case_is_held_to_what_the_machine_s_timers_allow(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, printed = _run(capsys, tmp_path, "cases=row-scale/rows-64", "real_time=true")
    samples = json.loads(Path(printed["artifact"]).read_text())["samples"]
    real = next(sample for sample in samples if sample["time"] == "real")
    assert real["mean_wall_time_seconds"] >= 0.2112
    assert real["ideal_of_machine_s"] >= 0.2112
    assert real["sleep_of_0.3_ms_takes_s"] >= 0.0003
    assert "In wall-clock time" in Path(printed["files"][2]).read_text()
