"""Files of results: whole, with provenance, never an old claim's over a newer one's."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.worker import (
    ResultRefusedError,
    artifact_of,
    publish_result,
    result_path,
    retract_result,
    worker_name,
)


def by(epoch: int, job_id: str = "1") -> dict[str, Any]:
    return {"job_id": job_id, "epoch": epoch}


def test_a_result_is_written_with_its_provenance_and_checksum(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/r.json"
    artifact = publish_result(path, {"q_score": {"final": 0.5}}, by(1))
    assert json.loads(path.read_text()) == {"q_score": {"final": 0.5}, "provenance": {"job_id": "1", "epoch": 1}}
    assert artifact.checksum == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert artifact == artifact_of(path)
    assert [p.name for p in path.parent.iterdir()] == ["r.json"]


def test_a_later_claim_replaces_the_result_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    publish_result(path, {"n": 1}, by(1))
    publish_result(path, {"n": 2}, by(2))
    assert json.loads(path.read_text())["n"] == 2


@pytest.mark.parametrize("stale", [1, 2])
def test_a_stale_claim_never_overwrites(tmp_path: Path, stale: int) -> None:
    path = tmp_path / "r.json"
    publish_result(path, {"n": 2}, by(2))
    with pytest.raises(ResultRefusedError, match="written by epoch 2"):
        publish_result(path, {"n": 1}, by(stale))
    assert json.loads(path.read_text())["n"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("there", ["{}", "[]", "{", '{"provenance": 7}', '{"provenance": {"job_id": "2", "epoch": 0}}'])
def test_what_this_job_has_not_written_stays(tmp_path: Path, there: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(there)
    with pytest.raises(ResultRefusedError):
        publish_result(path, {}, by(5))
    assert path.read_text() == there


def test_a_result_that_was_not_accepted_is_removed_by_its_own_claim_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert not retract_result(path, by(1))
    publish_result(path, {}, by(2))
    assert not retract_result(path, by(1))
    assert not retract_result(path, by(2, job_id="7"))
    assert path.exists()
    assert retract_result(path, by(2))
    assert not path.exists()


def test_of_claims_that_write_at_once_the_latest_stays(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    together = threading.Barrier(8)

    def write(epoch: int) -> None:
        together.wait()
        try:
            publish_result(path, {"n": epoch}, by(epoch))
        except ResultRefusedError:
            assert epoch < 8

    threads = [threading.Thread(target=write, args=(epoch,)) for epoch in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads(path.read_text())["n"] == 8


@pytest.mark.parametrize("result", [{"x": float("nan")}, {"x": object()}])
def test_what_is_no_json_is_not_written(tmp_path: Path, result: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="not JSON"):
        publish_result(tmp_path / "r.json", result, by(1))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="cannot be written"):
        publish_result(tmp_path / "file/r.json", {}, by(1))


@pytest.mark.parametrize("name", ["missing", "empty", "."])
def test_an_artifact_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidInputError):
        artifact_of(tmp_path / name)


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        ("house_turning_on_radio_0_17_template-tro_state.json", "radio_17.json"),
        ("3", "radio_3.json"),
        ("", "radio_.json"),
        ("a/b\\c", "radio_a%2Fb%5Cc.json"),
        ("../../etc", "radio_..%2F..%2Fetc.json"),
    ],
)
def test_results_lie_where_seed_003_has_them(instance: str, name: str) -> None:
    assert result_path(Path("r"), "team_a", "radio", instance) == Path("r/team_a/metrics") / name


@given(st.text(min_size=1), st.text(min_size=1), st.text())
def test_no_name_leads_out_of_the_folder_or_is_too_long(team: str, task: str, instance: str) -> None:
    try:
        path = result_path(Path("/r"), team, task, instance)
    except UnicodeEncodeError:
        return
    assert path.parts[:2] == ("/", "r")
    assert len(path.parts) == 5
    assert not {"..", "."} & set(path.parts)
    assert all(len(part.encode()) <= 255 for part in path.parts)


def test_workers_names_say_whose_they_are_and_differ() -> None:
    environ = {"USER": "ada\n", "SLURM_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3"}
    names = {worker_name(environ) for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("ada-77-3-") and len(name) <= 200 for name in names)
    assert len(worker_name({"USER": "x" * 500}).encode()) <= 200
