"""The index of samples: every page in its order, whatever is stored, merged or deleted meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headgate.core import Sample
from headgate.storage import (
    Chosen,
    CompactionPolicy,
    Invalidation,
    Order,
    SampleFilter,
    SampleIndex,
    SampleStore,
    TextSearch,
)
from headgate.storage.objects import FolderObjects
from tests.storage.places import IN_A_BUCKET_AT_LENGTH
from tests.storage.samples import DAY, START, sample

KINDS = (None, None, "bad_answer", "provider_timeout")


def _samples() -> list[Sample]:
    made = []
    for number in range(60):
        kind = KINDS[number % 4]
        score = None if kind == "provider_timeout" else 0.0 if kind else (number * 7 % 10) / 10
        made.append(
            sample(
                number,
                model=f"lab/m{number % 3}@v{number % 2}",
                environment=f"e:{number % 4}",
                score=score,
                success=score is not None and score > 0.5,
                error_kind=kind,
                error=kind and f"error number {number}",
                finished_at=START + number // 5 * 600,  # several end at once
                latency_s=float(number * 13 % 17),
                finish_reason=("length", "stop", f"whatever {number}", None)[number // 4 % 4],
                conversation=f'[["user","Say \\"{number}\\"\\nÜber <b>"]]' if number % 2 else "",
            )
        )
    return made


def _walked(index: SampleIndex, chosen: SampleFilter, order: Order) -> list[dict[str, Any]]:
    """Return all rows, page by page forwards, after checking that the pages are the same backwards."""
    pages = [index.page(chosen, order, size=7)]
    while pages[-1].has_after:
        pages.append(index.page(chosen, order, after=pages[-1].rows["task_id"][-1], size=7))
    for earlier, later in pairwise(pages):
        back = index.page(chosen, order, before=later.rows["task_id"][0], size=7)
        assert back.rows.equals(earlier.rows)
        assert back.has_before == (earlier is not pages[0])
    assert {page.total for page in pages} == {sum(page.rows.height for page in pages)}
    return [row for page in pages for row in page.rows.to_dicts()]


FILTERS: list[tuple[SampleFilter, Callable[[Sample], bool]]] = [
    (SampleFilter(), lambda _: True),
    (SampleFilter(model="lab/m1"), lambda one: one.model.startswith("lab/m1@")),
    (SampleFilter(model="lab/m1@v0"), lambda one: one.model == "lab/m1@v0"),
    (SampleFilter(model="lab/m1", environment="e:2"), lambda one: "m1" in one.model and one.environment == "e:2"),
    (SampleFilter(error="none"), lambda one: one.error_kind is None),
    (SampleFilter(error="any"), lambda one: one.error_kind is not None),
    (SampleFilter(error="bad_answer"), lambda one: one.error_kind == "bad_answer"),
    (SampleFilter(error="cut off"), lambda one: one.finish_reason == "length"),
    (SampleFilter(error="no_such_kind", model="none"), lambda _: False),
    (SampleFilter(min_score=0.3, max_score=0.8), lambda one: one.score is not None and 0.3 <= one.score <= 0.8),
    (SampleFilter(min_latency_s=4, max_latency_s=9), lambda one: 4 <= one.latency_s <= 9),
    (SampleFilter(since=START + 3_000), lambda one: one.finished_at >= START + 3_000),
    (SampleFilter(index=3), lambda one: one.index == 3),
]  # fmt: skip

KEYS: dict[Order, Callable[[dict[str, Any]], Any]] = {
    Order.NEWEST: lambda row: -row["finished_at"],
    Order.WORST: lambda row: 2.0 if row["score"] is None else row["score"],
    Order.BEST: lambda row: 1.0 if row["score"] is None else -row["score"],
    Order.LONGEST: lambda row: -row["latency_s"],
}


async def test_every_filter_in_every_order_gives_each_sample_once(tmp_path: Path) -> None:
    store, samples = SampleStore(FolderObjects(tmp_path)), _samples()
    await store.put_batch("b", samples)
    index = await store.indexed(SampleIndex())
    for chosen, holds in FILTERS:
        wanted = sorted(one.task_id for one in samples if holds(one))
        assert sorted(index.chosen(chosen)["task_id"]) == wanted, chosen
        for order, key in KEYS.items():
            rows = _walked(index, chosen, order)
            assert sorted(row["task_id"] for row in rows) == wanted, (chosen, order)
            assert rows == sorted(rows, key=key), (chosen, order)


@IN_A_BUCKET_AT_LENGTH
async def test_the_index_follows_what_is_stored_merged_and_deleted(store: SampleStore) -> None:
    samples = _samples()
    index = await store.indexed(SampleIndex())
    assert (index.rows.height, index.revision, index.pending) == (0, 0, 0)
    await store.put_batch("b0", samples[:30])
    await store.put_batch("b1", samples[20:])  # ten of them again
    index = await store.indexed(index)
    assert sorted(index.rows["task_id"]) == sorted(one.task_id for one in samples)
    assert index.names["model"] == sorted({one.model for one in samples})
    assert (await store.indexed(index)).revision == index.revision
    await store.compact(START + 40 * DAY, CompactionPolicy(target_rows=100, min_parts=2))
    merged = await store.indexed(index)
    assert merged.revision > index.revision
    assert sorted(merged.rows["task_id"]) == sorted(index.rows["task_id"])
    await store.forget(Chosen(environments=frozenset({"e:1"})), START + 41 * DAY)
    left = await store.indexed(merged)
    assert left.names["environment"] == ["e:0", "e:2", "e:3"]
    row = left.row(left.rows["task_id"][0])
    assert row is not None
    whole = await store.sample(left.parts[row["part"]], row["task_id"])
    assert whole is not None
    assert whole["conversation"] == next(one.conversation for one in samples if one.task_id == row["task_id"])


async def test_what_marks_say_is_in_the_index(tmp_path: Path) -> None:
    store, samples = SampleStore(FolderObjects(tmp_path)), _samples()
    await store.put_batch("b", samples)
    index = await store.indexed(SampleIndex())
    bad = index.chosen(SampleFilter(environment="e:0"))["task_id"].to_list()
    await store.invalidate(Invalidation(Chosen(), "a broken scorer", "ann", bad), START)
    marked = await store.indexed(index)
    assert marked.revision > index.revision
    assert sorted(marked.chosen(SampleFilter(invalid=True))["task_id"]) == sorted(bad)
    assert marked.chosen(SampleFilter(invalid=False)).height == 60 - len(bad)


async def test_a_part_that_cannot_be_read_is_told_and_left_out(tmp_path: Path) -> None:
    store = SampleStore(FolderObjects(tmp_path))
    await store.put_batch("b", _samples())
    part = (await store.visible()).parts[0]
    (tmp_path / part.path).write_bytes(b"no Parquet")
    index = await store.indexed(SampleIndex())
    assert [problem.path for problem in index.problems] == [part.path]
    assert index.rows.height == 60 - part.rows


@pytest.mark.parametrize(
    ("text", "number"), [('say "7"', 7), ("ERROR NUMBER 11", 11), ('"9"\nÜber <B>', 9), ("nowhere", None)]
)
async def test_a_text_is_found_in_what_was_said_and_in_errors(text: str, number: int | None, tmp_path: Path) -> None:
    store, samples = SampleStore(FolderObjects(tmp_path)), _samples()
    await store.put_batch("b", samples)
    index, search = await store.indexed(SampleIndex()), TextSearch(text)
    assert await store.search(search, index.parts_of(SampleFilter()), 10.0) == 0
    assert list(search.found()) == ([] if number is None else [samples[number].task_id])
