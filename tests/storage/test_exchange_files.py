"""Exports for other tools: which samples, in which files, whole or not at all, without keys."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from headgate.core import Secret, errors
from headgate.storage import EXPORT_FORMATS, Chosen, SampleStore, export_samples, import_samples, open_store
from headgate.storage.batches import decoded, encoded_parts
from headgate.storage.exchange import windows
from headgate.storage.exchange.windows import planned, read
from headgate.storage.schema import frame_of
from tests.storage.samples import DAY, START, failed, many, sample

_TALK = '[["user","2 + 2?"],["assistant","4"]]'
_FOLDERS = ["inspect", "hf"]


@pytest.fixture
async def store(tmp_path: Path) -> SampleStore:
    opened = open_store(str(tmp_path / "store"))
    await opened.put_batch(
        "one",
        [
            *many(6, conversation=_TALK),
            *many(4, model="org/b@rev-1", environment="x/y", campaign="other", score=0.25, conversation=_TALK),
            failed(8, conversation=""),
        ],
    )
    return opened


def _lines(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        (Chosen(), 11),
        (Chosen(models=frozenset({"org/a"})), 7),
        (Chosen(models=frozenset({"org/b@rev-1", "org/a@main"})), 11),
        (Chosen(environments=frozenset({"x/y"})), 4),
        (Chosen(campaign="other"), 4),
        (Chosen(since=START + 3), 5),
        (Chosen(until=START + 3), 6),
        (Chosen(min_score=0.25), 7),
        (Chosen(successes=True), 5),
        (Chosen(successes=True, models=frozenset({"org/a"})), 3),
        (Chosen(campaign="none"), 0),
    ],
    ids=[
        "all",
        "name",
        "key and name",
        "environment",
        "campaign",
        "since",
        "until",
        "score",
        "success",
        "both",
        "none",
    ],
)
async def test_only_what_is_chosen_is_exported(store: SampleStore, tmp_path: Path, chosen: Chosen, rows: int) -> None:
    assert await export_samples(store, tmp_path / "file", now=START, chosen=chosen) == rows
    assert len(_lines(tmp_path / "file")) == rows


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (Chosen(models=frozenset({"org/aa"})), "no sample of model 'org/aa'; did you mean 'org/a'"),
        (Chosen(environments=frozenset({"affine:sad"})), "of environment 'affine:sad'; did you mean 'affine:sat'"),
    ],
    ids=["model", "environment"],
)
async def test_a_name_of_which_there_is_nothing_is_refused_with_the_nearest(
    store: SampleStore, tmp_path: Path, chosen: Chosen, said: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=said):
        await export_samples(store, tmp_path / "file", now=START, chosen=chosen)
    assert not (tmp_path / "file").exists()


def test_what_can_choose_nothing_is_refused() -> None:
    with pytest.raises(errors.InvalidInputError, match=r"min_score must be in \[0, 1\] \(got 2\.0\)"):
        Chosen(min_score=2.0)
    with pytest.raises(errors.InvalidInputError, match="since must be before until"):
        Chosen(since=START, until=START)


async def test_windows_hold_whole_days_and_every_sample_once(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", [sample(n, at=START + DAY * (n // 10) + n) for n in range(40)])
    # The same task once more, in another part and at another time.
    await store.put_batch("two", [sample(3, at=START + DAY * 3 + 500), *many(3, first=90, at=START + DAY)])
    plan = await planned(store, Chosen(), rows_at_once=12)
    found = [(window.label, frame["task_id"].to_list()) async for window, frame in read(store, plan)]
    assert [label for label, _ in found] == ["2026-01-01", "2026-01-02", "2026-01-02-2", "2026-01-04"]
    ids = [task_id for _, some in found for task_id in some]
    assert len(ids) == len(set(ids)) == 43
    assert max(len(some) for _, some in found) <= 12


async def test_more_samples_at_one_moment_than_a_window_holds_are_one_window(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", [*many(9, at=START), sample(20, at=START + 1)])
    plan = await planned(store, Chosen(), rows_at_once=4)
    assert [window.rows for window in plan.windows] == [9, 1]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "affine-results", "inspect"])
async def test_an_export_in_windows_is_the_whole(tmp_path: Path, form: Any) -> None:
    store, target = open_store(str(tmp_path / "a")), open_store(str(tmp_path / "b"))
    await store.put_batch("one", [*many(11, conversation=_TALK), *many(5, environment="x/y", conversation=_TALK)])
    told: list[tuple[int, int]] = []
    await export_samples(
        store,
        tmp_path / "out",
        form,
        now=START,
        rows_at_once=4,
        on_progress=lambda done, all_: told.append((done, all_)),
    )
    assert told[-1] == (16, 16)
    assert len(told) == 5
    assert (await import_samples(target, tmp_path / "out", form)).rows == 16
    assert (await target.scan()).frame.sort("task_id").equals((await store.scan()).frame.sort("task_id"))


async def test_openai_lines_hold_messages_and_what_is_known_of_them(store: SampleStore, tmp_path: Path) -> None:
    assert await export_samples(store, tmp_path / "file", "openai", now=START, chosen=Chosen(min_score=1.0)) == 3
    first = _lines(tmp_path / "file")[0]
    assert first["messages"] == [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    assert (first["metadata"]["environment"], first["metadata"]["score"]) == ("affine:sat", 1.0)
    assert "conversation" not in first["metadata"]


async def test_what_has_no_conversation_is_no_openai_line(store: SampleStore, tmp_path: Path) -> None:
    assert await export_samples(store, tmp_path / "file", "openai", now=START) == 10


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))


async def test_datasets_opens_the_folder(store: SampleStore, tmp_path: Path, offline: None) -> None:
    datasets = pytest.importorskip("datasets")
    assert await export_samples(store, tmp_path / "out", "hf", now=START) == 11
    cache = str(tmp_path / "cache")
    every = datasets.load_dataset(str(tmp_path / "out"), cache_dir=cache)["train"]
    assert every.num_rows == 11
    some = datasets.load_dataset(str(tmp_path / "out"), "affine-sat", cache_dir=cache, split="train")
    assert set(some["environment"]) == {"affine:sat"}
    assert some.features["score"].dtype == "float64"
    row = next(row for row in some if row["sequence"] == 1)
    assert row["messages"] == [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]


async def test_a_data_set_has_a_file_per_window_with_the_number_of_files_in_its_name(
    store: SampleStore, tmp_path: Path
) -> None:
    await export_samples(store, tmp_path / "out", "hf", now=START, rows_at_once=4)
    files = sorted(str(p.relative_to(tmp_path / "out" / "data")) for p in (tmp_path / "out").rglob("*.parquet"))
    assert files == [
        "affine-sat/train-00000-of-00002.parquet",
        "affine-sat/train-00001-of-00002.parquet",
        "x-y/train-00000-of-00001.parquet",
    ]
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlicense: unknown\n")
    assert "| `affine:sat` | `affine-sat` | 7 |" in card


async def test_environments_whose_names_differ_in_signs_alone_stay_apart(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    await store.put_batch("one", [sample(environment=name) for name in ("a:b", "a/b", "all")])
    await export_samples(store, tmp_path / "out", "hf", now=START)
    assert sorted(p.name for p in (tmp_path / "out" / "data").iterdir()) == ["a-b", "a-b-2", "all-2"]


@pytest.mark.parametrize("form", [form for form in EXPORT_FORMATS if form != "affine-summary"])
async def test_no_format_holds_a_key(tmp_path: Path, form: Any) -> None:
    store, out = open_store(str(tmp_path / "a")), tmp_path / "out"
    known, shaped = Secret("zebra-quartz-1729-lantern").reveal(), "sk-abcdefgh12345678ijkl"
    talk = orjson.dumps([["user", f"my key is {shaped}"], ["assistant", f'it is "{known}"']]).decode()
    await store.put_batch("one", [sample(1, conversation=talk, why=known), failed(2, error=shaped, conversation=talk)])
    await export_samples(store, out, form, now=START)
    for file in [out] if out.is_file() else [p for p in out.rglob("*") if p.is_file()]:
        text = await asyncio.to_thread(_text, file)
        assert known not in text
        assert shaped not in text
        assert "my key is" in text or file.name == "README.md"


def _text(file: Path) -> str:
    match file.suffix, file.read_bytes()[:4]:
        case ".eval", _:
            from inspect_ai.log import read_eval_log

            return read_eval_log(str(file)).model_dump_json()
        case _, b"PAR1":
            return str(pl.read_parquet(file).to_dicts())
        case _:
            return file.read_text()


@pytest.mark.parametrize("form", _FOLDERS)
async def test_a_folder_with_something_in_it_is_left_alone(store: SampleStore, tmp_path: Path, form: Any) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(errors.InvalidInputError, match="is not empty"):
        await export_samples(store, tmp_path / "out", form, now=START)
    assert os.listdir(tmp_path / "out") == ["mine"]  # noqa: PTH208 - a coroutine has no business with Path


@pytest.mark.parametrize("form", _FOLDERS)
async def test_an_empty_folder_and_what_a_killed_export_left_are_taken(
    store: SampleStore, tmp_path: Path, form: Any
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / ".out.partial" / "made").mkdir(parents=True)
    assert await export_samples(store, tmp_path / "out", form, now=START) == 11
    assert sorted(os.listdir(tmp_path)) == ["out", "store"]  # noqa: PTH208


@pytest.mark.parametrize("form", _FOLDERS)
async def test_an_empty_store_makes_no_folder(tmp_path: Path, form: Any) -> None:
    with pytest.raises(errors.InvalidInputError, match="there is nothing to export"):
        await export_samples(open_store(str(tmp_path / "a")), tmp_path / "out", form, now=START)
    assert not (tmp_path / "out").exists()


async def test_an_empty_store_gives_a_parquet_file_with_columns(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a"))
    assert await export_samples(store, tmp_path / "file", "parquet", now=START) == 0
    assert (await import_samples(store, tmp_path / "file", "parquet")).rows == 0


@pytest.mark.parametrize("form", ["jsonl", "parquet", "inspect", "hf"])
async def test_a_place_that_cannot_be_written_is_named(store: SampleStore, tmp_path: Path, form: Any) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidInputError, match="cannot be written: a folder of its path is a file"):
        await export_samples(store, tmp_path / "file" / "out", form, now=START)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_a_folder_is_no_place_for_a_file(store: SampleStore, tmp_path: Path, form: Any) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.InvalidInputError, match="it is a folder, and this format is one file"):
        await export_samples(store, tmp_path / "out", form, now=START)


@pytest.mark.parametrize("form", ["inspect", "parquet", "hf"])
async def test_an_export_beside_a_corrupt_part_leaves_nothing_behind(
    store: SampleStore, tmp_path: Path, form: Any
) -> None:
    part = tmp_path / "store" / (await store.visible()).parts[-1].path
    part.write_bytes(b"junk")
    with pytest.raises(errors.CorruptDataError, match=r"x%2Fy"):
        await export_samples(store, tmp_path / "out", form, now=START)
    assert os.listdir(tmp_path) == ["store"]  # noqa: PTH208


async def test_a_format_that_is_unknown_is_answered_with_the_nearest(store: SampleStore, tmp_path: Path) -> None:
    unknown: Any = "parquett"
    with pytest.raises(errors.InvalidInputError, match="there is no format 'parquett'; did you mean 'parquet'"):
        await export_samples(store, tmp_path / "file", unknown, now=START)
    only_out: Any = "openai"
    with pytest.raises(errors.InvalidInputError, match="lines for fine-tuning are not read back"):
        await import_samples(store, tmp_path / "file", only_out)


async def test_a_summary_is_of_everything(store: SampleStore, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="covers all samples"):
        await export_samples(store, tmp_path / "file", "affine-summary", now=START, chosen=Chosen(successes=True))


async def test_parquet_of_something_else_is_refused(store: SampleStore, tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    with pytest.raises(errors.InvalidInputError, match="has no column 'task_id'"):
        await import_samples(store, tmp_path / "other.parquet", "parquet")
    with pytest.raises(errors.InvalidInputError, match=r"junk\.parquet cannot be read as Parquet"):
        await import_samples(store, tmp_path / "junk.parquet", "parquet")


async def test_long_conversations_are_read_in_windows_of_some_megabytes_also_from_one_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "_PARQUET_BYTES_AT_ONCE", windows._PARQUET_BYTES_AT_ONCE // 100)
    store = open_store(str(tmp_path / "store"))
    await store.put_batch("one", [sample(n, conversation=_talk_of(os.urandom(3_500).hex())) for n in range(60)])
    plan = await planned(store, Chosen())
    assert plan.rows == 60
    assert max(window.rows for window in plan.windows) < 60
    file = tmp_path / "all.jsonl"
    assert await export_samples(store, file, now=START) == 60
    assert [line["sequence"] for line in _lines(file)] == list(range(60))


def _talk_of(text: str) -> str:
    return orjson.dumps([["user", text]]).decode()


def test_only_the_wanted_rows_of_a_part_are_decoded_and_its_rows_are_counted_all_the_same() -> None:
    ((part, data),) = encoded_parts(frame_of(many(100, conversation=_TALK)), "one")
    chosen = Chosen(since=START + 10, until=START + 13)
    assert decoded(part, data, ["sequence"], chosen.cut_from(part))["sequence"].to_list() == [10, 11, 12]
    assert Chosen(since=START, until=START + 100).cut_from(part) is None, "all of it"
    with pytest.raises(errors.CorruptDataError, match="has 100 rows, its manifest says 99"):
        decoded(replace(part, rows=99), data, ["sequence"], chosen.cut_from(part))
