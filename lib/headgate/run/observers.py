"""What observes a campaign besides the log: event files, traces, OpenTelemetry and the monitoring API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from headgate.config import Settings
from headgate.core import Clock, Secret
from headgate.core.errors import HeadgateError, InvalidSettingError, MissingExtraError
from headgate.core.events import Emit, HealthReported, MonitorStarted
from headgate.core.status import CampaignStatus
from headgate.telemetry import EventStream, JsonlSink, Send, convert_events, has_collector, otel_sink, senders_of

if TYPE_CHECKING:
    from headgate.telemetry import MonitorServer, Questions, Steered

_log = logging.getLogger("headgate.telemetry")
_TRACE_SUFFIXES: Final = (".gz", ".json")


def is_observed(settings: Settings) -> bool:
    """Return whether anything besides the log listens; if so, single requests and health are reported as well."""
    return bool(settings.events_file or settings.trace_file or has_collector(settings.otel_endpoint))


def observe(stack: AsyncExitStack, stream: EventStream, settings: Settings, run_id: str) -> None:
    """Add the sinks that the settings ask for; `stack` closes the stream and then writes the trace.

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
    """Return the file for events: the settings' own, else one beside the trace; None if they name neither."""
    if settings.events_file:
        return Path(settings.events_file)
    if not settings.trace_file:
        return None
    name = Path(settings.trace_file).name
    for suffix in _TRACE_SUFFIXES:
        name = name.removesuffix(suffix)
    return Path(settings.trace_file).with_name(f"{name}.events.jsonl")


def notice_senders(stack: AsyncExitStack, settings: Settings) -> list[Send]:
    """Return what sends notices as the settings say; `stack` closes them."""
    secret = settings.notify_secret.get_secret_value()
    senders = senders_of(
        settings.notify_url, secret, settings.notify_command, settings.campaign, settings.notify_timeout_s
    )
    for sender in senders:
        stack.callback(sender.close)
    return [*senders]


async def report_health(health: Callable[[], HealthReported], emit: Emit, clock: Clock, every_s: float) -> None:
    """Emit the health of a campaign every `every_s` seconds, until cancelled."""
    while True:
        await clock.sleep(every_s)
        emit(health())


def _add_otel(stream: EventStream, settings: Settings, run_id: str) -> None:
    try:
        stream.add(otel_sink(settings.otel_endpoint, campaign=settings.campaign, run_id=run_id))
    except MissingExtraError as error:
        if settings.otel_endpoint:
            raise
        # The variable applies to the whole machine and may be meant for other programs.
        _log.warning("a collector is named by OTEL_EXPORTER_OTLP_ENDPOINT, but %s", error)


async def _write_trace(events_file: Path, trace_file: Path, run_id: str) -> None:
    """Write the trace of a run that has ended; a failure is only logged, as the samples are safe."""
    try:
        await asyncio.to_thread(trace_file.parent.mkdir, parents=True, exist_ok=True)
        made = await asyncio.to_thread(convert_events, events_file, trace_file, run_id=run_id)
    except (HeadgateError, OSError) as error:
        _log.warning("the trace %s was not written: %s", trace_file, error)
    else:
        _log.info("trace %s: %d events over %.1f s", trace_file, made.events, made.seconds)


async def serve_monitoring(
    stack: AsyncExitStack,
    settings: Settings,
    status: Callable[[], CampaignStatus],
    registry: CollectorRegistry,
    questions: Questions,
    steering: Steered,
    emit: Emit,
    *,
    run_id: str = "",
) -> str:
    """Serve the monitoring API until `stack` ends, on a free port if its own is unavailable.

    Returns:
        Its URL for others on the network; see `MonitorServer`.

    Raises:
        HeadgateError: if it cannot be served.
    """
    # Only runs that serve import FastAPI.
    from headgate.net.authority import Authority  # noqa: PLC0415
    from headgate.net.tls import server_context  # noqa: PLC0415
    from headgate.net.token_stores import open_tokens  # noqa: PLC0415
    from headgate.telemetry import serve_monitor  # noqa: PLC0415

    authority = None
    if settings.monitor_tokens:
        authority = Authority(open_tokens(settings.monitor_tokens))
        stack.callback(authority.close)
    token = settings.monitor_token.get_secret_value()

    async def served_at(port: int) -> MonitorServer:
        serving = serve_monitor(
            status, registry, settings.monitor_host, port, Secret(token) if token else None, questions, steering,
            authority=authority, tls=server_context(settings.tls_certificate, settings.tls_key), run_id=run_id,
            advertised_host=settings.monitor_advertised_host,
        )  # fmt: skip
        return await stack.enter_async_context(serving)

    try:
        server = await served_at(settings.monitor_port)
    except InvalidSettingError as error:
        if settings.monitor_port == 0:
            raise
        server = await served_at(0)
        _log.warning("%s; the monitoring API is at %s", error.message, server.address)
    emit(MonitorStarted(server.address))
    return server.advertised
