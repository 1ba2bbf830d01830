"""Samples to files and back: nothing lost, nothing doubled, foreign results taken for what they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.core import Sample, errors
from headgate.core.audit import audit_entries
from headgate.storage import ImportFormat, SampleStore, export_samples, import_samples, open_store
from headgate.storage.exchange.affine_results import Miner, samples_of_shard
from tests.storage.samples import START, failed, many, sample


def _varied() -> list[Sample]:
    return [
        *many(4),
        *many(3, model="org/b@rev-1", environment="x/y", score=0.125),
        failed(9, conversation="", error='he said "503"\n'),
        sample(10, score=0.0, success=False, error_kind="bad_answer", error="no number"),
        sample(11, why="naïve ☃", at=START + 0.123456),
    ]


async def _all(store: SampleStore) -> list[Sample]:
    rows = (await store.scan()).frame.iter_rows(named=True)
    return sorted((Sample(**row) for row in rows), key=lambda s: s.task_id)


def _sorted(samples: list[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda s: s.task_id)


@pytest.mark.parametrize("form", ["jsonl", "affine-results", "parquet", "inspect"])
async def test_what_was_exported_is_imported_the_same(tmp_path: Path, form: ImportFormat, audit_file: Path) -> None:
    source, target = open_store(str(tmp_path / "a")), open_store(str(tmp_path / "b"))
    await source.put_batch("one", _varied())
    assert await export_samples(source, tmp_path / "out" / "file", form, now=START) == 10
    assert (await import_samples(target, tmp_path / "out" / "file", form)).rows == 10
    assert await _all(target) == _sorted(_varied())
    (entry,) = audit_entries()
    assert (entry.what, entry.thing) == ("samples import", target.url)
    assert entry.after.startswith("10 samples of ")


@pytest.mark.parametrize("form", ["jsonl", "affine-results", "parquet", "inspect"])
async def test_what_is_there_already_stays_single(tmp_path: Path, form: ImportFormat) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", _varied())
    await export_samples(store, tmp_path / "file", form, now=START)
    assert (await import_samples(store, tmp_path / "file", form)).rows == 0
    assert sum(part.rows for part in (await store.visible()).parts) == 10


async def test_json_lines_have_every_column(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", [sample(3)])
    await export_samples(store, tmp_path / "file", now=START)
    line = orjson.loads((tmp_path / "file").read_bytes())
    assert Sample(**line) == sample(3)


@pytest.mark.parametrize(("form", "content"), [("jsonl", b""), ("affine-results", b"[]\n")])
async def test_an_empty_store_gives_an_empty_file(tmp_path: Path, form: ImportFormat, content: bytes) -> None:
    assert await export_samples(open_store(str(tmp_path / "a")), tmp_path / "file", form, now=START) == 0
    assert (tmp_path / "file").read_bytes() == content
    assert (await import_samples(open_store(str(tmp_path / "b")), tmp_path / "file", form)).rows == 0


async def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    store, pipe = open_store(str(tmp_path / "a")), tmp_path / "pipe"
    await store.put_batch("one", many(3))
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert await export_samples(store, pipe, now=START) == 3
        assert len(os.read(reading, 1 << 16).splitlines()) == 3
    finally:
        os.close(reading)
    assert pipe.is_fifo()


async def test_an_export_beside_a_corrupt_part_writes_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", _varied())
    part = tmp_path / "a" / (await store.visible()).parts[-1].path
    part.write_bytes(b"junk")
    (tmp_path / "file").write_bytes(b"the last export")
    with pytest.raises(errors.CorruptDataError, match=r"x%2Fy"):
        await export_samples(store, tmp_path / "file", now=START)
    assert (tmp_path / "file").read_bytes() == b"the last export"
    assert sorted(os.listdir(tmp_path)) == ["a", "file"]  # noqa: PTH208 - a coroutine has no business with Path


async def test_a_result_has_the_fields_that_affine_reads(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", [sample(1), failed(2)])
    miners = {"org/a@main": Miner(7, "5F-hotkey")}
    await export_samples(store, tmp_path / "file", "affine-results", now=START, miners=miners)
    good, bad = sorted(orjson.loads((tmp_path / "file").read_bytes()), key=lambda result: result["timestamp"])
    assert good["miner"] == {
        "uid": 7, "hotkey": "5F-hotkey", "model": "org/a", "revision": "main", "block": None, "chute": {},
        "slug": None, "weights_shas": [],
    }  # fmt: skip
    assert (good["version"], good["signature"], good["hotkey"]) == ("0.0.0", "", "")
    assert (good["env"], good["score"], good["latency_seconds"], good["success"]) == ("affine:sat", 1.0, 2.5, True)
    assert (good["error"], good["timestamp"], good["task_id"]) == (None, START + 1, 1)
    assert good["extra"]["request"] == {"seed": 11}
    assert (bad["score"], bad["success"], bad["error"]) == (0.0, False, "provider_failure: HTTP 503")


def _foreign(**changes: Any) -> dict[str, Any]:
    """A result as the seed's own program writes it."""
    return {
        "version": "0.0.0",
        "signature": "ab12",
        "hotkey": "5Signer",
        "miner": {
            "uid": 3,
            "hotkey": "5Miner",
            "model": "org/m",
            "revision": "abc",
            "block": 9,
            "chute": {},
            "slug": "s",
        },
        "env": "agentgym:webshop",
        "score": 0.5,
        "latency_seconds": 12.5,
        "success": True,
        "error": None,
        "extra": {"image": "x", "request": {"seed": 42}, "conversation": [{"role": "user", "content": "hi"}]},
        "timestamp": START + 100,
        "task_id": 17,
    } | changes


async def test_a_foreign_result_becomes_a_sample(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    (tmp_path / "000000120-5Signer.json").write_bytes(orjson.dumps([_foreign(), _foreign(timestamp=START + 200)]))
    assert (
        await import_samples(store, tmp_path / "000000120-5Signer.json", "affine-results", campaign="old")
    ).rows == 2
    first, second = sorted(await _all(store), key=lambda s: s.finished_at)
    assert (first.model, first.environment, first.score, first.success) == ("org/m@abc", "agentgym:webshop", 0.5, True)
    assert (first.started_at, first.finished_at, first.latency_s) == (START + 87.5, START + 100, 12.5)
    assert (first.index, first.seed, first.campaign, first.stage) == (17, 42, "old", "seed:000000120-5Signer")
    assert orjson.loads(first.conversation) == [{"role": "user", "content": "hi"}]
    assert (first.sequence, second.sequence) == (0, 1)


async def test_a_shard_that_has_grown_brings_only_what_is_new(tmp_path: Path) -> None:
    store, shard = open_store(str(tmp_path / "a")), tmp_path / "shards" / "000000120-5S.json"
    shard.parent.mkdir()
    shard.write_bytes(orjson.dumps([_foreign()]))
    assert (await import_samples(store, shard, "affine-results")).rows == 1
    shard.write_bytes(orjson.dumps([_foreign(), _foreign(), _foreign(miner=_foreign()["miner"] | {"revision": None})]))
    (shard.parent / "000000140-5S.json").write_bytes(orjson.dumps([_foreign()]))
    assert (await import_samples(store, shard.parent, "affine-results")).rows == 3
    assert len(await _all(store)) == 4


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("HTTP 503: no instances available", "provider_failure"),
        ("Error code: 429 - maximum capacity", "rate_limited"),
        ("Invalid API key sk-abcdefgh12345678", "auth"),
        ("Request timed out after 600 s", "provider_timeout"),
        ("HTTP 400 Bad Request", "bad_request"),
        ("Connection refused", "connection"),
        ("KeyError: 'observation'", "environment"),
    ],
)
def test_a_foreign_error_has_no_score_and_a_class(said: str, kind: str) -> None:
    shard = orjson.dumps([_foreign(error=said, score=0.0, success=False)])
    (found,) = samples_of_shard(shard, shard="s", campaign="main")
    assert (found.score, found.success, found.error_kind) == (None, False, kind)
    assert "sk-abcdefgh12345678" not in str(found.error)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not JSON"),
        (b'{"a": 1}', "is not an array of results"),
        (b'[{"challenge": {}, "response": {}, "evaluation": {}}]', "entry 0 of shard file is not a result"),
        (orjson.dumps([_foreign(), _foreign(miner={"model": "a b"})]), "is not a usable name"),
        (orjson.dumps([_foreign(score=1.5)]), "score must be null or in"),
        (orjson.dumps([_foreign(timestamp=12)]), "started_at must be a time"),
    ],
)
async def test_a_file_that_is_no_shard_is_refused_with_the_place(tmp_path: Path, content: bytes, said: str) -> None:
    store = open_store(str(tmp_path / "a"))
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(errors.InvalidInputError, match=said):
        await import_samples(store, tmp_path / "file", "affine-results")
    assert (await store.scan()).frame.height == 0


async def test_lines_that_are_no_samples_are_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    (tmp_path / "file").write_bytes(b'\n{"task_id": 1}\n')
    with pytest.raises(errors.InvalidInputError, match="line 2 of"):
        await import_samples(store, tmp_path / "file")
    with pytest.raises(errors.InvalidInputError, match="cannot be read: No such file"):
        await import_samples(store, tmp_path / "none")
    with pytest.raises(errors.InvalidInputError, match="nothing to import"):
        await import_samples(store, tmp_path / "file", "affine-summary")


async def test_a_summary_is_written_as_affine_reads_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", [*_varied(), *many(2, model="org/b@rev-1"), failed(0, model="org/c@main")])
    miners = {"org/b@rev-1": Miner(5, "5B")}
    assert await export_samples(store, tmp_path / "s.json", "affine-summary", now=START + 50, miners=miners) == 4
    written = (tmp_path / "s.json").read_bytes()
    content = orjson.loads(written)
    assert (content["schema_version"], content["timestamp"], content["block"]) == ("1.0.0", int(START + 50), 0)
    data = content["data"]
    assert data["environments"] == ["affine:sat", "x/y"]
    assert data["env_winners"] == {"affine:sat": "org/a@main", "x/y": "5B"}
    assert data["stats"] == {"eligible_count": 1, "active_count": 2, "queryable_count": 2, "total_miners": 2}
    assert data["header"] == ["UID", "Model", "Rev", "affine:sat", "x/y", "Total"]
    assert data["rows"][0] == [0, "org/a", "main", 0.5, None, 0.5]
    counted = {
        (m["uid"], e): (f["count"], f["accuracy"])
        for m in data["miners"].values()
        for e, f in m["environments"].items()
    }
    assert counted == {(0, "affine:sat"): (6, 0.5), (5, "affine:sat"): (2, 0.5), (5, "x/y"): (3, 0.125)}
    found = data["miners"]["5B"]
    assert (found["eligible"], found["weight"], found["layer_points"]) == (True, 0.0, {})
    assert set(found["environments"]["x/y"]["confidence_interval"]) == {"lower", "upper"}
    assert found["environments"]["x/y"]["is_winner"] is True
