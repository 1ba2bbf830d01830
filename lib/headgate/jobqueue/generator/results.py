"""Comparison of what teams report with what was evaluated: one row per team and task."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.submissions import Instances, Submission
from headgate.jobqueue.job import Job, JobState
from headgate.jobqueue.names import number_in
from headgate.jobqueue.worker import result_path

COLUMNS = ("team", "task", "sr_q_score", "eval_q_score", "finished_eval", "started_eval")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The progress of the evaluation of one instance.

    Attributes:
        has_started: whether a worker has started it, finished or not.
        has_finished: whether there is a result.
        q_score: the result's score; None without one.
    """

    has_started: bool = False
    has_finished: bool = False
    q_score: float | None = None


EvaluationOf = Callable[[str, str, int], Evaluation]
"""The evaluation of a team's (slug) task on an instance (number)."""


@dataclass(frozen=True, slots=True)
class ComparedTask:
    """A team's task.

    Attributes:
        sr_q_score: the score that the team reports; 0 when it reports none.
        eval_q_score: mean of the results that have a score; None without any.
        finished_eval: instances with a result.
        started_eval: instances that a worker has started, finished or not.
    """

    team: str
    task: str
    sr_q_score: float
    eval_q_score: float | None
    finished_eval: int
    started_eval: int


def compared(
    submissions: Iterable[Submission], instances: Instances, evaluation_of: EvaluationOf, teams: Collection[str] = ()
) -> list[ComparedTask]:
    """Return a row for each team and each task that has instances, by team and task.

    Args:
        submissions: of several by one team, the one with the best score counts.
        instances: of all tasks.
        evaluation_of: returns how far each instance is.
        teams: slugs; all teams when empty.

    Raises:
        InvalidInputError: when one of `teams` submitted nothing.
    """
    best: dict[str, Submission] = {}
    for submission in sorted(submissions, key=lambda s: (s.q_score, s.file)):
        best[submission.slug] = submission
    if unknown := set(teams) - best.keys():
        raise InvalidInputError(
            f"--team names {min(unknown)!r}, but that team has no submission",
            next_step=f"Teams are {', '.join(sorted(best)[:20])}.",
        )
    return [
        _row(best[slug], task, [evaluation_of(slug, task, instance.number) for instance in found])
        for slug in sorted(teams or best)
        for task, found in sorted(instances.by_task.items())
    ]


def as_csv(rows: Iterable[ComparedTask]) -> str:
    """Return rows as CSV with a header; a missing score is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        scores = ("" if score is None else f"{score:.6g}" for score in (row.sr_q_score, row.eval_q_score))
        writer.writerow((row.team, row.task, *scores, row.finished_eval, row.started_eval))
    return text.getvalue()


class ResultFolder:
    """Results as workers write them: `<slug>/metrics/<task>_<number>.json`, videos beside them.

    Raises:
        InvalidJobError: when it is not a folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InvalidJobError(
                f"folder of results {folder} does not exist",
                next_step="Correct --results-dir, create the folder, or leave the option out if there are no results.",
            )
        self._folder = folder
        self._videos: dict[str, frozenset[str]] = {}
        self.unreadable: dict[str, None] = {}
        """Files that are not results, in the order of discovery; their instances are evaluated again."""

    def has_result(self, slug: str, task: str, number: int) -> bool:
        """Return whether there is a result: a file that a worker has written completely."""
        return self._result(slug, task, number) is not None

    def evaluation(self, slug: str, task: str, number: int) -> Evaluation:
        """Return how far an instance is; a video without a result means that it has started."""
        result = self._result(slug, task, number)
        has_finished = result is not None
        has_started = has_finished or f"{task}_{number}.mp4" in self._videos_of(slug)
        return Evaluation(has_started, has_finished, q_score_of(result))

    def _result(self, slug: str, task: str, number: int) -> dict[str, Any] | None:
        # Legacy workers write a task's name as it is, ours in a form that every file system accepts.
        plain = self._folder / slug / "metrics" / f"{task}_{number}.json"
        for path in dict.fromkeys((result_path(self._folder, slug, task, f"_{number}"), plain)):
            try:
                document = json.loads(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError):
                document = None
            if isinstance(document, dict):
                return document
            self.unreadable[str(path)] = None
        return None

    def _videos_of(self, slug: str) -> frozenset[str]:
        """The videos of a team, which are in one folder or in one per user."""
        if slug not in self._videos:
            self._videos[slug] = frozenset(path.name for path in (self._folder / slug / "videos").rglob("*.mp4"))
        return self._videos[slug]


def evaluations_of_jobs(jobs: Iterable[Job]) -> EvaluationOf:
    """Return the evaluations that a queue's jobs show."""
    known: dict[tuple[str, str, int], Evaluation] = {}
    for job in jobs:
        number = number_in(job.spec.instance)
        if number is None:
            continue
        is_done = job.state is JobState.DONE
        evaluation = Evaluation(
            is_done or job.state is JobState.IN_PROGRESS,
            is_done,
            q_score_of(json.loads(job.result)) if is_done and job.result else None,
        )
        key = (job.spec.team, job.spec.task, int(number))
        if is_done or key not in known:
            known[key] = evaluation
    return lambda slug, task, number: known.get((slug, task, number), Evaluation())


def q_score_of(result: object) -> float | None:
    """Return `q_score` of a result, or its `final` when it is an object; None when there is no finite one."""
    found = result.get("q_score") if isinstance(result, dict) else None
    score = found.get("final") if isinstance(found, dict) else found
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return None
    return float(score)


def _row(submission: Submission, task: str, found: Sequence[Evaluation]) -> ComparedTask:
    scores = [one.q_score for one in found if one.q_score is not None]
    return ComparedTask(
        submission.slug,
        task,
        submission.task_scores.get(task, 0.0),
        math.fsum(scores) / len(scores) if scores else None,
        sum(one.has_finished for one in found),
        sum(one.has_started for one in found),
    )
