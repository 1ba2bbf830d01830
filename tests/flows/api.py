"""What tests ask of the Prefect API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun, State
from prefect.client.schemas.sorting import FlowRunSort, TaskRunSort

from headgate.orchestration.deployments import awaited_runs, has_ended, read_runs


async def finished_runs(ids: Sequence[UUID], within_s: float) -> list[FlowRun]:
    """Return flow runs once all of them have ended, however they did."""
    return await awaited_runs(ids, lambda runs: all(map(has_ended, runs)), within_s)


async def newest_run(flow_run_name: str) -> FlowRun:
    """Return the newest flow run of a name."""
    async with get_client() as client:
        runs = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[flow_run_name])),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=1,
        )
    return runs[0]


async def states_of(run: UUID) -> list[State[Any]]:
    """Return the states that a flow run went through."""
    async with get_client() as client:
        return await client.read_flow_run_states(run)


async def artifacts_of(run: UUID) -> dict[str, Any]:
    """Return what a flow run published, by key; tables as rows."""
    async with get_client() as client:
        answer = await client._client.post(
            "/artifacts/filter", json={"artifacts": {"flow_run_id": {"any_": [str(run)]}}}
        )
    found = {}
    for artifact in answer.json():
        data = artifact["data"]
        assert artifact["key"] not in found, "an artifact is updated in place, not made anew"
        found[artifact["key"]] = json.loads(data) if artifact["type"] == "table" else data
    return found


async def phases_of(run: UUID) -> list[str]:
    """Return the names of the tasks of a flow run, in the order in which they began."""
    async with get_client() as client:
        tasks = await client.read_task_runs(
            flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run])), sort=TaskRunSort.EXPECTED_START_TIME_ASC
        )
    return [task.name for task in sorted(tasks, key=lambda task: task.start_time or task.expected_start_time)]


async def until_running(run: UUID, within_s: float = 60.0) -> None:
    """Return once a flow run runs."""
    async with asyncio.timeout(within_s):
        while True:
            (found,) = await read_runs([run])
            if found.state is not None and found.state.is_running():
                return
            assert found.state is None or not found.state.is_final(), found.state
            await asyncio.sleep(0.2)
