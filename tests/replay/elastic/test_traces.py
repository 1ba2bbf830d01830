"""Traces of requests: both forms, and what is wrong with a line."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from headgate_replay.elastic import InvalidLoadError
from headgate_replay.elastic.traces import Trace, TracedRequest, read_trace, superposed

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
FIRST = "2023-11-16 18:17:03.9799600,4808,10\r\n"


def written(folder: Path, text: str, name: str = "code.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_trace_of_azure_begins_at_0_and_stands_in_order_of_arrival(tmp_path: Path) -> None:
    later = "2023-11-16 18:17:05.2299600,110,27\r\n"
    trace = read_trace(written(tmp_path, HEAD + later + FIRST))
    assert trace.name == "code"
    assert trace.requests == (TracedRequest(0.0, 4808, 10), TracedRequest(1.25, 110, 27))
    assert trace.requests[-1].arrived_s == 1.25


def test_a_trace_of_mooncake_has_milliseconds_and_further_fields(tmp_path: Path) -> None:
    lines = (
        '{"timestamp": 27000, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n\n'
        '{"timestamp": 30500, "input_length": 12, "output_length": 1, "hash_ids": []}\n'
    )
    trace = read_trace(written(tmp_path, lines, "mooncake.jsonl"))
    assert trace.requests == (TracedRequest(0.0, 6955, 52), TracedRequest(3.5, 12, 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.1,3\n", "lacks the columns GeneratedTokens"),
        (HEAD, "has no request"),
        (HEAD + FIRST + "yesterday,3,4\r\n", "line 3: TIMESTAMP must be a moment .* (got 'yesterday')"),
        (HEAD + "2023-11-16 18:17:03.1,3,0\r\n", "line 2: GeneratedTokens must be a whole number >= 1 (got '0')"),
        (HEAD + FIRST + "2023-11-16 18:17:04.1,-3,4\r\n", "line 3: ContextTokens must be a whole number >= 1"),
        (HEAD + "2023-11-16 18:17:03.1,,4\r\n", "line 2: ContextTokens must be a whole number >= 1 (got None)"),
        (HEAD + "2023-11-16 18:17:03.1,3.5,4\r\n", "line 2: ContextTokens must be a whole number >= 1 (got '3.5')"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_its_value_and_the_rule(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidLoadError) as error:
        read_trace(written(tmp_path, text))
    assert re.search(re.escape(says).replace(r"\.\*", ".*"), error.value.message)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"timestamp": 1, "input_length": 3}\n', "line 1: output_length"),
        ('{"timestamp": 0, "input_length": 3, "output_length": 1}\nno\n', "line 2: Invalid JSON"),
        ('{"timestamp": -1, "input_length": 3, "output_length": 1}\n', "line 1: timestamp"),
    ],
)
def test_a_bad_line_of_json_is_refused_with_its_number(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidLoadError, match=re.escape(says)):
        read_trace(written(tmp_path, text, "trace.jsonl"))


def test_a_file_that_is_not_there_says_where_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidLoadError, match="cannot be read") as error:
        read_trace(tmp_path / "code.csv")
    assert "AzurePublicDataset" in error.value.next_step


def test_superposed_copies_keep_the_course_and_what_is_asked_for() -> None:
    trace = Trace("code", tuple(TracedRequest(float(at), at + 1, 5) for at in range(600)))
    more = superposed(trace, 4, seed=1)
    assert Counter(one.prompt_tokens for one in more.requests) == dict.fromkeys(range(1, 601), 4)
    last_s = trace.requests[-1].arrived_s
    assert more.requests[-1].arrived_s == last_s
    assert all(abs(one.arrived_s - (one.prompt_tokens - 1)) <= 60 for one in more.requests)
    for edge in (0.0, last_s):
        assert sum(abs(one.arrived_s - edge) < 10 for one in more.requests) == pytest.approx(40, rel=0.4)
    assert [one.arrived_s for one in more.requests] == sorted(one.arrived_s for one in more.requests)
    assert "4 copies" in more.notes[0]
    assert more == superposed(trace, 4, seed=1)
    assert superposed(trace, 1) == trace


def test_less_than_one_copy_is_refused() -> None:
    with pytest.raises(InvalidLoadError, match=r"copies must be >= 1 \(got 0\)"):
        superposed(Trace("code", (TracedRequest(0.0, 1, 1),)), 0)
