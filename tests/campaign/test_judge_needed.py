"""Campaigns without a judge and environments that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.campaign import CampaignPlan, MatrixTaskProvider, sampled_environments
from headgate.config import Settings
from headgate.core import errors
from headgate.environments import environment
from headgate.sampling import StaticRoster
from headgate.simulation import LoopClock, MemoryStore, ScriptedChats
from tests.campaign.campaign_world import models


def test_a_campaign_that_names_no_environments_leaves_those_out_that_need_a_judge() -> None:
    sampled = sampled_environments(Settings())
    assert "affine:sat" in sampled
    assert "headgate:explain" not in sampled


def test_a_campaign_that_names_one_is_refused_and_told_what_to_run() -> None:
    with pytest.raises(errors.JudgeNeededError, match="headgate judge"):
        sampled_environments(Settings(environments="affine:sat,headgate:explain"))


def test_a_plan_with_one_is_refused_before_anything_runs(tmp_path: Path) -> None:
    plan = CampaignPlan(
        Settings(journal=tmp_path),
        StaticRoster(models(1)),
        {"headgate:explain": environment("headgate:explain")},
        MemoryStore(),
        ScriptedChats(LoopClock()),
        provider=MatrixTaskProvider(["headgate:explain"], 1),
    )
    with pytest.raises(errors.JudgeNeededError, match="'headgate:explain' needs a judge"):
        plan.checked()
