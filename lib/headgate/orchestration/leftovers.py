"""What an earlier run of a private server left in its database, by processes long gone: slots held, runs under way."""

from __future__ import annotations

from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import State, StateType
from prefect.states import Crashed

_UNDER_WAY = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_AT_ONCE = 200


async def clear_leftovers() -> None:
    """Free every slot and end every run that is under way; to be called before a worker of the server starts.

    The processes of a private server end with it, so nobody can hold or run anything. A slot that is left taken would
    keep the next run of a deployment with a limit from starting.
    """
    async with get_client() as client:
        filters = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_UNDER_WAY)))
        for run in await client.read_flow_runs(flow_run_filter=filters, limit=_AT_ONCE):
            ended: State[Any] = Crashed(message="The server and the worker of this run were ended.")
            await client.set_flow_run_state(run.id, ended, force=True)
        for limit in await client.read_global_concurrency_limits(limit=_AT_ONCE, offset=0):
            if limit.active_slots:
                freed = GlobalConcurrencyLimitUpdate(active_slots=0)
                await client.update_global_concurrency_limit(limit.name, freed)
