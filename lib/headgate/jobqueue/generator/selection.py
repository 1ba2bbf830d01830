"""Which submissions are evaluated, and on which tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.submissions import Submission, Track, ranked

DEFAULT_TOP: Final = 5
"""Submissions of each track that are evaluated."""


@dataclass(frozen=True, slots=True)
class ChosenTeam:
    """A team that is evaluated.

    Attributes:
        team: as it calls itself.
        slug: as folders and pools have it.
        tasks: what it is evaluated on, sorted.
    """

    team: str
    slug: str
    tasks: tuple[str, ...]


def chosen_submissions(submissions: Iterable[Submission], top: int = DEFAULT_TOP) -> tuple[Submission, ...]:
    """Return the best `top` of each track, the standard one first, each track by rank.

    Raises:
        InvalidJobError: when two of them are of teams whose slugs are the same: their results would be mixed.
    """
    submissions = tuple(submissions)
    chosen = (*ranked(submissions, Track.STANDARD)[:top], *ranked(submissions, Track.PRIVILEGED)[:top])
    first: dict[str, Submission] = {}
    for submission in chosen:
        other = first.setdefault(submission.slug, submission)
        if other.team != submission.team:
            raise InvalidJobError(
                f"teams {other.team!r} ({other.file}) and {submission.team!r} ({submission.file}) have one folder of "
                f"results, {submission.slug}",
                next_step="Write the same name in both files when it is one team, and another name when it is not.",
            )
    return chosen


def chosen_teams(chosen: Iterable[Submission], all_tasks_teams: Collection[str] = ()) -> tuple[ChosenTeam, ...]:
    """Return the teams of chosen submissions with their tasks: those with a score above 0, of all its submissions.

    A team with a submission in each track is there once: its jobs and results have no track.

    Args:
        chosen: submissions, the first of a team decides its place.
        all_tasks_teams: slugs of teams that are evaluated on every task that they report, whatever the score.
    """
    names: dict[str, str] = {}
    tasks: dict[str, set[str]] = {}
    for submission in chosen:
        names.setdefault(submission.slug, submission.team)
        takes_all = submission.slug in all_tasks_teams
        tasks.setdefault(submission.slug, set()).update(
            task for task, score in submission.task_scores.items() if takes_all or score > 0
        )
    return tuple(ChosenTeam(name, slug, tuple(sorted(tasks[slug]))) for slug, name in names.items())
