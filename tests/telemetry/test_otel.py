"""Spans and metrics: what they say, and that a real collector gets them."""

from __future__ import annotations

import logging
from collections import defaultdict

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headgate.core import events
from headgate.telemetry import EventStream, OtelSink, has_collector, otel_sink
from headgate.telemetry.otel_providers import new_providers, resource_of
from tests.telemetry.collector import Collector, running_collector
from tests.telemetry.factories import START, FixedClock, sample

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Recorder:
    """An OtelSink whose spans and metrics stay in memory."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers, meters = new_providers(resource_of("main", "r-1"), SimpleSpanProcessor(self.exporter), [self.reader])
        self.stream = EventStream(FixedClock(), [OtelSink(tracers, meters)])

    def spans(self):
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self):
        found = defaultdict(list)
        for resource in self.reader.get_metrics_data().resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] += metric.data.data_points
        return found


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def a_sample(stream: EventStream) -> None:
    stream.emit(events.TaskStarted("t-1", "acme/small@main", "affine:sat", 0.5, TRACE, "l-7", 1))
    stream.emit(
        events.RequestFinished("acme/small@main", "rate_limited", 0.25, 429, 0, 0, "q-1", 1, "l-1", "t-1", TRACE)
    )
    stream.emit(events.RequestFinished("acme/small@main", "success", 1.5, 200, 100, 20, "q-1", 2, "l-2", "t-1", TRACE))
    stream.emit(events.SampleAccepted(sample(trace_id=TRACE)))


def test_a_sample_s_span_has_the_trace_id_that_is_stored_with_it(recorder: Recorder) -> None:
    a_sample(recorder.stream)
    span = recorder.spans()["sample affine:sat"]
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is None
    assert (span.start_time, span.end_time) == (int(START * 1e9), int((START + 2) * 1e9))
    assert span.attributes["headgate.score"] == 0.75
    assert span.attributes["headgate.task.id"] == "t-1"
    assert span.resource.attributes["service.name"] == "headgate"
    assert span.resource.attributes["headgate.run.id"] == "r-1"


def test_each_attempt_is_a_client_span_below_its_sample(recorder: Recorder) -> None:
    a_sample(recorder.stream)
    parent = recorder.spans()["sample affine:sat"]
    attempts = [span for span in recorder.exporter.get_finished_spans() if span.kind is SpanKind.CLIENT]
    assert [span.attributes["headgate.attempt"] for span in attempts] == [1, 2]
    assert {span.parent.span_id for span in attempts} == {parent.context.span_id}
    assert {span.context.trace_id for span in attempts} == {parent.context.trace_id}
    refused, answered = attempts
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes["error.type"] == "rate_limited"
    assert refused.attributes["http.response.status_code"] == 429
    assert answered.status.status_code is StatusCode.UNSET
    assert answered.attributes["gen_ai.usage.output_tokens"] == 20
    assert answered.end_time - answered.start_time == 1_500_000_000


def test_durations_and_tokens_are_the_metrics_of_the_conventions(recorder: Recorder) -> None:
    a_sample(recorder.stream)
    points = recorder.points()
    durations = {point.attributes.get("error.type"): point for point in points["gen_ai.client.operation.duration"]}
    assert (durations[None].count, durations[None].sum) == (1, 1.5)
    assert (durations["rate_limited"].count, durations["rate_limited"].sum) == (1, 0.25)
    assert durations[None].attributes["gen_ai.operation.name"] == "chat"
    assert {p.attributes["gen_ai.token.type"]: p.sum for p in points["gen_ai.client.token.usage"]} == {
        "input": 100,
        "output": 20,
    }


def test_samples_tasks_and_events_are_counted(recorder: Recorder) -> None:
    a_sample(recorder.stream)
    recorder.stream.emit(events.TaskStarted("t-2", "m@main", "affine:sat", 0.0, TRACE))
    recorder.stream.emit(events.QueueWarned(6_000, 5_000))
    points = recorder.points()
    assert [(p.attributes["headgate.outcome"], p.value) for p in points["headgate.samples"]] == [("success", 1)]
    assert [p.value for p in points["headgate.tasks.active"]] == [1]
    counts = {p.attributes["event"]: p.value for p in points["headgate.events"]}
    assert counts == {"task_started": 2, "request_finished": 2, "sample_accepted": 1, "queue_warned": 1}


def test_a_task_that_is_given_back_ends_its_span_with_the_reason(recorder: Recorder) -> None:
    recorder.stream.emit(events.TaskStarted("t-1", "m@main", "affine:sat", 0.0, TRACE))
    recorder.stream.emit(events.TaskReturned("t-1", "m@main", "affine:sat", "the campaign is stopping"))
    span = recorder.spans()["sample affine:sat"]
    assert span.status.description == "the campaign is stopping"


def test_spans_that_are_open_at_the_end_are_sent(recorder: Recorder) -> None:
    recorder.stream.emit(events.TaskStarted("t-1", "m@main", "affine:sat", 0.0, TRACE))
    recorder.stream.close()
    assert "sample affine:sat" in recorder.spans()


def test_a_trace_id_that_is_none_gives_a_span_all_the_same(recorder: Recorder) -> None:
    for trace_id in ("", "x", "0" * 32, "f" * 40):
        recorder.stream.emit(events.TaskStarted(f"t-{trace_id}", "m@main", "e", 0.0, trace_id))
    recorder.stream.close()
    assert len({span.context.trace_id for span in recorder.exporter.get_finished_spans()}) == 4


def test_a_collector_is_named_by_the_setting_or_by_the_variables_of_opentelemetry() -> None:
    assert not has_collector("", {})
    assert has_collector("http://127.0.0.1:4318", {})
    assert has_collector("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})


@pytest.fixture
def collector():
    with running_collector() as running:
        yield running


def test_a_real_collector_gets_spans_and_metrics_when_the_stream_closes(collector: Collector) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    stream = EventStream(FixedClock(), [otel_sink(endpoint, campaign="main", run_id="r-1")])
    a_sample(stream)
    stream.close()
    assert sorted(span.name for span in collector.spans) == [
        "chat acme/small@main",
        "chat acme/small@main",
        "sample affine:sat",
    ]
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert {"gen_ai.client.operation.duration", "headgate.samples", "headgate.events"} <= collector.metrics


def test_a_collector_that_is_away_costs_no_more_than_its_spans(caplog) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    stream = EventStream(
        FixedClock(), [otel_sink("http://127.0.0.1:9", campaign="main", run_id="r-1", close_within_s=0.5)]
    )
    a_sample(stream)
    stream.close()
    assert stream.failures == {}
