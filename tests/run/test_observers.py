"""What is told of a real campaign: its file of events, its trace, its health, its capacity plan."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.config import Settings
from headgate.core import Model, errors, events
from headgate.models import FaultPlan, serve
from headgate.run import run_campaign
from headgate.sampling import StaticRoster
from tests.telemetry.collector import Collector, running_collector
from tests.telemetry.trace_format import read_trace, slices

ENVIRONMENT = "affine:sat-hard"


async def ran(tmp_path: Path, faults: str = "", sinks=(), instances: int = 6, **settings: Any):
    """Run a small campaign against a real endpoint and return its result."""
    async with serve(FaultPlan.parse(faults)) as endpoint:
        roster = StaticRoster([Model("m", base_url=endpoint.base_url, served_name="baseline-solver", max_parallel=3)])
        made = Settings(
            environments=(ENVIRONMENT,), store=str(tmp_path / "samples"), journal=tmp_path / "journal", **settings
        )
        return await run_campaign(made, roster=roster, instances=instances, sinks=sinks)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_run_leaves_a_trace_with_a_slice_per_sample_and_its_requests_within(tmp_path: Path) -> None:
    trace = tmp_path / "out" / "trace.json"
    await ran(tmp_path, trace_file=str(trace))
    found = read_trace(trace)
    tasks = slices(found, ENVIRONMENT)
    assert len(tasks) == 6
    requests = slices(found, "request 1 success")
    assert len(requests) == 6
    for request in requests:
        (task,) = (t for t in tasks if t["args"]["task_id"] == request["args"]["task_id"])
        assert (task["pid"], task["tid"]) == (request["pid"], request["tid"])
        assert task["ts"] <= request["ts"]
        assert request["args"]["lease_id"]
        assert request["args"]["trace_id"] == task["args"]["trace_id"]
    assert (trace.parent / "trace.events.jsonl").exists()


async def test_refusals_and_back_offs_of_a_run_are_in_its_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    faults = "rate_limit:concurrency=1,retry_after_s=0.05;slow:mean_s=0.05,cv=0"
    await ran(tmp_path, faults, trace_file=str(trace), instances=12)
    found = read_trace(trace)
    assert slices(found, "back-off")
    assert any(event["name"] == "429" for event in found)
    assert slices(found, "request 2")
    assert any(e["ph"] == "C" and e["name"] == "in flight" for e in found)
    assert len({e["name"] for e in slices(found, "limit")}) > 1
    assert any(e["ph"] == "s" and e["name"] == "429 cuts the limit" for e in found)


async def test_every_step_of_a_sample_s_way_is_an_event_of_its_task(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    await ran(tmp_path, events_file=str(path), instances=1)
    lines = lines_of(path)
    task_id = next(line["fields"]["task_id"] for line in lines if line["event"] == "sample_accepted")
    way = [line["event"] for line in lines if line["fields"].get("task_id") == task_id]
    assert [name for name in way if name != "task_selected"] == [
        "task_opened",
        "ready_enqueued",
        "task_lease_acquired",
        "worker_spawned",
        "task_started",
        "request_lease_acquired",
        "request_started",
        "request_finished",
        "request_lease_released",
        "task_lease_released",
        "task_completed",
        "sample_accepted",
    ]
    (trace_id,) = {line["fields"]["trace_id"] for line in lines if line["fields"].get("trace_id")}
    assert len(trace_id) == 32
    assert len({line["run"] for line in lines}) == 1
    assert (
        len(
            {
                line["fields"]["lease_id"]
                for line in lines
                if line["event"].startswith("request_") and "lease_id" in line["fields"]
            }
        )
        == 1
    )


async def test_the_capacity_plan_is_told_at_start_and_end_with_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    await ran(tmp_path, events_file=str(path), num_evaluation_workers=2)
    start, end = (line["fields"] for line in lines_of(path) if line["event"] == "capacity_reported")
    assert (start["moment"], end["moment"]) == ("start", "end")
    assert end["plan"]["configured"]["num_evaluation_workers"]["value"] == 2
    assert end["plan"]["configured"]["max_parallel m@main"]["source"] == "roster"
    assert end["plan"]["observed"]["workers"]["value"] == 2
    assert end["plan"]["observed"]["queued"]["value"] == 6
    (key,) = (name for name in end["plan"]["observed"] if name.startswith("in_flight "))
    assert end["plan"]["observed"][key]["value"] == 2
    names = Counter(line["event"] for line in lines_of(path))
    assert names["campaign_started"] == names["campaign_stopped"] == 1


async def test_health_is_told_at_its_interval_while_a_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    await ran(tmp_path, "slow:mean_s=0.1,cv=0", events_file=str(path), health_interval_s=0.02)
    told = [line["fields"] for line in lines_of(path) if line["event"] == "health_reported"]
    assert len(told) > 2
    assert max(health["active"] for health in told) == 3
    assert {health["resources"]["workers"][1] for health in told} == {20}
    assert told[-1]["run_id"] == lines_of(path)[0]["run"]


class Listening:
    """A sink of the caller's that does one thing with every event."""

    def __init__(self, does: Callable[[Any], object]) -> None:
        self.handlers = {events.Event: does}

    def close(self) -> None:
        raise AssertionError("a sink of the caller's is closed by the caller")


async def test_without_a_listener_nothing_is_told_of_single_requests(tmp_path: Path) -> None:
    heard: Counter[str] = Counter()
    await ran(tmp_path, sinks=[Listening(lambda recorded: heard.update([type(recorded.event).__name__]))])
    assert heard["SampleAccepted"] == 6
    assert heard["RequestLeaseAcquired"] == heard["TaskLeaseAcquired"] == heard["HealthReported"] == 0


async def test_a_sink_that_raises_and_one_that_blocks_cost_no_sample(tmp_path: Path, caplog) -> None:
    release = threading.Event()
    threading.Timer(2.0, release.set).start()
    result = await ran(tmp_path, sinks=[Listening(lambda _: release.wait()), Listening(lambda _: 1 / 0)])
    assert result.stored == 6
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


async def test_a_trace_that_cannot_be_written_costs_a_warning_and_no_sample(tmp_path: Path, caplog) -> None:
    (tmp_path / "trace.json").mkdir()
    result = await ran(tmp_path, trace_file=str(tmp_path / "trace.json"))
    assert result.stored == 6
    assert "was not written" in caplog.text


@pytest.fixture
def collector():
    with running_collector() as running:
        yield running


async def test_a_collector_gets_a_span_per_sample_with_the_trace_id_that_is_stored(
    tmp_path: Path, collector: Collector
) -> None:
    path = tmp_path / "events.jsonl"
    await ran(tmp_path, otel_endpoint=f"http://127.0.0.1:{collector.server_address[1]}", events_file=str(path))
    stored = {line["fields"]["trace_id"] for line in lines_of(path) if line["event"] == "sample_accepted"}
    samples = [span for span in collector.spans if span.name.startswith("sample ")]
    requests = [span for span in collector.spans if span.name == "chat m@main"]
    assert {span.trace_id.hex() for span in samples} == stored
    assert {span.parent_span_id for span in requests} == {span.span_id for span in samples}
    assert {"headgate.samples", "headgate.model.request.active"} <= collector.metrics


async def test_a_collector_that_only_a_variable_names_is_no_reason_to_fail(tmp_path: Path, monkeypatch, caplog) -> None:
    def missing(*_: object, **__: object) -> None:
        raise errors.MissingExtraError("OpenTelemetry", "otel")

    monkeypatch.setattr("headgate.run.observers.otel_sink", missing)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING):
        assert (await ran(tmp_path)).stored == 6
    assert "headgate[otel]" in caplog.text
    with pytest.raises(errors.MissingExtraError):
        await ran(tmp_path, otel_endpoint="http://127.0.0.1:9")
