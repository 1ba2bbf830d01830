"""A campaign as the one task of a flow run, whatever kind of campaign it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from typing import Any, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from headgate.config import Settings
from headgate.core.errors import SamplesKeepFailingError
from headgate.orchestration.artifacts import RunArtifacts
from headgate.orchestration.inputs import SamplingOrder, roster_for, store_for
from headgate.orchestration.limit_choices import slots_for
from headgate.orchestration.run_state import ended, run_logger
from headgate.orchestration.run_trace import traced
from headgate.orchestration.stop_request import StopRequest

R = TypeVar("R")


async def run_as_task(
    campaign: Callable[..., Awaitable[R]],
    order: SamplingOrder,
    settings: Settings,
    artifacts: RunArtifacts[Any],
    stop: StopRequest,
    *,
    name: str,
    is_traced: bool = True,
) -> R:
    """Return what a campaign gives that runs as one task, so that the graph of the run shows when it worked.

    Args:
        campaign: takes settings, and by name `roster`, `store`, `slots` and `stop`.
        order: names the blocks that they come from.
        settings: those of the campaign.
        artifacts: published meanwhile.
        stop: ends it.
        name: of the task.
        is_traced: whether a trace is kept in the order's report store.
    """
    slots = await slots_for(order.limits)

    @task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)
    async def worked() -> R:
        return await campaign(told, roster=roster, store=store, slots=slots, stop=stop.event)

    with closing(await store_for(order.store, settings)) as store:
        async with (
            artifacts.published(),
            traced(settings, order.reports if is_traced else "", artifacts.subject) as told,
            roster_for(order, settings) as roster,
        ):
            return await worked()


async def concluded(
    stop: StopRequest, subject: str, message: str, data: Mapping[str, Any], *, failing: str
) -> State[Any]:
    """Return the state in which a run ends that has drained.

    Raises:
        SamplesKeepFailingError: if it ended by itself since something kept failing, which `failing` says.
    """
    run_logger().info("%s: %s", subject, message)
    if failing and stop.reason is None:
        raise SamplesKeepFailingError(f"{failing}; {message}")
    return await ended(stop, message, data)
