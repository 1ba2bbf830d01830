"""What an earlier run of a private server left in its database, by processes long gone: slots held, runs not ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.states import Cancelled, Crashed

_UNDER_WAY: Final = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_AT_ONCE: Final = 200


async def clear_leftovers() -> None:
    """Free every slot and end every run that is under way or due; to be called before a worker of the server starts.

    The processes of a private server end with it, so nobody can hold or run anything. A slot that is left taken would
    keep the next run of a deployment with a limit from starting; a run that is left due would start beside the new one.
    """
    async with get_client() as client:
        await _end_runs(client, _in(_UNDER_WAY), Crashed(message="The server and the worker of this run were ended."))
        due = _in([StateType.SCHEDULED])
        due.expected_start_time = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
        await _end_runs(client, due, Cancelled(message="The server was ended before this run began."))
        for limit in await client.read_global_concurrency_limits(limit=_AT_ONCE, offset=0):
            if limit.active_slots:
                freed = GlobalConcurrencyLimitUpdate(active_slots=0)
                await client.update_global_concurrency_limit(limit.name, freed)


def _in(states: list[StateType]) -> FlowRunFilter:
    return FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=states)))


async def _end_runs(client: PrefectClient, chosen: FlowRunFilter, ended: State[Any]) -> None:
    while runs := await client.read_flow_runs(flow_run_filter=chosen, limit=_AT_ONCE):
        for run in runs:
            await client.set_flow_run_state(run.id, ended, force=True)
