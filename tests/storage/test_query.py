"""SQL over the store: read in place, read only, wrong SQL explained."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from headgate.core import errors
from headgate.storage import CompactionPolicy, SampleStore, open_store
from headgate.storage.objects import ObjectStore
from headgate.storage.query import QUERY_COLUMNS
from headgate.storage.schema import COLUMNS
from tests.storage.places import IN_A_BUCKET_AT_LENGTH, IN_BOTH
from tests.storage.samples import DAY, START, failed, many, sample


async def _fill(store: SampleStore) -> None:
    await store.put_batch("one", [*many(6, environment="x/y"), failed(6, environment="x/y")])
    await store.put_batch("two", [sample(n, at=START + DAY + n) for n in range(4)])


@IN_BOTH
async def test_a_query_counts_what_is_visible(store: SampleStore) -> None:
    await _fill(store)
    found = await store.query(
        "select environment, date, count(score) as scored, avg(score) as mean from samples group by all order by all"
    )
    assert found.columns == ("environment", "date", "scored", "mean")
    assert found.rows == (("affine:sat", date(2026, 1, 2), 4, 0.5), ("x/y", date(2026, 1, 1), 6, 0.5))
    assert found.problems == ()


async def test_the_view_has_the_columns_of_a_sample_and_the_day(store: SampleStore) -> None:
    await _fill(store)
    found = await store.query("select * from samples where task_id = '" + sample(3).task_id + "'")
    assert found.columns == QUERY_COLUMNS == (*COLUMNS, "date")
    row = dict(zip(found.columns, found.rows[0], strict=True))
    expected = sample(3, at=START + DAY + 3)
    assert {name: row[name] for name in COLUMNS} == {name: getattr(expected, name) for name in COLUMNS}


async def test_an_empty_store_has_the_same_view(store: SampleStore) -> None:
    found = await store.query("select * from samples")
    assert (found.columns, found.rows) == (QUERY_COLUMNS, ())
    assert (await store.query("select count(*) from samples where score > 0.5")).rows == ((0,),)


async def test_a_condition_on_the_environment_opens_its_parts_only(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    other = next(part for part in (await store.visible()).parts if part.environment == "x/y")
    objects.put_many([(other.path, b"not to be read")])
    found = await store.query("select count(*) from samples where environment = 'affine:sat'")
    assert (found.rows, found.problems) == (((4,),), ())


async def test_compacted_rows_are_queried_once(store: SampleStore) -> None:
    await _fill(store)
    await store.put_batch("three", many(4, first=6))
    await store.compact(START, CompactionPolicy(target_rows=100, min_parts=2))
    assert (await store.query("select count(*) from samples")).rows == ((15,),)


@IN_A_BUCKET_AT_LENGTH
async def test_a_corrupt_part_is_left_out_of_a_query(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    for broken in (b"junk", b"", b"PAR1" + bytes(400) + b"PAR1"):
        part = next(part for part in (await store.visible()).parts if part.environment == "x/y")
        objects.put_many([(part.path, broken)])
        found = await SampleStore(objects).query("select count(*) from samples")
        assert found.rows == ((4,),)
        assert [problem.path for problem in found.problems] == [part.path]


async def test_a_missing_part_is_left_out_of_a_query(store: SampleStore, objects: ObjectStore) -> None:
    await _fill(store)
    part = next(part for part in (await store.visible()).parts if part.environment == "x/y")
    objects.delete_many([part.path])
    found = await store.query("select count(*), min(model) from samples")
    assert found.rows[0][0] == 4
    assert [problem.path for problem in found.problems] == [part.path]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select points from samples", 'Referenced column "points" not found'),
        ("selec 1", "syntax error"),
        ("select * from results", "Table with name results does not exist"),
        ("", "must be one statement (got 0)"),
        ("select 1; select 2", "must be one statement (got 2)"),
        ("create table t as select 1", "must be a SELECT (got CREATE)"),
        ("copy samples to '/tmp/x.csv'", "must be a SELECT (got COPY)"),
        ("insert into samples values (1)", "must be a SELECT (got INSERT)"),
        ("set threads = 1", "must be a SELECT (got SET)"),
        ("select * from read_text('/etc/hostname')", "file system operations are disabled"),
        ("select score::date from samples", "Unimplemented type for cast"),
    ],
)
async def test_sql_that_cannot_be_run_is_explained(folder_store: SampleStore, sql: str, said: str) -> None:
    await _fill(folder_store)
    with pytest.raises(errors.InvalidInputError) as caught:
        await folder_store.query(sql)
    assert said in caught.value.message


async def test_days_and_times_are_utc_wherever_the_machine_is(
    folder_store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")  # 14 hours ahead
    time.tzset()
    try:
        await folder_store.put_batch("one", [sample(0, at=START + 11 * 3_600)])
        asked = "select to_timestamp(finished_at)::date = date, strftime(to_timestamp(finished_at), '%H') from samples"
        assert (await folder_store.query(asked)).rows == ((True, "11"),)
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_a_pivot_is_answered_with_how_to_name_its_columns(folder_store: SampleStore) -> None:
    await _fill(folder_store)
    with pytest.raises(errors.InvalidInputError) as caught:
        await folder_store.query("pivot samples on environment using avg(score) group by model")
    assert "Name the columns of a PIVOT" in str(caught.value.next_step)
    named = "pivot samples on environment in ('affine:sat') using count(*) group by model"
    assert (await folder_store.query(named)).columns == ("model", "affine:sat")


async def test_a_wrong_column_is_answered_with_the_columns_there_are(folder_store: SampleStore) -> None:
    await _fill(folder_store)
    with pytest.raises(
        errors.InvalidInputError,
        match=r"has the columns task_id, .*lane, request_seed, answer, .*finish_reason, date",
    ):
        await folder_store.query("select points from samples")


async def test_a_query_cannot_read_beside_the_store_nor_write_into_it(
    folder_store: SampleStore, tmp_path: Path
) -> None:
    await _fill(folder_store)
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    for sql in (f"select * from '{tmp_path}/secret.csv'", f"select * from glob('{tmp_path}/*')"):
        with pytest.raises(errors.InvalidInputError):
            await folder_store.query(sql)


async def test_an_s3_store_is_queried_in_place(s3_objects: Callable[..., ObjectStore]) -> None:
    store = SampleStore(s3_objects())
    await _fill(store)
    assert (await store.query("select max(sequence) from samples where environment like 'x%'")).rows == ((6,),)
    with pytest.raises(errors.InvalidInputError):
        await store.query("select * from read_text('/etc/hostname')")


async def test_explain_shows_how_a_query_runs(folder_store: SampleStore) -> None:
    await _fill(folder_store)
    assert "PARQUET" in str((await folder_store.query("explain select model from samples")).rows).upper()


async def test_a_name_with_a_quote_in_its_path_is_no_trouble(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "it's here"))
    await store.put_batch("one", many(2))
    assert (await store.query("select count(*) from samples")).rows == ((2,),)
