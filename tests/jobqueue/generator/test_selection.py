"""Which submissions and tasks jobs are generated for."""

from __future__ import annotations

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator import Rules, Submission, Track, chosen_submissions, chosen_teams, submission_of
from tests.jobqueue.generator.site import Site, server


def _submission(file: str, q_score: float, team: str = "", **tasks: float) -> Submission:
    document = {
        "team": team or file,
        "overall_scores": {"q_score": q_score},
        "per_task_scores": {"q_score": tasks},
    }
    return submission_of(document, file, file)


def _files(submissions: tuple[Submission, ...]) -> list[str]:
    return [submission.file for submission in submissions]


def test_privileged_submissions_are_ranked_among_themselves() -> None:
    standard = [_submission(f"standard.s{n}.json", 0.9 - n / 100) for n in range(6)]
    privileged = [_submission(f"privileged.p{n}.json", 0.1 - n / 100) for n in range(6)]
    chosen = chosen_submissions([*privileged, *standard])
    assert _files(chosen) == _files((*standard[:5], *privileged[:5]))


def test_a_standard_submission_takes_no_place_of_a_privileged_one() -> None:
    chosen = chosen_submissions([_submission("standard.a.json", 0.9), _submission("privileged.b.json", 0.1)], top=1)
    assert _files(chosen) == ["standard.a.json", "privileged.b.json"]


def test_ties_are_broken_by_the_file_name() -> None:
    tied = [_submission(f"standard.{name}.json", 0.5) for name in "cabd"]
    assert _files(chosen_submissions(tied, top=2)) == ["standard.a.json", "standard.b.json"]
    assert _files(chosen_submissions(reversed(tied), top=2)) == ["standard.a.json", "standard.b.json"]


@pytest.mark.parametrize(
    ("file", "field", "track"),
    [
        ("standard.a.json", "privileged", Track.STANDARD),
        ("privileged.a.json", None, Track.PRIVILEGED),
        ("a.json", "standard", Track.STANDARD),
        ("a.json", None, Track.PRIVILEGED),
        ("a.json", 7, Track.PRIVILEGED),
        ("standards.a.json", None, Track.PRIVILEGED),
    ],
)
def test_the_track_is_that_of_the_files_name_and_else_of_the_field(file: str, field: object, track: Track) -> None:
    document = {
        "team": "a",
        "overall_scores": {"q_score": 1},
        "per_task_scores": {"q_score": {}},
        "track": field,
    }
    assert submission_of(document, file, file).track is track


def test_only_tasks_with_a_score_are_evaluated_unless_the_team_is_named() -> None:
    submission = _submission("standard.a.json", 0.5, "A", zero=0.0, less=-1.0, more=0.1)
    assert chosen_teams([submission])[0].tasks == ("more",)
    assert chosen_teams([submission], {"a"})[0].tasks == ("less", "more", "zero")
    assert chosen_teams([submission], {"b"})[0].tasks == ("more",)


def test_a_team_in_both_tracks_gets_each_job_once(site: Site) -> None:
    site.submit("privileged.alpha.json", "Alpha", 0.7, radio=0.9, tidy=0.1)
    site.add_instances("tidy", 1)
    generation = site.generate()
    assert [(job.task, job.job_id.rpartition(".")[2]) for job in generation.jobs] == [
        ("radio", "1"),
        ("radio", "2"),
        ("tidy", "1"),
    ]
    assert len({job.job_id for job in generation.jobs}) == 3


def test_two_teams_whose_results_would_be_mixed_are_refused() -> None:
    same = [_submission("standard.a.json", 0.5, "Team 1"), _submission("standard.b.json", 0.4, "team-1")]
    with pytest.raises(InvalidJobError, match=r"'Team 1' \(standard\.a\.json\) and 'team-1' .* team_1"):
        chosen_submissions(same)
    assert len(chosen_submissions(same, top=1)) == 1


def test_a_team_without_submission_cannot_be_named(site: Site) -> None:
    with pytest.raises(InvalidInputError, match="names 'alhpa', but that team has no submission"):
        site.generate(Rules(all_tasks_teams=frozenset({"alhpa"})))


def test_top_counts_from_one() -> None:
    with pytest.raises(InvalidInputError, match=r"--top must be >= 1 \(got 0\)"):
        Rules(top=0)


def test_names_of_teams_become_slugs(site: Site) -> None:
    site.submit("standard.alpha.json", "Robot  Learning-Collective (ÉPFL)", 0.5, radio=0.5)
    site.serve(robot_learning_collective_epfl=[server("a")])
    assert {job.team for job in site.generate().jobs} == {"robot_learning_collective_epfl"}
