"""What is forgotten is gone, whole and at once; what is not meant stays as it is."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from headgate.core import DAY_S, errors
from headgate.core.audit import audit_entries
from headgate.reports import build_leaderboard, leaderboard_document
from headgate.storage import Chosen, CompactionPolicy, SampleStore
from headgate.storage.objects import MANIFESTS, QUARANTINE, SAMPLES, FolderObjects, ObjectStore
from tests.storage.places import IN_BOTH
from tests.storage.samples import START, many, sample

OLD = Chosen(until=START + 50)
ALL = Chosen()


async def _filled(store: SampleStore) -> None:
    for number in range(3):
        said = f'[["assistant","secret words {number}"]]'
        await store.put_batch(f"b{number}", many(40, first=40 * number, conversation=said))


def _objects_in(objects: ObjectStore) -> dict[str, bytes]:
    return {found.key: objects.get(found.key) for prefix in (SAMPLES, MANIFESTS) for found in objects.listing(prefix)}


@IN_BOTH
async def test_conversations_go_and_everything_else_stays(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    before = (await store.scan()).frame
    board = leaderboard_document(build_leaderboard(before))
    done = await store.forget(OLD, START, conversations_only=True)
    after = (await store.scan()).frame
    is_old = before["finished_at"] < START + 50
    assert (done.samples, done.problems) == (is_old.sum(), ())
    assert 0 < done.samples < 120
    assert done.conversation_bytes == before.filter(is_old)["conversation"].str.len_bytes().sum()
    assert after.sort("task_id").drop("conversation").equals(before.sort("task_id").drop("conversation"))
    assert after.filter(pl.col("finished_at") < START + 50)["conversation"].unique().to_list() == [""]
    assert (after.filter(pl.col("finished_at") >= START + 50)["conversation"] != "").all()
    assert leaderboard_document(build_leaderboard(after)) == board
    assert (await store.forget(OLD, START, conversations_only=True)).samples == 0
    assert (await store.verify()).problems == ()


async def test_samples_go_from_every_reader_and_from_the_disk_at_once(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    keys = {found.key for found in objects.listing(SAMPLES)}
    chosen = (await store.query("SELECT task_id FROM samples WHERE sequence % 2 = 0")).rows
    ids = [task_id for (task_id,) in chosen]
    done = await store.forget(ALL, START, task_ids=ids)
    assert (done.samples, done.parts) == (60, len(keys))
    assert (await store.query("SELECT count(*), min(sequence % 2) FROM samples")).rows == ((60, 1),)
    assert not keys & {found.key for found in objects.listing(SAMPLES)}
    assert (await store.verify()).problems == ()


async def test_a_dry_run_says_the_same_and_writes_nothing(store: SampleStore, objects: ObjectStore) -> None:
    await _filled(store)
    before = _objects_in(objects)
    for only in (False, True):
        told = await store.forget(OLD, START, conversations_only=only, dry_run=True)
        assert _objects_in(objects) == before
    assert told == await store.forget(OLD, START, conversations_only=True)


async def test_all_samples_of_a_store_can_be_forgotten_and_new_ones_stored(store: SampleStore) -> None:
    await _filled(store)
    assert (await store.forget(ALL, START)).samples == 120
    assert (await store.scan()).frame.is_empty()
    await store.put_batch("b0", many(40))  # a journal that never heard that it is stored: it stays forgotten
    assert (await store.scan()).frame.is_empty()
    await store.put_batch("later", many(3))
    assert (await store.scan()).frame.height == 3


@pytest.mark.parametrize("fatal", range(1, 12))
async def test_a_kill_at_any_write_leaves_all_or_what_was_not_meant(tmp_path: Path, fatal: int) -> None:
    objects = FolderObjects(tmp_path)
    store = SampleStore(objects)
    await _filled(store)
    before = set((await store.scan()).frame["task_id"])
    left = set((await store.scan(since=START + 50)).frame["task_id"])
    calls = 0

    class Dying(FolderObjects):
        def _count(self) -> None:
            nonlocal calls
            calls += 1
            if calls >= fatal:
                raise errors.StoreError("killed")

        def put_many(self, given):  # type: ignore[no-untyped-def]
            self._count()
            super().put_many(given)

        def create(self, key, data):  # type: ignore[no-untyped-def]
            if "compact" in key:
                self._count()
            return super().create(key, data)

        def delete_many(self, keys):  # type: ignore[no-untyped-def]
            self._count()
            super().delete_many(keys)

    died = True
    try:
        await SampleStore(Dying(tmp_path)).forget(OLD, START)
        died = False
    except errors.StoreError:
        pass
    found = await SampleStore(FolderObjects(tmp_path)).scan()
    assert found.problems == ()
    assert set(found.frame["task_id"]) in ((before, left) if died else (left,))
    again = await SampleStore(FolderObjects(tmp_path)).forget(OLD, START)
    assert set((await store.scan()).frame["task_id"]) == left
    assert again.samples in (len(before - left), 0)


async def test_a_compaction_that_came_first_is_looked_at_and_it_is_done_then(store: SampleStore) -> None:
    await _filled(store)
    real, visible = store._visible, store._visible()

    await store.compact(START, CompactionPolicy(min_parts=2))
    stale = [visible]
    store._visible = lambda: stale.pop() if stale else real()  # type: ignore[method-assign]
    done = await store.forget(OLD, START)
    store._visible = real  # type: ignore[method-assign]
    assert done.samples == 50
    assert (await store.scan(until=START + 50)).frame.is_empty()
    assert (await store.scan()).frame.height == 120 - 50


async def test_a_compaction_drops_conversations_of_their_age_and_reads_them_once(
    store: SampleStore, objects: ObjectStore
) -> None:
    await _filled(store)
    policy, now = CompactionPolicy(conversation_days=1), START + 50 + DAY_S
    assert (await store.compact(now)).conversations == 0
    assert (await store.compact(now, policy)).conversations == 50
    assert (await store.scan(until=START + 50)).frame["conversation"].unique().to_list() == [""]
    assert (await store.compact(now + DAY_S, policy)).conversations == 70
    assert {part.has_conversations for part in (await store.visible()).parts} == {False}
    merged = await store.compact(now + DAY_S, CompactionPolicy(min_parts=2, conversation_days=0.1))
    assert (merged.conversations, merged.parts_after) == (0, 1)
    assert {part.has_conversations for part in (await store.visible()).parts} == {False}


async def test_quarantined_rows_go_when_they_are_old_and_nothing_but_age_counts(
    store: SampleStore, objects: ObjectStore
) -> None:
    await store.put_batch("broken", [sample(1), sample(2, score=7.0)])
    (kept,) = objects.listing(QUARANTINE)
    await store.forget(Chosen(until=kept.modified_at - 1), START)
    await store.forget(Chosen(until=kept.modified_at + 1, campaign="x"), START)
    assert list(objects.listing(QUARANTINE)) == [kept]
    await store.forget(Chosen(until=kept.modified_at + 1), START)
    assert list(objects.listing(QUARANTINE)) == []


async def test_a_deletion_is_in_the_audit_trail(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_AUDIT_FILE", str(tmp_path / "audit.jsonl"))
    await _filled(store)
    await store.forget(OLD, START, conversations_only=True)
    (entry,) = [entry for entry in audit_entries() if entry.what == "samples forget"]
    assert entry.after.startswith("50 conversations of samples deleted, ")
    assert entry.thing == store.url
