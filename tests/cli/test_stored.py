"""Commands that read a store say when there is none, and make none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.core import Sample
from headgate.storage import open_store
from tests.cli.conftest import Command
from tests.storage.samples import failed, sample

READING = {
    "query": ("query", "select 1"),
    "summary": ("summary",),
    "report": ("report",),
    "export": ("export", "--output", "samples.jsonl"),
    "compact": ("compact",),
    "verify": ("verify",),
    "leaderboard": ("leaderboard",),
}


@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_a_store_that_is_not_there_is_named_with_what_makes_one(
    headgate: Command, tmp_path: Path, command: tuple[str, ...]
) -> None:
    said = headgate(*command, "--store", "misspelt")
    assert said.status == 2
    assert "there is no sample store at 'misspelt'" in said.err
    assert "--store" in said.err
    assert not (tmp_path / "misspelt").exists()


def test_a_folder_without_samples_is_an_empty_store(headgate: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert headgate("summary", "--store", "empty").status == 0
    assert "0 parts, 0 rows" in headgate("verify", "--store", "empty").out


async def _put(folder: Path, *samples: Sample) -> None:
    opened = open_store(str(folder))
    await opened.put_batch("one", list(samples))
    opened.close()


@pytest.mark.parametrize("command", [("report",), ("leaderboard",)])
def test_nothing_to_show_says_where_it_looked_and_what_to_run(
    headgate: Command, tmp_path: Path, command: tuple[str, ...]
) -> None:
    Path(".headgate/samples").mkdir(parents=True)
    said = headgate(*command)
    assert said.status == 3
    assert "the sample store .headgate/samples is empty" in said.err
    assert "`headgate run` fills a store" in said.err
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_the_store_of_a_campaign_beside_an_empty_one_is_named(headgate: Command, is_there: bool) -> None:
    asyncio.run(_put(Path(".headgate/eight/samples"), sample(0)))
    if is_there:
        Path(".headgate/samples").mkdir(parents=True)
    said = headgate("report")
    assert said.status == (3 if is_there else 2)
    assert "--store .headgate/eight/samples, or give their file as --campaign" in " ".join(said.err.split())
    assert headgate("report", "--store", ".headgate/eight/samples").status == 0


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        (("-e", "affine:sat"), 4),
        (("-m", "org/a", "--campaign", "main"), 3),
        (("--until", "2026-01-01T00:00:02Z", "-e", "affine:sat,affine:abd"), 3),
        (("--campaign", "other"), 1),
    ],
)
def test_reports_and_leaderboards_are_of_the_samples_that_are_chosen(
    headgate: Command, chosen: tuple[str, ...], rows: int
) -> None:
    samples = [sample(0), sample(1), sample(2), sample(1, environment="affine:abd", model="org/b@main")]
    asyncio.run(_put(Path("samples"), *samples, sample(9, campaign="other")))
    assert headgate("report", "--store", "samples", *chosen, "--json").document["samples"] == rows
    board = headgate("leaderboard", "--store", "samples", *chosen, "--json").document
    assert sum(model["samples"] for model in board["models"]) == rows


def test_a_name_that_no_sample_has_is_no_empty_report(headgate: Command) -> None:
    asyncio.run(_put(Path("samples"), sample(0)))
    for wrong in (("-e", "affine:sta"), ("-m", "org/aa"), ("--campaign", "mian")):
        said = headgate("report", "--store", "samples", *wrong)
        assert (said.status, "did you mean" in said.err) == (2, True), said.err


def test_a_time_without_samples_is_told_with_the_newest(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), sample(0, at=1_767_225_600.0)))
    for command in (("report", "--hours", "1"), ("leaderboard", "--since", "1h")):
        said = headgate(*command)
        assert said.status == 3
        assert "no sample in .headgate/samples ended in this time; the newest ended at 2026-01-01 00:00" in said.err
    assert headgate("leaderboard", "--since", "1h", "--json").status == 3


def test_samples_without_a_score_are_a_report_and_no_leaderboard(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), failed(0), failed(1)))
    assert "2 samples, none of them scored:" in headgate("report").out
    said = headgate("leaderboard", "--output", "board.html")
    assert said.status == 4
    assert not Path("board.html").exists()
    assert "Not ranked, since none of their samples has a score: org/a@main (2)." in said.out


def test_a_summary_of_nothing_is_no_empty_table(headgate: Command) -> None:
    Path("empty").mkdir()
    said = headgate("summary", "--store", "empty").out
    assert "the sample store empty is empty" in said
    assert "environment" not in said


def test_a_summary_says_of_how_many_samples_the_cost_is_known(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), sample(1, cost_micro=2_000_000), sample(3)))
    (row,) = headgate("summary", "--json").document
    assert (row["samples"], row["cost"], row["cost_per_point"], row["costed"]) == (2, 2.0, 2.0, 1)
    assert "cost and cost per point are of the samples whose cost is known" in headgate("summary").out
    asyncio.run(_put(Path("whole"), sample(1, cost_micro=2_000_000)))
    assert "whose cost is known" not in headgate("summary", "--store", "whole").out


def test_a_query_shows_every_digit(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), sample(0)))
    said = headgate("query", "select 0.123456789012::double as share, 1767225600.25::double as at")
    assert "0.123456789012" in said.out
    assert "1767225600.25" in said.out


def test_a_query_shows_the_beginning_of_long_cells_and_says_where_they_are_whole(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), sample(0)))
    ask = ("query", "select repeat('word\n', 500) as conversation, 'short' as answer")
    said = headgate(*ask).out
    assert said.count("word") < 40
    assert "…" in said
    assert "cells are cut to 120 characters; --json has them whole" in said
    assert headgate(*ask, "--json").document == [{"conversation": "word\n" * 500, "answer": "short"}]
    assert "are cut" not in headgate("query", "select 'short' as answer").out


def test_a_query_in_json_loses_no_column_of_a_name_and_no_large_number(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), sample(0)))
    said = headgate("query", "select 1 a, 2 a, 3 a_2, sum(1::bigint << 62) * 8 as seeds, [seeds] as many", "--json")
    assert said.document == [{"a": 1, "a_2": 2, "a_2_2": 3, "seeds": str(2**65), "many": [str(2**65)]}]


def test_a_query_without_rows_prints_no_empty_table(headgate: Command) -> None:
    asyncio.run(_put(Path(".headgate/samples"), sample(0)))
    assert headgate("query", "select model from samples where score > 2").out.strip() == "0 rows"


@pytest.mark.parametrize("hours", ["-1", "nan"])
def test_a_report_since_no_time_is_refused(headgate: Command, hours: str, tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    said = headgate("report", f"--hours={hours}", "--store", "samples")
    assert said.status == 2
    assert f"--since must be a date, a time, or an age such as 36h (got '{hours}h')" in said.err


@pytest.mark.parametrize("sql", ["", "  ", ";"])
def test_an_empty_query_is_answered_with_one_that_can_be_asked(headgate: Command, sql: str) -> None:
    said = headgate("query", sql)
    assert said.status == 2
    assert "the query is empty" in said.err
    assert 'headgate query "select' in said.err
