"""From settings to a run: what commands and flows call, for every source of tasks, with or without a judge."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from socket import gethostname
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import httpx
import polars as pl

from headgate.admission import SlotSource
from headgate.config import Settings
from headgate.core import Clock, Model, SystemClock, new_run_id, until_set
from headgate.core.errors import (
    CampaignInUseError,
    InvalidInputError,
    InvalidRosterError,
    InvalidSettingError,
    StoreError,
    StoreNotWritableError,
    did_you_mean,
)
from headgate.core.events import Emit, StoreFailed
from headgate.core.status import CampaignStatus
from headgate.durable.databases import PostgresAddress
from headgate.durable.locks import FileLock, LockHeldError
from headgate.elastic.service import ElasticCollector, Machine
from headgate.environments import Environment, JudgedEnvironment, end_idle_processes, registry_of
from headgate.environments.rubric import Rubric
from headgate.jobqueue.worker import DEFAULT_URL, JobQueueClient, QueueAddress
from headgate.models import BASELINES, BatchClient, ChatClient, ClientSettings, serve
from headgate.run.batch_lane import BatchLane
from headgate.run.endpoints import EndpointChats
from headgate.run.environments import (
    judged_environments,
    lockable_environments,
    outside_executors,
    rubric_environments,
    sampled_environments,
)
from headgate.run.hosts import EnvironmentHosts, HostCluster
from headgate.run.judging import JudgedFigures, Judging, RubricChats, judge_of, rubric_for
from headgate.run.matrix import MatrixTaskProvider, MatrixTasks
from headgate.run.observers import is_observed, notice_senders, observe, report_health, serve_monitoring
from headgate.run.outside_workers import PATIENCE, OutsideWorkers
from headgate.run.plan import ONE_SHOT_PAUSE_S, ChatSource, RunPlan
from headgate.run.request_side import RequestSide
from headgate.run.run import Run
from headgate.run.served import ServedModels
from headgate.run.served_pool import RETRY_S, EngineHosts
from headgate.run.status import BY_REQUEST, RunResult
from headgate.sampling import (
    BASELINE_ROSTER,
    BaselineRoster,
    HttpTaskProvider,
    RosterAtHand,
    RosterSource,
    StaticRoster,
    TaskProvider,
    roster_source,
)
from headgate.storage import JOURNAL_REFUSED, LEASE_S, JournalPlace, SampleStore, ServedRun, sample_store
from headgate.telemetry import (
    BackgroundSink,
    EventStream,
    LogSink,
    Notices,
    PrometheusSink,
    Send,
    Sink,
    new_registry,
    register_losses,
)

if TYPE_CHECKING:
    from headgate.durable.postgres import PostgresLock

OnStatus = Callable[[CampaignStatus], Awaitable[None]]
"""Called with the run's status while it runs; an exception that it raises ends the run."""

_CELL_COLUMNS: Final = ("campaign", "model", "environment", "sequence", "score", "success", "error_kind", "why")


class Watch(TypedDict, total=False):
    """Callbacks, sinks and hooks of the code that started a run.

    Attributes:
        stop: set it to stop and drain the run.
        on_status: called every `every_s` seconds while the run lasts, and once at its end.
        every_s: seconds between calls of `on_status`; 1 by default.
        sinks: further sinks of the event stream; the caller closes them.
        slots: bounds the requests of several processes together; released when the run has ended.
        engine_hosts: starts the engines of models served from weights; this machine by default.
        tell: called with each notice, besides the settings' webhook and command; must return at once.
    """

    stop: asyncio.Event | None
    on_status: OnStatus | None
    every_s: float
    sinks: Iterable[Sink]
    slots: SlotSource | None
    engine_hosts: EngineHosts | None
    tell: Send | None


async def run_campaign(
    settings: Settings,
    *,
    roster: RosterSource | None = None,
    store: SampleStore | None = None,
    duration_s: float | None = None,
    instances: int | None = None,
    judge: Model | None = None,
    cluster: HostCluster | None = None,
    **watch: Unpack[Watch],
) -> RunResult:
    """Sample by rates, or a matrix, to the end and return what was done.

    Args:
        settings: of the campaign.
        roster: replaces the one that the settings name.
        store: likewise.
        duration_s: length of the window; None runs until stopped.
        instances: run this fixed matrix of models × environments × instances instead of sampling by rates, leaving
            out what the store already has; None takes the setting.
        judge: reads answers that need judging; replaces the settings' judge, if any.
        cluster: where environment hosts are placed, likewise.
        **watch: callbacks and hooks; see `Watch`.
    """
    instances = settings.instances if instances is None else instances
    if instances is None and settings.repeats > 1:
        raise InvalidSettingError(
            f"repeats={settings.repeats} needs instances: sampling by rates takes each task again by itself",
            next_step="Say how many tasks are repeated (`--instances 20`), or leave repeats out.",
        )
    store = store if store is not None else sample_store(settings)
    async with AsyncExitStack() as stack:
        sampled = sampled_environments(settings, judge)
        outside = {name: sampled.pop(name) for name in outside_executors(settings, sampled)}
        sampled = await lockable_environments(sampled, settings.environments) | outside
        provider: TaskProvider | None = None
        figures = JudgedFigures()
        if instances is not None:
            provider, figures = await missing_cells(store, settings, sampled, instances)
        elif settings.task_provider:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=settings.request_timeout_s))
            provider = HttpTaskProvider(settings.task_provider, client, poll_s=settings.task_provider_poll_s)
        judging = None
        if any(one.spec.needs_judge for one in sampled.values()):
            judging = Judging(judge if judge is not None else judge_of(settings), figures=figures)
        return await run_source(
            settings,
            roster=roster if roster is not None else roster_source(settings.roster),
            environments=sampled,
            store=store,
            source=provider,
            judging=judging,
            duration_s=duration_s,
            stop_when_idle=instances is not None,
            is_sole=not settings.task_provider or instances is not None,  # a task server hands out each task once
            cluster=cluster,
            **watch,
        )


async def run_judged(
    settings: Settings,
    *,
    instances: int,
    judge: Model | None = None,
    roster: RosterSource | None = None,
    store: SampleStore | None = None,
    rubric: Rubric | None = None,
    **watch: Unpack[Watch],
) -> RunResult:
    """Run a fixed matrix of models x judged environments x instances to its end, leaving out what the store has.

    Args:
        settings: of the campaign.
        instances: tasks per model and environment, from 0.
        judge: replaces the one that the settings name; no other model may have its key.
        roster: replaces the one that the settings name; read once.
        store: replaces the one that the settings name.
        rubric: answers are judged by it, in any environment; replaces the one that the settings name.
        **watch: callbacks and hooks; see `Watch`.

    Raises:
        HeadgateError: if an argument or a setting cannot be used; nothing has been started then.
    """
    rubric = rubric if rubric is not None else rubric_for(settings)
    registry = registry_of(settings)
    under = rubric_environments(settings.environments, rubric, registry) if rubric is not None else {}
    environments: Mapping[str, JudgedEnvironment] = under or judged_environments(settings.environments, registry)
    judge = judge if judge is not None else judge_of(settings)
    models = (await (roster if roster is not None else roster_source(settings.roster)).load()).models
    if not models or judge.key in {model.key for model in models}:
        raise InvalidRosterError(f"there must be at least one model to judge, and none may be called {judge.key}")
    store = store if store is not None else sample_store(settings)
    cells, figures = await missing_cells(store, settings, environments, instances)
    return await run_source(
        settings,
        roster=StaticRoster(tuple(models)),
        environments=environments,
        store=store,
        source=cells,
        judging=Judging(judge, figures=figures),
        stop_when_idle=True,
        asked=lambda endpoints: RubricChats(endpoints, under),
        **watch,
    )


async def run_source(
    settings: Settings,
    *,
    roster: RosterSource,
    environments: Mapping[str, Environment],
    store: SampleStore,
    source: TaskProvider | None,
    judging: Judging | None,
    duration_s: float | None = None,
    stop_when_idle: bool = False,
    is_sole: bool = False,
    asked: Callable[[ChatSource], ChatSource] = lambda endpoints: endpoints,
    cluster: HostCluster | None = None,
    **watch: Unpack[Watch],
) -> RunResult:
    """Run all samples that a source gives to their end.

    Args:
        settings: of the campaign.
        roster: the models to sample.
        environments: by name.
        store: where samples go.
        source: gives the tasks; the daily rates when None.
        judging: the judge and its rule; None if every environment scores answers itself.
        duration_s: length of the window; None runs until stopped.
        stop_when_idle: end when the source has nothing more to give.
        is_sole: refuse to run beside another journal's run of the same campaign.
        asked: wraps the chats that ask the endpoints; returns those that the run uses.
        cluster: where environment hosts are placed; replaces the settings' cluster, if any.
        **watch: callbacks and hooks; see `Watch`.

    Raises:
        HeadgateError: if an argument or a setting cannot be used; nothing has been started then.
    """
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, end_idle_processes)
        stream = EventStream(clock, [LogSink()])
        roster = RosterAtHand(roster, await roster.load())  # before anything is created on disk
        await _refuse_unwritable(store, stream)
        store.prepare()
        run_id, is_traced = new_run_id(), is_observed(settings)
        observe(stack, stream, settings, run_id)
        outside, hosts = outside_executors(settings, environments), None
        if settings.environment_hosts == "ray":
            hosts = EnvironmentHosts(settings, run_id, emit=stream.emit, cluster=cluster)
            environments = hosts.moved(environments, outside)
            stack.push_async_callback(hosts.close)
            await hosts.start()
        client = await stack.enter_async_context(
            ChatClient(ClientSettings(deadline_s=settings.request_timeout_s, stream=settings.streaming))
        )
        slots = watch.get("slots")
        made = {"request_s": settings.request_timeout_s, "retry_s": ONE_SHOT_PAUSE_S if stop_when_idle else RETRY_S}
        engines = ServedModels(watch.get("engine_hosts") or Machine(), clock=clock, emit=stream.emit, **made)
        await stack.enter_async_context(engines)
        sender = BatchClient(client.connections, clock, deadline_s=settings.request_timeout_s)
        requests = RequestSide(
            settings,
            clock=clock,
            emit=stream.emit,
            trace_requests=is_traced,
            slots=slots,
            engines=engines,
            batches=BatchLane(settings, sender, clock=clock, emit=stream.emit),
        )
        if slots is not None:
            await stack.enter_async_context(slots.serving(requests.admission, stream.emit, requests.backlog))
        plan = RunPlan(
            settings=settings,
            roster=roster,
            environments=environments,
            store=store,
            chats=asked(EndpointChats(client, requests, clock=clock)),
            requests=requests,
            duration_s=duration_s,
            provider=source,
            judging=judging,
            executor=await stack.enter_async_context(_outside_workers(settings, outside, clock, stream.emit)),
            stop_when_idle=stop_when_idle,
            run_id=run_id,
            is_traced=is_traced,
            hosts=hosts,
            notices=_notices(stack, stream, settings, watch.get("tell")),
        )
        campaign = Run(plan, clock=clock, emit=stream.emit)
        stack.callback(campaign.close)
        if is_sole:
            await stack.enter_async_context(_sole_journal(campaign, store))
        stack.enter_context(_sole_ranking(settings, source))
        registry = new_registry(campaign.status)
        register_losses(registry, stream)
        registry.register(ElasticCollector(engines.pools))
        stream.add(campaign.inquiry)
        stream.add(PrometheusSink(registry))
        for sink in watch.get("sinks", ()):
            stream.add(BackgroundSink(sink, closes=False))
        if settings.enable_monitoring:
            from headgate.telemetry import Questions  # noqa: PLC0415 - only runs that serve import FastAPI

            inquiry = campaign.inquiry
            questions = Questions(inquiry.about, inquiry.tasks, inquiry.capacity, inquiry.health, inquiry.next_due)
            address = await serve_monitoring(
                stack, settings, campaign.status, registry, questions, campaign.steering, stream.emit,
                run_id=campaign.run_id,
            )  # fmt: skip
            about = (settings.campaign, campaign.run_id, address, gethostname(), campaign.now())
            said = ServedRun(*about, tuple(environments))
            with contextlib.suppress(*JOURNAL_REFUSED):  # if the database is away, the next renewal announces it
                await campaign.journal.call(campaign.journal.journal.announce, said)
        beside = []
        if is_traced:
            beside.append(report_health(campaign.inquiry.health, stream.emit, clock, settings.health_interval_s))
        return await _run_watched(campaign, watch, beside)


def _notices(stack: AsyncExitStack, stream: EventStream, settings: Settings, tell: Send | None) -> Notices | None:
    """Return what turns events into notices; None if nobody receives any. `stack` closes their senders."""
    senders = notice_senders(stack, settings)
    if not senders and tell is None:
        return None
    notices = Notices([*senders, *((tell,) if tell is not None else ())])
    stream.add(notices)
    return notices


@asynccontextmanager
async def _outside_workers(
    settings: Settings, executors: Mapping[str, str], clock: Clock, emit: Emit
) -> AsyncIterator[OutsideWorkers | None]:
    """Yield the job queue's workers; None if they play no environment."""
    if not executors:
        yield None
        return
    address = QueueAddress.of(settings.jobqueue_url or DEFAULT_URL, settings.jobqueue_token.get_secret_value())
    async with JobQueueClient(address, retry=PATIENCE) as queue:
        yield OutsideWorkers(queue, settings, executors, clock, emit)


async def _refuse_unwritable(store: SampleStore, stream: EventStream) -> None:
    """Refuse a store that cannot be written at all; one that is only down for now does not stop the campaign."""
    try:
        await store.probe()
    except StoreNotWritableError:
        raise
    except StoreError as error:
        stream.emit(StoreFailed("probe", 0, str(error), retry_in_s=0.0, attempt=1))


@asynccontextmanager
async def _sole_journal(campaign: Run, store: SampleStore) -> AsyncIterator[None]:
    """Hold the campaign's lease on the store; raise if another journal holds it, stop the run if one takes it later."""
    (key, place), environments = campaign.journal.journal.lease(), campaign.plan.environments
    has_ended = asyncio.Event()

    async def keep() -> None:
        while True:
            if await until_set(has_ended, LEASE_S / 4):
                return
            try:
                await store.renew(key, place, environments)
            except CampaignInUseError as error:
                campaign.stop(str(error))
            except StoreError:
                continue  # samples wait in the spool; the lease is renewed when the store is back

    keeping = asyncio.create_task(keep())
    try:
        with contextlib.suppress(StoreError):
            await store.renew(key, place, environments, is_new=True)
        yield
    finally:
        has_ended.set()
        await keeping  # a renewal in flight would take the lease again after its release
        with contextlib.suppress(StoreError):
            await store.give_back(key)


def _sole_ranking(settings: Settings, source: TaskProvider | None) -> AbstractContextManager[object]:
    """Refuse to rank what another run of the journal ranks: each would know a part of the rows, and decide too late."""
    if not settings.indifference or source is None:
        return contextlib.nullcontext()
    name, doing = settings.campaign, f"stores samples in {settings.store}"
    further = "Wait for that run, or stop it and run this command again; or give this one another --campaign."
    held = f"the models of campaign {name} are already being ranked"
    return sole_run(settings.journal, "rank", name, held, next_step=further, doing=doing)


@contextlib.contextmanager
def sole_run(
    place: JournalPlace, kind: str, name: str, held: str, *, next_step: str, doing: str
) -> Iterator[Callable[[], None]]:
    """Be the only run to do something beside a journal; yield what takes the lock again if the database has lost it.

    Raises:
        InvalidInputError: another run does: the sentence `held`, what that one is `doing`, and `next_step`.
        DatabaseAwayError: the database does not answer.
    """
    me, lock = f"process {os.getpid()} on {gethostname()}, which {doing}", _lock_of(place, kind, name)

    def take() -> None:
        if isinstance(lock, FileLock) and lock.is_held:
            return
        try:
            lock.take(me)
        except LockHeldError as error:
            raise InvalidInputError(f"{held}, by {error.holder}", next_step=next_step) from None

    try:
        take()
        yield take
    finally:
        lock.give_back()


def _lock_of(place: JournalPlace, kind: str, name: str) -> FileLock | PostgresLock:
    if not isinstance(place, PostgresAddress):
        return FileLock(place / f"{kind}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock")
    from headgate.durable.postgres import PostgresLock  # noqa: PLC0415 - in an optional extra

    return PostgresLock(place, f"headgate {kind} {name}")


async def _run_watched(campaign: Run, watch: Watch, beside: Iterable[Coroutine[Any, Any, None]] = ()) -> RunResult:
    async def pass_on_stop(event: asyncio.Event) -> None:
        await event.wait()
        campaign.stop(BY_REQUEST)

    async def report(told: OnStatus) -> None:
        while True:
            await told(campaign.status())
            await asyncio.sleep(watch.get("every_s", 1.0))

    on_status = watch.get("on_status")
    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(watcher) for watcher in beside]
        if (stop := watch.get("stop")) is not None:
            watchers.append(group.create_task(pass_on_stop(stop)))
        if on_status is not None:
            watchers.append(group.create_task(report(on_status)))
        result = await campaign.run()
        for watcher in watchers:
            watcher.cancel()
    if on_status is not None:
        await on_status(campaign.status())
    return result


async def missing_cells(
    store: SampleStore, settings: Settings, environments: Mapping[str, Environment], instances: int
) -> tuple[MatrixTaskProvider, JudgedFigures]:
    """Return the matrix without the cells that have a scored sample in the store, and the counts of judged samples.

    Cells that only failed run again as another stage, so that both outcomes are on record; so do cells whose samples
    were invalidated to be sampled again. A ranking takes all invalidated ones again: it ends at the first gap.

    Raises:
        StoreError: if the store cannot be read.
    """
    every = await store.scan(environments=list(environments), columns=list(_CELL_COLUMNS), everything=True)
    rows = every.frame.filter(pl.col("campaign") == settings.campaign)
    figures = JudgedFigures()
    judged = [name for name, one in environments.items() if one.spec.needs_judge]
    for model, environment, score, kind, why, success in (
        rows.filter(pl.col("environment").is_in(judged), ~pl.col("invalid"))
        .select("model", "environment", "score", "error_kind", "why", "success")
        .iter_rows()
    ):
        figures.count(model, environment, score, kind, why, success=success)
    is_done = pl.col("score").is_not_null() & ~pl.col("invalid" if settings.indifference else "resample")
    cells = rows.group_by("model", "environment", "sequence").agg(
        is_done.any().alias("is_scored"), pl.len().alias("runs")
    )
    done = {(m, e, n) for m, e, n, is_scored, _ in cells.iter_rows() if is_scored}
    failed = {(m, e, n): runs for m, e, n, is_scored, runs in cells.iter_rows() if not is_scored}
    is_shuffled = settings.target_half_width > 0 or settings.indifference > 0
    tasks = MatrixTasks.among(environments, instances, settings.repeats)
    provider = MatrixTaskProvider(list(environments), tasks, done=done, failed=failed, is_shuffled=is_shuffled)
    return provider, figures


@asynccontextmanager
async def models_at_hand(settings: Settings) -> AsyncIterator[RosterSource]:
    """Yield the roster that the settings name. The roster `baselines` is served on a free port until the context ends.

    Raises:
        InvalidSettingError: if the settings name a server for something that is no AgentGym environment.
    """
    if settings.roster != BASELINE_ROSTER:
        yield roster_source(settings.roster)
        return
    found = registry_of(settings)
    async with serve(find_environment=found.environment) as endpoint:
        yield BaselineRoster(endpoint.base_url)


@asynccontextmanager
async def model_at_hand(settings: Settings, name: str) -> AsyncIterator[Model]:
    """Yield one model of the roster, by its name or `name@revision`, or a baseline agent, whatever the roster.

    Raises:
        InvalidRosterError: if the roster cannot be read.
        InvalidSettingError: if it has no such model, or more than one.
    """
    hint = did_you_mean(name, BASELINES, cutoff=0.8)
    if name not in BASELINES and hint and not settings.roster:
        raise InvalidSettingError(
            f"there is no model {name!r}{hint}",
            next_step=f"Name one of {', '.join(BASELINES)}, or give --roster with a model of this name.",
        )
    if name in BASELINES:
        settings = settings.model_copy(update={"roster": BASELINE_ROSTER})
    async with models_at_hand(settings) as source:
        roster = await source.load()
        found = [model for model in roster if name in {model.key, model.name}]
        if len(found) != 1:
            known = ", ".join(model.key for model in roster)
            problem = "has no model" if not found else f"has {len(found)} models named"
            raise InvalidSettingError(
                f"the roster {problem} {name!r}", next_step=f"Name one of {known}, {', '.join(BASELINES)}."
            )
        yield found[0]
