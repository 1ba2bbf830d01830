"""The job queue as tables and sentences."""

from __future__ import annotations

from typing import Any

from headgate.jobqueue import JobState
from headgate.jobqueue.generator import ChosenTeam, Generation, Reason, Skipped
from headgate.orchestration.jobqueue.drain import (
    drain_sentence,
    progress_rows,
    progress_sentence,
)
from headgate.orchestration.jobqueue.generate import generation_rows
from headgate.orchestration.jobqueue.requeue import dead_rows
from headgate.orchestration.pages import MAX_ROWS
from headgate.run import DrainResult, QueueProgress
from headgate.run.job_collector import ScoreTally
from headgate.run.queue_drain import TaskProgress
from tests.run.jobs.values import job


def _task(**more: Any) -> TaskProgress:
    given: dict[str, Any] = {"pending": 0, "in_progress": 0, "done": 0, "dead": 0, "unserved": 0}
    return TaskProgress("team_a", "radio", **(given | {"scores": ScoreTally()} | more))


def _progress(*tasks: TaskProgress, **states: int) -> QueueProgress:
    return QueueProgress({JobState(name): count for name, count in states.items()}, 3, 4, 1, tasks)


def test_a_row_has_jobs_by_state_and_the_mean_with_its_interval() -> None:
    scores = ScoreTally().with_score(1.0).with_score(0.0).with_score(None)
    (row,) = progress_rows(_progress(_task(pending=1_200, unserved=1_000, done=3, dead=2, scores=scores)))
    assert row == {
        "team": "team_a",
        "task": "radio",
        "pending": "1,200 (1,000 without a server)",
        "running": "0",
        "done": "3",
        "dead": "2",
        "mean": "0.500",
        "95 %": "0.095–0.905",
        "no score": "1",
    }


def test_a_row_without_a_score_shows_none() -> None:
    (row,) = progress_rows(_progress(_task()))
    assert (row["mean"], row["95 %"]) == ("", "")


def test_tables_are_bounded() -> None:
    assert len(progress_rows(_progress(*[_task()] * (MAX_ROWS + 1)))) == MAX_ROWS
    assert len(dead_rows([job()] * (MAX_ROWS + 1))) == MAX_ROWS


def test_sentences_name_what_needs_somebody() -> None:
    progress = _progress(_task(pending=2, unserved=2), pending=2, in_progress=1, done=5, dead=1)
    assert progress_sentence(progress) == (
        "5 of 9 jobs done; 1 in progress by 3 workers; 2 pending; 2 of them without a policy server that takes them; "
        "1 dead; 5 results collected"
    )
    result = DrainResult(progress, 4, 1, 1, "its time is over", is_drained=False)
    assert drain_sentence(result) == (
        "its time is over: 5 of 9 jobs done; 4 samples stored; 3 jobs left; "
        "2 of them without a policy server that takes them; 1 dead; 1 refused by the store"
    )


def test_what_was_left_out_stands_beside_its_task_with_the_reason() -> None:
    skipped = (
        Skipped("a", "radio", Reason.HAS_RESULT, 3),
        Skipped("a", "radio", Reason.NOT_SERVED, 2),
        Skipped("a", "sink", Reason.NO_INSTANCES, 0),
    )
    made = Generation((), (ChosenTeam("A", "a", ("radio", "sink")),), (), {}, {}, skipped)
    assert generation_rows(made) == [
        {
            "team": "a",
            "task": "radio",
            "jobs": "0",
            "skipped": "3 has results already; 2 no server of the team takes the task",
        },
        {"team": "a", "task": "sink", "jobs": "0", "skipped": "has no test instances"},
    ]


def test_an_error_in_a_table_is_one_line_without_secrets() -> None:
    (row,) = dead_rows([job(last_error="it broke\n  with token=abcdef123456 " + "x" * 500)])
    assert row["error"].startswith("it broke with token=[redacted] xxx")
    assert len(row["error"]) == 300
