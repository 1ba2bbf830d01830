"""A measured run of the whole system: with a store, a journal, and all event sinks of a production run."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from headgate.config import Settings
from headgate.core import Model, SystemClock
from headgate.environments import Environment
from headgate.run import ChatSender, EndpointChats, RequestSide, Run, RunPlan
from headgate.sampling import StaticRoster
from headgate.storage import open_store
from headgate.telemetry import EventStream, LogSink, PrometheusSink, Sink, new_registry
from headgate_bench.definition import LOGGER


def log_stream(clock: SystemClock) -> EventStream:
    """Return an event stream that writes to the log, as in production."""
    return EventStream(clock, [LogSink(logging.getLogger(LOGGER))])


@asynccontextmanager
async def measured_run(
    settings: Settings,
    roster: Sequence[Model],
    environments: Mapping[str, Environment],
    sender: ChatSender,
    *,
    sinks: Sequence[Sink] = (),
    rng: random.Random | None = None,
) -> AsyncIterator[Run]:
    """Yield a run that is ready to start; `sinks` get its events, too."""
    clock = SystemClock()
    stream, store = log_stream(clock), open_store(settings.store)
    await store.probe()

    requests = RequestSide(settings, clock=clock, emit=stream.emit, rng=rng)
    plan = RunPlan(
        settings=settings,
        roster=StaticRoster(roster),
        environments=environments,
        store=store,
        chats=EndpointChats(sender, requests, clock=clock),
        requests=requests,
    )
    run = Run(plan, clock=clock, emit=stream.emit)
    for sink in (PrometheusSink(new_registry(run.status)), *sinks):
        stream.add(sink)
    try:
        yield run
    finally:
        stream.close()
        store.close()
