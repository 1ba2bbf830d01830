"""What models cost, and each point that they scored."""

from __future__ import annotations

import pytest

from headgate.reports import (
    Cost,
    build_leaderboard,
    build_report,
    costs_by,
    leaderboard_document,
    leaderboard_notes,
    leaderboard_view,
    money,
    standing_rows,
)
from tests.reports.factories import frame, lost, row

A, B, C = "acme/a@main", "acme/b@main", "acme/c@main"
SAMPLES = frame(
    row(0, model=A, cost_micro=1_500, judge_cost_micro=500),
    row(1, model=A, cost_micro=2_000, score=0.5, success=False),
    lost(2, model=A, cost_micro=1_000),
    row(3, model=B, index=0, cost_micro=600),
    row(4, model=B, index=1),
    row(5, model=C, index=0),
)


def test_a_model_costs_what_its_samples_did_judgements_and_lost_ones_included() -> None:
    assert costs_by(SAMPLES, "model") == {(A,): Cost(5_000, 3, 3, 1.5), (B,): Cost(600, 1, 2, 1.0)}


def test_the_leaderboard_has_cost_and_cost_per_point_where_any_is_known() -> None:
    board = build_leaderboard(SAMPLES)
    rows = {one["model"]: (one["cost"], one["per point"]) for one in standing_rows(board)}
    assert rows == {A: ("0.005", "0.0033"), B: ("0.0006 ‡", "0.0006"), C: ("–", "–")}
    assert any(f"whose cost is known: {B} 1 of 2" in note for note in leaderboard_notes(board))
    told = {one["model"]: one["cost"] for one in leaderboard_document(board)["models"]}
    assert told[A] == {
        "cost_micro": 5_000,
        "samples": 3,
        "per_sample": pytest.approx(0.005 / 3),
        "per_point": pytest.approx(0.005 / 1.5),
    }
    assert told[C] is None
    assert "per point" in leaderboard_view(board).page()


def test_a_report_has_the_same_cost(undrawn: None) -> None:
    made = build_report(SAMPLES, title="Costs", with_png=False)
    costs = dict(made.tables["leaderboard"].select("model", "cost_micro").iter_rows())
    assert costs == {A: 5_000, B: 600, C: None}
    assert "per point" in made.html


def test_without_costs_there_is_no_column_of_them() -> None:
    board = build_leaderboard(frame(row(0, model=A), row(1, model=B, index=0)))
    assert "cost" not in standing_rows(board)[0]


@pytest.mark.parametrize(
    ("amount", "shown"), [(None, "–"), (0.0, "0.0000"), (1234.5, "1,234.5000"), (0.00123, "0.0012"), (2e-6, "2e-06")]
)
def test_small_amounts_keep_digits_that_count(amount: float | None, shown: str) -> None:
    assert money(amount) == shown
