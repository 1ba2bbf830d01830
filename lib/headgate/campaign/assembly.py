"""From settings to a running campaign: what `headgate run` and the flows call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import polars as pl

from headgate.admission import SlotSource
from headgate.campaign.campaign import Campaign, CampaignResult
from headgate.campaign.endpoints import EndpointChats
from headgate.campaign.judge_needed import lockable_environments, scoring_environments
from headgate.campaign.matrix import MatrixTaskProvider
from headgate.campaign.monitoring import serve_monitoring
from headgate.campaign.observing import is_observed, observe, report_health
from headgate.campaign.plan import CampaignPlan
from headgate.campaign.request_side import RequestSide
from headgate.config import Settings
from headgate.core import SystemClock, new_run_id
from headgate.core.errors import CampaignInUseError, StoreError, StoreNotWritableError
from headgate.core.events import StoreFailed
from headgate.core.status import CampaignStatus
from headgate.environments import Environment, end_idle_processes, registry_of
from headgate.models import ChatClient, ClientSettings
from headgate.sampling import HttpTaskProvider, RosterSource, TaskProvider, roster_source
from headgate.storage import LEASE_S, SampleStore, sample_store
from headgate.telemetry import (
    BackgroundSink,
    EventStream,
    LogSink,
    PrometheusSink,
    Sink,
    new_registry,
    register_losses,
)

OnStatus = Callable[[CampaignStatus], Awaitable[None]]
"""Told of the campaign's status while it runs; what it raises ends the campaign."""


def roster_of(settings: Settings) -> RosterSource:
    """Return where the models come from: the roster's file or URL, else the models behind OPENAI_BASE_URL."""
    return roster_source(settings.roster)


def sampled_environments(settings: Settings) -> dict[str, Environment]:
    """Return the environments to sample, by name: those of the settings, else all that need no judge.

    Patterns mean what they match. Those of AgentGym servers that the settings name are among them. What nobody named
    and what cannot be used on this machine is left out, with a warning.

    Raises:
        InvalidSettingError: if a server is named for what is no environment of AgentGym's.
        UnknownEnvironmentError: if one is not installed.
        MissingExtraError: if one needs a package that is not installed.
        JudgeNeededError: if one that is named needs a judge.
    """
    return scoring_environments(settings.environments, registry_of(settings))


async def run_campaign(
    settings: Settings,
    *,
    roster: RosterSource | None = None,
    store: SampleStore | None = None,
    duration_s: float | None = None,
    instances: int | None = None,
    stop: asyncio.Event | None = None,
    on_status: OnStatus | None = None,
    status_every_s: float = 1.0,
    sinks: Iterable[Sink] = (),
    slots: SlotSource | None = None,
) -> CampaignResult:
    """Run a campaign to its end and return what it did.

    Args:
        settings: of the campaign.
        roster: in place of the one that the settings name.
        store: likewise.
        duration_s: length of the window; None until stopped.
        instances: run this fixed matrix of models × environments × instances instead of sampling by rates, leaving
            out what the store has already; the setting when None.
        stop: set to stop and drain.
        on_status: called every `status_every_s` while it runs, and once at the end.
        status_every_s: see `on_status`.
        sinks: further sinks of the event stream; the caller closes them.
        slots: bounds the requests of several processes together; they are given back when the campaign has ended.
    """
    clock = SystemClock()
    instances = settings.instances if instances is None else instances
    store = store if store is not None else sample_store(settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, end_idle_processes)
        sampled = await lockable_environments(sampled_environments(settings), settings.environments)
        stream = EventStream(clock, [LogSink()])
        await _tried(store, stream)
        run_id, is_traced = new_run_id(), is_observed(settings)
        observe(stack, stream, settings, run_id)
        client = await stack.enter_async_context(
            ChatClient(ClientSettings(deadline_s=settings.request_timeout_s, stream=settings.streaming))
        )
        requests = RequestSide(settings, clock=clock, emit=stream.emit, trace_requests=is_traced, slots=slots)
        if slots is not None:
            await stack.enter_async_context(slots.serving(requests.admission, stream.emit, requests.backlog))
        plan = CampaignPlan(
            settings=settings,
            roster=roster if roster is not None else roster_of(settings),
            environments=sampled,
            store=store,
            chats=EndpointChats(client, requests, clock=clock),
            requests=requests,
            duration_s=duration_s,
            provider=await _provider(stack, store, settings, sampled, instances),
            stop_when_idle=instances is not None,
            run_id=run_id,
            is_traced=is_traced,
        )
        campaign = Campaign(plan, clock=clock, emit=stream.emit)
        stack.callback(campaign.close)
        if not settings.task_provider or instances is not None:  # a server of tasks gives each of them once
            await stack.enter_async_context(_sole_journal(campaign, store))
        registry = new_registry(campaign.status)
        register_losses(registry, stream)
        stream.add(campaign.inquiry)
        stream.add(PrometheusSink(registry))
        for sink in sinks:
            stream.add(BackgroundSink(sink, closes=False))
        if settings.enable_monitoring:
            from headgate.telemetry import Questions  # noqa: PLC0415 - FastAPI is imported by those who serve

            asked = campaign.inquiry
            questions = Questions(asked.explain, asked.tasks, asked.capacity, asked.health)
            await serve_monitoring(stack, settings, campaign.status, registry, questions, stream.emit)
        beside = []
        if is_traced:
            beside.append(report_health(campaign.inquiry.health, stream.emit, clock, settings.health_interval_s))
        return await _watched(campaign, stop, on_status, status_every_s, beside)


async def _tried(store: SampleStore, stream: EventStream) -> None:
    """Refuse a store that cannot be written at all; one that is down for now does not keep a campaign from sampling."""
    try:
        await store.probe()
    except StoreNotWritableError:
        raise
    except StoreError as error:
        stream.emit(StoreFailed("probe", 0, str(error), retry_in_s=0.0, attempt=1))


@asynccontextmanager
async def _sole_journal(campaign: Campaign, store: SampleStore) -> AsyncIterator[None]:
    """Hold the campaign's lease on the store; where another journal holds it, raise, or stop the running campaign."""
    (key, place), environments = campaign.lease, campaign.plan.environments
    has_ended = asyncio.Event()

    async def keep() -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEASE_S / 4):
                    await has_ended.wait()
                    return
            try:
                await store.renew(key, place, environments)
            except CampaignInUseError as error:
                campaign.stop(str(error))
            except StoreError:
                continue  # samples wait in the spool, and the lease is taken when the store is back

    keeping = asyncio.create_task(keep())
    try:
        with contextlib.suppress(StoreError):
            await store.renew(key, place, environments, is_new=True)
        yield
    finally:
        has_ended.set()
        await keeping  # a renewal that is under way would write what is given back once more
        with contextlib.suppress(StoreError):
            await store.give_back(key)


async def _watched(
    campaign: Campaign,
    stop: asyncio.Event | None,
    on_status: OnStatus | None,
    every_s: float,
    beside: Iterable[Coroutine[Any, Any, None]] = (),
) -> CampaignResult:
    async def pass_on_stop(event: asyncio.Event) -> None:
        await event.wait()
        campaign.stop("stopped by request")

    async def report(told: OnStatus) -> None:
        while True:
            await told(campaign.status())
            await asyncio.sleep(every_s)

    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(watcher) for watcher in beside]
        if stop is not None:
            watchers.append(group.create_task(pass_on_stop(stop)))
        if on_status is not None:
            watchers.append(group.create_task(report(on_status)))
        result = await campaign.run()
        for watcher in watchers:
            watcher.cancel()
    if on_status is not None:
        await on_status(result.status)
    return result


async def _provider(
    stack: AsyncExitStack,
    store: SampleStore,
    settings: Settings,
    sampled: Mapping[str, Environment],
    instances: int | None,
) -> TaskProvider | None:
    """Return what gives tasks in place of the daily rates, if anything does."""
    if instances is not None:
        return await _matrix(store, settings, sampled, instances)
    if settings.task_provider:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=settings.request_timeout_s))
        return HttpTaskProvider(settings.task_provider, client, poll_s=settings.task_provider_poll_s)
    return None


async def _matrix(
    store: SampleStore, settings: Settings, sampled: Mapping[str, Environment], instances: int
) -> MatrixTaskProvider:
    """Return the matrix without the cells that the store has scored samples of."""
    columns = ["campaign", "model", "environment", "sequence", "score"]
    rows = (await store.scan(environments=list(sampled), columns=columns)).frame
    cells = list(
        rows.filter(pl.col("campaign") == settings.campaign)
        .group_by("model", "environment", "sequence")
        .agg(pl.col("score").is_not_null().any().alias("is_scored"), pl.len().alias("runs"))
        .iter_rows()
    )
    scored = {(m, e, n): is_scored for m, e, n, is_scored, _ in cells}
    runs = {(m, e, n): count for m, e, n, _, count in cells}
    done = {cell for cell, is_scored in scored.items() if is_scored}
    failed = {cell: count for cell, count in runs.items() if cell not in done}
    is_shuffled = settings.target_half_width > 0
    return MatrixTaskProvider(list(sampled), instances, done=done, failed=failed, is_shuffled=is_shuffled)
