"""What a leaderboard and a report say is decided between neighbours of their order."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from headgate.core.errors import InvalidInputError
from headgate.reports import (
    build_leaderboard,
    build_report,
    leaderboard_document,
    leaderboard_notes,
    leaderboard_view,
    neighbour_rows,
)
from headgate.reports.ranking import neighbours_of
from tests.reports.factories import frame, row

A, B, C = "acme/a@main", "acme/b@main", "acme/c@main"


def _samples(shares: dict[str, float], tasks: dict[str, int], skipped: int = 0) -> pl.DataFrame:
    """Return scores of 0 and 1 on the first tasks of environments; the last model lacks the first `skipped` ones."""
    rng, rows = random.Random(4), list[dict[str, Any]]()
    for number, (model, share) in enumerate(shares.items()):
        for environment, count in tasks.items():
            for index in range(skipped if number == len(shares) - 1 else 0, count):
                score, at = float(rng.random() < share), 1_000.0 + index + rng.random()
                told = {"environment": environment, "index": index, "started_at": at - 1, "finished_at": at}
                rows.append(row(len(rows), model=model, score=score, **told))
    return frame(*rows)


def test_neighbours_are_ranked_and_those_too_close_are_left_open_with_what_more_samples_would_decide() -> None:
    board = build_leaderboard(
        _samples({A: 0.95, B: 0.5, C: 0.46}, {"test:one": 150, "test:two": 120}), indifference=0.1
    )
    first, second = board.neighbours.pairs
    assert (first.first, first.second, first.tasks) == (A, B, 120)
    assert first.verdict == "better"
    assert 0.95 < first.certainty < 1
    assert first.low < 0.45 < first.high
    assert second.verdict == "open"
    assert board.neighbours.next_decides is not None
    assert 0 <= board.neighbours.next_decides <= 1
    said = [note for note in leaderboard_notes(board) if "neighbours" in note]
    assert len(said) == 1
    assert said[0].startswith("1 of 2 neighbours in the order are ranked to within 0.1 on tasks like these, with 95 %")
    rows = neighbour_rows(board.neighbours)
    assert [(one["model"], one["verdict"], one["next"]) for one in rows] == [
        (A, "is better than", B),
        (B, "is not told from", C),
    ]
    document = leaderboard_document(board)["neighbours"]
    assert (document["open"], document["next_samples"], len(document["pairs"])) == (1, 1_000, 2)
    assert "is better than" in leaderboard_view(board).markdown()


def test_the_report_says_what_the_leaderboard_says(undrawn: None) -> None:
    samples = _samples({A: 0.95, B: 0.3}, {"test:one": 100})
    report = build_report(samples, title="t", with_png=False)
    assert "1 of 1 neighbours in the order are ranked" in report.html
    assert "is better than" in report.html
    assert "is better than" in report.markdown
    assert "> 99.9%" in report.markdown, "a verdict on tasks like these is never certain"


def test_pairs_are_corrected_for_every_two_models_since_scores_made_the_order() -> None:
    samples = _samples({A: 0.8, B: 0.55}, {"test:one": 80})
    alone = neighbours_of(samples, [A, B], 0.05).pairs[0]
    copies = [samples.with_columns(model=pl.lit(f"m{n}"), task_id=pl.col("task_id") + f"-{n}") for n in range(30)]
    among = neighbours_of(pl.concat([samples, *copies]), [A, B, *(f"m{n}" for n in range(30))], 0.05).pairs[0]
    assert (alone.difference, alone.tasks) == (among.difference, among.tasks)
    assert alone.certainty > among.certainty


def test_only_common_tasks_count_and_models_without_any_are_open_on_none() -> None:
    partly = neighbours_of(_samples({A: 0.9, B: 0.2}, {"test:one": 100}, skipped=30), [A, B], 0.05).pairs[0]
    assert partly.tasks == 70
    (never,) = neighbours_of(_samples({A: 0.9, B: 0.2}, {"test:one": 50}, skipped=50), [A, B], 0.05).pairs
    assert (never.verdict, never.tasks, never.low, never.high) == ("open", 0, -1, 1)


def test_one_model_has_no_neighbours_and_an_indifference_that_means_nothing_is_refused() -> None:
    samples = _samples({A: 0.9, B: 0.2}, {"test:one": 20})
    alone = build_leaderboard(samples.filter(pl.col("model") == A))
    assert alone.neighbours.pairs == ()
    assert not [note for note in leaderboard_notes(alone) if "neighbours" in note]
    with pytest.raises(InvalidInputError, match="indifference must be above 0 and below 1"):
        build_leaderboard(samples, indifference=1.0)
