"""What adapters keep: released tags, request ids, and the numbers that engines tell."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from headgate.elastic.engines.calls import RequestIds, metric_samples, total, with_field
from headgate.elastic.engines.records import ReleasedTags
from headgate.elastic.errors import EngineError

URL = "http://gpu-1:30000"


def test_what_is_released_is_known_after_a_restart_of_ours(tmp_path: Path) -> None:
    tags = ReleasedTags(URL, tmp_path)
    tags.met("seed=1")
    tags.set("kv_cache", is_released=True)
    tags.set("weights", is_released=True)
    tags.set("weights", is_released=False)

    again = ReleasedTags(URL, tmp_path)
    again.met("seed=1")

    assert "kv_cache" in again
    assert "weights" not in again


def test_another_life_of_the_engine_has_released_nothing(tmp_path: Path) -> None:
    tags = ReleasedTags(URL, tmp_path)
    tags.met("seed=1")
    tags.set("kv_cache", is_released=True)

    again = ReleasedTags(URL, tmp_path)
    again.met("seed=2")

    assert not again
    assert not ReleasedTags(URL, tmp_path)


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"tags":3,"incarnation":""}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, kept: bytes) -> None:
    tags = ReleasedTags(URL, tmp_path)
    tags.set("kv_cache", is_released=True)
    for path in tmp_path.iterdir():
        path.write_bytes(kept)

    assert not ReleasedTags(URL, tmp_path)


def test_a_record_that_cannot_be_written_stops_what_it_is_about(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    tags = ReleasedTags(URL, folder)
    tags.set("kv_cache", is_released=True)
    folder.rename(tmp_path / "gone")
    folder.write_text("a file")

    with pytest.raises(EngineError, match="cannot be recorded in"):
        tags.set("weights", is_released=True)

    assert "kv_cache" in tags
    assert "weights" not in tags


def test_engines_have_records_of_their_own(tmp_path: Path) -> None:
    ReleasedTags(URL, tmp_path).set("kv_cache", is_released=True)

    assert not ReleasedTags("http://gpu-2:30000", tmp_path)


def test_a_request_keeps_its_id_where_that_is_its_own() -> None:
    ids = RequestIds()
    with ids.use("a") as first, ids.use("b") as second:
        assert (first, second) == ("a", "b")
        assert ids.of("a") == "a"
    assert ids.of("a") is None


def test_no_id_in_flight_begins_with_another() -> None:
    ids = RequestIds()
    with ids.use("r10") as first, ids.use("r1") as second, ids.use("r100") as third:
        used = (first, second, third)
        assert ids.of("r1") == second

    assert first == "r10"
    assert not [(a, b) for a in used for b in used if a is not b and a.startswith(b)]


def test_a_request_that_comes_back_has_another_id() -> None:
    ids = RequestIds()
    with ids.use("r1") as first:
        pass
    with ids.use("r1") as second:
        assert second != first
        assert ids.of("r1") == second


def test_metrics_are_read_with_their_labels() -> None:
    page = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_running{engine="0",model_name="a}\\"b"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="c"} 2.0 1700000000000\n'
        "vllm:num_requests_waiting 1\n"
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 7\n'
    )
    found = metric_samples(page, ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:absent"))

    assert [value for _, value in found["vllm:num_requests_running"]] == [3.0, 2.0]
    assert found["vllm:num_requests_running"][1][0] == {"engine": "1", "model_name": "c"}
    assert found["vllm:num_requests_waiting"] == [({}, 1.0)]
    assert found["vllm:absent"] == []


def test_a_sum_over_ranks_is_told_only_if_each_rank_tells() -> None:
    assert total([{"slots": 8}, {"slots": 4}], "slots") == 12
    assert total([{"slots": 8}, {}], "slots") is None
    assert total([], "slots") is None


def test_a_field_is_set_in_an_object_and_in_nothing_else() -> None:
    assert orjson.loads(with_field(b'{"rid":"theirs","n":1}', "rid", "ours")) == {"rid": "ours", "n": 1}
    assert with_field(b"[1]", "rid", "ours") == b"[1]"
    assert with_field(b"no JSON", "rid", "ours") == b"no JSON"
