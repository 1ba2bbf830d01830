"""From settings to a run with a judge: what `headgate judge` and the flow call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from headgate.admission import SlotSource
from headgate.campaign.assembly import roster_of
from headgate.campaign.endpoints import EndpointChats
from headgate.campaign.judge_needed import judged_environments
from headgate.campaign.judged.by_rubric import RubricChats, rubric_environments, rubric_for
from headgate.campaign.judged.cells import missing_cells
from headgate.campaign.judged.figures import JudgedFigures
from headgate.campaign.judged.plan import JudgedPlan
from headgate.campaign.judged.progress import JudgedProgress, JudgedResult
from headgate.campaign.judged.run import JudgedRun
from headgate.campaign.judged.verdicts import EnvironmentVerdicts, Verdicts
from headgate.campaign.monitoring import serve_monitoring
from headgate.campaign.observing import is_observed, observe, report_health
from headgate.campaign.plan import ChatSource
from headgate.campaign.request_side import RequestSide
from headgate.config import Settings
from headgate.core import Model, ModelBudget, Secret, SystemClock, new_run_id
from headgate.core.errors import InvalidSettingError
from headgate.environments import JudgedEnvironment, end_idle_processes, registry_of
from headgate.environments.rubric import Rubric
from headgate.models import ChatClient, ClientSettings
from headgate.sampling import RosterSource, TaskProvider
from headgate.storage import SampleStore, sample_store
from headgate.telemetry import (
    BackgroundSink,
    EventStream,
    LogSink,
    PrometheusSink,
    RequestCollector,
    Sink,
    new_registry,
    register_losses,
)

OnProgress = Callable[[JudgedProgress], Awaitable[None]]
"""Told how far a run has come while it runs; what it raises ends the run."""

JUDGE_PREFIX: Final = "judge:"
"""The judge's key begins with it, so that a model may judge and be judged in one run, by limits of its own each."""


def judge_of(settings: Settings) -> Model:
    """Return the judge that the settings name.

    Raises:
        InvalidSettingError: if they name none, or no address of it.
        InvalidNameError: if its name has a form that cannot be used.
    """
    for name in ("judge_model", "judge_url"):
        if not getattr(settings, name):
            raise InvalidSettingError(
                f"setting {name!r} is empty: a run with a judge needs a model that judges, and its address",
                next_step="Give --judge-model and --judge-url; `headgate serve-baselines` serves baseline-judge.",
            )
    return Model(
        name=f"{JUDGE_PREFIX}{settings.judge_model}",
        base_url=settings.judge_url,
        served_name=settings.judge_model,
        api_key=Secret(settings.judge_key.get_secret_value()),
        max_parallel=settings.judge_parallel,
        options=tuple(sorted(settings.judge_options.items())),
        budget=ModelBudget(daily_tokens=settings.judge_daily_tokens),
    )


async def run_judged(
    settings: Settings,
    *,
    instances: int,
    judge: Model | None = None,
    roster: RosterSource | None = None,
    store: SampleStore | None = None,
    stop: asyncio.Event | None = None,
    on_progress: OnProgress | None = None,
    progress_every_s: float = 1.0,
    sinks: Iterable[Sink] = (),
    slots: SlotSource | None = None,
    rubric: Rubric | None = None,
) -> JudgedResult:
    """Run a fixed matrix of models x judged environments x instances, less what the store has, to its end.

    Args:
        settings: of the campaign.
        instances: tasks per model and environment, from 0.
        judge: in place of the one that the settings name; its key must be that of no other model.
        roster: in place of the one that the settings name; read once.
        store: likewise.
        stop: set to stop and drain.
        on_progress: called every `progress_every_s` while it runs, and once at the end.
        progress_every_s: see `on_progress`.
        sinks: further sinks of the event stream; the caller closes them.
        slots: bounds the requests of several processes together, the judge's among them.
        rubric: what answers are judged by, in any environment, in place of the one that the settings name.

    Raises:
        HeadgateError: if something that was given cannot be used; nothing was started then.
    """
    rubric = rubric if rubric is not None else rubric_for(settings)
    registry = registry_of(settings)
    under = rubric_environments(settings.environments, rubric, registry) if rubric is not None else {}
    environments: Mapping[str, JudgedEnvironment] = under or judged_environments(settings.environments, registry)
    judge = judge if judge is not None else judge_of(settings)
    models = (await (roster if roster is not None else roster_of(settings)).load()).models
    store = store if store is not None else sample_store(settings)
    await store.probe()
    cells, figures = await missing_cells(store, settings.campaign, list(environments), instances)
    return await run_cells(
        settings,
        models=models,
        judge=judge,
        environments=environments,
        store=store,
        cells=cells,
        figures=figures,
        chats=lambda endpoints: RubricChats(endpoints, under),
        stop=stop,
        on_progress=on_progress,
        progress_every_s=progress_every_s,
        sinks=sinks,
        slots=slots,
    )


async def run_cells(
    settings: Settings,
    *,
    models: tuple[Model, ...],
    judge: Model,
    environments: Mapping[str, JudgedEnvironment],
    store: SampleStore,
    cells: TaskProvider,
    chats: Callable[[ChatSource], ChatSource],
    figures: JudgedFigures | None = None,
    verdicts: Verdicts | None = None,
    stop: asyncio.Event | None = None,
    on_progress: OnProgress | None = None,
    progress_every_s: float = 1.0,
    sinks: Iterable[Sink] = (),
    slots: SlotSource | None = None,
) -> JudgedResult:
    """Run the samples that `cells` gives to their end, each answered and then judged.

    Args:
        settings: of the campaign.
        models: whose answers are judged.
        judge: who judges.
        environments: by name.
        store: where samples go; it has been tried.
        cells: which samples to take.
        chats: given what asks the endpoints, returns who answers.
        figures: counts so far.
        verdicts: see `JudgedPlan`.
        stop: see `run_judged`, as for the others.
        on_progress: likewise.
        progress_every_s: likewise.
        sinks: likewise.
        slots: likewise.

    Raises:
        HeadgateError: if something that was given cannot be used; nothing was started then.
    """
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, end_idle_processes)  # of what is judged under a rubric
        stream, run_id = EventStream(clock, [LogSink()]), new_run_id()
        observe(stack, stream, settings, run_id)
        for sink in sinks:
            stream.add(BackgroundSink(sink, closes=False))
        is_traced = is_observed(settings)
        client = await stack.enter_async_context(
            ChatClient(ClientSettings(deadline_s=settings.request_timeout_s, stream=settings.streaming))
        )
        requests = RequestSide(settings, clock=clock, emit=stream.emit, trace_requests=is_traced, slots=slots)
        if slots is not None:
            await stack.enter_async_context(slots.serving(requests.admission, stream.emit, requests.backlog))
        plan = JudgedPlan(
            settings=settings,
            models=models,
            judge=judge,
            environments=environments,
            store=store,
            chats=chats(EndpointChats(client, requests, clock=clock)),
            cells=cells,
            requests=requests,
            verdicts=verdicts or EnvironmentVerdicts(),
            figures=figures or JudgedFigures(),
            run_id=run_id,
            wants=lambda _: is_traced,
        )
        run = JudgedRun(plan, clock=clock, emit=stream.emit)
        stream.add(run.inquiry)
        if settings.enable_monitoring:
            await _served(stack, run, settings, stream)
        beside = []
        if is_traced:
            beside.append(report_health(run.inquiry.health, stream.emit, clock, settings.health_interval_s))
        return await _watched(run, stop, on_progress, progress_every_s, beside)


async def _served(stack: AsyncExitStack, run: JudgedRun, settings: Settings, stream: EventStream) -> None:
    """Serve the monitoring API of a run until `stack` ends."""
    from headgate.telemetry import Progress, Questions  # noqa: PLC0415 - FastAPI is imported by those who serve

    asked = run.inquiry
    registry = new_registry()
    registry.register(RequestCollector(asked.requests))
    register_losses(registry, stream)
    stream.add(PrometheusSink(registry))
    progress = Progress(run.progress, asked.requests, run.now)
    questions = Questions(asked.explain, asked.tasks, asked.capacity, asked.health)
    await serve_monitoring(stack, settings, progress, registry, questions, stream.emit)


async def _watched(
    run: JudgedRun,
    stop: asyncio.Event | None,
    on_progress: OnProgress | None,
    every_s: float,
    beside: Iterable[Coroutine[Any, Any, None]],
) -> JudgedResult:
    async def pass_on_stop(event: asyncio.Event) -> None:
        await event.wait()
        run.stop("stopped by request")

    async def report(told: OnProgress) -> None:
        while True:
            await told(run.progress())
            await asyncio.sleep(every_s)

    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(watcher) for watcher in beside]
        if stop is not None:
            watchers.append(group.create_task(pass_on_stop(stop)))
        if on_progress is not None:
            watchers.append(group.create_task(report(on_progress)))
        result = await run.run()
        for watcher in watchers:
            watcher.cancel()
    if on_progress is not None:
        await on_progress(result.progress)
    return result
