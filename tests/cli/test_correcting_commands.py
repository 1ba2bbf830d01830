"""`headgate invalidate`: what it marks, what it says, and what a campaign takes again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.storage import Journal, Mark, Verb, open_store
from tests.cli.conftest import Command

RUN = ("run", "--roster", "baselines", "-e", "affine:sat", "--instances", "4", "--json")
GREEDY = ("--model", "baseline-greedy", "--reason", "the prompt was cut")
STORE = Path(".headgate/samples")


def _rows(headgate: Command, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in headgate("query", sql, "--json").document]


@pytest.fixture
def sampled(headgate: Command) -> None:
    """A matrix of three models and four tasks, to its end."""
    assert headgate(*RUN).status == 0


def test_invalidated_samples_are_told_left_out_and_taken_again_once(headgate: Command, sampled: None) -> None:
    would = headgate("invalidate", *GREEDY, "--dry-run", "--json").document
    assert (would["samples"], would["mark"], would["opened"]) == (4, "", 0)
    said = headgate("invalidate", *GREEDY)
    assert said.status == 0
    assert "4 samples count no longer, mark 20" in said.out
    assert headgate("invalidate", *GREEDY, "--json").document["samples"] == 0
    assert headgate("invalidate", *GREEDY).out == "0 samples count no longer: none of those chosen counts\n"
    assert "`headgate invalidate --undo` has samples count again" in " ".join(headgate("undo", "1").err.split())
    assert _rows(headgate, "select count(*) from samples where model = 'baseline-greedy@main'") == [(0,)]
    shown = headgate("summary", "--json").document
    assert {row["model"]: row["samples"] for row in shown} == {"baseline-random@main": 4, "baseline-solver@main": 4}
    assert headgate(*RUN).document["samples"] == 0  # they are not missing: nobody wants them again

    again = headgate("invalidate", *GREEDY, "--resample", "--json").document
    assert (again["samples"], again["opened"]) == (4, 4)
    journal = Journal(Path(".headgate/journal"), "main")
    assert journal.open_count() == 4
    journal.close()
    assert headgate(*RUN).document["samples"] == 4
    counts = "select count(*), count(distinct sequence), min(stage) from samples where model = 'baseline-greedy@main'"
    assert _rows(headgate, counts) == [(4, 4, "sample.2")]
    assert _rows(headgate, "select count(*) from stored where model = 'baseline-greedy@main'") == [(8,)]
    assert headgate(*RUN).document["samples"] == 0
    final = headgate("invalidate", "--undo", *GREEDY)
    assert "4 samples left invalid: another sample of the task counts, or is still to be taken." in final.out


def test_a_mark_names_its_samples_and_conditions_in_sql_do(headgate: Command, sampled: None) -> None:
    (row,) = _rows(headgate, "select task_id from samples where model = 'baseline-solver@main' order by 1 limit 1")
    one = headgate(
        "invalidate", "--task", str(row[0]), "--reason", "seen in training", "--by", "ada", "--json"
    ).document
    assert "it was invalidated and counts no longer" in headgate("why", str(row[0])).out
    two = headgate(
        "invalidate", "--where", "model = 'baseline-solver@main' and score > 0", "--reason", "no", "--json"
    ).document
    assert (one["samples"], two["samples"]) == (1, 3)
    assert _rows(headgate, f"select marked_by, reason from marks where mark = '{one['mark']}'") == [
        ("ada", "seen in training")
    ]
    undone = headgate("invalidate", "--undo", "--mark", one["mark"], "--reason", "it was not", "--json").document
    assert undone["pairs"] == [{"model": "baseline-solver@main", "environment": "affine:sat", "samples": 1}]
    assert _rows(headgate, "select count(*) from samples where model = 'baseline-solver@main'") == [(1,)]


def test_conditions_mean_the_scores_that_hold_also_for_samples_that_count_no_longer(
    headgate: Command, sampled: None
) -> None:
    rows = _rows(headgate, "select task_id from samples where model = 'baseline-solver@main'")
    mark = Mark("20991231T000000-00000000", Verb.RESCORE, 4_000_000_000.0, "ada", "a new judge", "judge")
    new = [{"task_id": row[0], "score": 0.25, "success": False, "why": "", "error_kind": None} for row in rows]
    asyncio.run(open_store(str(STORE)).put_scores(mark, new, 0))
    where = ("--where", "score = 0.25", "--reason", "x", "--json")
    assert headgate("invalidate", *where).document["samples"] == 4
    assert headgate("forget", *where[:2], "--dry-run", "--json").document["samples"] == 4
    assert headgate("invalidate", "--undo", *where).document["samples"] == 4


def test_what_is_not_said_or_wrong_marks_nothing(headgate: Command, sampled: None) -> None:
    for wrong, says in (
        (("--reason", "x"), "invalidate was not told which samples"),
        (("--model", "baseline-greedy"), "--reason"),
        (("--model", "baseline-gredy", "--reason", "x"), "baseline-greedy"),
        (("--where", "scores = 0", "--reason", "x"), "scores"),
        ((*GREEDY, "--undo", "--resample"), "undo, or resample"),
    ):
        said = headgate("invalidate", *wrong)
        assert (said.status, says in said.err + said.out) == (2, True), said
    assert _rows(headgate, "select count(*) from marks") == [(0,)]


def test_stored_conversations_are_scored_again_once_and_the_first_scores_can_be_asked_for(
    headgate: Command, sampled: None
) -> None:
    again = ("rescore", "-e", "affine:sat", "--reason", "the scorer was wrong")
    would = headgate(*again, "--dry-run", "--json").document
    assert (would["samples"], would["marks"]) == (12, [])
    said = headgate(*again)
    assert (said.status, "12 samples scored again, mark 20" in said.out) == (0, True), said
    done = headgate(*again, "--json").document
    assert (done["samples"], done["known"], done["left_out"]) == (0, 12, {})
    board = headgate("leaderboard", "--json").document
    assert headgate("leaderboard", "--original", "--json").document == board
    assert _rows(headgate, "select count(distinct scorer) from marks where verb = 'rescore'") == [(1,)]
    undone = headgate(*again, "--undo", "--json").document
    assert undone["samples"] == 12
    for wrong, says in (
        (("--reason", "x"), "rescore was not told which samples"),
        (("-e", "affine:sta", "--reason", "x"), "affine:sat"),
        (("-e", "affine:sat", "--reason", "x", "--rubric", "none.yaml"), "none.yaml"),
    ):
        said = headgate("rescore", *wrong)
        assert (said.status, says in said.err) == (2, True), said
