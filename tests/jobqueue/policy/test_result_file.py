"""A result's file is a whole one or none."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy import write_result


def test_a_result_replaces_an_older_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "new" / "result.json"
    write_result(place, {"q_score": 0.5})
    write_result(place, {"q_score": 1.0})
    assert json.loads(place.read_text()) == {"q_score": 1.0}
    assert list(place.parent.iterdir()) == [place]


def test_whoever_may_read_other_files_may_read_a_result(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_result(tmp_path / "result.json", {})
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "result.json"
    write_result(place, {"q_score": 0.5})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidInputError, match="No space left on device"):
        write_result(place, {"q_score": 1.0})
    assert json.loads(place.read_text()) == {"q_score": 0.5}
    assert list(tmp_path.iterdir()) == [place]
