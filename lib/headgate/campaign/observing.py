"""What listens to a campaign beside the log: files, traces, OpenTelemetry; and the health that they are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from headgate.config import Settings
from headgate.core import Clock
from headgate.core.errors import HeadgateError, MissingExtraError
from headgate.core.events import Emit, HealthReported
from headgate.telemetry import EventStream, JsonlSink, convert_events, has_collector, otel_sink

_log = logging.getLogger("headgate.telemetry")
_TRACE_SUFFIXES: Final = (".gz", ".json")


def is_observed(settings: Settings) -> bool:
    """Return whether somebody beside the log listens: then single requests and health are told of, too."""
    return bool(settings.events_file or settings.trace_file or has_collector(settings.otel_endpoint))


def observe(stack: AsyncExitStack, stream: EventStream, settings: Settings, run_id: str) -> None:
    """Let the sinks that the settings ask for listen; `stack` closes the stream, and then writes the trace.

    Raises:
        InvalidSettingError: if a file cannot be written.
        MissingExtraError: if a setting asks for OpenTelemetry and it is not installed.
    """
    events_file = events_file_of(settings)
    if settings.trace_file and events_file is not None:
        stack.push_async_callback(_write_trace, events_file, Path(settings.trace_file), run_id)
    stack.callback(stream.close)
    if events_file is not None:
        stream.add(JsonlSink(events_file, run_id=run_id))
    if has_collector(settings.otel_endpoint):
        _add_otel(stream, settings, run_id)


def events_file_of(settings: Settings) -> Path | None:
    """Return the file that events go to: the one of the settings, else the one beside the trace."""
    if settings.events_file:
        return Path(settings.events_file)
    if not settings.trace_file:
        return None
    name = Path(settings.trace_file).name
    for suffix in _TRACE_SUFFIXES:
        name = name.removesuffix(suffix)
    return Path(settings.trace_file).with_name(f"{name}.events.jsonl")


async def report_health(health: Callable[[], HealthReported], emit: Emit, clock: Clock, every_s: float) -> None:
    """Tell the health of a campaign every `every_s` seconds, until cancelled."""
    while True:
        await clock.sleep(every_s)
        emit(health())


def _add_otel(stream: EventStream, settings: Settings, run_id: str) -> None:
    try:
        stream.add(otel_sink(settings.otel_endpoint, campaign=settings.campaign, run_id=run_id))
    except MissingExtraError as error:
        if settings.otel_endpoint:
            raise
        # The variable is the machine's, and may be meant for other programs.
        _log.warning("a collector is named by OTEL_EXPORTER_OTLP_ENDPOINT, but %s", error)


async def _write_trace(events_file: Path, trace_file: Path, run_id: str) -> None:
    """Write the trace of a run that has ended; the samples are safe whatever becomes of it."""
    try:
        await asyncio.to_thread(trace_file.parent.mkdir, parents=True, exist_ok=True)
        made = await asyncio.to_thread(convert_events, events_file, trace_file, run_id=run_id)
    except (HeadgateError, OSError) as error:
        _log.warning("the trace %s was not written: %s", trace_file, error)
    else:
        _log.info("trace %s: %d events over %.1f s", trace_file, made.events, made.seconds)
