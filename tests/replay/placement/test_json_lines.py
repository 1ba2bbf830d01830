"""A user's own jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.placement.amounts import CPU, GPU
from headgate_replay.placement import InvalidTraceError, read_json_lines


def written(folder: Path, *lines: str) -> Path:
    path = folder / "jobs.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_line_becomes_a_job(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"id": "b", "arrived_s": 5, "duration_s": 60, "gpus": 2, "cpus": 8, "count": 4, "strategy": "SPREAD",'
        ' "priority": 9, "labels": {"role": "train"}, "checkpoint_every_s": 30, "restart_s": 3, "preemptible": false}',
        "",
        '{"id": "a", "arrived_s": 0, "duration_s": 1, "cpus": 0.5, "estimated_s": 0}',
    )
    a, b = read_json_lines(path).jobs
    assert (a.job_id, a.size.get(CPU), a.estimated_s, a.checkpoint_every_s) == ("a", 500, 0.0, None)
    assert (len(b.bundles), b.size.get(GPU), b.strategy, b.kind, b.estimated_s) == (4, 8000, "SPREAD", "train", 60.0)
    assert (b.priority, b.checkpoint_every_s, b.restart_s, b.preemptible) == (9.0, 30.0, 3.0, False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            '{"id": "a", "arrived_s": 0, "duration_s": -5, "gpus": 1}',
            r"line 2: duration_s must be greater than 0 \(got -5\)",
        ),
        ('{"id": "a", "arrived_s": -1, "duration_s": 5, "gpus": 1}', "arrived_s"),
        ('{"id": "a", "arrived_s": 0, "duration_s": 5}', "takes nothing"),
        ('{"id": "a", "duration_s": 5, "gpus": 1}', "arrived_s is missing[.] Correct"),
        ('{"id": "a", "arrived_s": 0, "duration_s": 5, "gpu": 1}', "there is no setting gpu; did you mean 'gpus'"),
        ('{"id": "a", "arrived_s": 0, "duration_s": 5, "gpus": 1.5}', "GPU above 1 must be whole"),
        ('{"id": "a", "arrived_s": 0, "duration_s": NaN, "gpus": 1}', "line 2"),
        ("not json", "line 2: Invalid JSON"),
        ('{"id": "first", "arrived_s": 0, "duration_s": 5, "gpus": 1}', "two jobs have the id 'first'"),
    ],
)
def test_a_line_that_is_no_job_is_named_with_its_field(tmp_path: Path, line: str, says: str) -> None:
    path = written(tmp_path, '{"id": "first", "arrived_s": 0, "duration_s": 1, "gpus": 1}', line)
    with pytest.raises(InvalidTraceError, match=says):
        read_json_lines(path)


def test_a_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTraceError, match="cannot be read"):
        read_json_lines(tmp_path / "none.jsonl")
    with pytest.raises(InvalidTraceError, match="has no job"):
        read_json_lines(written(tmp_path, ""))
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidTraceError, match="is not UTF-8 text"):
        read_json_lines(tmp_path / "bytes.jsonl")
