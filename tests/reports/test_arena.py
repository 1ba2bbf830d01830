"""The arena's table, page and Markdown."""

from __future__ import annotations

import pytest

from headgate import reports
from headgate.core import errors
from headgate.reports import ArenaComparison


def games(first: str, second: str, *values: tuple[float, float]) -> list[ArenaComparison]:
    score = {(1.0, 1.0): 1.0, (0.0, 0.0): 0.0}
    return [
        ArenaComparison("e:one", index, first, second, score.get(pair, 0.5), pair) for index, pair in enumerate(values)
    ]


def test_the_order_of_comparisons_changes_no_table() -> None:
    rows = games("a@1", "b@1", *[(1.0, 1.0)] * 15) + games("b@1", "c@1", *[(1.0, 1.0)] * 15)
    assert reports.build_arena(rows) == reports.build_arena(list(reversed(rows)))
    board = reports.build_arena(rows)
    assert [one.model for one in board.models] == ["a@1", "b@1", "c@1"]
    assert board.shares["a@1", "b@1"] == (15, 1.0)
    assert board.shares["b@1", "a@1"] == (15, 0.0)


def test_a_judge_that_always_says_a_ties_everything_and_is_told() -> None:
    board = reports.build_arena(games("a@1", "b@1", *[(1.0, 0.0)] * 12), judge="j")
    assert {one.rating for one in board.models} == {1_000.0}
    assert {one.groups for one in board.models} == {("A",)}
    assert (board.judge.undecided, board.judge.first_twice, board.judge.orders) == (12, 12, 12)
    assert "the order of the answers decided all 12 comparisons" in " ".join(board.warnings)
    assert board.models[0].high - board.models[0].low > 100


def test_identical_answers_say_nothing_about_the_judge() -> None:
    same = [ArenaComparison("e:one", n, "a@1", "b@1", 0.5, ()) for n in range(12)]
    board = reports.build_arena(same)
    assert board.judge.orders == 0
    assert reports.judge_rows(board) == []


def test_models_that_nothing_connects_share_no_group_and_are_told() -> None:
    board = reports.build_arena(games("a@1", "b@1", *[(1.0, 1.0)] * 12) + games("c@1", "d@1", *[(0.5, 0.5)] * 12))
    assert "do not connect all models: there are 2 groups" in " ".join(board.warnings)
    groups = {one.model: set(one.groups) for one in board.models}
    assert not groups["a@1"] & groups["c@1"]
    assert {row["connected"] for row in reports.rating_rows(board)} == {"1", "2"}


def test_few_tasks_are_told() -> None:
    assert "3 tasks only" in reports.build_arena(games("a@1", "b@1", *[(1.0, 1.0)] * 3)).warnings[0]


def test_the_page_is_the_same_twice_and_holds_what_was_said_as_text() -> None:
    rows = games("<script>alert(1)</script>@1", "b@1", *[(1.0, 1.0), (0.5, 0.5)] * 6)
    board = reports.build_arena(rows, judge="<b>j</b>")
    page = reports.arena_view(board, title="<i>t</i>").page()
    assert page == reports.arena_view(board, title="<i>t</i>").page()
    assert "<script>" not in page
    assert "<b>j</b>" not in page
    assert "&lt;i&gt;t" in page
    assert "Win share" in page
    text = reports.arena_view(board).markdown()
    assert "<script>" not in text.replace("`<script>", "")
    assert "order changed it" in text


def test_without_comparisons_the_page_says_so() -> None:
    board = reports.build_arena([])
    assert "no comparisons with a verdict" in reports.arena_view(board).page()
    assert "no comparisons with a verdict" in reports.arena_view(board).markdown()
    assert reports.arena_document(board)["models"] == []


def test_too_many_models_are_refused() -> None:
    rows = [ArenaComparison("e", 0, f"m{n:03}@1", f"m{n + 1:03}@1", 1.0, ()) for n in range(200)]
    with pytest.raises(errors.InvalidInputError, match="at most 200 models"):
        reports.build_arena(rows)
