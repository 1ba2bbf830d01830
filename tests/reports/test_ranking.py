"""One ranking for every reader: ties, what a mean or difference leaves out, and what missing scores could change."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest
from markdown_it import MarkdownIt

from headgate.core.errors import InvalidInputError
from headgate.reports import (
    MissingRule,
    build_leaderboard,
    build_report,
    leaderboard_document,
    leaderboard_notes,
    leaderboard_view,
    standing_rows,
    versus_rows,
)
from headgate.reports.leaderboard import MISSING_RULES
from tests.reports.factories import frame, lost, row

A, B, C = "acme/a@main", "acme/b@main", "acme/c@main"


def _samples(*parts: tuple[str, str, list[float | None]]) -> pl.DataFrame:
    """Return the scores of a model in an environment by task; None is an error of the provider."""
    rows: list[dict[str, Any]] = []
    for model, environment, scores in parts:
        for index, score in enumerate(scores):
            where = {"model": model, "environment": environment, "index": index}
            rows.append(lost(len(rows), **where) if score is None else row(len(rows), score=score, **where))
    return frame(*rows)


def _ranks(samples: pl.DataFrame) -> dict[str, str]:
    return {one["model"]: one["rank"] for one in standing_rows(build_leaderboard(samples))}


def _half(seed: int, share: float, tasks: int = 40) -> list[float | None]:
    rng = random.Random(seed)
    return [float(rng.random() < share) for _ in range(tasks)]


ZEROS = _samples(*((model, "test:one", [0.0] * 12) for model in (A, B, C)))


def test_models_of_the_same_mean_share_a_rank_in_the_leaderboard_and_in_the_report(undrawn: None) -> None:
    assert list(_ranks(ZEROS).values()) == ["1", "1", "1"]
    report = build_report(ZEROS, title="t", with_png=False)
    assert report.tables["leaderboard"]["rank"].to_list() == [1, 1, 1]
    assert any("share a rank are tied" in note for note in leaderboard_notes(build_leaderboard(ZEROS)))
    assert "share a rank are tied" in report.html


@pytest.mark.long
def test_the_report_ranks_and_measures_as_the_leaderboard_does(undrawn: None) -> None:
    samples = _samples(
        *((model, f"test:{n}", _half(n, share)) for model, share in ((A, 0.9), (B, 0.5), (C, 0.5)) for n in range(2))
    )
    ours = build_report(samples, title="t", with_png=False).tables["leaderboard"]
    board = build_leaderboard(samples).standings
    assert ours.select("rank", "model", "mean", "low", "high").rows() == [
        (one.rank, one.model, one.mean.mean, one.mean.low, one.mean.high) for one in board
    ]


def test_a_report_without_the_index_of_tasks_compares_nobody(undrawn: None) -> None:
    made = build_report(ZEROS.drop("index"), title="t", with_png=False)
    assert made.tables["leaderboard"]["rank"].to_list() == [None, None, None]
    assert "shares 10 tasks of an environment" in made.html


LEFT_OUT = _samples(
    (A, "test:one", [1.0] * 15 + [0.0] * 5), (B, "test:one", [0.0] * 20),
    (A, "test:few", [1.0] * 30), (B, "test:few", [1.0] * 9),
)  # fmt: skip


def test_a_difference_that_leaves_out_an_environment_is_marked_and_the_note_names_it() -> None:
    board = build_leaderboard(LEFT_OUT)
    first, second = standing_rows(board)
    assert (first["mean"], second["mean"], second["difference"]) == ("0.875", "0.500", "-0.750 *")
    (note,) = [note for note in leaderboard_notes(board) if note.startswith("*")]
    assert note == (
        f"* {B}: difference from {A} over common tasks only; left out, with fewer than 10 of them: test:few (9)."
    )
    assert note in leaderboard_view(board).page()
    assert note in MarkdownIt().render(leaderboard_view(board).markdown())
    assert leaderboard_document(board)["models"][1]["versus"]["left_out"] == {"test:few": 9}


def test_beside_a_difference_stand_the_means_that_it_is_the_difference_of() -> None:
    board = build_leaderboard(LEFT_OUT)
    assert versus_rows(board)[0]["means on these tasks"] == "0.000, 0.750"
    versus = leaderboard_document(board)["models"][1]["versus"]
    assert versus["mean"] - versus["against_mean"] == pytest.approx(versus["difference"])


def test_a_difference_over_fewer_tasks_is_marked_though_no_environment_is_left_out() -> None:
    board = build_leaderboard(_samples((A, "test:one", [1.0] * 30), (B, "test:one", [0.0] * 20)))
    assert standing_rows(board)[1]["difference"] == "-1.000 *"
    assert f"* {B}: difference from {A} over common tasks only." in leaderboard_notes(board)


def test_a_difference_over_all_tasks_of_both_has_no_mark() -> None:
    board = build_leaderboard(_samples((A, "test:one", [1.0] * 20), (B, "test:one", [0.0] * 20)))
    assert standing_rows(board)[1]["difference"] == "-1.000"
    (said,) = leaderboard_notes(board)
    assert said.startswith("1 of 1 neighbours")


@pytest.mark.long
def test_a_mean_over_fewer_environments_is_marked_and_the_note_names_them(undrawn: None) -> None:
    samples = _samples(
        (A, "test:one", [0.5] * 12), (A, "test:two", [0.5] * 12),
        (B, "test:one", [0.9] * 12), (C, "test:one", [0.1] * 12)
    )  # fmt: skip
    board = build_leaderboard(samples)
    assert [one["mean"] for one in standing_rows(board)] == ["0.500", "0.900 *", "0.100 *"]
    assert f"* {B}, {C}: mean over 1 of 2 environments; no score in test:two." in leaderboard_notes(board)
    assert leaderboard_document(board)["models"][1]["left_out"] == ["test:two"]
    assert "0.900 *" in build_report(samples, title="t", with_png=False).html


def test_a_model_that_leads_by_the_scores_that_it_lacks_is_marked_with_the_one_below() -> None:
    samples = _samples(
        (A, "test:one", [None] * 8 + [1.0] * 12), (B, "test:one", [0.9] * 20), (C, "test:one", [0.1] * 20)
    )
    board = build_leaderboard(samples)
    assert _ranks(samples) == {B: "1 †", A: "2 †", C: "3"}
    assert [one["missing"] for one in standing_rows(board)] == ["0.0 %", "40.0 %", "0.0 %"]
    assert [one["worst case"] for one in standing_rows(board)] == ["0.900", "0.600", "0.100"]
    (note,) = [note for note in leaderboard_notes(board) if note.startswith("†")]
    assert note.endswith(f"the mean would be: {A} 0.600 or 1.000.")
    first = leaderboard_document(board)["models"][1]
    assert (first["missing"], first["missing_share"], first["rank_could_change"]) == (8, pytest.approx(0.4), True)
    assert (first["mean_if_missing_0"], first["mean_if_missing_1"]) == (pytest.approx(0.6), 1.0)


def _failing_where_it_is_unsure() -> pl.DataFrame:
    """A fails on the half of the tasks of which it would solve few, B never: 0.425 and 0.6 had they both answered."""
    unsure: list[float | None] = [None] * 50
    return _samples((A, "test:one", unsure + [1.0] * 40 + [0.0] * 10), (B, "test:one", ([1.0] * 3 + [0.0] * 2) * 20))


@pytest.mark.parametrize(
    ("missing", "first", "means", "ranks"),
    [
        ("bound", B, ["0.600", "0.800"], ["1 †", "2 †"]),
        ("zero", B, ["0.600", "0.400"], ["1", "2"]),
        ("exclude", A, ["0.800", "0.600"], ["1 †", "2 †"]),
    ],
)
def test_a_model_that_fails_where_it_is_unsure_gains_nothing_unless_missing_scores_are_excluded(
    missing: MissingRule, first: str, means: list[str], ranks: list[str]
) -> None:
    board = build_leaderboard(_failing_where_it_is_unsure(), missing=missing, ks=[1])
    rows = standing_rows(board)
    assert (rows[0]["model"], [one["mean"] for one in rows], [one["rank"] for one in rows]) == (first, means, ranks)
    assert leaderboard_document(board)["missing"] == missing
    (failing,) = [one for one in board.standings if one.model == A]
    assert failing.missing.share == pytest.approx(0.5)
    passes = failing.passes[1]
    assert passes is not None
    assert passes.mean == pytest.approx(1.0 if missing == "exclude" else 0.5)  # `row` makes every score a success
    assert any("issing score" in note and not note.startswith("†") for note in leaderboard_notes(board))


def test_an_interval_holds_whatever_the_missing_scores_were() -> None:
    samples = _failing_where_it_is_unsure()
    (bounded,) = [one for one in build_leaderboard(samples).standings if one.model == A]
    for value in (0.0, 1.0):
        had = build_leaderboard(samples.with_columns(pl.col("score").fill_null(value)))
        (told,) = [one.mean for one in had.standings if one.model == A]
        assert bounded.mean.low <= told.low + 1e-9
        assert told.high <= bounded.mean.high + 1e-9
    assert (bounded.mean.low < 0.4, bounded.mean.high > 0.9) == (True, True)


def test_the_rule_for_missing_scores_changes_nothing_where_none_is_missing() -> None:
    samples = _samples((A, "test:one", _half(1, 0.4)), (B, "test:one", _half(2, 0.7)), (B, "test:two", _half(3, 0.7)))
    documents = [leaderboard_document(build_leaderboard(samples, missing=rule)) for rule in MISSING_RULES]
    assert [document.pop("missing") for document in documents] == list(MISSING_RULES)
    assert documents[0] == documents[1] == documents[2]


def test_an_unknown_rule_for_missing_scores_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="one of bound, exclude, zero"):
        build_leaderboard(ZEROS, missing="none")  # type: ignore[arg-type]


def test_missing_scores_that_change_no_order_are_not_marked() -> None:
    samples = _samples((A, "test:one", [None] * 2 + [1.0] * 18), (B, "test:one", [0.2] * 20))
    assert _ranks(samples) == {A: "1", B: "2"}
    assert not any(note.startswith("†") for note in leaderboard_notes(build_leaderboard(samples)))


def test_a_model_further_down_that_could_pass_all_others_marks_them_all() -> None:
    samples = _samples(
        (A, "test:one", [0.9] * 20), (B, "test:one", [0.8] * 20), (C, "test:one", [None] * 15 + [0.7] * 5)
    )
    assert set(_ranks(samples).values()) >= {"1 †"}
    assert all(one.could_move for one in build_leaderboard(samples).standings)


def test_an_environment_that_failed_whole_could_bring_a_model_before_those_with_more() -> None:
    samples = _samples(
        (A, "test:one", [0.5] * 12), (A, "test:two", [0.5] * 12),
        (B, "test:one", [0.9] * 12), (B, "test:two", [None] * 12)
    )  # fmt: skip
    first, second = build_leaderboard(samples).standings
    assert (first.model, second.model) == (A, B)
    assert (first.could_move, second.could_move) == (True, True)
    assert (second.missing.mean_if_zero, second.missing.mean_if_one) == (pytest.approx(0.45), pytest.approx(0.95))


def test_a_model_without_any_score_is_shown_and_not_ranked() -> None:
    samples = _samples((A, "test:one", [1.0] * 12), (B, "test:one", [None] * 7), (B, "test:two", [None] * 2))
    board = build_leaderboard(samples)
    last = standing_rows(board)[-1]
    assert (last["rank"], last["model"], last["mean"], last["missing"]) == ("–", B, "–", "100.0 %")
    assert f"Not ranked, since none of their samples has a score: {B} (9)." in leaderboard_notes(board)
    assert "In no mean, since no model has a score there: test:two." in leaderboard_notes(board)
    assert leaderboard_document(board)["unscored"] == {B: 9}


def test_samples_of_which_none_is_scored_are_said_to_be_so(undrawn: None) -> None:
    samples = _samples((A, "test:one", [None] * 3))
    assert "There are no scored samples to compare." in leaderboard_view(build_leaderboard(samples)).page()
    assert "No sample has a score; the errors below say why." in build_report(samples, title="t", with_png=False).html


def test_more_models_than_are_compared_have_means_and_no_ranks() -> None:
    board = build_leaderboard(_samples(*((f"acme/{n}@main", "test:one", [1.0]) for n in range(201))))
    assert {one.rank for one in board.standings} == {None}
    assert board.pairs == ()
    assert "No ranks: at most 200 models are compared with each other (here 201)." in leaderboard_notes(board)


def test_the_order_of_the_samples_changes_no_mark() -> None:
    rng = random.Random(5)
    parts = [
        (f"acme/{m}@main", f"test:{e}", [None if rng.random() < 0.1 else rng.random() for _ in range(15)])
        for m in range(5)
        for e in range(3)
    ]
    samples = _samples(*parts)
    shuffled = samples.sample(fraction=1, shuffle=True, seed=2)
    assert leaderboard_document(build_leaderboard(samples)) == leaderboard_document(build_leaderboard(shuffled))
