"""The deployments that Headgate comes with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.states import Pending

from headgate.environments import available
from headgate.orchestration import checked_deployments
from headgate.orchestration.deployment_file import Deployment, read_deployment_file
from headgate.orchestration.deployments import QUEUES
from tests.house.tree import ROOT

FILE = ROOT / "prefect.yaml"
DEPLOYMENTS = read_deployment_file(FILE).deployments
WINDOWS = [d for d in DEPLOYMENTS if d.entrypoint.endswith(".sample_environment")]


def test_every_deployment_can_be_deployed_and_started() -> None:
    assert len(checked_deployments(FILE)) == len(DEPLOYMENTS)


def test_the_environments_of_the_seed_have_a_window_each_and_it_is_on() -> None:
    on = {d.parameters["environment"] for d in WINDOWS if all(schedule.active for schedule in d.schedules)}
    agentgym = {f"agentgym:{name}" for name in ("alfworld", "babyai", "sciworld", "textcraft", "webshop")}
    assert on == {"affine:abd", "affine:ded", "affine:sat"} | agentgym


def test_every_environment_that_needs_no_judge_has_a_window() -> None:
    ours = {entry.name for entry in available() if entry.spec is not None and not entry.spec.needs_judge}
    assert ours == {d.parameters["environment"] for d in WINDOWS}


def test_the_windows_are_those_that_are_written_from_the_environments() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/deployments.py", "--check"], check=False, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("deployment", WINDOWS, ids=lambda d: d.name)
def test_a_window_ends_before_the_next_one_begins(deployment: Deployment) -> None:
    from headgate.config import Settings

    (schedule,) = deployment.schedules
    drained_s = deployment.parameters["duration_s"] + Settings().drain_timeout_s
    assert isinstance(schedule.interval, float)
    assert drained_s + 30 <= schedule.interval


def test_windows_do_not_all_begin_at_once() -> None:
    anchors = [schedule.anchor_date for d in WINDOWS for schedule in d.schedules]
    assert len(set(anchors)) == len(anchors)


def test_a_window_begins_within_75_s_of_any_moment() -> None:
    on = [schedule for d in WINDOWS for schedule in d.schedules if schedule.active]
    begun = sorted(datetime.fromisoformat(schedule.anchor_date or "").timestamp() % 600 for schedule in on)
    assert {schedule.interval for schedule in on} == {600}
    assert {after - before for before, after in pairwise([*begun, begun[0] + 600])} == {75}


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d.name)
def test_a_deployment_has_a_description_tags_a_limit_and_a_known_queue(deployment: Deployment) -> None:
    assert (deployment.description or "").endswith(".")
    assert deployment.tags
    assert deployment.concurrency_limit is not None
    assert deployment.work_pool.work_queue_name in QUEUES


def test_the_documentation_lists_the_same_deployments() -> None:
    page = (ROOT / "docs/reference/prefect.md").read_text()
    assert re.findall(r"^\| `([a-z-]+/[a-z-]+)`", page, re.MULTILINE) == list(checked_deployments(FILE))


@pytest.mark.timeout(400)
async def test_one_command_deploys_everything_without_a_question(prefect: object) -> None:
    _deploy(prefect, "--all")
    async with get_client() as client:
        for name in checked_deployments(FILE):
            found = await client.read_deployment_by_name(name)
            wanted = next(d for d in DEPLOYMENTS if d.name == found.name)
            assert found.work_queue_name == wanted.work_pool.work_queue_name
            assert found.global_concurrency_limit is not None
            assert [(s.slug, s.active) for s in found.schedules] == [(s.slug, s.active) for s in wanted.schedules]
            for schedule in found.schedules:  # or its runs come up in the tests that follow
                await client.update_deployment_schedule(found.id, schedule.id, active=False)
        assert await _pending_runs(client, "sample-environment/affine-sat", 3) == ["PENDING", "PENDING", "CANCELLED"]
        assert await _pending_runs(client, "report/report", 2) == ["PENDING", "SCHEDULED"], "it waits for its turn"


@pytest.mark.long  # the command is that which deploys everything, above
async def test_one_deployment_is_deployed_again_without_a_question(prefect: object) -> None:
    for _ in range(2):
        _deploy(prefect, "--name", "affine-sat")
    async with get_client() as client:
        found = await client.read_deployment_by_name("sample-environment/affine-sat")
        for schedule in found.schedules:  # or its runs come up in the tests that follow
            await client.update_deployment_schedule(found.id, schedule.id, active=False)


def _deploy(server: object, *words: str) -> None:
    environ = server.environ() | {"PREFECT_API_SSL_CERT_FILE": os.environ["SSL_CERT_FILE"]}  # type: ignore[attr-defined]
    command = [sys.executable, "-m", "prefect", "deploy", *words]
    given = {"cwd": ROOT, "env": environ, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, **given, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]


async def _pending_runs(client: PrefectClient, deployment: str, count: int) -> list[str]:
    """Return what becomes of runs of a deployment that are started while those before them go on."""
    found = await client.read_deployment_by_name(deployment)
    runs = [await client.create_flow_run_from_deployment(found.id) for _ in range(count)]
    for run in runs:
        await client.set_flow_run_state(run.id, Pending())
    states = [(await client.read_flow_run(run.id)).state for run in runs]
    for run in runs:
        await client.delete_flow_run(run.id)
    return [state.type.value for state in states if state is not None]


async def test_the_server_makes_runs_of_a_schedule(prefect: object) -> None:
    daily = DeploymentScheduleCreate(schedule=IntervalSchedule(interval=timedelta(days=1)))
    async with get_client() as client:
        flow_id = await client.create_flow_from_name("scheduled-daily")
        deployment_id = await client.create_deployment(flow_id, "without-a-worker", schedules=[daily])
        wanted = {"min_runs": 3}
        await client.request("POST", "/deployments/{id}/schedule", path_params={"id": deployment_id}, json=wanted)
        this = DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id]))
        assert len(await client.read_flow_runs(deployment_filter=this)) >= 3
        await client.delete_deployment(deployment_id)
