"""The small table of mean scores for a terminal."""

from __future__ import annotations

import io

import polars as pl
from rich.console import Console
from rich.table import Table

from headgate.reports import score_table


def _frame(*rows: tuple[str, str, float | None]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"model": pl.String, "environment": pl.String, "score": pl.Float64}, orient="row")


def _lines(table: Table) -> list[str]:
    console = Console(width=160, file=io.StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def _line_of(lines: list[str], name: str) -> str:
    (found,) = [line for line in lines if line.split()[1:2] == [name]]
    return found


def test_a_cell_has_the_mean_and_the_count_of_scored_samples() -> None:
    rows = [("a@main", "e:one", 1.0), ("a@main", "e:one", 0.5), ("a@main", "e:one", None), ("b@main", "e:two", 0.0)]
    lines = _lines(score_table(_frame(*rows)))
    assert "0.75 (2)" in _line_of(lines, "a@main")
    assert "0.00 (1)" in _line_of(lines, "b@main")


def test_environments_without_a_sample_keep_their_place() -> None:
    table = score_table(_frame(("a@main", "e:two", 1.0)), ["e:one", "e:two"])
    assert [str(column.header) for column in table.columns] == ["model", "e:one", "e:two"]


def test_many_environments_become_rows() -> None:
    table = score_table(_frame(*((model, f"e:{n}", 1.0) for model in ("a", "b") for n in range(8))))
    assert [str(column.header) for column in table.columns] == ["environment", "a", "b"]
    assert table.row_count == 8


def test_nothing_at_all_is_an_empty_table() -> None:
    assert score_table(_frame()).row_count == 0
