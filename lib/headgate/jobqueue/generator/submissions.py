"""What jobs are generated from: the teams' submissions, and the test instances of each task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, FiniteFloat

from headgate.core.errors import some_of
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.json_files import Problems, read_json, team_slug
from headgate.jobqueue.names import INSTANCE_SUFFIX, JobId, Name, name_problem, number_in, part_problem

TaskName = JobId
"""Tasks are part of paths, as job ids are: their instances are in a folder, and results are named after them."""

DEFAULT_TOP: Final = 5
"""How many submissions of each track are evaluated."""

_NEXT_STEP: Final = "Name the folder of submissions with --submissions-dir."


class Track(StrEnum):
    """Whether a submission used privileged information; each track has its own ranking."""

    STANDARD = "standard"
    PRIVILEGED = "privileged"


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission.

    Attributes:
        file: its file's name; unique.
        track: which ranking it is in.
        team: the team's own name for itself.
        slug: the team's name as folders and pools spell it.
        q_score: over all tasks, as reported by the team.
        task_scores: task -> q_score, likewise.
    """

    file: str
    track: Track
    team: str
    slug: str
    q_score: float
    task_scores: Mapping[str, float]


class _Overall(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    q_score: FiniteFloat


class _PerTask(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    q_score: dict[TaskName, FiniteFloat]


class SubmissionFile(BaseModel):
    """A submission as its file holds it; further fields are ignored."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    team: Name
    overall_scores: _Overall
    per_task_scores: _PerTask
    track: Any = None


def read_submissions(folder: Path) -> tuple[Submission, ...]:
    """Return the submissions of a folder (its `*.json` files), by file name.

    Raises:
        InvalidJobError: if there is none, or naming all that break a rule.
    """
    paths = _json_files(folder, "submissions", _NEXT_STEP)
    if not paths:
        raise InvalidJobError(f"{folder}: contains no .json file of a submission", next_step=_NEXT_STEP)
    read: list[Submission] = []
    refused: list[str] = []
    for path in paths:
        try:
            read.append(submission_of(read_json(path, "submission"), path.name, str(path)))
        except InvalidJobError as error:
            refused.append(error.message)
    if refused:
        raise InvalidJobError(some_of(refused, DEFAULT_TOP, "; "), next_step="Correct these files, or move them away.")
    return tuple(read)


def submission_of(document: object, file: str, source: str) -> Submission:
    """Return the submission in a document; the name of its `file` gives the track, `source` is for messages.

    Raises:
        InvalidJobError: listing every rule that it breaks.
    """
    problems = Problems(source)
    read = problems.checked(SubmissionFile, document)
    problems.refuse_if_any()
    assert read is not None
    slug = team_slug(read.team)
    if not slug:
        problems.add(
            "team", "must contain a letter or a digit, from which the names of its folder and pool are made", read.team
        )
    elif (problem := name_problem(slug)) is not None:
        problems.add("team", f"is {slug[:40]}… as a folder's name, which {problem}", read.team)
    problems.refuse_if_any()
    return Submission(
        file, _track(file, read.track), read.team, slug, read.overall_scores.q_score, dict(read.per_task_scores.q_score)
    )


def _json_files(folder: Path, what: str, next_step: str) -> list[Path]:
    """Return the `.json` files in a folder by name, without hidden ones."""
    return [p for p in _listed(folder, what, next_step) if p.suffix.lower() == ".json" and p.is_file()]


def _listed(folder: Path, what: str, next_step: str) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise InvalidJobError(f"folder of {what} {folder} cannot be read: {said}", next_step=next_step) from None


def _track(file: str, field: object) -> Track:
    """Return the track that the file's name gives, else the one of the field, else privileged."""
    first = file.partition(".")[0]
    for said in (first, field):
        if isinstance(said, str) and said in set(Track):
            return Track(said)
    return Track.PRIVILEGED


@dataclass(frozen=True, slots=True)
class ChosenTeam:
    """A team that is evaluated."""

    team: str
    slug: str
    tasks: tuple[str, ...]


def chosen_submissions(submissions: Iterable[Submission], top: int = DEFAULT_TOP) -> tuple[Submission, ...]:
    """Return the best `top` of each track, the standard one first, each track by rank.

    Raises:
        InvalidJobError: when two of them are by teams with the same slug: their results would be mixed.
    """
    ranked = sorted(submissions, key=lambda one: (-one.q_score, one.file))
    chosen = tuple(one for track in Track for one in [s for s in ranked if s.track is track][:top])
    first: dict[str, Submission] = {}
    for submission in chosen:
        other = first.setdefault(submission.slug, submission)
        if other.team != submission.team:
            raise InvalidJobError(
                f"teams {other.team!r} ({other.file}) and {submission.team!r} ({submission.file}) share the folder "
                f"of results {submission.slug}",
                next_step="Write the same name in both files when it is one team, and another name when it is not.",
            )
    return chosen


def chosen_teams(chosen: Iterable[Submission], all_tasks_teams: Collection[str] = ()) -> tuple[ChosenTeam, ...]:
    """Return the teams of chosen submissions with their tasks: those with a score above 0 in any of its submissions.

    A team with a submission in each track appears once: its jobs and results have no track.

    Args:
        chosen: submissions; the first of a team decides its place.
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


_NO_INSTANCES_STEP: Final = "Name the folder of test instances with --test-instances-dir."


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """One test instance of a task, ordered by number: 2 comes before 10."""

    number: int
    file: str


@dataclass(frozen=True, slots=True)
class Instances:
    """The existing test instances.

    Attributes:
        by_task: task -> its instances, in order.
        ignored: files (`task/name`) that are not named like an instance.
    """

    by_task: Mapping[str, tuple[Instance, ...]]
    ignored: tuple[str, ...] = ()


def read_instances(folder: Path) -> Instances:
    """Return the test instances in a folder's sub-folders (`<task>/*_template-tro_state.json`).

    Raises:
        InvalidJobError: if there is none, one has no number, or two of a task have the same.
    """
    tasks = [path for path in _listed(folder, "test instances", _NO_INSTANCES_STEP) if path.is_dir()]
    problems = Problems(str(folder))
    by_task: dict[str, tuple[Instance, ...]] = {}
    ignored: list[str] = []
    for task in tasks:
        names = [path.name for path in _json_files(task, f"task {task.name!r}", _NO_INSTANCES_STEP)]
        ignored += [f"{task.name}/{name}" for name in names if not name.endswith(INSTANCE_SUFFIX)]
        found = _instances(task.name, (name for name in names if name.endswith(INSTANCE_SUFFIX)), problems)
        if found:
            by_task[task.name] = found
    problems.refuse_if_any()
    if not by_task:
        raise InvalidJobError(f"{folder}: contains no file <task>/*{INSTANCE_SUFFIX}", next_step=_NO_INSTANCES_STEP)
    return Instances(by_task, tuple(ignored))


def _instances(task: str, files: Iterable[str], problems: Problems) -> tuple[Instance, ...]:
    """Return a task's instances in order, noting names that break a rule."""
    if (problem := part_problem(task)) is not None:
        problems.add(repr(task), f"a task's name: {problem}")
        return ()
    found: dict[int, Instance] = {}
    for file in sorted(files):
        number = number_in(file)
        if number is None:
            problems.add(f"{task}/{file}", f"the part before {INSTANCE_SUFFIX} must end with _ and a whole number")
        elif (other := found.setdefault(int(number), Instance(int(number), file))).file != file:
            rule = f"has number {int(number)}, which {other.file} has too; results are named after it"
            problems.add(f"{task}/{file}", rule)
    return tuple(sorted(found.values()))
