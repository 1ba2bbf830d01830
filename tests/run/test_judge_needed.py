"""Environments that a campaign cannot sample: those that need a judge, and programs that cannot be locked in."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.core import errors
from headgate.environments import Sandbox, environment
from headgate.run import RunPlan, sampled_environments
from headgate.run import environments as environments_of_run
from headgate.run.matrix import MatrixTaskProvider
from headgate.sampling import StaticRoster
from headgate.simulation import LoopClock, MemoryStore, ScriptedChats
from tests.run.run_world import models

PROGRAMS = ("affine:sat", "headgate:tables")


def test_a_campaign_that_names_no_environments_leaves_those_out_that_need_a_judge() -> None:
    sampled = sampled_environments(Settings())
    assert "affine:sat" in sampled
    assert "headgate:explain" not in sampled


def test_a_campaign_that_names_one_is_refused_and_told_what_to_run() -> None:
    with pytest.raises(errors.JudgeNeededError, match="headgate judge"):
        sampled_environments(Settings(environments="affine:sat,headgate:explain"))


def test_a_plan_with_one_is_refused_before_anything_runs(tmp_path: Path) -> None:
    plan = RunPlan(
        Settings(journal=tmp_path),
        StaticRoster(models(1)),
        {"headgate:explain": environment("headgate:explain")},
        MemoryStore(),
        ScriptedChats(LoopClock()),
        provider=MatrixTaskProvider(["headgate:explain"], 1),
    )
    with pytest.raises(errors.JudgeNeededError, match="'headgate:explain' needs a judge"):
        plan.checked()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """The sandbox of a machine that has the system-call filter alone."""
    sandbox = Sandbox()
    monkeypatch.setattr(sandbox, "_locks", ("calls",))
    monkeypatch.setattr(environments_of_run, "SANDBOX", sandbox)
    return sandbox


async def test_without_all_locks_environments_that_run_programs_are_left_out_and_named(
    bare: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    found = {name: environment(name) for name in PROGRAMS}
    assert list(await environments_of_run.lockable_environments(found, ())) == ["affine:sat"]
    assert "headgate:tables" in caplog.text
    assert "HEADGATE_SANDBOX_LOCKS=calls" in caplog.text
    with pytest.raises(errors.SandboxUnavailableError, match="'namespaces' and 'files'"):
        await environments_of_run.lockable_environments(found, PROGRAMS)


async def test_fewer_locks_that_are_allowed_are_told_at_the_start(
    bare: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    bare.require(Settings(sandbox_locks="calls").sandbox_locks)
    found = {name: environment(name) for name in PROGRAMS}
    assert await environments_of_run.lockable_environments(found, PROGRAMS) == found
    assert "without the sandbox's locks namespaces, files" in caplog.text
