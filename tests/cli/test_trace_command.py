"""`headgate trace` on what `headgate run` wrote."""

from __future__ import annotations

from pathlib import Path

from headgate.core import SystemClock, events
from headgate.telemetry import EventStream, JsonlSink
from tests.cli.conftest import Command
from tests.telemetry.trace_format import read_trace


def test_a_file_of_events_becomes_a_trace(headgate: Command, tmp_path: Path) -> None:
    stream = EventStream(SystemClock(), [JsonlSink(tmp_path / "events.jsonl", run_id="r-1")])
    stream.emit(events.TaskStarted("t-1", "m@main", "affine:sat", 0.5, "0" * 32))
    stream.close()
    said = headgate("trace", "events.jsonl", "-o", "trace.json.gz", "--json")
    assert said.status == 0
    assert (said.document["events"], said.document["runs"]) == (1, 1)
    assert Path(said.document["path"]) == tmp_path / "trace.json.gz"
    assert any(event["name"] == "task" for event in read_trace(tmp_path / "trace.json.gz"))


def test_a_file_that_is_not_there_is_an_error_with_its_next_step(headgate: Command) -> None:
    said = headgate("trace", "events.jsonl")
    assert said.status == 2
    assert "there is no file of events" in said.err
    assert "events_file" in said.err
