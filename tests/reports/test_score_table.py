"""What a matrix of scores ends with in a terminal."""

from __future__ import annotations

import io

import polars as pl
from rich.console import Console

from headgate.reports import ScoreTable, build_leaderboard, leaderboard_notes
from tests.reports.factories import frame, lost, row

PLAY = ("e:one", "e:two")


def _samples(*pairs: tuple[str, str, float | None]) -> pl.DataFrame:
    rows = []
    for number, (model, environment, score) in enumerate(pairs):
        where = {"model": model, "environment": environment}
        rows.append(lost(number, **where) if score is None else row(number, score=score, **where))
    return frame(*rows)


def _lines(samples: pl.DataFrame, environments: tuple[str, ...] = (), width: int = 100) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(ScoreTable(build_leaderboard(samples), environments))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def _matrix(lines: list[str]) -> list[list[str]]:
    """Return the cells of the second table, its header first."""
    begin = next(place for place, line in enumerate(lines) if line.startswith("Mean score"))
    rows = [line for line in lines[begin:] if line[:1] in "┃│"]
    return [[cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in rows]


def test_a_cell_has_the_mean_and_the_count_of_scored_samples() -> None:
    pairs = [("a@main", "e:one", 1.0), ("a@main", "e:one", 0.5), ("a@main", "e:one", None), ("b@main", "e:two", 0.0)]
    assert _matrix(_lines(_samples(*pairs))) == [
        ["model", "e:one", "e:two"], ["a@main", "0.75 (2)", ""], ["b@main", "", "0.00 (1)"],
    ]  # fmt: skip


def test_environments_without_a_sample_keep_their_place() -> None:
    assert _matrix(_lines(_samples(("a@main", "e:two", 1.0)), PLAY))[0] == ["model", "e:one", "e:two"]


def test_the_ranking_is_that_of_the_leaderboard_with_what_is_missing_and_its_notes() -> None:
    rows = [
        each | {"task_id": f"{each['model']}-{each['index']}"}
        for n in range(20)
        for each in (row(n, model="a@main"), row(n, model="b@main", score=0.0), row(n, model="c@main", score=0.0))
    ]
    rows[0] = rows[0] | {"score": None, "error_kind": "connection"}
    lines = _lines(frame(*rows))
    ranked = [line.strip("│").split("│")[:2] for line in lines if "@main" in line][:3]
    assert [[cell.strip() for cell in cells] for cells in ranked] == [["1", "a@main"], ["2", "b@main"], ["2", "c@main"]]
    assert "5.0 %" in next(line for line in lines if "a@main" in line)
    assert any("Models that share a rank are tied" in line for line in lines)


def test_what_differences_leave_out_is_not_told_where_none_is_shown() -> None:
    rows = [row(n, model="a@main") for n in range(20)] + [row(20 + n, model="b@main", index=n) for n in range(12)]
    assert leaderboard_notes(build_leaderboard(frame(*rows)))
    assert not any(line.startswith("*") for line in _lines(frame(*rows)))


def test_no_name_is_cut_in_a_narrow_terminal() -> None:
    environments = [f"agentgym:environment-{n}" for n in range(6)]
    models = [f"organisation/model-{n}@main" for n in range(6)]
    lines = _lines(_samples(*((model, environment, 1.0) for model in models for environment in environments)))
    assert not any("…" in line for line in lines)
    rows = _matrix(lines)
    assert rows[0] == ["model", "environment", "mean"]
    assert [models[3], environments[5], "1.00 (1)"] in rows


def test_many_environments_become_rows() -> None:
    made = _matrix(_lines(_samples(*((model, f"e:{n}", 1.0) for model in ("a", "b") for n in range(20)))))
    assert made[0] == ["environment", "a", "b"]
    assert len(made) == 21


def test_nothing_scored_is_said_in_place_of_an_empty_table() -> None:
    assert _lines(_samples()) == ["No stored sample has a score."]
    assert _lines(_samples(("a@main", "e:one", None))) == ["No stored sample has a score."]
