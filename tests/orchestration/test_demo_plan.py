"""What the demo runs, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import load_settings
from headgate.orchestration import DemoChoices
from headgate.orchestration.demo.demo import (
    BLOCK,
    ENVIRONMENTS,
    LOCAL_BLOCK,
    LOCAL_ENVIRONMENTS,
    MODELS,
    as_typed,
    demo_deployments,
    faults,
    worker_environ,
)
from headgate.orchestration.deployment_file import DeploymentFile, read_deployment_file
from tests.house.tree import ROOT

REAL = read_deployment_file(ROOT / "prefect.yaml")


def _windows(file: DeploymentFile) -> list[dict]:
    return [d.parameters for d in file.deployments if d.parameters.get("environment")]


def test_it_runs_the_real_deployments_with_its_own_parameters_and_no_schedule(tmp_path: Path) -> None:
    file = demo_deployments(REAL, DemoChoices(folder=tmp_path), {})
    assert sorted(p["environment"] for p in _windows(file)) == sorted(ENVIRONMENTS)
    assert {d.name for d in file.deployments} <= {d.name for d in REAL.deployments}
    assert not any(schedule.active for d in file.deployments for schedule in d.schedules)
    assert {d.concurrency_limit for d in file.deployments} == {None}, "a busy server may cancel the only run by it"
    for parameters in _windows(file):
        assert parameters["settings"]["journal"].startswith(str(tmp_path))
        load_settings(parameters["settings"], environ={})


def test_the_baselines_are_enough_to_reach_the_goal() -> None:
    choices = DemoChoices()
    (rate,) = {p["rate_per_day"] for p in _windows(demo_deployments(REAL, choices, {}))}
    demanded = len(MODELS) * len(ENVIRONMENTS) * rate * choices.window_s / 86_400
    assert choices.goal({}) == 300
    assert demanded >= 1.5 * choices.goal({})
    assert len(MODELS) >= 6


def test_one_model_is_limited_and_one_fails_until_the_window_is_half_over() -> None:
    rules = {rule.kind: rule for rule in faults(30.0).rules}
    assert rules["rate_limit"].model in MODELS.values()
    assert rules["error"].model in MODELS.values()
    assert 5 < rules["error"].until_s < 20


@pytest.mark.parametrize("environ", [{"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, {}])
def test_own_models_are_asked_a_few_questions_only(environ: dict[str, str], tmp_path: Path) -> None:
    choices = DemoChoices(folder=tmp_path, roster=None if environ else tmp_path / "roster.yaml")
    (rate,) = {p["rate_per_day"] for p in _windows(demo_deployments(REAL, choices, environ))}
    assert rate * choices.window_s / 86_400 == pytest.approx(5)
    assert choices.goal(environ) == 1
    (roster,) = {p["roster"] for p in _windows(demo_deployments(REAL, choices, environ))}
    assert roster == ("" if environ else "demo")


def test_the_small_local_model_is_sampled_where_prompts_are_short(tmp_path: Path) -> None:
    rosters = {
        p["environment"]: p["roster"] for p in _windows(demo_deployments(REAL, DemoChoices(folder=tmp_path), {}))
    }
    assert {environment for environment, roster in rosters.items() if roster == LOCAL_BLOCK} == LOCAL_ENVIRONMENTS
    assert set(rosters.values()) == {BLOCK, LOCAL_BLOCK}


def test_an_option_is_told_as_it_was_started() -> None:
    assert as_typed("--keep-serving", {"MAKELEVEL": "1"}) == "make demo ARGS='--keep-serving'"
    assert as_typed("--keep-serving", {}) == "headgate demo --keep-serving"


def test_settings_of_other_campaigns_do_not_reach_the_demo_and_keys_do() -> None:
    keys = {"HEADGATE_KEY_A": "k", "OPENAI_API_KEY": "o", "PATH": "p"}
    assert worker_environ({"HEADGATE_STORE": "s3://mine", "BATCH_SIZE": "1"} | keys) == keys
