"""`headgate export` and `headgate import`: every format, the options that choose, and how each failure reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headgate.storage import EXPORT_FORMATS, IMPORT_FORMATS, open_store
from tests.cli.conftest import Command
from tests.storage.samples import DAY, START, failed, many

_TALK = '[["user","2 + 2?"],["assistant","4"]]'


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a store with 11 samples of two models in two environments, one of which failed."""
    samples = [
        *many(6, conversation=_TALK),
        *many(4, model="org/b@r", environment="x/y", campaign="other", at=START + DAY, score=0.25, conversation=_TALK),
        failed(8, conversation=""),
    ]
    asyncio.run(open_store(str(tmp_path / "filled")).put_batch("one", samples))
    return tmp_path / "filled"


_ROWS = {
    "jsonl": 11, "inspect": 11, "openai": 10, "parquet": 11, "hf": 11, "affine-results": 11, "affine-summary": 2,
}  # fmt: skip


@pytest.mark.parametrize(("form", "rows"), _ROWS.items())
def test_every_format_is_written_and_counted(
    headgate: Command, stored: Path, tmp_path: Path, form: str, rows: int
) -> None:
    said = headgate("export", "out", "--store", str(stored), "--format", form, "--json")
    assert said.status == 0, said.err
    assert said.document == {"path": "out", "rows": rows}
    assert (tmp_path / "out").exists()


def test_every_format_has_its_case_above() -> None:
    assert set(_ROWS) == set(EXPORT_FORMATS)


@pytest.mark.parametrize("form", IMPORT_FORMATS)
def test_what_was_exported_is_imported_once(headgate: Command, stored: Path, form: str) -> None:
    assert headgate("export", "out", "--store", str(stored), "--format", form).status == 0
    said = headgate("import", "out", "--store", "empty", "--format", form, "--json")
    assert (said.status, said.document) == (0, {"path": "out", "rows": 11, "known": 0, "problems": []})
    again = headgate("import", "out", "--store", "empty", "--format", form, "--json").document
    assert (again["rows"], again["known"]) == (0, 11)
    told = headgate("import", "out", "--store", "empty", "--format", form).out
    assert told.strip() == "0 samples from out, 11 more were in the store already"


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ((), 11),
        (("--model", "org/a"), 7),
        (("--model", "org/a@main, org/b"), 11),
        (("-e", "x/y"), 4),
        (("--campaign", "other"), 4),
        (("--since", "2026-01-02"), 4),
        (("--until", "2026-01-01T00:00:03Z"), 3),
        (("--min-score", "0.25"), 7),
        (("--successes", "--model", "org/a"), 3),
        (("--until", "2000-01-01"), 0),
    ],
    ids=str,
)
def test_options_choose_samples(headgate: Command, stored: Path, options: tuple[str, ...], rows: int) -> None:
    said = headgate("export", "out.jsonl", "--store", str(stored), *options, "--json")
    assert said.status == 0, said.err
    assert said.document["rows"] == rows
    assert len(Path("out.jsonl").read_text().splitlines()) == rows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "org/aa"), "did you mean 'org/a'"),
        (("-e", "x/z"), "did you mean 'x/y'"),
        (("--min-score", "2"), "min_score must be in [0, 1] (got 2.0)"),
        (("--since", "2026-02-01", "--until", "2026-01-01"), "since must be before until"),
        (("--since", "yesterday"), "--since"),
        (("--format", "affine-summary", "--successes"), "an affine-summary covers all samples"),
        (("--format", "inspect", "--until", "2000-01-01"), "there is nothing to export"),
        (("--campaign", "othr"), "the store has no sample of campaign 'othr'; did you mean 'other'?"),
        (("--campaign", "othr"), '`headgate query "select distinct campaign from samples"` shows all of them'),
        (("--campaign", "none"), "It has samples of the campaigns: main, other;"),
        (("-e", " "), "--environment names none (got ' ')"),
    ],
    ids=str,
)
def test_a_choice_that_cannot_be_is_explained_and_leaves_no_file(
    headgate: Command, stored: Path, options: tuple[str, ...], said: str
) -> None:
    found = headgate("export", "out", "--store", str(stored), *options)
    assert found.status == 2
    assert said in " ".join(found.err.split())
    assert not Path("out").exists()


@pytest.mark.parametrize(("command", "known"), [("export", EXPORT_FORMATS), ("import", IMPORT_FORMATS)])
def test_a_format_that_is_none_is_answered_with_those_that_are(
    headgate: Command, stored: Path, command: str, known: tuple[str, ...]
) -> None:
    found = headgate(command, "out", "--store", str(stored), "--format", "csv")
    assert found.status == 2
    assert [form for form in known if form not in found.err] == []


@pytest.mark.parametrize("form", ["jsonl", "parquet", "inspect", "hf", "affine-summary"])
def test_a_place_that_cannot_be_written_is_named(headgate: Command, stored: Path, form: str) -> None:
    Path("file").touch()
    found = headgate("export", "file/out", "--store", str(stored), "--format", form)
    assert found.status == 2
    assert "file/out cannot be written: a folder of its path is a file" in " ".join(found.err.split())


@pytest.mark.parametrize(
    ("form", "status"), [("jsonl", 0), ("parquet", 0), ("openai", 0), ("affine-results", 0), ("inspect", 2), ("hf", 2)]
)
def test_an_empty_store_makes_an_empty_file_but_no_empty_folder(headgate: Command, form: str, status: int) -> None:
    Path(".headgate/samples").mkdir(parents=True)
    found = headgate("export", "out", "--format", form)
    assert found.status == status
    assert Path("out").exists() == (status == 0)
    assert ("there is nothing to export" in found.err) == (status == 2)


def test_samples_of_a_log_that_have_no_score_of_ours_are_named_with_status_4(headgate: Command, stored: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.scorer import Score

    headgate("export", "one.eval", "--store", str(stored), "--format", "inspect", "-e", "x/y")
    log = read_eval_log("one.eval")
    assert log.samples
    for place, one in enumerate(log.samples):
        one.metadata = {}  # as a log of another program
        one.scores = {"graded": Score(value=0.5 if place else 7)}
    log.results = None
    write_eval_log(log, "foreign.eval")
    found = headgate("import", "foreign.eval", "--store", "empty", "--format", "inspect")
    assert found.status == 4
    assert "left out foreign.eval, sample 0, epoch 1: its score by 'graded' must be in [0, 1] (got 7)" in (
        " ".join(found.err.split())
    )
    assert "3 samples from foreign.eval" in found.out


def test_a_file_that_is_not_there_or_no_sample_is_refused(headgate: Command) -> None:
    Path("wrong.jsonl").write_text(json.dumps({"task_id": 1}) + "\n")
    assert "none.jsonl cannot be read: No such file" in headgate("import", "none.jsonl").err
    found = headgate("import", "wrong.jsonl")
    assert found.status == 2
    assert "line 1 of wrong.jsonl is not a sample" in found.err


@pytest.mark.parametrize("name", ["out.csv", "out.json", "out.jsonl.gz"])
def test_a_suffix_that_says_no_format_is_refused_with_those_that_there_are(
    headgate: Command, stored: Path, name: str
) -> None:
    said = headgate("export", name, "--store", str(stored))
    assert said.status == 2
    assert f"the suffix of {name} does not say which format is meant" in said.err
    assert "jsonl, inspect, openai, parquet, hf" in said.err
    assert not Path(name).exists()
    assert headgate("import", name, "--store", str(stored)).status == 2
    assert headgate("export", name, "--format", "jsonl", "--store", str(stored)).status == 0


def test_the_suffix_says_which_format_is_meant(headgate: Command, stored: Path, tmp_path: Path) -> None:
    assert headgate("export", "all.parquet", "--store", str(stored)).status == 0
    assert (tmp_path / "all.parquet").read_bytes().startswith(b"PAR1")
    said = headgate("import", "all.parquet", "--store", str(tmp_path / "copy"))
    assert (said.status, said.out.strip()) == (0, "11 samples from all.parquet")


def test_one_row_is_one_row_and_an_unknown_campaign_leaves_the_file_that_is_there(
    headgate: Command, stored: Path
) -> None:
    to_file = ("export", "out.jsonl", "--store", str(stored))
    assert headgate(*to_file, "--until", "2026-01-01T00:00:01Z").out.strip() == "1 row: out.jsonl"
    assert headgate(*to_file, "--campaign", "none").status == 2
    assert len(Path("out.jsonl").read_text().splitlines()) == 1
