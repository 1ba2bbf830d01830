"""Summary and history: counted once, from new parts only, the same when made again."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import Sample
from headgate.storage import PairSummary, SampleStore
from headgate.storage.objects import ObjectStore
from headgate.storage.schema import frame_of
from headgate.storage.summary import Summary, Tally, history_of, summary_of
from tests.storage.places import IN_BOTH
from tests.storage.samples import DAY, START, failed, many, sample

NOW = START + 2 * DAY


def _pair(summary: Summary, model: str = "org/a@main", environment: str = "affine:sat") -> PairSummary:
    return next(p for p in summary.pairs if (p.model, p.environment) == (model, environment))


async def test_a_summary_counts_scores_and_errors_apart(store: SampleStore) -> None:
    batch = [
        *(sample(n, at=NOW - 100 + n, score=s, success=s > 0.5) for n, s in enumerate((0.25, 0.75, 1.0))),
        failed(3, at=NOW - 50, prompt_tokens=5),
        failed(4, "auth", at=NOW - 40),
        sample(5, at=NOW - 30, score=0.0, success=False, error_kind="bad_answer", error="no number"),
    ]
    await store.put_batch("one", batch)
    pair = _pair(await store.summary(NOW))
    assert (pair.count, pair.count_24h, pair.unscored) == (4, 4, 2)
    assert pair.mean_score == pytest.approx(0.5)
    assert pair.success_rate == pytest.approx(0.5)
    assert pair.errors == {"provider_failure": 1, "auth": 1, "bad_answer": 1}
    assert pair.last_finished_at == NOW - 30
    assert pair.mean_latency_s == pytest.approx(2.5)
    assert (pair.prompt_tokens, pair.completion_tokens) == (55, 18)
    assert pair.interval.method == "t"


async def test_a_model_that_only_failed_has_no_mean(store: SampleStore) -> None:
    await store.put_batch("one", [failed(0, at=NOW)])
    pair = _pair(await store.summary(NOW))
    assert (pair.count, pair.mean_score, pair.success_rate, pair.mean_latency_s) == (0, None, None, None)
    assert pair.interval.method == "none"


async def test_only_the_last_day_counts_as_24_hours(store: SampleStore) -> None:
    await store.put_batch("one", [sample(n, at=NOW - hours * 3_600) for n, hours in enumerate((47, 25, 23, 2, 0))])
    summary = await store.summary(NOW)
    assert (_pair(summary).count, _pair(summary).count_24h) == (5, 3)
    assert _pair(await store.summary(NOW + 12 * 3_600)).count_24h == 2
    assert _pair(summary).interval.method == "wilson"


@IN_BOTH
async def test_a_refresh_reads_only_new_parts(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", many(10))
    await store.summary(NOW)
    read: list[str] = []
    spied = _Spying(objects, read)
    again = SampleStore(spied)  # type: ignore[arg-type]  # passes everything on
    await again.put_batch("two", many(10, first=10))
    assert _pair(await again.summary(NOW)).count == 20
    assert [key for key in read if key.endswith(".parquet")] == [
        part.path for part in (await again.visible()).manifests["two"].parts
    ]


class _Spying:
    def __init__(self, objects: ObjectStore, read: list[str]) -> None:
        self._objects, self._read = objects, read

    def __getattr__(self, name: str) -> object:
        return getattr(self._objects, name)

    def get_many(self, keys: list[str]) -> object:
        self._read.extend(keys)
        return self._objects.get_many(keys)


async def test_a_rebuild_gives_the_same_as_refreshes_did(store: SampleStore, objects: ObjectStore) -> None:
    rng = random.Random(3)
    for batch in range(6):
        rows = [
            sample(
                20 * batch + n,
                model=f"org/{rng.choice('ab')}@main",
                environment=f"e:{rng.randrange(3)}",
                at=NOW - rng.random() * 2 * DAY,
                score=rng.random(),
            )
            for n in range(20)
        ]
        await store.put_batch(f"b{batch}", [*rows, failed(20 * batch, model="org/c@main", at=NOW)])
        refreshed = await store.summary(NOW)
    rebuilt = await SampleStore(objects).summary(NOW, rebuild=True)
    assert _rounded(rebuilt) == _rounded(refreshed)
    assert _rounded(await SampleStore(objects).summary(NOW)) == _rounded(refreshed)


def _rounded(summary: Summary) -> list[object]:
    """The pairs with floating sums rounded: their last bit depends on the order of addition."""

    def close(value: object) -> object:
        return round(value, 9) if isinstance(value, float) else value

    fields = ("model", "environment", "count", "count_24h", "mean_score", "success_rate", "unscored", "mean_latency_s")
    more = ("last_finished_at", "prompt_tokens", "completion_tokens", "errors")
    return [[close(getattr(pair, name)) for name in (*fields, *more)] for pair in summary.pairs]


async def test_a_summary_object_that_is_corrupt_is_made_again(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", many(4))
    await store.summary(NOW)
    data = objects.get("summary/latest.json")
    for broken in (data[:-5], b"", data.replace(b'"scored"', b'"scxred"'), b'{"content":{"format":1},"sha256":"x"}'):
        objects.put_many([("summary/latest.json", broken)])
        summary = await SampleStore(objects).summary(NOW)
        assert _pair(summary).count == 4
        assert [problem.path for problem in summary.problems] == ["summary/latest.json"]
    assert (await SampleStore(objects).summary(NOW)).problems == ()


async def test_the_summary_object_is_for_readers_too(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", many(4, at=NOW - 5))
    await store.summary(NOW)
    content = orjson.loads(objects.get("summary/latest.json"))["content"]
    assert content["manifests"] == ["one"]
    assert content["generated_at"] == NOW
    pair = content["pairs"][0]
    assert (pair["model"], pair["environment"], pair["count"], pair["count_24h"]) == ("org/a@main", "affine:sat", 4, 4)
    assert set(pair["interval"]) == {"low", "high", "method"}


async def test_a_summary_that_is_not_to_be_saved_writes_nothing(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", many(4))
    assert _pair(await store.summary(NOW, save=False)).count == 4
    assert list(objects.listing("summary/")) == []


async def test_a_task_stored_twice_counts_once(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", many(6))
    await store.summary(NOW)
    await store.put_batch("two", many(6, first=3))
    assert _pair(await store.summary(NOW)).count == 9
    assert _pair(await SampleStore(objects).summary(NOW, rebuild=True)).count == 9


async def test_an_unreadable_part_is_counted_once_it_can_be_read(store: SampleStore, objects: ObjectStore) -> None:
    await store.put_batch("one", [*many(4), *many(4, environment="x")])
    part = (await store.visible()).parts[0]
    whole = objects.get(part.path)
    objects.put_many([(part.path, b"junk")])
    summary = await store.summary(NOW)
    assert [(pair.environment, pair.count) for pair in summary.pairs] == [("x", 4)]
    assert [problem.path for problem in summary.problems] == [part.path]
    objects.put_many([(part.path, whole)])
    again = await store.summary(NOW)
    assert [(pair.environment, pair.count) for pair in again.pairs] == [("affine:sat", 4), ("x", 4)]
    assert again.problems == ()


async def test_history_restores_what_a_sampler_needs(store: SampleStore) -> None:
    minute = int(NOW // 60)
    times = [NOW - DAY - 61, NOW - DAY + 61, NOW - 7_300, NOW - 600, NOW - 599, NOW]
    await store.put_batch("one", [sample(n, at=at) for n, at in enumerate(times)])
    await store.put_batch("two", [failed(9, at=NOW), sample(3, environment="old", at=NOW - 7_300)])
    history = await store.history(NOW)
    pair = history.pairs["org/a@main", "affine:sat"]
    assert pair.scored_by_minute == {
        int((NOW - DAY + 61) // 60): 1,
        int((NOW - 7_300) // 60): 1,
        minute - 10: 2,
        minute: 1,
    }
    assert (sum(pair.scored_by_minute.values()), pair.scored, pair.next_sequence, pair.last_finished_at) == (
        5,
        6,
        10,
        NOW,
    )
    old = history.pairs["org/a@main", "old"]
    assert (old.last_finished_at, old.next_sequence, sum(old.scored_by_minute.values())) == (None, 4, 1)


async def test_history_of_an_empty_store_is_empty(store: SampleStore) -> None:
    assert (await store.history(NOW)).pairs == {}


def test_the_window_of_history_is_1440_minutes_with_the_current_one() -> None:
    rows = [sample(n, at=START + 60 * n) for n in range(3_000)]
    now = START + 60 * 2_999 + 30
    tally = Tally.empty().folded(frame_of(rows), now)
    pair = history_of(tally, now).pairs["org/a@main", "affine:sat"]
    assert sum(pair.scored_by_minute.values()) == 1_440
    assert min(pair.scored_by_minute) == int(now // 60) - 1_439
    assert len(tally.minutes) == 1_500


SMALL = st.builds(
    lambda sequence, environment, campaign, score: sample(
        sequence, environment=environment, campaign=campaign, score=score, success=False
    ),
    st.integers(0, 12),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["main", "other"]),
    st.sampled_from([0.0, 0.5, 1.0]),
)


@settings(max_examples=30)
@given(st.lists(st.lists(SMALL, max_size=8), max_size=6))
def test_however_rows_are_folded_each_task_counts_once(batches: list[list[Sample]]) -> None:
    tally = Tally.empty()
    first: dict[str, Sample] = {}
    for batch in batches:
        tally = tally.folded(frame_of(batch), NOW)
        for one in batch:
            first.setdefault(one.task_id, one)
        tally = Tally.of_fields(orjson.loads(orjson.dumps(tally.fields())))
    for environment in ("a", "b"):
        expected = [one for one in first.values() if one.environment == environment]
        if expected:
            pair = _pair(summary_of(tally, NOW), environment=environment)
            assert pair.count == len(expected)
            assert pair.mean_score == pytest.approx(sum(one.score or 0.0 for one in expected) / len(expected))
    assert sum(row[5] - row[4] + 1 for row in tally.seen.iter_rows()) == len(first)


def test_seen_sequences_are_kept_as_few_ranges() -> None:
    order = list(range(1_000))
    random.Random(1).shuffle(order)
    tally = Tally.empty()
    for start in range(0, 1_000, 50):
        tally = tally.folded(frame_of([sample(n) for n in order[start : start + 50]]), NOW)
    assert tally.seen.rows() == [("main", "org/a@main", "affine:sat", "sample", 0, 999)]
    other = replace(sample(5), stage="judge", task_id="t-" + "0" * 24)
    assert tally.folded(frame_of([other, sample(5)]), NOW).pairs["rows"].to_list() == [1_001]


async def test_the_summary_of_an_empty_store_is_saved_and_gone_on_from(
    store: SampleStore, objects: ObjectStore
) -> None:
    assert (await store.summary(NOW)).pairs == ()
    again = SampleStore(objects)
    await again.put_batch("one", many(3))
    summary = await again.summary(NOW)
    assert (_pair(summary).count, summary.problems) == (3, ())
