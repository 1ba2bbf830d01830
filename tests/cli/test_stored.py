"""Commands that read a store say when there is none, and make none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

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


@pytest.mark.parametrize("hours", ["0", "-1", "nan"])
def test_a_report_of_no_hours_is_refused(headgate: Command, hours: str) -> None:
    said = headgate("report", f"--hours={hours}")
    assert said.status == 2
    assert f"--hours must be > 0 (got {hours})" in said.err


@pytest.mark.parametrize("sql", ["", "  ", ";"])
def test_an_empty_query_is_answered_with_one_that_can_be_asked(headgate: Command, sql: str) -> None:
    said = headgate("query", sql)
    assert said.status == 2
    assert "the query is empty" in said.err
    assert 'headgate query "select' in said.err
