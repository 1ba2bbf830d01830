"""Any kind of campaign as the phases of a flow run, and the trace that it leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing
from typing import Any, Final, TypeVar

from prefect.client.schemas.objects import State
from prefect.events import emit_event

from headgate.config import Settings
from headgate.core.errors import SamplesKeepFailingError, StoreNotWritableError
from headgate.durable.locks import temporary_folder
from headgate.orchestration.artifacts import RunArtifacts, publish, publish_link
from headgate.orchestration.engines import engine_hosts
from headgate.orchestration.inputs import SamplingOrder, cluster_for, report_store_for, roster_for, store_for
from headgate.orchestration.limit_choices import slots_for
from headgate.orchestration.pages import write_report
from headgate.orchestration.phases import DrainSink, in_phase, until_drained
from headgate.orchestration.run_state import artifact_key, ended, run_logger
from headgate.sampling import RosterAtHand, RosterSource
from headgate.telemetry import Notice

R = TypeVar("R")

_FILE: Final = "trace.json.gz"
_HOW: Final = "Open <https://ui.perfetto.dev> and drop the file on it; it is read in the browser and sent nowhere."


async def run_in_phases(
    campaign: Callable[..., Awaitable[R]],
    order: SamplingOrder,
    settings: Settings,
    artifacts: RunArtifacts[Any],
    *,
    name: str,
    is_traced: bool = True,
    has_roster: bool = True,
) -> R:
    """Run a campaign as the tasks `load roster`, `name` and `drain`, and return its result.

    Args:
        campaign: takes settings, and by keyword `roster`, `store`, `slots`, `stop`, `engine_hosts`, `sinks` and `tell`.
        order: names the blocks for these arguments.
        settings: the campaign's settings.
        artifacts: published meanwhile; their `stop` ends the campaign.
        name: name of the task that samples.
        is_traced: whether the order's report store receives a trace.
        has_roster: whether the campaign's models come from a roster.
    """
    slots = await slots_for(order.limits)
    with closing(await store_for(order.store, settings)) as store:
        async with (
            artifacts.published(),
            _traced(settings, order.reports if is_traced else "", artifacts.subject) as told,
            roster_for(order, settings) as source,
            engine_hosts(settings, await cluster_for(order.cluster, settings)) as hosts,
        ):
            roster: RosterSource = source
            if has_roster:
                roster = RosterAtHand(source, found := await in_phase("load roster", source.load))
                run_logger().info("%d models in the roster", len(found.models))
            drain = DrainSink()
            running = campaign(
                told,
                roster=roster,
                store=store,
                slots=slots,
                stop=artifacts.stop.event,
                engine_hosts=hosts,
                sinks=[drain],
                tell=emit_notice,
            )
            return await until_drained(running, drain.begun, name=name, store=store.url)


async def concluded(artifacts: RunArtifacts[Any], message: str, data: Mapping[str, Any], *, failing: str) -> State[Any]:
    """Return the final state of a run that has drained.

    Raises:
        SamplesKeepFailingError: if the run stopped early because something kept failing, as `failing` says.
    """
    run_logger().info("%s: %s", artifacts.subject, message)
    if failing and artifacts.stop.reason is None:
        raise SamplesKeepFailingError(f"{failing}; {message}")
    return await ended(artifacts.stop, message, data)


@contextlib.asynccontextmanager
async def _traced(settings: Settings, reports: str, subject: str) -> AsyncIterator[Settings]:
    """Yield settings that make a run write a trace, and publish the trace when the context ends.

    If no ReportStore block is named, or the settings name a trace file, the settings are yielded unchanged.

    Raises:
        InvalidInputError: if there is no such block.
    """
    if not reports or settings.trace_file:
        yield settings
        return
    store = await report_store_for(reports)
    with temporary_folder("headgate-trace-") as folder:
        trace = folder / _FILE
        try:
            yield settings.model_copy(update={"trace_file": str(trace)})
        finally:
            if trace.exists():
                content = await asyncio.to_thread(trace.read_bytes)
                try:
                    published = await write_report(store, {_FILE: content}, artifact_key("trace", subject))
                except StoreNotWritableError as error:
                    run_logger().warning("The trace of the run could not be stored: %s", error)
                else:
                    await _publish_trace(published.links.get(_FILE), published.places[_FILE], subject)


async def _publish_trace(link: str | None, place: str, subject: str) -> None:
    key = artifact_key("trace", subject)
    if link is not None:
        await publish_link(key, link, "The trace of the run", f"{subject}: {_HOW}")
    else:
        await publish(key, f"The trace of the run is at\n\n`{place}`\n\n{_HOW}\n", f"{subject}: its trace.")


def emit_notice(notice: Notice) -> None:
    """Emit an event `headgate.KIND` about resource `headgate.SUBJECT`, with the notice's fields and text as payload."""
    resource = {
        "prefect.resource.id": "headgate." + notice.subject.replace("/", "."),
        "prefect.resource.name": notice.subject.partition("/")[2],
    }
    emit_event(f"headgate.{notice.kind}", resource, payload={**notice.fields, "text": notice.text})
