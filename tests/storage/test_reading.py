"""Samples out: chosen by environment and time, bad objects left out and told, never fatal to the rest."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from headgate.core import errors
from headgate.storage import CompactionPolicy, SampleIndex, SampleStore
from headgate.storage.manifest import manifest_of
from headgate.storage.objects import ObjectStore
from tests.storage.places import IN_A_BUCKET_AT_LENGTH, IN_BOTH
from tests.storage.samples import DAY, START, many, sample


async def _filled(store: SampleStore) -> None:
    for day in range(3):
        batch = [sample(10 * day + n, environment=f"e:{n % 2}", at=START + day * DAY + n) for n in range(6)]
        await store.put_batch(f"day-{day}", batch)


@IN_BOTH
async def test_a_scan_returns_what_was_asked_for(store: SampleStore) -> None:
    await _filled(store)
    assert (await store.scan()).frame.height == 18
    assert (await store.scan(["e:1"])).frame["environment"].unique().to_list() == ["e:1"]
    found = await store.scan(since=START + DAY + 2, until=START + 2 * DAY + 1, columns=["sequence"])
    assert found.frame.columns == ["sequence"]
    assert sorted(found.frame["sequence"]) == [12, 13, 14, 15, 20]


async def test_a_scan_opens_only_parts_that_can_matter(store: SampleStore) -> None:
    await _filled(store)
    assert (await store.scan()).parts == 6
    assert (await store.scan(["e:1"])).parts == 3
    assert (await store.scan(["e:1"], since=START + 2 * DAY)).parts == 1
    assert (await store.scan(until=START)).parts == 0


async def test_an_empty_store_gives_an_empty_frame(store: SampleStore) -> None:
    found = await store.scan(columns=["score", "model"])
    assert (found.frame.height, found.frame.columns, found.problems) == (0, ["score", "model"], ())


async def test_an_unknown_column_is_named(folder_store: SampleStore) -> None:
    with pytest.raises(errors.InvalidInputError, match="no column 'points'"):
        await folder_store.scan(columns=["points"])


async def test_a_task_that_is_there_twice_is_read_once(store: SampleStore) -> None:
    await store.put_batch("one", many(4))
    await store.put_batch("two", many(4, first=2))
    found = await store.scan()
    assert sorted(found.frame["sequence"]) == [0, 1, 2, 3, 4, 5]
    assert found.duplicates == 2


async def test_of_a_task_that_is_there_twice_all_readers_take_the_sample_that_ended_first(
    folder_store: SampleStore,
) -> None:
    late, early = many(40, score=1.0, success=True, at=START + 60), many(40, score=0.0, success=False)
    await folder_store.put_batch("a", late)
    await folder_store.put_batch("b", early)

    async def means() -> list[float | None]:
        (pair,) = (await folder_store.summary(START + 100, rebuild=True)).pairs
        ((queried,),) = (await folder_store.query("select avg(score) from samples")).rows
        indexed = (await folder_store.indexed(SampleIndex(), 60)).rows["score"].to_list()
        scanned = (await folder_store.scan(columns=["score"])).frame["score"].to_list()
        return [pair.mean_score, queried, fmean(indexed), fmean(scanned)]

    assert await means() == [0.0] * 4
    assert (await folder_store.compact(START + 100, CompactionPolicy(min_parts=2))).rows == 40
    assert await means() == [0.0] * 4


async def test_a_part_without_a_manifest_is_not_visible(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", many(4))
    objects.delete_many(["manifests/one.json"])
    fresh = SampleStore(objects)
    assert (await fresh.scan()).frame.height == 0


@IN_BOTH
async def test_a_corrupt_part_is_left_out_and_told(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    part = (await store.visible()).parts[0]
    data = bytearray(objects.get(part.path))
    data[len(data) // 2] ^= 1
    objects.put_many([(part.path, bytes(data))])
    found = await store.scan()
    assert found.frame.height == 15
    assert [problem.path for problem in found.problems] == [part.path]
    assert "does not match its checksum" in found.problems[0].reason


@IN_BOTH
async def test_a_missing_part_is_left_out_and_told(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    part = (await store.visible()).parts[0]
    objects.delete_many([part.path])
    found = await store.scan()
    assert found.frame.height == 15
    assert [problem.path for problem in found.problems] == [part.path]


async def test_a_corrupt_manifest_hides_its_own_batch_only(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    objects.put_many([("manifests/day-1.json", objects.get("manifests/day-1.json")[:-9])])
    found = await SampleStore(objects).scan()
    assert found.frame.height == 12
    assert [problem.path for problem in found.problems] == ["manifests/day-1.json"]


async def test_a_manifest_that_was_mended_is_read_again(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    whole = objects.get("manifests/day-1.json")
    objects.put_many([("manifests/day-1.json", b"{}")])
    reader = SampleStore(objects)
    assert (await reader.scan()).frame.height == 12
    objects.put_many([("manifests/day-1.json", whole)])
    assert (await reader.scan()).frame.height == 18


async def test_foreign_objects_beside_the_manifests_are_ignored(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    objects.put_many([("manifests/README.txt", b"hello"), ("manifests/old/x.json", b"{}"), ("samples/x.txt", b"")])
    found = await store.scan()
    assert (found.frame.height, found.problems) == (18, ())


@IN_A_BUCKET_AT_LENGTH
async def test_verify_reads_everything_and_finds_what_is_wrong(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    found = await store.verify()
    sizes = sum(part.size_bytes for part in (await store.visible()).parts)
    assert (found.manifests, found.parts, found.rows, found.size_bytes) == (3, 6, 18, sizes)
    assert found.problems == ()
    manifest = manifest_of(objects.get("manifests/day-0.json"), "k")
    objects.put_many([(manifest.parts[0].path, b"PAR1"), ("manifests/day-2.json", b"")])
    found = await SampleStore(objects).verify()
    assert {problem.path for problem in found.problems} == {manifest.parts[0].path, "manifests/day-2.json"}
    assert (found.parts, found.rows) == (3, 9)


async def test_an_unreadable_file_is_a_problem_of_its_own(folder_store: SampleStore, tmp_path: Path) -> None:
    await _filled(folder_store)
    part = tmp_path / "store" / (await folder_store.visible()).parts[0].path
    part.unlink()
    part.mkdir()  # reading a folder as a file fails in the kernel, as a bad sector would
    found = await folder_store.scan()
    assert found.frame.height == 15
    assert "Is a directory" in found.problems[0].reason
