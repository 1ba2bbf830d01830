"""Batches in: visible all at once, once however often they are put, bad rows kept apart."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from headgate.core import Sample, Secret, errors
from headgate.storage import SampleStore, StoredBatch, StoreLocation, open_store
from headgate.storage.batches import put_batch
from headgate.storage.objects import ObjectStore
from headgate.storage.schema import row_checks
from headgate.storage.store import Probe, open_objects
from tests.storage.crashes import DyingObjects, Killed
from tests.storage.places import IN_BOTH
from tests.storage.samples import DAY, START, failed, many, sample


def _mixed(count: int) -> list[Sample]:
    """Samples of three environments over two days."""
    return [
        sample(number, environment=("affine:sat", "agentgym:babyai", "x/y")[number % 3], at=START + number % 2 * DAY)
        for number in range(count)
    ]


async def _rows(store: SampleStore) -> list[Sample]:
    found = await store.scan()
    assert found.problems == ()
    return sorted((Sample(**row) for row in found.frame.iter_rows(named=True)), key=lambda s: (s.model, s.sequence))


@IN_BOTH
async def test_a_stored_batch_is_read_back_whole(store: SampleStore) -> None:
    samples = [*_mixed(12), failed(12)]
    assert await store.put_batch("one", samples) == StoredBatch("one", 13, 6)
    assert await _rows(store) == samples


def test_what_batches_are_checked_with_is_imported_while_a_run_begins(folder_store: SampleStore) -> None:
    row_checks.cache_clear()
    folder_store.prepare()
    for thread in threading.enumerate():
        if thread.name == "headgate-schema":
            thread.join(30)
    assert row_checks.cache_info().currsize == 1


async def test_parts_lie_by_environment_and_day(folder_store: SampleStore, tmp_path: Path) -> None:
    await folder_store.put_batch("one", _mixed(12))
    parts = (await folder_store.visible()).parts
    assert all((tmp_path / "store" / part.path).is_file() for part in parts)
    folders = {part.path.rpartition("/")[0] for part in parts}
    assert folders == {
        f"samples/environment={name}/date={day}"
        for name in ("affine%3Asat", "agentgym%3Ababyai", "x%2Fy")
        for day in ("2026-01-01", "2026-01-02")
    }


async def test_other_tools_read_the_folders_as_hive_partitions(folder_store: SampleStore, tmp_path: Path) -> None:
    await folder_store.put_batch("one", _mixed(12))
    found = pl.read_parquet(tmp_path / "store/samples/**/*.parquet", hive_partitioning=True)
    assert sorted(found["environment"].unique()) == ["affine:sat", "agentgym:babyai", "x/y"]
    assert found.height == 12


@IN_BOTH
async def test_the_same_batch_again_changes_nothing(store: SampleStore, objects: ObjectStore) -> None:
    first = await store.put_batch("one", _mixed(12))
    before = {found.key: objects.get(found.key) for found in objects.listing("")}
    assert await store.put_batch("one", _mixed(12)) == first
    assert {found.key: objects.get(found.key) for found in objects.listing("")} == before
    assert len(await _rows(store)) == 12


async def test_an_id_stands_for_what_was_stored_first(store: SampleStore) -> None:
    await store.put_batch("one", many(3))
    assert (await store.put_batch("one", many(5, first=10))).rows == 3
    assert [s.sequence for s in await _rows(store)] == [0, 1, 2]


async def test_a_batch_makes_the_same_objects_in_every_store(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        objects = open_objects(StoreLocation(str(tmp_path / name)), {})
        await SampleStore(objects).put_batch("one", _mixed(600))
        contents.append({found.key: objects.get(found.key) for found in objects.listing("")})
    assert contents[0] == contents[1]


@IN_BOTH
async def test_batches_put_at_once_by_many_writers_are_all_there_once(objects: ObjectStore) -> None:
    stores = [SampleStore(objects) for _ in range(3)]
    batches = {f"b{number}": many(20, first=20 * number) for number in range(6)}
    await asyncio.gather(*(store.put_batch(*batch) for store in stores for batch in batches.items()))
    rows = (await stores[0].scan()).frame
    assert rows.height == 120
    assert sum(part.rows for part in (await stores[0].visible()).parts) == 120


@IN_BOTH
async def test_bad_rows_are_quarantined_with_their_reasons(store: SampleStore, objects: ObjectStore) -> None:
    bad = [sample(1, score=2.0), replace(sample(2), why=None), replace(sample(3), sequence="x")]
    stored = await store.put_batch("one", [sample(0), *bad, sample(4)])
    assert (stored.rows, stored.quarantined_rows, stored.quarantine_path) == (2, 3, "quarantine/one.jsonl")
    assert "does not fit the columns" in str(stored.reason)
    lines = [json.loads(line) for line in objects.get("quarantine/one.jsonl").splitlines()]
    assert [(line["sample"]["sequence"], line["reason"].split(" (got")[0]) for line in lines[1:]] == [
        (1, "score must be null or in [0, 1]"),
        (2, "why must be set"),
    ]
    assert lines[0]["sample"]["sequence"] == "x"
    assert lines[1]["sample"]["conversation"] == sample(1).conversation
    assert await store.put_batch("one", [sample(0), *bad, sample(4)]) == stored
    assert [s.sequence for s in await _rows(store)] == [0, 4]


async def test_a_quarantined_row_may_hold_what_json_cannot_say(store: SampleStore, objects: ObjectStore) -> None:
    stored = await store.put_batch("one", [sample(0, why="\ud800", score=float("nan"))])
    assert stored.rows == 0
    line = json.loads(objects.get("quarantine/one.jsonl"))
    assert line["sample"]["why"] == "\ud800"


async def test_an_empty_batch_is_stored_as_such(store: SampleStore) -> None:
    assert await store.put_batch("none", []) == StoredBatch("none", 0, 0)
    assert (await store.scan()).frame.height == 0


async def test_a_batch_id_that_is_no_file_name_is_refused(store: SampleStore) -> None:
    with pytest.raises(errors.InvalidInputError, match="cannot name a batch"):
        await store.put_batch("../one", many(1))


async def test_a_writer_that_dies_anywhere_leaves_all_of_a_batch_or_nothing(tmp_path: Path) -> None:
    samples = [*_mixed(12), replace(sample(13), score=3.0)]
    for changes in itertools.count():
        objects = open_objects(StoreLocation(str(tmp_path / f"after-{changes}")), {})
        try:
            put_batch(DyingObjects(objects, changes), "one", samples)
        except Killed:
            assert await _rows(SampleStore(objects)) == []
        else:
            break
        again = await SampleStore(objects).put_batch("one", samples)
        assert (again.rows, again.quarantined_rows) == (12, 1)
        assert await _rows(SampleStore(objects)) == samples[:12]
    assert changes == 8  # six parts, the quarantine, the manifest


async def test_cancelling_a_put_leaves_it_to_be_repeated(folder_store: SampleStore) -> None:
    task = asyncio.create_task(folder_store.put_batch("one", _mixed(300)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await folder_store.put_batch("one", _mixed(300))).rows == 300
    assert len(await _rows(folder_store)) == 300


@IN_BOTH
async def test_a_probe_reports_what_the_place_can_do_and_leaves_nothing(
    store: SampleStore, objects: ObjectStore
) -> None:
    found = await store.probe()
    assert found == Probe(store.url, conditional_puts=True, warning=None)
    assert list(objects.listing("probe/")) == []


async def test_a_probe_warns_of_a_place_that_ignores_conditions(
    folder_store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(StoreLocation(str(tmp_path / "store")), {})

    def create(key: str, data: bytes) -> bool:
        objects.put_many([(key, data)])
        return True

    monkeypatch.setattr(objects, "create", create)
    store = SampleStore(objects)
    found = await store.probe()
    assert not found.conditional_puts
    assert "ignores If-None-Match" in str(found.warning)
    await store.put_batch("one", many(3))
    await store.put_batch("one", many(3))
    assert len(await _rows(store)) == 3
    with pytest.raises(errors.StoreError, match="two compactions could merge the same parts"):
        await store.compact(START)


async def test_a_probe_of_a_bucket_that_is_not_there_names_it(s3_address: tuple[str, int]) -> None:
    host, port = s3_address
    address = f"http://{host}:{port}"
    store = open_store(
        StoreLocation("s3://no-such-bucket/x", address, "us-east-1", Secret("any-key-id"), Secret("any-secret")), {}
    )
    with pytest.raises(errors.StoreNotWritableError, match="The specified bucket does not exist"):
        await store.probe()
    store.close()


async def test_scores_are_those_of_one_campaign_in_their_order(store: SampleStore) -> None:
    await store.put_batch("late", [sample(8), sample(3, campaign="other")])
    await store.put_batch("early", [failed(1), sample(0)])
    assert await store.task_scores("main") == [
        ("org/a@main", "affine:sat", 0, 0.0),
        ("org/a@main", "affine:sat", 8, 0.0),
    ]
