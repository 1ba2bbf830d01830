from __future__ import annotations

import random
import re
from typing import Any

import polars as pl
import pytest

from headgate.core import errors
from headgate.reports import (
    build_leaderboard,
    cell_rows,
    leaderboard_document,
    leaderboard_view,
    standing_rows,
    versus_rows,
)
from headgate.statistics.means import wilson_limits
from tests.reports.factories import frame, lost, row

BEST, NEXT, WORST = "acme/a@main", "acme/b@main", "acme/c@main"


def samples(skills: dict[str, float], tasks: int = 60, each: int = 1, environments: int = 1) -> pl.DataFrame:
    """Return samples of models whose outcomes share how hard a task is."""
    rng = random.Random(4)
    rows: list[dict[str, Any]] = []
    for model, skill in skills.items():
        for environment in range(environments):
            for task in range(tasks):
                hard = random.Random(f"{environment}:{task}").random() * 0.4 - 0.2
                for _ in range(each):
                    success = rng.random() < skill - hard
                    where = {"model": model, "environment": f"test:env-{environment}", "index": task}
                    rows.append(row(len(rows), score=float(success), success=success, **where))
    return frame(*rows)


def test_ranks_and_groups_say_who_was_told_apart() -> None:
    board = build_leaderboard(samples({BEST: 0.8, NEXT: 0.75, WORST: 0.2}))
    assert [one.model for one in board.standings][2] == WORST
    assert [one.rank for one in board.standings] == [1, 1, 3]
    assert [one.groups for one in board.standings] == [("A",), ("A",), ("B",)]
    assert board.standings[0].versus is None
    assert [one.versus.is_told_apart for one in board.standings[1:]] == [False, True]


def test_a_task_sampled_again_and_again_stays_one_task() -> None:
    once = build_leaderboard(samples({BEST: 0.7}, tasks=30)).cells[0].estimate
    rows = samples({BEST: 0.7}, tasks=30)
    again = pl.concat([rows.with_columns(pl.col("task_id") + f"-{copy}") for copy in range(10)])
    made = build_leaderboard(again).cells[0].estimate
    assert (made.samples, made.tasks) == (300, 30)
    assert made.high - made.low >= once.high - once.low - 1e-9
    assert made.design_effect == pytest.approx(10, rel=0.1)


def test_without_repeats_a_cell_has_wilsons_interval() -> None:
    made = build_leaderboard(samples({BEST: 0.7}, tasks=30)).cells[0].estimate
    assert (made.low, made.high) == pytest.approx(wilson_limits(30, made.mean))


def test_the_overall_difference_counts_each_environment_the_same() -> None:
    rows = [
        row(n, model=model, environment=environment, index=n % 50, score=score)
        for environment, tasks, ours in (("test:large", 50, 0.9), ("test:small", 10, 0.5))
        for model, score in ((BEST, ours), (NEXT, 0.3))
        for n in range(tasks)
    ]
    rows = [each | {"task_id": f"t-{number}"} for number, each in enumerate(rows)]
    (pair,) = build_leaderboard(frame(*rows)).pairs
    assert pair.difference.difference == pytest.approx((0.6 + 0.2) / 2)
    assert (pair.difference.tasks, pair.difference.environments) == (60, 2)


def test_only_common_tasks_are_compared() -> None:
    rows = samples({BEST: 0.6, NEXT: 0.6}, tasks=40)
    rows = rows.filter((pl.col("model") == BEST) | (pl.col("index") < 25))
    (pair,) = build_leaderboard(rows).pairs
    assert pair.difference.tasks == 25


def test_too_few_common_tasks_are_said_and_give_no_rank() -> None:
    rows = samples({BEST: 0.6, NEXT: 0.6, WORST: 0.5}, tasks=40)
    board = build_leaderboard(rows.filter((pl.col("model") != WORST) | (pl.col("index") < 9)))
    said = "too few common tasks (9 in the environment with most, at least 10 are needed)"
    stood = {one.model: one for one in board.standings}
    assert stood[WORST].versus.problem == said
    assert stood[WORST].rank is None
    assert any(said in problem for problem in board.problems())
    assert said in leaderboard_view(board).page()
    assert stood[WORST].groups == stood[BEST].groups


def test_a_reference_found_in_the_samples_bears_the_correction_for_every_two_models() -> None:
    rows = samples({BEST: 0.75, NEXT: 0.6, WORST: 0.55, "acme/d@main": 0.5})
    found = build_leaderboard(rows)
    chosen = build_leaderboard(rows, against=found.against)
    assert (found.is_chosen, chosen.is_chosen) == (False, True)
    for one, other in zip(found.standings[1:], chosen.standings[1:], strict=True):
        assert one.versus.difference == other.versus.difference
        assert one.versus.adjusted_p >= other.versus.adjusted_p >= one.versus.difference.p_value
    assert [one.rank for one in found.standings] == [one.rank for one in chosen.standings]


def test_a_reference_can_be_named_without_its_revision_and_a_wrong_one_is_refused() -> None:
    rows = samples({BEST: 0.6, NEXT: 0.5}, tasks=12)
    assert build_leaderboard(rows, against="acme/b").against == NEXT
    with pytest.raises(errors.InvalidInputError, match="there is no scored model 'acme/z'") as refused:
        build_leaderboard(rows, against="acme/z")
    assert BEST in refused.value.next_step
    both = pl.concat([rows, rows.with_columns(model=pl.lit("acme/b@v2"), task_id=pl.col("task_id") + "x")])
    with pytest.raises(errors.InvalidInputError, match="several models are called 'acme/b'"):
        build_leaderboard(both, against="acme/b")


def test_pass_at_k_is_there_where_tasks_have_k_samples_and_refused_in_a_sentence_elsewhere() -> None:
    board = build_leaderboard(samples({BEST: 0.5}, tasks=20, each=4), ks=(1, 4, 5))
    (cell,) = board.cells
    assert cell.passes[1].mean == pytest.approx(cell.estimate.mean)
    assert cell.passes[4].mean > cell.passes[1].mean
    said = "pass@5 needs 5 scored samples of a task (the most that any has is 4)"
    assert str(cell.passes[5]) == said
    assert board.standings[0].passes[5] is None
    none = "test:env-0 has no maj@k: it takes no answers out of replies that could be voted on"
    assert board.problems() == (f"{BEST} in test:env-0: {said}", none)
    assert cell_rows(board)[0]["maj@4"] == "none: no answers to vote on"
    assert standing_rows(board)[0]["maj@4"] == "–"


def test_maj_at_k_counts_the_votes_of_each_task() -> None:
    rows = samples({BEST: 0.5}, tasks=20, each=5)
    board = build_leaderboard(rows.with_columns(answer=pl.col("success").cast(pl.String)), ks=(1, 5))
    (cell,) = board.cells
    majority = rows.group_by("index").agg(pl.col("success").sum() >= 3)["success"].mean()
    assert cell.majorities[1].mean == pytest.approx(rows["success"].mean())
    assert cell.majorities[5].mean == pytest.approx(majority)
    document = leaderboard_document(board)
    assert document["models"][0]["maj_at_k"]["5"]["mean"] == document["cells"][0]["maj_at_k"]["5"]["mean"]


def test_what_has_no_score_counts_nowhere_and_copies_of_a_task_once() -> None:
    rows = frame(*[row(n, index=n) for n in range(12)], lost(50, index=50), row(3, index=3, score=0.0))
    board = build_leaderboard(rows)
    assert board.standings[0].samples == 12


def test_no_samples_make_an_empty_leaderboard() -> None:
    board = build_leaderboard(frame(), ks=(2,))
    assert (board.standings, board.against) == ((), "")
    assert "There are no scored samples" in leaderboard_view(board).page()
    assert "There are no scored samples" in leaderboard_view(board).markdown()


def test_missing_columns_are_named() -> None:
    with pytest.raises(errors.InvalidInputError, match="the samples lack the columns index, success"):
        build_leaderboard(frame(row()).drop("index", "success"))


def test_every_reader_gets_the_same_figures() -> None:
    board = build_leaderboard(samples({BEST: 0.8, NEXT: 0.3}, environments=2), ks=(1,))
    page, text, document = (
        leaderboard_view(board).page(),
        leaderboard_view(board).markdown(),
        leaderboard_document(board),
    )
    for rows in (standing_rows(board), versus_rows(board), cell_rows(board)):
        for one in rows:
            assert one["model"] in page
            assert all(cell in text for cell in one.values())
    first = document["models"][0]
    assert f"{first['mean']:.3f}" == standing_rows(board)[0]["mean"]
    assert document["pairs"][0]["p_holm"] == board.pairs[0].adjusted_p


def test_the_page_needs_nothing_else_and_is_the_same_every_time() -> None:
    board = build_leaderboard(samples({BEST: 0.8, "<script>alert(1)</script>@main": 0.3}))
    page = leaderboard_view(board, title="Monday <b>").page()
    assert page == leaderboard_view(board, title="Monday <b>").page()
    assert "<script" not in page
    assert "Monday &lt;b&gt;" in page
    assert page.count("<svg") == 1
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "default-src 'none'" in page


def test_markdown_of_many_models_fits_into_an_artifact() -> None:
    board = build_leaderboard(samples({f"acme/{'m' * 60}{n}@main": 0.5 for n in range(90)}, tasks=10, environments=3))
    text = leaderboard_view(board).markdown()
    assert len(text.encode()) <= 100_000
    assert "more rows stand in the page" in text
