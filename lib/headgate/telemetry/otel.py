"""OpenTelemetry: a span per sample with its requests below it, and metrics, sent over OTLP. Needs the extra `otel`."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.core import errors, events
from headgate.telemetry.backlog import BackgroundSink
from headgate.telemetry.fields import event_name, safe_text
from headgate.telemetry.stream import Handler, Recorded

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

ENDPOINT_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
"""OpenTelemetry's variables that name a collector; its SDK reads them, and all its others, itself."""

MAX_OPEN: Final = 20_000
"""Maximum open spans of samples; beyond it the oldest span ends."""

_EXPORT_TIMEOUT_S: Final = 4.0
"""Less than the time for which a closing sink is waited for."""

_DURATION_BUCKETS_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_BUCKETS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
"""The buckets that the semantic conventions for generative AI recommend."""

_PROVIDER: Final = "openai"
"""`gen_ai.provider.name` names the API's flavour; all endpoints that Headgate uses speak OpenAI's."""


def has_collector(endpoint: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the setting or a variable of OpenTelemetry names a collector."""
    return bool(endpoint) or any(environ.get(name) for name in ENDPOINT_VARIABLES)


def otel_sink(endpoint: str, *, campaign: str, run_id: str, close_within_s: float = 5.0) -> BackgroundSink:
    """Return a sink that sends spans and metrics to the collector at `endpoint`, or the one in OTEL_… variables.

    It has its own thread, so a slow or unavailable collector costs spans, never samples.

    Raises:
        MissingExtraError: if OpenTelemetry is not installed.
    """
    try:
        from headgate.telemetry.otel_providers import exporting_providers  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise errors.MissingExtraError("OpenTelemetry", "otel") from error
    tracers, meters = exporting_providers(endpoint, campaign, run_id, timeout_s=min(_EXPORT_TIMEOUT_S, close_within_s))
    return BackgroundSink(OtelSink(tracers, meters), close_within_s=close_within_s)


class OtelSink:
    """Turns events into spans and metrics. Owned by the event stream, called from one thread; `close` flushes.

    A sample's span has the sample's trace id, so a stored sample leads to its trace. Spans of its requests are its
    children. Names follow the semantic conventions for generative AI where these have one.
    """

    def __init__(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        self._tracers = tracers
        self._meters = meters
        self._tracer = tracers.get_tracer("headgate")
        self._open: OrderedDict[str, Span] = OrderedDict()
        meter = meters.get_meter("headgate")
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of one attempt of a chat request.",
            explicit_bucket_boundaries_advisory=_DURATION_BUCKETS_S,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of answered requests.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )
        self._samples = meter.create_counter("headgate.samples", "{sample}", "Samples accepted.")
        self._active_tasks = meter.create_up_down_counter("headgate.tasks.active", "{task}", "Tasks in progress.")
        self._queue_wait = meter.create_histogram("headgate.queue.wait", "s", "Time of a task from ready to started.")
        self._active_requests = meter.create_up_down_counter(
            "headgate.model.request.active", "{request}", "Requests that hold a lease."
        )
        self._events = meter.create_counter("headgate.events", "{event}", "Events by name.")
        self.handlers: Mapping[type[events.Event], Handler] = {
            events.Event: self._count,
            events.TaskStarted: self._task_started,
            events.SampleAccepted: self._sample_accepted,
            events.TaskReturned: self._task_returned,
            events.RequestFinished: self._request_finished,
            events.RequestRateLimited: self._request_rate_limited,
            events.RequestLeaseAcquired: self._lease_changed,
            events.RequestLeaseReleased: self._lease_changed,
        }

    def close(self) -> None:
        """End open spans and flush."""
        while self._open:
            self._open.popitem()[1].end()
        self._tracers.shutdown()
        self._meters.shutdown()

    def _count(self, recorded: Recorded[Any]) -> None:
        self._events.add(1, {"event": event_name(type(recorded.event))})

    def _task_started(self, recorded: Recorded[events.TaskStarted]) -> None:
        from opentelemetry.context import Context  # noqa: PLC0415 - an optional extra

        from headgate.telemetry.otel_providers import with_trace_id  # noqa: PLC0415

        self._count(recorded)
        event = recorded.event
        self._active_tasks.add(1)
        self._queue_wait.record(event.queue_wait_s, {"headgate.environment": event.environment})
        with with_trace_id(self._tracers, event.trace_id):
            span = self._tracer.start_span(
                f"sample {event.environment}",
                context=Context(),
                attributes={
                    "headgate.task.id": event.task_id,
                    "headgate.environment": event.environment,
                    "headgate.queue.wait": event.queue_wait_s,
                    "headgate.task.attempt": event.attempt,
                    "headgate.lease.id": event.lease_id,
                    "gen_ai.request.model": event.model,
                },
                start_time=_ns(recorded.wall),
            )
        self._open[event.task_id] = span
        if len(self._open) > MAX_OPEN:
            self._end(next(iter(self._open)), recorded.wall, {}, "its end was not seen")

    def _sample_accepted(self, recorded: Recorded[events.SampleAccepted]) -> None:
        self._count(recorded)
        sample = recorded.event.sample
        outcome = sample.error_kind or ("success" if sample.success else "failure")
        self._samples.add(1, {"headgate.environment": sample.environment, "headgate.outcome": outcome})
        attributes: dict[str, Any] = {
            "headgate.outcome": outcome,
            "headgate.attempts": sample.attempts,
            "gen_ai.usage.input_tokens": sample.prompt_tokens,
            "gen_ai.usage.output_tokens": sample.completion_tokens,
        }
        if sample.score is not None:
            attributes["headgate.score"] = sample.score
        self._end(sample.task_id, sample.finished_at, attributes, sample.error or sample.error_kind)

    def _task_returned(self, recorded: Recorded[events.TaskReturned]) -> None:
        self._count(recorded)
        self._end(recorded.event.task_id, recorded.wall, {"headgate.outcome": "returned"}, recorded.event.reason)

    def _end(self, task_id: str, wall: float, attributes: Mapping[str, Any], error: str | None) -> None:
        span = self._open.pop(task_id, None)
        if span is None:
            return
        self._active_tasks.add(-1)
        span.set_attributes(attributes)
        _set_error(span, error)
        span.end(_ns(wall))

    def _request_finished(self, recorded: Recorded[events.RequestFinished]) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - an optional extra

        self._count(recorded)
        event = recorded.event
        error = None if event.outcome == "success" else event.outcome
        named = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDER,
            "gen_ai.request.model": event.model,
            **({"error.type": error} if error else {}),
        }
        self._durations.record(event.latency_s, named)
        for kind, tokens in (("input", event.prompt_tokens), ("output", event.completion_tokens)):
            if tokens:
                self._tokens.record(tokens, {**named, "gen_ai.token.type": kind})
        parent = self._open.get(event.task_id)
        span = self._tracer.start_span(
            f"chat {event.model}",
            context=set_span_in_context(parent) if parent is not None else None,
            kind=SpanKind.CLIENT,
            attributes=named | _request_attributes(event),
            start_time=_ns(recorded.wall - event.latency_s),
        )
        _set_error(span, error)
        span.end(_ns(recorded.wall))

    def _request_rate_limited(self, recorded: Recorded[events.RequestRateLimited]) -> None:
        self._count(recorded)
        span = self._open.get(recorded.event.task_id)
        if span is not None:
            span.add_event("rate limited", {"headgate.blocked": recorded.event.blocked_s}, timestamp=_ns(recorded.wall))

    def _lease_changed(self, recorded: Recorded[events.RequestLeaseAcquired | events.RequestLeaseReleased]) -> None:
        self._count(recorded)
        more = 1 if isinstance(recorded.event, events.RequestLeaseAcquired) else -1
        self._active_requests.add(more, {"gen_ai.request.model": recorded.event.model})


def _request_attributes(event: events.RequestFinished) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "gen_ai.usage.input_tokens": event.prompt_tokens,
        "gen_ai.usage.output_tokens": event.completion_tokens,
        "headgate.request.id": event.request_id,
        "headgate.attempt": event.attempt,
        "headgate.lease.id": event.lease_id,
        "headgate.task.id": event.task_id,
    }
    if event.status is not None:
        attributes["http.response.status_code"] = event.status
    return attributes


def _set_error(span: Span, error: str | None) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an optional extra

    if error:
        span.set_status(Status(StatusCode.ERROR, safe_text(error, limit_chars=500)))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
