"""Notices as events of Prefect, and the automations of `deployments/`, against a real server."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore
from pydantic import ValidationError

from headgate.core import events
from headgate.orchestration.campaign_task import emit_notice
from headgate.telemetry import Notices

FOLDER = Path(__file__).parents[2] / "deployments" / "automations"


@flow(name="told")
def told(model: str) -> None:
    """Tell what a run would: a budget that is used up, and a drop."""
    notices = Notices([emit_notice])
    notices.tell(events.DailyBudgetSpent(model, "daily_tokens", 9.0, 10.0, None, "used up"))
    notices.tell(events.ScoreDropped(model, "affine:sat", 0.8, 0.6, -0.3, -0.1, 1_767_225_600.0, 40))


@flow(name="sampled-window")
def window() -> None:
    """Stand for a flow that has a schedule."""


async def test_notices_are_events_and_the_automations_act_on_them(prefect: object) -> None:
    model = f"m{uuid.uuid4().hex[:8]}@main"
    async with get_client() as client:
        deployment = await client.create_deployment(await client.create_flow(window), name=f"d-{model}", paused=False)
        made = []
        for file in sorted(FOLDER.glob("*.yaml")):
            document: dict[str, Any] = yaml.safe_load(file.read_text())
            (action,) = document["actions"]
            with pytest.raises(ValidationError, match="should be a valid UUID"):
                AutomationCore.model_validate(document)  # an id of nothing would be taken, and fail without a word
            if "deployment_id" in action:
                action["deployment_id"] = str(deployment)
                made.append(await client.create_automation(AutomationCore.model_validate(document)))
            else:
                action["block_document_id"] = str(uuid.uuid4())
                AutomationCore.model_validate(document)  # its block would send something
        assert len(made) == 1
        await asyncio.to_thread(told, model)
        async with asyncio.timeout(60):
            while not (await client.read_deployment(deployment)).paused:  # noqa: ASYNC110 - the server says nothing of itself
                await asyncio.sleep(0.2)
            wanted = {"filter": {"event": {"prefix": ["headgate."]}}}
            while True:
                found = (await client._client.post("/events/filter", json=wanted)).json()["events"]
                ours = {one["event"]: one for one in found if model in one["resource"]["prefect.resource.id"]}
                if len(ours) == 2:
                    break
                await asyncio.sleep(0.2)
        drop = ours["headgate.score.dropped"]
        assert drop["resource"]["prefect.resource.id"] == f"headgate.pair.{model}.affine:sat"
        assert drop["payload"]["after"] == 0.6
        assert "scores 0.60" in drop["payload"]["text"]
        assert any("flow-run" in one["prefect.resource.id"] for one in drop["related"])
        await client.delete_automation(made[0])
