"""The templates of work pools whose flow runs are containers: they hold together, and show no secret."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from prefect import get_client
from prefect.blocks.system import Secret
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.variables import Variable
from prefect.workers.base import BaseJobConfiguration

from tests.house.tree import ROOT

POOLS = sorted((ROOT / "deployments" / "pools").glob("*.json"))


@pytest.fixture(params=POOLS, ids=[path.stem for path in POOLS])
def template(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.param.read_text())
    return found


def test_every_variable_of_a_template_is_declared(template: dict[str, Any]) -> None:
    used = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    declared = template["variables"]["properties"].keys()
    assert used <= declared
    assert set(template["variables"].get("required", ())) <= declared


def test_flow_runs_have_the_image_of_this_project_and_no_server_of_their_own(template: dict[str, Any]) -> None:
    variables = template["variables"]["properties"]
    assert variables["image"]["default"] == "headgate:local"
    assert variables["env"]["default"]["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] == "false"


def test_a_template_refers_to_secrets_and_holds_none(template: dict[str, Any]) -> None:
    text = json.dumps(template)
    assert "postgresql://" not in text
    assert "prefect.blocks.secret.headgate-journal" in text or "secretRef" in text


@pytest.mark.slow
async def test_a_server_takes_the_template_and_a_worker_fills_the_secret_in(
    prefect: object, template: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["template"].stem
    address = "postgresql://me:not-for-people@db/x"
    async with get_client() as client:
        pool = await client.create_work_pool(
            WorkPoolCreate(name=f"template-{kind}", type=kind, base_job_template=template), overwrite=True
        )
        await Secret(value=address).save("headgate-journal", overwrite=True)
        await Variable.aset("headgate_store", "s3://bucket/samples", overwrite=True)
        found = await BaseJobConfiguration.from_template_and_values(pool.base_job_template, {}, client=client)
    assert found.env["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] == "false"
    expected = {"docker": (address, "s3://bucket/samples"), "kubernetes": (None, None)}
    assert (found.env.get("HEADGATE_JOURNAL"), found.env.get("HEADGATE_STORE")) == expected[kind]


def test_the_patch_of_many_workers_fits_the_worker() -> None:
    folder = ROOT / "deployments" / "kubernetes"
    patches = yaml.safe_load((ROOT / "deployments" / "many-workers" / "kustomization.yaml").read_text())["patches"]
    for file, patch in zip(("worker.yaml", "console.yaml", "worker.yaml"), patches, strict=True):
        kind = patch["target"]["kind"]
        (manifest,) = (one for one in yaml.safe_load_all((folder / file).read_text()) if one["kind"] == kind)
        steps = yaml.safe_load(patch["patch"])
        if isinstance(steps, dict):  # workers without disks claim none
            assert (steps.pop("$patch"), kind) == ("delete", "PersistentVolumeClaim")
            assert steps["metadata"] == {"name": manifest["metadata"]["name"]}
            continue
        for step in steps:
            place: Any = manifest
            for part in step["path"].strip("/").split("/"):
                place = place[int(part)] if isinstance(place, list) else place[part]
            assert step["op"] != "test" or place == step["value"]
