"""The flow `follow-checkpoints`, run in this process against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.events import emit_event

from flows.checkpoints import follow_checkpoints
from headgate.core.errors import StoreNotWritableError
from headgate.orchestration import PrivateServer
from headgate.orchestration.deployment_file import read_deployment_file
from headgate.orchestration.deployments import deploy_all, worker
from tests.flows.api import newest_run
from tests.flows.places import Places
from tests.house.tree import ROOT
from tests.run.test_follow import ENGINE


async def events_of(name: str, least: int, *, within_s: float = 30) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of a training by name and payload, once there are so many: they arrive a moment later."""
    resource = {"id": [f"headgate.checkpoint.{name}"]}
    async with asyncio.timeout(within_s), get_client() as client:
        while True:
            answer = await client._client.post("/events/filter", json={"filter": {"any_resource": resource}})
            found = answer.json()["events"]
            if len(found) >= least:
                return sorted(((one["event"], one["payload"]) for one in found), key=lambda told: told[0])
            await asyncio.sleep(0.2)


async def test_a_training_becomes_artifacts_and_events(prefect: object, places: Places) -> None:
    folder = places.folder / "run-7"
    folder.mkdir()
    (folder / "step_1").write_text("solver")
    (folder / "step_2").write_text("random")
    given: dict[str, Any] = {
        "place": str(folder),
        "serve": {"engine": "command", "command": ENGINE},
        "options": {"headgate_task_header": True},
        "instances": 12,
        "environments": ["affine:sat-hard"],
        "settings": places.settings(),
    }
    first = await follow_checkpoints(**given)
    assert (first["evaluated"], first["best"]) == (["step_1", "step_2"], "run-7@step_1")
    run = await newest_run(f"follow {folder}")
    async with get_client() as client:
        answer = await client._client.post(
            "/artifacts/latest/filter", json={"artifacts": {"flow_run_id": {"any_": [str(run.id)]}}}
        )
    published = {one["key"]: one["data"] for one in answer.json()}
    assert "run-7@step_2" in published["checkpoints-run-7-models"]
    assert "worse" in published["checkpoints-run-7"]
    assert {"checkpoints-run-7-figure", "checkpoints-run-7-page"} <= published.keys()
    (regressed, row), *scored = await events_of("run-7", 3)
    assert (regressed, row["model"], row["against"]) == ("checkpoint.regressed", "run-7@step_2", "run-7@step_1")
    assert [event for event, _ in scored] == ["checkpoint.scored"] * 2
    assert (await follow_checkpoints(**given))["evaluated"] == []


async def test_a_page_that_cannot_be_written_keeps_nobody_from_being_told_of_a_checkpoint(
    prefect: object, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def board(*_: object, **__: object) -> None:
        raise StoreNotWritableError("the disk is full")

    monkeypatch.setattr("headgate.orchestration.checkpoints.publish_board", board)
    folder = places.folder / "run-9"
    folder.mkdir()
    (folder / "step_1").write_text("solver")
    given: dict[str, Any] = {"instances": 2, "environments": ["affine:sat-hard"], "settings": places.settings()}
    with pytest.raises(StoreNotWritableError):
        await follow_checkpoints(
            str(folder), {"engine": "command", "command": ENGINE}, {"headgate_task_header": True}, **given
        )
    ((event, row),) = await events_of("run-9", 1)
    assert (event, row["model"]) == ("checkpoint.scored", "run-9@step_1")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_training_that_says_it_has_saved_a_checkpoint_has_it_evaluated(
    prefect: PrivateServer, places: Places
) -> None:
    """The deployment `checkpoint-saved` of `prefect.yaml`, its trigger and a worker; nobody starts a run."""
    folder = places.folder / "run-8"
    folder.mkdir()
    (folder / "step_1").write_text("solver")
    file = read_deployment_file(ROOT / "prefect.yaml")
    (deployed,) = (one for one in file.deployments if one.name == "checkpoint-saved")
    given = {
        **deployed.parameters,
        "serve": {"engine": "command", "command": ENGINE},
        "options": {"headgate_task_header": True},
        "instances": 4,
        "environments": ["affine:sat-hard"],
        "settings": places.settings(),
    }
    changed = [deployed.model_copy(update={"parameters": given})]
    (places.folder / "prefect.yaml").write_text(file.model_copy(update={"deployments": changed}).as_yaml())
    environ = prefect.environ()
    async with worker(places.folder, environ):
        await deploy_all(places.folder / "prefect.yaml", places.folder, environ)
        emit_event("checkpoint.saved", {"prefect.resource.id": "training.run-8"}, payload={"place": str(folder)})
        (event, row), *_ = await events_of("run-8", 1, within_s=120)
        assert (event, row["model"], row["scored"]) == ("checkpoint.scored", "run-8@step_1", 4)
