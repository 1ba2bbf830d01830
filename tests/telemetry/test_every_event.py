"""Every event class, whatever its fields hold, is a line of JSON and a line of the log."""

from __future__ import annotations

from pathlib import Path

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.telemetry import JsonlSink, Recorded, event_name
from headgate.telemetry.fields import event_fields
from headgate.telemetry.log import key_values
from tests.telemetry.event_strategies import event_classes, instances

ONE_OF_EACH = st.tuples(*(instances(cls) for cls in event_classes()))


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(ONE_OF_EACH)
def test_every_event_survives_json_unchanged_and_is_one_printable_line_of_the_log(made) -> None:
    for event in made:
        fields = event_fields(event)
        assert orjson.loads(orjson.dumps(fields)) == fields, event
        line = key_values(event_name(type(event)), fields)
        assert line.splitlines() == [line]
        assert not any(character < " " or "\x7f" <= character < "\xa0" for character in line), line
        line.encode()


def test_one_of_every_event_is_one_line_each_of_the_file(tmp_path: Path) -> None:
    @settings(max_examples=1)
    @given(ONE_OF_EACH)
    def written(made) -> None:
        path = tmp_path / "events.jsonl"
        path.unlink(missing_ok=True)
        sink = JsonlSink(path, run_id="r-1")
        (handler,) = sink.handlers.values()
        for number, event in enumerate(made, start=1):
            handler(Recorded(number, 1.0, 2.0, event))
        sink.close()
        lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        assert [line["event"] for line in lines] == [event_name(cls) for cls in event_classes()]
        assert {line["run"] for line in lines} == {"r-1"}

    written()
