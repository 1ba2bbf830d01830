"""The flow `place-roles` on a real Ray with the real ledger, run in this process against a real Prefect server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings
from prefect.states import Cancelling

from flows.placement import place_roles
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.roles import RoleFolder, names_in
from tests.flows.api import artifacts_of, newest_run
from tests.own_ray import own_ray

pytestmark = pytest.mark.timeout(300)  # the first test of a file starts Prefect and Ray


@pytest.fixture(scope="module")
def placed_ray() -> Iterator[None]:
    """A tuned Ray of three CPUs in a folder of its own: less than all roles of a training want together."""
    from headgate.placement.cluster.tuning import TUNED

    with own_ray(3, namespace="headgate", _system_config=dict(TUNED)):
        yield


def _given(tmp_path: Path, **more: Any) -> dict[str, Any]:
    small = {"environment": "affine:sat", "rollouts": 2, "episodes": 16, "trial_episodes": 10}
    return {**small, "folder": str(tmp_path), **more}


def _is_all_free() -> bool:
    """Tell whether nothing is held or waited for, within half a minute, and the ledger and Ray agree."""
    from headgate.placement.cluster.client import connect

    with connect() as placement:
        for _ in range(300):
            if all(each.stage.has_ended for each in placement.requests()):
                return placement.audit() == ()
            threading.Event().wait(0.1)
    return False


@pytest.mark.long
async def test_roles_are_placed_by_priority_and_every_victim_goes_on(
    prefect: object, placed_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rollouts that play on for long, so that the trainer finds them wherever the machine is fast.
    monkeypatch.setattr("headgate.orchestration.placement.rounds._MOST_BATCHES", 60)
    counts = await place_roles(name="first", rounds=2, **_given(tmp_path))
    assert (counts["rounds"], RoleFolder(tmp_path / "first").policy().version) == (2, 2)  # type: ignore[union-attr]
    assert counts["preemptions"] >= 1
    assert 0.0 <= counts["mean_reward_before"] <= 1.0
    assert 0.0 <= counts["mean_reward_after"] <= 1.0
    published = await artifacts_of((await newest_run("train first in affine:sat")).id)
    roles = {row["role"]: row for row in published["placement-roles-first"]}
    assert next(iter(roles)) == "train"
    assert (roles["train"]["done"], roles["reward"]["done"], roles["rollout"]["done"]) == ("2", "2", "4")
    assert roles["train"]["preempted"] == "0"
    cut = published["placement-preemptions-first"]
    assert {row["ended"] for row in cut} == {"done"}
    assert all(row["for"] in {"train 1", "train 2", "reward 1", "reward 2", "trial-000", "trial-002"} for row in cut)
    assert all(row["stopped in"].endswith(" ms") for row in cut)
    assert "data:image/svg+xml" in published["placement-timeline-first"]
    assert "mean reward" in published["placement-first"]
    assert await asyncio.to_thread(_is_all_free)
    assert (await place_roles(name="first", rounds=2, **_given(tmp_path)))["rounds"] == 0


@pytest.mark.long
async def test_a_cancelled_run_gives_everything_back_and_the_next_one_goes_on(
    prefect: object, placed_ray: None, tmp_path: Path
) -> None:
    async def cancel() -> None:
        while not names_in(RoleFolder(tmp_path / "second").played):  # noqa: ASYNC110 - a worker of Ray writes it
            await asyncio.sleep(0.05)
        run = await newest_run("train second in affine:sat")
        async with get_client() as client:
            await client.set_flow_run_state(run.id, Cancelling(), force=True)

    async with asyncio.TaskGroup() as group:
        group.create_task(cancel())
        given = _given(tmp_path, episodes=4_000)
        state = await place_roles(name="second", rounds=1, **given, return_state=True)
    assert state.is_cancelled()
    assert await asyncio.to_thread(_is_all_free)
    assert (await place_roles(name="second", rounds=1, **_given(tmp_path)))["rounds"] == 1
    published = await artifacts_of((await newest_run("train second in affine:sat")).id)
    roles = {row["role"]: row["done"] for row in published["placement-roles-second"]}
    assert (roles["train"], roles["reward"], roles["rollout"]) == ("1", "1", "2")
    assert "mean reward" in published["placement-second"]


@pytest.mark.long
async def test_a_signal_to_a_run_and_all_its_processes_leaves_its_own_cluster_for_the_drain(
    prefect: object, tmp_path: Path
) -> None:
    given = _given(tmp_path, name="third", rounds=1, episodes=4_000)
    program = f"import asyncio; from flows.placement import place_roles; asyncio.run(place_roles(**{given!r}))"
    environ = os.environ | get_current_settings().to_environment_variables(exclude_unset=True)
    environ |= {"RAY_ADDRESS": "local"}
    log = tmp_path / "log"
    with log.open("w") as output:
        run = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", program], env=environ, stdout=output, stderr=output, start_new_session=True
        )
    while not names_in(RoleFolder(tmp_path / "third").played):
        assert run.poll() is None, log.read_text()
        await asyncio.sleep(0.05)
    os.killpg(run.pid, signal.SIGTERM)  # as a worker of Prefect does
    await asyncio.to_thread(run.wait)
    assert "SIGTERM received at time" not in log.read_text(), "that is what Ray's own handler says"
    assert "The placement ledger does not answer" not in log.read_text()
    assert "placement-third" in await artifacts_of((await newest_run("train third in affine:sat")).id)


async def test_an_environment_that_no_policy_can_play_is_refused_before_anything_is_placed(prefect: object) -> None:
    with pytest.raises(InvalidPlacementError, match="No policy can play 'affine:ded'"):
        await place_roles(environment="affine:ded")
