"""Service times: from a table of measurements to seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_replay.elastic import Hardware, InvalidLoadError
from headgate_replay.elastic.traces import Trace, TracedRequest, interpolated, read_service_times

HEAD = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
ROWS = """small,gpu,100,1,128,50,20,1
small,gpu,100,1,128,70,20,1
small,gpu,100,1,128,60,20,1
small,gpu,300,1,128,160,20,1
small,gpu,100,2,128,90,22,1
small,gpu,100,4,128,90,30,1
other,gpu,100,1,128,1,1,1
small,gpu,100,1,128,1,1,8
"""
SMALL = Hardware("small", "gpu", 1)


def table(folder: Path, text: str = HEAD + ROWS) -> Path:
    path = folder / "times.csv"
    path.write_text(text)
    return path


def test_a_call_takes_its_prompt_at_once_and_its_tokens_by_how_many_are_under_way(tmp_path: Path) -> None:
    trace = Trace("t", (TracedRequest(0.0, 200, 10), TracedRequest(1.0, 100, 3)))
    load = read_service_times(table(tmp_path), SMALL).load(trace, slots=4)
    assert [call.first_s for call in load.calls] == pytest.approx([0.110, 0.060])
    assert [call.steps for call in load.calls] == [10, 3]
    assert load.step_s == pytest.approx((0.020, 0.022, 0.026, 0.030))
    assert load.alone_s(load.calls[0]) == pytest.approx(0.110 + 10 * 0.020)
    assert load.crowded_s(load.calls[0]) == pytest.approx(0.110 + 10 * 0.030)
    assert load.work_s == pytest.approx((0.110 + 0.060) / 4 + 13 * 0.030 / 4)


def test_what_was_not_measured_is_extrapolated_and_said(tmp_path: Path) -> None:
    trace = Trace("t", (TracedRequest(0.0, 50, 1), TracedRequest(1.0, 500, 1)))
    load = read_service_times(table(tmp_path), SMALL).load(trace, slots=8)
    assert [call.first_s for call in load.calls] == pytest.approx([0.060, 0.260])
    assert load.step_s[7] == pytest.approx(0.030 + 4 * 0.004)
    assert any("1 of 2 prompts are longer" in note for note in load.notes)
    assert any("Batches of more than 4" in note for note in load.notes)


def test_a_curve_that_falls_at_its_end_does_not_go_on_falling() -> None:
    assert interpolated(((1.0, 5.0), (2.0, 4.0)), 100.0) == 4.0


def test_other_hardware_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidLoadError, match="no measurement of small on 2 x gpu") as error:
        read_service_times(table(tmp_path), Hardware("small", "gpu", 2))
    assert "other on 1 x gpu; small on 1 x gpu; small on 8 x gpu" in error.value.next_step


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model,hardware\n", "lacks the columns tensor_parallel"),
        (HEAD + ROWS + "small,gpu,100,1,128,fast,20,1\n", r"line 10: prompt_time must be a number > 0 \(got 'fast'\)"),
        (HEAD + "small,gpu,100,1,128,50,0,1\n", r"line 2: token_time must be a number > 0 \(got '0'\)"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidLoadError, match=says):
        read_service_times(table(tmp_path, text), SMALL)


def test_a_table_that_is_not_there_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidLoadError) as error:
        read_service_times(tmp_path / "times.csv")
    assert "splitwise-sim" in error.value.next_step
