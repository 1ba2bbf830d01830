"""Compaction: fewer parts, the same rows, at every moment, whoever dies or races."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path

from headgate.core import DAY_S
from headgate.core.audit import audit_entries
from headgate.storage import CompactionPolicy, SampleStore, StoreLocation
from headgate.storage.batches import encoded_parts
from headgate.storage.compaction import Compacted, compact, plan
from headgate.storage.deletion import sweep
from headgate.storage.manifest import Manifest, ManifestLog, manifest_bytes, sealed, unsealed
from headgate.storage.objects import ObjectStore, manifest_key
from headgate.storage.schema import ADDED, frame_of
from headgate.storage.store import open_objects
from tests.storage.crashes import DyingObjects, Killed
from tests.storage.places import IN_A_BUCKET_AT_LENGTH, IN_BOTH
from tests.storage.samples import DAY, START, many, sample

NOW = START + 40 * DAY
POLICY = CompactionPolicy(target_rows=20, min_parts=2)


async def _fill(store: SampleStore, batches: int = 6, *, first: int = 0) -> None:
    for number in range(first, first + batches):
        rows = [sample(4 * number + n, environment=f"e:{n % 2}") for n in range(4)]
        await store.put_batch(f"b{number:02d}", rows)


async def _sequences(store: SampleStore) -> list[int]:
    found = await store.scan(columns=["sequence"])
    assert found.problems == ()
    assert found.duplicates == 0
    return sorted(found.frame["sequence"])


def _at_end_of_time(objects: ObjectStore) -> float:
    return max(found.modified_at for found in objects.listing("")) + 100 * DAY_S


@IN_BOTH
async def test_compaction_leaves_the_same_rows_in_fewer_parts(store: SampleStore) -> None:
    await _fill(store)
    before = await _sequences(store)
    done = await store.compact(NOW, POLICY)
    assert (done.parts_before, done.parts_after, done.rows, done.duplicates, done.was_first) == (12, 2, 24, 0, True)
    assert await _sequences(store) == before
    parts = (await store.visible()).parts
    assert [(part.environment, part.rows) for part in parts] == [("e:0", 12), ("e:1", 12)]
    assert (await store.verify()).problems == ()


async def test_a_compaction_that_does_something_is_in_the_audit_trail(store: SampleStore, audit_file: Path) -> None:
    await _fill(store)
    done = await store.compact(NOW, POLICY)
    await store.compact(NOW, POLICY)
    (entry,) = audit_entries()
    assert (entry.what, entry.thing, entry.before) == ("samples compact", store.url, f"{done.parts_before} parts")


async def test_a_second_compaction_finds_nothing_to_do(store: SampleStore) -> None:
    await _fill(store)
    await store.compact(NOW, POLICY)
    assert await store.compact(NOW, POLICY) == Compacted()


async def test_merged_parts_keep_to_the_target(store: SampleStore) -> None:
    await _fill(store, 30)
    await store.compact(NOW, POLICY)
    rows = [part.rows for part in (await store.visible()).parts]
    assert max(rows) <= 20
    assert sum(rows) == 120
    assert len(rows) <= 8


async def test_new_batches_after_a_compaction_are_merged_by_the_next(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store, 4)
    await store.compact(NOW, POLICY)
    await _fill(store, 5, first=4)
    await store.compact(NOW, POLICY)
    await _fill(store, 3, first=9)
    assert await _sequences(store) == list(range(48))
    assert await _sequences(SampleStore(objects)) == list(range(48))
    await store.compact(NOW, POLICY)
    assert await _sequences(SampleStore(objects)) == list(range(48))
    assert len((await store.visible()).parts) <= 6


async def test_a_large_part_is_left_where_it_is_and_stays_visible(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("large", [*many(15, environment="e:0"), *many(2, environment="e:1")])
    await store.put_batch("small", [*many(2, first=20, environment="e:0"), *many(2, first=20, environment="e:1")])
    done = await store.compact(NOW, POLICY)
    assert (done.parts_before, done.parts_after) == (2, 1)
    parts = {part.path.rsplit("/", 1)[1][:7]: part.rows for part in (await SampleStore(objects).visible()).parts}
    assert parts == {"large-0": 15, "small-0": 2, "compact": 4}
    assert len(await _sequences(SampleStore(objects))) == 21


async def test_duplicates_are_dropped_for_good(store: SampleStore) -> None:
    await store.put_batch("one", many(5))
    await store.put_batch("two", [replace(late, finished_at=late.finished_at + 50) for late in many(5, first=3)])
    done = await store.compact(NOW, POLICY)
    assert (done.rows, done.duplicates) == (8, 2)
    kept = (await store.scan()).frame.filter(task_id=sample(3).task_id)
    assert kept["finished_at"].to_list() == [sample(3).finished_at]


async def test_days_and_environments_are_never_mixed(store: SampleStore) -> None:
    for number in range(4):
        rows = [sample(4 * number + n, environment=f"e:{n % 2}", at=START + n // 2 * DAY) for n in range(4)]
        await store.put_batch(f"b{number}", rows)
    await store.compact(NOW, POLICY)
    parts = (await store.visible()).parts
    assert len(parts) == 4
    assert {(part.environment, part.day.day, part.rows) for part in parts} == {
        ("e:0", 1, 4), ("e:0", 2, 4), ("e:1", 1, 4), ("e:1", 2, 4),
    }  # fmt: skip


async def test_a_corrupt_part_stays_as_it_is_and_is_told(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    bad = (await store.visible()).parts[0]
    objects.put_many([(bad.path, b"junk")])
    done = await store.compact(NOW, POLICY)
    assert [problem.path for problem in done.problems] == [bad.path]
    assert (done.parts_before, done.rows) == (11, 22)
    found = await SampleStore(objects).scan()
    assert (found.frame.height, [problem.path for problem in found.problems]) == (22, [bad.path])


async def test_a_compactor_that_dies_anywhere_changes_nothing_for_readers(tmp_path: Path) -> None:
    for changes in itertools.count():
        objects = open_objects(StoreLocation(str(tmp_path / f"after-{changes}")), {})
        store = SampleStore(objects)
        await _fill(store, 3)
        visible = await store.visible()
        try:
            compact(DyingObjects(objects, changes), visible, POLICY, NOW)
        except Killed:
            assert await _sequences(SampleStore(objects)) == list(range(12))
        else:
            break
        assert (await store.compact(NOW, POLICY)).rows == 12
        assert await _sequences(SampleStore(objects)) == list(range(12))
        await store.sweep(_at_end_of_time(objects))
        assert await _sequences(SampleStore(objects)) == list(range(12))
        assert len(list(objects.listing("samples/"))) == 2
    assert changes == 3  # two parts and the manifest


async def test_a_sweeper_that_dies_anywhere_loses_nothing(tmp_path: Path) -> None:
    for changes in itertools.count():
        objects = open_objects(StoreLocation(str(tmp_path / f"after-{changes}")), {})
        store = SampleStore(objects)
        await _fill(store, 3)
        await store.compact(NOW, POLICY)
        later = _at_end_of_time(objects)
        try:
            sweep(DyingObjects(objects, changes), await store.visible(), later)
        except Killed:
            assert await _sequences(SampleStore(objects)) == list(range(12))
        else:
            break
        await store.sweep(later)
        assert await _sequences(SampleStore(objects)) == list(range(12))
    assert changes == 9  # six parts and three manifests


async def test_of_two_compactions_at_once_one_counts(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    visible = await store.visible()
    first = compact(objects, visible, POLICY, NOW)
    second = compact(objects, visible, replace(POLICY, target_rows=8), NOW)
    assert (first.was_first, second.was_first) == (True, False)
    assert await _sequences(SampleStore(objects)) == list(range(24))


async def test_readers_beside_compactions_always_see_every_row_once(tmp_path: Path) -> None:
    objects = open_objects(StoreLocation(str(tmp_path / "store")), {})
    store = SampleStore(objects)
    await _fill(store, 12)
    stopping = threading.Event()
    seen: list[list[str]] = []

    def read() -> None:
        while not stopping.is_set():
            parts = ManifestLog(objects).visible().parts
            rows = sum(part.rows for part in parts)
            if rows != 48:
                seen.append([part.path for part in parts])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for target in (4, 6, 10, 30, 100):
        await store.compact(NOW, CompactionPolicy(target_rows=target, min_parts=2))
    stopping.set()
    for reader in readers:
        reader.join()
    assert seen == []
    assert len((await store.visible()).parts) == 2


@IN_A_BUCKET_AT_LENGTH
async def test_replaced_parts_go_only_after_the_grace_period(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    written = max(found.modified_at for found in objects.listing("samples/"))
    old_list = (await store.visible()).parts
    await store.compact(written + 10 * DAY_S, POLICY)
    assert (await store.sweep(written + 10.9 * DAY_S)).parts == 0
    assert all(objects.get(part.path) for part in old_list)
    swept = await store.sweep(written + 11.1 * DAY_S)
    assert (swept.parts, swept.manifests) == (12, 0)
    assert await _sequences(store) == list(range(24))
    assert len(list(objects.listing("samples/"))) == 2


async def test_compact_itself_sweeps_what_has_rested(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    written = max(found.modified_at for found in objects.listing("samples/"))
    await store.compact(written, POLICY)
    assert (await store.compact(written + 2 * DAY_S, POLICY)).swept_parts == 12


async def test_a_compacted_batch_that_is_put_again_is_still_known(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    now = _at_end_of_time(objects)
    await store.compact(now, POLICY)
    await store.sweep(now + 2 * DAY_S)
    rows = [sample(n, environment=f"e:{n % 2}") for n in range(4)]
    assert (await store.put_batch("b00", rows)).rows == 4
    assert await _sequences(SampleStore(objects)) == list(range(24))


async def test_replaced_manifests_are_forgotten_at_last(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    now = _at_end_of_time(objects)
    await store.compact(now, POLICY)
    await store.sweep(now + 29 * DAY_S)
    assert len(list(objects.listing("manifests/"))) == 7
    assert (await store.sweep(now + 31 * DAY_S)).manifests == 6
    assert [found.key for found in objects.listing("manifests/")] == ["manifests/compact-000000001.json"]
    assert await _sequences(SampleStore(objects)) == list(range(24))
    await _fill(store, 3, first=6)
    await store.compact(now + 32 * DAY_S, POLICY)
    assert await _sequences(SampleStore(objects)) == list(range(36))


async def test_nothing_hidden_comes_back_through_many_compactions_and_sweeps(
    store: SampleStore, objects: ObjectStore
) -> None:
    """Compactions replace compactions while manifests are forgotten between them, in every order of ages."""
    now = _at_end_of_time_or(objects, NOW)
    for step in range(12):
        await _fill(store, 2, first=2 * step)
        now += (1, 13, 31)[step % 3] * DAY_S
        await store.compact(now, CompactionPolicy(target_rows=(8, 20, 60)[step % 3], min_parts=2))
        await store.sweep(now)
        assert await _sequences(SampleStore(objects)) == list(range(8 * (step + 1)))


def _at_end_of_time_or(objects: ObjectStore, default: float) -> float:
    return max((found.modified_at for found in objects.listing("")), default=default) + 3_000 * DAY_S


async def test_orphans_of_a_dead_writer_are_swept_after_the_grace_period(
    store: SampleStore, objects: ObjectStore
) -> None:
    await _fill(store)
    orphan, data = next(encoded_parts(frame_of(many(3)), "dead"))
    objects.put_many([(orphan.path, data)])
    written = next(f.modified_at for f in objects.listing("samples/") if f.key == orphan.path)
    assert (await store.sweep(written + 0.5 * DAY_S)).parts == 0
    assert (await store.sweep(written + 1.5 * DAY_S)).parts == 1
    assert await _sequences(store) == list(range(24))


async def test_nothing_is_swept_while_a_manifest_cannot_be_read(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    whole = objects.get("manifests/b01.json")
    objects.put_many([("manifests/b01.json", b"{")])
    now = _at_end_of_time(objects)
    swept = await SampleStore(objects).sweep(now)
    assert (swept.parts, [problem.path for problem in swept.problems]) == (0, ["manifests/b01.json"])
    objects.put_many([("manifests/b01.json", whole)])
    assert await _sequences(SampleStore(objects)) == list(range(24))


async def test_a_lost_compaction_manifest_shows_the_old_parts_again(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    await store.compact(NOW, POLICY)
    objects.put_many([("manifests/compact-000000001.json", b"junk")])
    found = await SampleStore(objects).scan(columns=["sequence"])
    assert sorted(found.frame["sequence"]) == list(range(24))
    assert [problem.path for problem in found.problems] == ["manifests/compact-000000001.json"]
    again = await SampleStore(objects).compact(NOW, POLICY)
    assert again.batch_id == "compact-000000002"


async def test_the_summary_does_not_read_compacted_rows_again(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    before = await store.summary(NOW)
    await store.compact(NOW, POLICY)
    for part in (await store.visible()).parts:
        objects.put_many([(part.path, b"not to be read")])
    assert (await SampleStore(objects).summary(NOW)).pairs == before.pairs


async def test_the_summary_is_right_when_a_compaction_came_between(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store, 3)
    await store.summary(NOW)
    await _fill(store, 3, first=3)
    await store.compact(NOW, POLICY)
    await store.sweep(_at_end_of_time(objects))
    summary = await SampleStore(objects).summary(NOW)
    assert [(pair.environment, pair.count) for pair in summary.pairs] == [("e:0", 12), ("e:1", 12)]
    assert summary.problems == ()


async def test_a_plan_takes_small_crowded_parts_only(store: SampleStore) -> None:
    await _fill(store, 3)
    visible = await store.visible()
    assert plan(visible, CompactionPolicy(min_parts=4)) == []
    assert plan(visible, CompactionPolicy(target_rows=4, min_parts=2)) == []
    found = plan(visible, CompactionPolicy(min_parts=3, merges_per_round=1))
    assert [len(group) for group in found] == [3]


async def test_a_round_with_few_merges_is_followed_by_others(store: SampleStore) -> None:
    await _fill(store)
    done = await store.compact(NOW, replace(POLICY, merges_per_round=1))
    assert (done.batch_id, done.parts_before, done.parts_after) == ("compact-000000002", 12, 2)
    assert await _sequences(store) == list(range(24))


@IN_A_BUCKET_AT_LENGTH
async def test_parts_of_earlier_versions_are_read_queried_and_merged_with_new_ones(
    store: SampleStore, objects: ObjectStore
) -> None:
    lately = {"cached_tokens": 4, "reasoning_tokens": 2, "cost_micro": 17, "lane": "batch", "served_model": "a"}
    lately |= {"request_seed": 7, "answer": "42", "judge_cost_micro": 3, "finish_reason": "length"}
    for number, added in enumerate((None, True, len(ADDED))):
        frame = frame_of([sample(number, **(lately if added else {}))])
        (part, data), *_ = encoded_parts(
            frame.drop(list(ADDED)[{None: 0, True: 2}.get(added, len(ADDED)) :]), f"b{number}"
        )
        key, stated = manifest_key(f"b{number}"), {"added": added}
        content = unsealed(manifest_bytes(Manifest(f"b{number}", (part,))), key)
        del content["parts"][0]["added"]
        content["parts"][0] |= stated if added is not None else {}
        objects.put_many([(part.path, data), (key, sealed(content))])
    unknown = (0, 0, None, "now", None, None, None, None)
    expected = [(None, *unknown), ("a", *unknown), ("a", 4, 2, 17, "batch", 7, "42", 3, "length")]
    names = ("served_model", *list(ADDED)[2:])
    for _ in range(2):
        assert (await store.scan(columns=["sequence", *names])).frame.sort("sequence").select(names).rows() == expected
        found = await store.query(f"select {', '.join(names)} from samples order by sequence")
        assert list(found.rows) == expected
        await store.compact(NOW, CompactionPolicy(target_rows=20, min_parts=2))
    assert [part.added for part in (await store.visible()).parts] == [len(ADDED)]
