"""OpenTelemetry providers that send to a collector. Importing this module needs the extra `otel`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

import headgate

_TRACE_ID: Final = re.compile(r"[0-9A-Fa-f]{1,32}")


class ChosenTraceIds(RandomIdGenerator):
    """Generates random ids, except for a trace about to begin, which gets the id of its sample."""

    def __init__(self) -> None:
        self.next_trace_id: int | None = None

    def generate_trace_id(self) -> int:
        """Return the chosen id, else a random one."""
        return super().generate_trace_id() if self.next_trace_id is None else self.next_trace_id


@contextlib.contextmanager
def with_trace_id(tracers: TracerProvider, trace_id: str) -> Iterator[None]:
    """Give traces that begin in this context this id (hex); if it is invalid, a random one."""
    ids = tracers.id_generator
    chosen = int(trace_id, 16) if _TRACE_ID.fullmatch(trace_id) else 0
    if not isinstance(ids, ChosenTraceIds) or not chosen:
        yield
        return
    ids.next_trace_id = chosen
    try:
        yield
    finally:
        ids.next_trace_id = None


def new_providers(
    resource: Resource, processor: SpanProcessor, readers: Sequence[MetricReader]
) -> tuple[TracerProvider, MeterProvider]:
    """Return separate providers, without setting global ones, since others in the process may use OpenTelemetry."""
    tracers = TracerProvider(resource=resource, id_generator=ChosenTraceIds(), shutdown_on_exit=False)
    tracers.add_span_processor(processor)
    return tracers, MeterProvider(readers, resource=resource, shutdown_on_exit=False)


def exporting_providers(
    endpoint: str, campaign: str, run_id: str, *, timeout_s: float
) -> tuple[TracerProvider, MeterProvider]:
    """Return providers that send to the collector at `endpoint`; if empty, to the one in the SDK's variables."""
    base = endpoint.rstrip("/")
    traces = OTLPSpanExporter(endpoint=f"{base}/v1/traces" if base else None, timeout=timeout_s)
    metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics" if base else None, timeout=timeout_s)
    return new_providers(
        resource_of(campaign, run_id), BatchSpanProcessor(traces), [PeriodicExportingMetricReader(metrics)]
    )


def resource_of(campaign: str, run_id: str) -> Resource:
    """Return the attributes of this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "headgate"}
    attributes = {SERVICE_VERSION: headgate.__version__, "headgate.campaign": campaign, "headgate.run.id": run_id}
    return Resource.create(named | attributes)
