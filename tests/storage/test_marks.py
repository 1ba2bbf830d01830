"""Samples that were invalidated count nowhere, whoever looks; they are kept, and can be made to count again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.core import DAY_S, Sample, errors, task_id_of
from headgate.core.audit import audit_entries
from headgate.storage import Chosen, CompactionPolicy, Invalidation, SampleStore, export_samples, import_samples
from headgate.storage.mark_log import MANY, MARKS
from headgate.storage.objects import FolderObjects, ObjectStore
from tests.storage.places import IN_A_BUCKET_AT_LENGTH
from tests.storage.samples import START, many, sample

BAD = Invalidation(Chosen(models=frozenset({"org/a"}), until=START + 10), "the prompt was cut")
NOW = START + 100


async def _filled(store: SampleStore) -> None:
    await store.put_batch("one", many(20, prompt_tokens=7))
    await store.put_batch("two", many(20, model="org/b@main"))


async def _counts(store: SampleStore) -> list[int]:
    """Return how many samples of org/a every reader sees, in the order of their names."""
    board = await store.scan()
    pairs = {pair.model: pair for pair in (await store.summary(NOW)).pairs}
    history = (await store.history(NOW)).pairs["org/a@main", "affine:sat"]
    (queried,) = (await store.query("select count(*) from samples where model = 'org/a@main'")).rows
    return [
        board.frame["model"].to_list().count("org/a@main"),
        pairs["org/a@main"].count if "org/a@main" in pairs else 0,
        history.scored,
        sum(history.scored_by_minute.values()),
        sum(model == "org/a@main" for model, *_ in await store.task_scores("main")),
        queried[0],
    ]


@IN_A_BUCKET_AT_LENGTH
async def test_invalidated_samples_count_nowhere_and_count_again_after_an_undo(
    store: SampleStore, objects: ObjectStore
) -> None:
    await _filled(store)
    assert set(await _counts(store)) == {20}
    would = await store.invalidate(BAD, NOW, dry_run=True)
    assert (would.mark, would.samples, would.pairs) == ("", 10, (("org/a@main", "affine:sat", 10),))
    assert set(await _counts(store)) == {20}
    done = await store.invalidate(BAD, NOW)
    assert (done.samples, done.pairs, done.problems) == (10, would.pairs, ())
    for reader in (store, SampleStore(objects)):
        assert set(await _counts(reader)) == {10}
        assert set(await _counts(SampleStore(objects))) == {10}
    history = (await store.history(NOW)).pairs["org/a@main", "affine:sat"]
    assert history.next_sequence == 20  # no number is given out twice
    (pair,) = [pair for pair in (await store.summary(NOW)).pairs if pair.model == "org/a@main"]
    assert (pair.unscored, pair.prompt_tokens, pair.mean_score) == (0, 140, 0.5)
    assert len(await store.spent(START)) == 40
    everything = (await store.scan(everything=True)).frame
    assert (everything.height, everything["invalid"].sum()) == (40, 10)
    said = await store.query("select distinct verb, reason, marked_by = '' from marks where mark = '" + done.mark + "'")
    assert said.rows == (("invalidate", "the prompt was cut", False),)
    assert (await store.query("select count(*) from stored")).rows == ((40,),)
    again = await store.invalidate(BAD, NOW)
    assert (again.mark, again.samples) == ("", 0)
    assert len(list(objects.listing(MARKS))) == 1
    undone = await store.invalidate(Invalidation(Chosen(), "it was whole", undo=True), NOW)
    assert (undone.samples, undone.final) == (10, 0)
    assert set(await _counts(store)) == {20}
    assert (await store.verify()).problems == ()


async def test_all_samples_of_a_pair_leave_the_summary_with_it(folder_store: SampleStore) -> None:
    await _filled(folder_store)
    await folder_store.invalidate(Invalidation(Chosen(models=frozenset({"org/a@main"})), "a broken key"), NOW)
    assert set(await _counts(folder_store)) == {0}
    assert [pair.model for pair in (await folder_store.summary(NOW)).pairs] == ["org/b@main"]


async def test_the_clock_of_whoever_marks_later_may_be_behind(folder_store: SampleStore) -> None:
    await _filled(folder_store)
    await folder_store.invalidate(BAD, NOW)
    await folder_store.invalidate(Invalidation(BAD.chosen, "as it was", undo=True), NOW - DAY_S)
    assert set(await _counts(folder_store)) == {20}


async def test_what_is_sampled_again_stays_invalid(folder_store: SampleStore) -> None:
    await _filled(folder_store)
    await folder_store.invalidate(BAD, NOW)
    again = await folder_store.invalidate(Invalidation(BAD.chosen, "the prompt was cut", resample=True), NOW)
    assert again.samples == 10
    assert sorted(again.rows["sequence"]) == list(range(10))
    undone = await folder_store.invalidate(Invalidation(Chosen(), "it was whole", undo=True), NOW)
    assert (undone.samples, undone.final) == (0, 10)
    assert set(await _counts(folder_store)) == {10}


def _taken_again(count: int, run: int) -> list[Sample]:
    """Return the samples of tasks that are taken for the `run`th time."""
    stage = f"sample.{run}"
    ids = [task_id_of("org/a@main", "affine:sat", number, stage, "main") for number in range(count)]
    return [sample(number, task_id=ids[number], stage=stage, at=START + 50 + run) for number in range(count)]


async def test_a_task_taken_again_is_taken_a_third_time_only_on_request(folder_store: SampleStore) -> None:
    await folder_store.put_batch("one", many(3))
    await folder_store.invalidate(Invalidation(Chosen(), "a wrong key", resample=True), NOW)
    assert [row[-1] for row in await folder_store.to_resample("main")] == ["sample.2"] * 3
    await folder_store.put_batch("two", _taken_again(3, 2))
    assert await folder_store.to_resample("main") == []
    await folder_store.invalidate(Invalidation(Chosen(), "a wrong prompt"), NOW)
    assert await folder_store.to_resample("main") == []
    assert [row[-1] for row in await folder_store.to_resample("main", every=True)] == ["sample.3"] * 3
    await folder_store.invalidate(Invalidation(Chosen(), "a wrong prompt", resample=True), NOW)
    assert [row[-1] for row in await folder_store.to_resample("main")] == ["sample.3"] * 3


async def test_two_samples_of_a_task_never_count_again_together(folder_store: SampleStore) -> None:
    await folder_store.put_batch("one", many(3))
    await folder_store.invalidate(Invalidation(Chosen(), "a wrong key"), NOW)
    await folder_store.put_batch("two", _taken_again(2, 2))  # as `headgate rank` does, also without `resample`
    undo = Invalidation(Chosen(), "it was right", undo=True)
    undone = await folder_store.invalidate(undo, NOW)
    assert (undone.samples, undone.final) == (1, 2)
    await folder_store.invalidate(Invalidation(Chosen(), "a wrong prompt"), NOW)
    undone = await folder_store.invalidate(undo, NOW)
    assert (undone.samples, undone.final) == (3, 2)
    counted = (await folder_store.scan(columns=["sequence", "stage"])).frame.sort("sequence")
    assert counted.rows() == [(0, "sample.2"), (1, "sample.2"), (2, "sample")]


@IN_A_BUCKET_AT_LENGTH
async def test_marks_outlive_compaction_and_are_merged_when_they_are_many(
    store: SampleStore, objects: ObjectStore
) -> None:
    for number in range(9):
        await store.put_batch(f"b{number}", many(4, first=4 * number))
    for number in range(MANY):
        only = Invalidation(Chosen(since=START + number, until=START + number + 1), f"reason {number}")
        await store.invalidate(only, NOW)
    assert set(await _counts(store)) == {36 - MANY}
    assert (await store.compact(NOW, CompactionPolicy(min_parts=2))).parts_after == 1
    other = SampleStore(objects)
    for reader in (store, other):
        assert set(await _counts(reader)) == {36 - MANY}
    assert len(list(objects.listing(MARKS))) == MANY + 1
    await other.invalidate(Invalidation(Chosen(until=START + 1), "as it was", undo=True), NOW)
    written = max(found.modified_at for found in objects.listing(MARKS))
    await store.compact(written + DAY_S + 1)
    assert len(list(objects.listing(MARKS))) == 2
    assert set(await _counts(SampleStore(objects))) == {36 - MANY + 1}
    reasons = (await store.query("select count(distinct reason) from marks")).rows
    assert reasons == ((MANY + 1,),)


async def test_marks_of_deleted_samples_go_with_them(folder_store: SampleStore, tmp_path: Path) -> None:
    await _filled(folder_store)
    await folder_store.invalidate(BAD, NOW)
    await folder_store.forget(Chosen(until=START + 5), NOW)
    assert (await folder_store.query("select count(*) from marks")).rows == ((5,),)
    assert set(await _counts(folder_store)) == {10}
    assert len(list(FolderObjects(tmp_path / "store").listing(MARKS))) == 1
    await folder_store.forget(Chosen(), NOW)
    assert (await folder_store.query("select count(*) from marks")).rows == ((0,),)


async def test_exports_leave_them_out_and_an_import_does_not_bring_them_back(
    folder_store: SampleStore, tmp_path: Path
) -> None:
    await _filled(folder_store)
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    assert await export_samples(folder_store, whole, "jsonl", now=NOW) == 40
    await folder_store.invalidate(BAD, NOW)
    assert await export_samples(folder_store, part, "jsonl", now=NOW) == 30
    assert (await import_samples(folder_store, whole, "jsonl")).rows == 0
    assert set(await _counts(folder_store)) == {10}


async def test_two_who_mark_at_once_both_do_while_samples_are_stored(objects: ObjectStore) -> None:
    await _filled(SampleStore(objects))
    turns = threading.Barrier(3)

    class Together(FolderObjects):
        def put_many(self, given: Any) -> None:
            turns.wait(timeout=10)
            super().put_many(given)

    shared = Path(objects.url)
    evens = Invalidation(Chosen(), "even", task_ids=await _ids(objects, "sequence % 2 = 0"))
    few = Invalidation(Chosen(), "few", task_ids=await _ids(objects, "sequence < 4"))
    await asyncio.gather(
        SampleStore(Together(shared)).invalidate(evens, NOW),
        SampleStore(Together(shared)).invalidate(few, NOW),
        SampleStore(Together(shared)).put_batch("three", many(20, first=20)),
    )
    left = await SampleStore(objects).query("select count(*), count(*) filter (sequence % 2 = 0) from samples")
    assert left.rows == ((60 - 20 - 4, 10),)


async def _ids(objects: ObjectStore, where: str) -> list[str]:
    return [one for (one,) in (await SampleStore(objects).query(f"select task_id from samples where {where}")).rows]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_leaves_all_of_a_mark_or_nothing(folder_store: SampleStore, tmp_path: Path, when: str) -> None:
    await _filled(folder_store)

    class Dying(FolderObjects):
        def put_many(self, given: Any) -> None:
            if when == "after":
                super().put_many(given)
            raise errors.StoreError("killed")

    with pytest.raises(errors.StoreError, match="killed"):
        await SampleStore(Dying(tmp_path / "store")).invalidate(BAD, NOW)
    assert set(await _counts(folder_store)) == {20 if when == "before" else 10}
    assert (await folder_store.invalidate(BAD, NOW)).samples == (10 if when == "before" else 0)
    assert set(await _counts(folder_store)) == {10}


async def test_a_damaged_mark_is_told_and_the_others_hold(folder_store: SampleStore, tmp_path: Path) -> None:
    await _filled(folder_store)
    done = await folder_store.invalidate(BAD, NOW)
    await folder_store.invalidate(Invalidation(Chosen(until=START + 15), "more"), NOW)
    first = tmp_path / "store" / MARKS / f"{done.mark}-000000.json"
    first.write_bytes(first.read_bytes().replace(b"cut", b"CUT"))
    store = SampleStore(FolderObjects(tmp_path / "store"))
    for found in (await store.scan(), await store.verify(), await store.summary(NOW)):
        assert [problem.path for problem in found.problems] == [f"{MARKS}{first.name}"]
    await store.compact(NOW)
    assert first.exists()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Invalidation(Chosen(), "  "), "a reason has 1 to 1000 characters"),
        (lambda: Invalidation(Chosen(), "x", undo=True, resample=True), "undo, or resample"),
    ],
)
def test_what_makes_no_sense_is_refused(made: Callable[[], Invalidation], says: str) -> None:
    with pytest.raises(errors.InvalidInputError, match=says):
        made()


async def test_a_mark_is_in_the_audit_trail(
    folder_store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_AUDIT_FILE", str(tmp_path / "audit.jsonl"))
    await _filled(folder_store)
    done = await folder_store.invalidate(Invalidation(BAD.chosen, "cut", by="ada"), NOW)
    (entry,) = [entry for entry in audit_entries() if entry.what == "samples invalidate"]
    assert (entry.who, entry.after) == ("ada", f"10 samples count no longer ({done.mark}): cut")
