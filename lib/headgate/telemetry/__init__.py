"""The one event stream and its sinks: log, JSON lines, Prometheus, memory; and the monitoring API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.telemetry.background import BackgroundSink
from headgate.telemetry.document import json_safe, status_document
from headgate.telemetry.fields import duration, event_fields, event_name, printable, safe_text
from headgate.telemetry.jsonl import JsonlSink
from headgate.telemetry.log import LogSink, key_values
from headgate.telemetry.log_setup import setup_logging
from headgate.telemetry.losses import register_losses
from headgate.telemetry.memory import MemorySink
from headgate.telemetry.metrics import METRICS, SPECS, Metric
from headgate.telemetry.otel import OtelSink, has_collector, otel_sink
from headgate.telemetry.perfetto import TraceSummary, convert_events
from headgate.telemetry.prometheus import PrometheusSink, StatusCollector, new_registry
from headgate.telemetry.request_gauges import RequestCollector
from headgate.telemetry.stream import EventStream, Handler, LossySink, Recorded, Sink

if TYPE_CHECKING:
    from headgate.telemetry.monitor import DEFAULT_PORT, MonitorServer, Progress, Questions, monitor_app, serve_monitor

__all__ = [
    "DEFAULT_PORT",
    "METRICS",
    "SPECS",
    "BackgroundSink",
    "EventStream",
    "Handler",
    "JsonlSink",
    "LogSink",
    "LossySink",
    "MemorySink",
    "Metric",
    "MonitorServer",
    "OtelSink",
    "Progress",
    "PrometheusSink",
    "Questions",
    "Recorded",
    "RequestCollector",
    "Sink",
    "StatusCollector",
    "TraceSummary",
    "convert_events",
    "duration",
    "event_fields",
    "event_name",
    "has_collector",
    "json_safe",
    "key_values",
    "monitor_app",
    "new_registry",
    "otel_sink",
    "printable",
    "register_losses",
    "safe_text",
    "serve_monitor",
    "setup_logging",
    "status_document",
]


def __getattr__(name: str) -> Any:
    # FastAPI takes half a second to import: only who serves the monitoring API pays it.
    if name in {"DEFAULT_PORT", "MonitorServer", "Progress", "Questions", "monitor_app", "serve_monitor"}:
        from headgate.telemetry import monitor  # noqa: PLC0415

        return getattr(monitor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
