"""Weights that lie elsewhere: fetched once, kept while there is room, and told where they are not there."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from moto.server import ThreadedMotoServer

from headgate.elastic.engines.weights import FOLDER_VARIABLE, ROOM_VARIABLE, weights_here
from headgate.elastic.errors import EngineError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


def here(weights: str) -> Path:
    return Path(asyncio.run(weights_here(weights)))


def checkpoint(folder: Path, size: int = 10) -> str:
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "shards" / "1.safetensors").write_bytes(b"w" * size)
    return f"file://{folder}"


def test_a_path_that_is_there_and_a_name_of_a_hub_stay_as_they_are(tmp_path: Path) -> None:
    assert here(str(tmp_path)) == tmp_path
    assert here("Qwen/Qwen3-8B") == Path("Qwen/Qwen3-8B")


def test_a_folder_is_fetched_once_and_anew_when_it_has_changed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = checkpoint(tmp_path / "step_1")
    first = here(address)
    assert (first.name, (first / "shards" / "1.safetensors").read_bytes()) == ("step_1", b"w" * 10)
    with monkeypatch.context() as patched:
        patched.delattr(LocalFileSystem, "get_file")
        assert here(address) == first
    checkpoint(tmp_path / "step_1", size=20)
    second = here(address)
    assert second != first
    assert (second / "shards" / "1.safetensors").stat().st_size == 20
    assert [each.name for each in cache.iterdir() if "partial" in each.name] == []


def test_copies_that_nobody_used_for_long_make_room(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOM_VARIABLE, "0.00000005")  # 50 bytes
    old = here(checkpoint(tmp_path / "old", 40))
    with pytest.raises(EngineError, match=r"has no room for .* of weights") as full:
        here(checkpoint(tmp_path / "new", 40))
    assert ROOM_VARIABLE in full.value.next_step
    os.utime(old.parent, (time.time() - 7_200,) * 2)
    assert here(f"file://{tmp_path / 'new'}").exists()
    assert not old.exists()


def test_what_is_not_there_is_told_and_final(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(EngineError, match=r"there are no weights at file:///.*nothing") as caught:
        here(f"file://{tmp_path}/nothing")
    assert caught.value.is_final


@pytest.mark.slow
def test_weights_in_s3_are_fetched_with_the_variables_of_aws(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        bucket = boto3.resource("s3").create_bucket(Bucket="weights")
        bucket.put_object(Key="step_1/model.gguf", Body=b"GGUF")
        folder = here("s3://weights/step_1")
        assert (folder / "model.gguf").read_bytes() == b"GGUF"
        assert here("s3://weights/step_1/model.gguf").read_bytes() == b"GGUF"
        with pytest.raises(EngineError, match="there are no weights at s3://weights/step_2"):
            here("s3://weights/step_2")
    finally:
        server.stop()
