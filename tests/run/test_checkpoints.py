"""Checkpoints in a folder or bucket: which names they have, and when they are whole."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.core.errors import InvalidInputError, StoreError
from headgate.reports import step_of
from headgate.run.checkpoints import SETTLE_FOLDER_S, SETTLE_S, CheckpointFolder, CheckpointWatch, Entry
from headgate.storage.s3 import S3Objects
from tests.storage.conftest import s3_address, s3_objects

__all__ = ["s3_address", "s3_objects"]


def entry(name: str, *files: tuple[str, int], **changes: Any) -> Entry:
    return Entry(name, f"/t/{name}", dict(files) or {"": 10}, **changes)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_100", 100),
        ("checkpoint-7", 7),
        ("epoch2-step300.gguf", 300),
        ("global_step_40", 40),
        ("model-q4.gguf", 4),
        ("final", None),
        ("step_７", None),
        ("step_" + "9" * 400, int("9" * 15)),
    ],
)
def test_a_step_is_the_last_number_of_a_name(name: str, step: int | None) -> None:
    assert step_of(name) == step


def test_what_is_no_checkpoint_is_passed_over() -> None:
    watch = CheckpointWatch("step_*")
    names = ["step_1", ".step_2", "step_3.tmp", "other_4", "step_x"]
    assert [name for name in names if watch.step(name) is not None] == ["step_1"]


def test_a_checkpoint_is_whole_once_its_size_stays_the_same() -> None:
    watch = CheckpointWatch()
    one = entry("step_1")
    assert not watch.whole([one], 0.0)
    assert watch.is_settling
    assert list(watch.whole([one], SETTLE_S)) == ["step_1"]
    assert not watch.is_settling
    grown = entry("step_1", ("", 20))
    assert not watch.whole([grown], SETTLE_S + 1), "it grows again"
    assert watch.whole([grown], 2 * SETTLE_S + 1)["step_1"].size_bytes == 20
    assert not watch.whole([entry("step_2", ("", 0))], 100.0)
    assert not watch.whole([entry("step_2", ("", 0))], 200.0), "nothing is in it"
    assert watch.unfinished == ("step_2",)


def test_a_folder_of_files_that_do_not_vouch_for_each_other_takes_longer() -> None:
    for settles in (SETTLE_FOLDER_S, SETTLE_S):
        watch = CheckpointWatch()
        one = entry("step_1", ("a.safetensors", 5), settles_s=settles)
        assert not watch.whole([one], 0.0)
        assert not watch.whole([one], settles - 0.1)
        assert watch.whole([one], settles)


def test_a_marker_says_it_at_once_and_nothing_else_does() -> None:
    watch = CheckpointWatch()
    unmarked, marked = entry("step_1", settles_s=math.inf), entry("step_1", settles_s=0.0)
    assert not watch.whole([unmarked], 0.0)
    assert not watch.whole([unmarked], 1_000.0)
    assert not watch.is_settling, "who ends when all is done does not wait for it"
    assert watch.whole([marked], 1_000.0)


def test_a_folder_is_read(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path), marker="DONE", environ={})
    assert folder.whole(0.0) == []
    for step in (20, 3):
        (tmp_path / f"step_{step}").mkdir()
        (tmp_path / f"step_{step}" / "model.safetensors").write_bytes(b"12345")
    (tmp_path / "step_4").mkdir()
    (tmp_path / "step_4" / "q4.gguf").write_bytes(b"123")
    (tmp_path / "step_5.gguf").write_bytes(b"1")
    assert folder.whole(1.0) == []
    for marker in ("step_20/DONE", "step_3/DONE", "step_4/DONE", "step_5.gguf.DONE"):
        (tmp_path / marker).touch()
    found = folder.whole(2.0)
    assert [(one.step, one.name, Path(one.path).name) for one in found] == [
        (3, "step_3", "step_3"),
        (4, "step_4", "q4.gguf"),
        (5, "step_5", "step_5.gguf"),
        (20, "step_20", "step_20"),
    ]
    (tmp_path / "step_3" / "DONE").unlink()
    assert len(folder.whole(3.0)) == 4, "what was whole once is not read again"
    folder.look_again(found[0])
    assert len(folder.whole(4.0)) == 3, "unless it is to be"


def test_a_checkpoint_that_did_not_load_is_found_again_once_its_files_are_others(tmp_path: Path) -> None:
    """Whenever that is, and also when they are as long as before: a file whose room was reserved in advance."""
    for form in ("step_1.gguf", "step_1"):
        place = tmp_path / form
        place.mkdir()
        folder, weights = CheckpointFolder(str(place), environ={}), place / "step_1.gguf"
        if form == "step_1":
            (place / "step_1").mkdir()
            weights = place / "step_1" / "model.safetensors"
        weights.write_bytes(b"0000")
        folder.whole(0.0)
        (broken,) = folder.whole(20.0)
        folder.look_again(broken)
        folder.whole(40.0)
        assert folder.whole(60.0) == [broken] == folder.whole(80.0), "as it was"
        weights.write_bytes(b"1111")
        os.utime(weights, ns=(1, 1))
        assert folder.whole(100.0) == [], "it may still be written"
        (replaced,) = folder.whole(120.0)
        assert replaced != broken
        assert replaced[:4] == broken[:4]


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    """As where a training writes to a fast disk of its own, and links what it keeps."""
    place, disk = tmp_path / "run", tmp_path / "disk"
    for folder in (place, disk, disk / "a"):
        folder.mkdir()
    (place / "step_1").symlink_to(disk / "a")
    (place / "step_2").symlink_to(disk / "b")
    (place / "step_3").symlink_to(disk / "nowhere")
    (disk / "a" / "one.safetensors").write_bytes(b"1")
    (disk / "b").write_bytes(b"1")
    folder = CheckpointFolder(str(place), environ={})
    folder.whole(0.0)
    assert [one.name for one in folder.whole(SETTLE_S)] == ["step_2"], (
        "other files may still be written into the folder"
    )
    (disk / "a" / "two.safetensors").write_bytes(b"1")
    assert len(folder.whole(SETTLE_FOLDER_S)) == 1
    found = folder.whole(2 * SETTLE_FOLDER_S)
    assert [one.path for one in found] == [str(place / "step_1"), str(place / "step_2")]
    assert folder.watch.unfinished == ("step_3",)
    folder.look_again(found[1])
    os.utime(disk / "b", ns=(1, 1))
    assert len(folder.whole(30.0)) == 1, "its file was replaced"
    (disk / "a" / "DONE").touch()
    assert [one.name for one in CheckpointFolder(str(place), marker="DONE", environ={}).whole(0.0)] == ["step_1"]


@pytest.mark.parametrize("indexes", [{"model": ["a", "b"]}, {"adapter": ["a"], "model": ["b"]}], ids=["one", "two"])
def test_shards_vouch_for_a_folder_once_those_of_every_index_are_there(
    tmp_path: Path, indexes: dict[str, list[str]]
) -> None:
    folder, step = CheckpointFolder(str(tmp_path), environ={}), tmp_path / "step_1"
    step.mkdir()
    for name, shards in indexes.items():
        index = {"weight_map": {shard: f"{shard}.safetensors" for shard in shards}}
        (step / f"{name}.safetensors.index.json").write_text(json.dumps(index))
    (step / "a.safetensors").write_bytes(b"1")
    folder.whole(0.0)
    assert folder.whole(SETTLE_S) == []
    (step / "b.safetensors").write_bytes(b"1")
    folder.whole(5.0)
    assert len(folder.whole(5.0 + SETTLE_S)) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"place": "nowhere"}, "there is no folder .*nowhere to follow"),
        ({"place": ".", "pattern": "a/*"}, "pattern of checkpoints is a name without '/'"),
        ({"place": ".", "marker": "a/DONE"}, "marker of checkpoints is a name without '/'"),
    ],
)
def test_what_cannot_be_followed_is_said(tmp_path: Path, given: dict[str, str], says: str) -> None:
    place = str(tmp_path / given["place"])
    with pytest.raises(InvalidInputError, match=says):
        CheckpointFolder(**{**given, "place": place}, environ={}).whole(0.0)


def test_a_bucket_is_read(
    s3_objects: Callable[..., S3Objects], s3_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = s3_objects()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*s3_address))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    folder = CheckpointFolder(objects.url, environ={})
    assert folder.whole(0.0) == [], "a bucket has no empty folders"
    objects.put_many([(f"step_{n}/{file}", b"12") for n in (1, 2) for file in ("a.safetensors", "config.json")])
    objects.put_many([("step_3.gguf", b"1")])
    folder.whole(1.0)
    found = folder.whole(1.0 + SETTLE_FOLDER_S)
    assert [(one.step, one.size_bytes) for one in found] == [(1, 4), (2, 4), (3, 1)]
    assert found[0].path == f"{objects.url}step_1"
    folder.close()
    missing = CheckpointFolder("s3://not-there-at-all/x", environ={})
    with pytest.raises(InvalidInputError, match="there is no bucket for s3://not-there-at-all"):
        missing.whole(0.0)


def test_a_bucket_that_cannot_be_read_says_where_its_keys_come_from(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError, match="cannot be read") as caught:
        CheckpointFolder("s3://training/run-7", environ={}).whole(0.0)
    assert "AWS_ENDPOINT_URL" in caught.value.next_step
    assert "upload" not in caught.value.next_step
