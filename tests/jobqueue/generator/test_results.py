"""What teams report beside what was evaluated."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headgate.core.errors import InvalidInputError
from headgate.jobqueue import Job, JobState
from headgate.jobqueue.generator import (
    ComparedTask,
    Evaluation,
    ResultFolder,
    as_csv,
    compared,
    evaluations_of_jobs,
    read_instances,
    read_submissions,
)
from headgate.jobqueue.worker import publish_result, result_path
from tests.jobqueue.generator.site import Site


def _rows(site: Site, *teams: str) -> list[ComparedTask]:
    results = ResultFolder(site.results)
    return compared(read_submissions(site.submissions), read_instances(site.instances), results.evaluation, teams)


def test_reported_scores_stand_beside_the_mean_of_the_results(site: Site) -> None:
    site.add_instances("tidy", 4)
    site.submit("standard.b.json", "B", 0.4, tidy=0.25)
    site.finish("alpha", "radio", 1, '{"q_score": {"final": 0.25}}')
    site.finish("alpha", "radio", 2, '{"q_score": {"final": 0.75}}')
    site.finish("b", "tidy", 4, '{"q_score": {"final": 1}}')
    assert _rows(site) == [
        ComparedTask("alpha", "radio", 0.5, 0.5, 2, 2),
        ComparedTask("alpha", "tidy", 0.0, None, 0, 0),
        ComparedTask("b", "radio", 0.0, None, 0, 0),
        ComparedTask("b", "tidy", 0.25, 1.0, 1, 1),
    ]


@pytest.mark.parametrize("video", ["radio_2.mp4", "somebody/radio_2.mp4"])
def test_a_video_without_a_result_is_one_that_has_begun(site: Site, video: str) -> None:
    site.finish("alpha", "radio", 1)
    path = site.results / "alpha" / "videos" / video
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    (row,) = _rows(site)
    assert (row.finished_eval, row.started_eval) == (1, 2)


@pytest.mark.parametrize(
    "text", ["{}", '{"q_score": {"final": NaN}}', '{"q_score": {"final": true}}', '{"q_score": "1"}']
)
def test_a_result_without_a_score_counts_as_finished_and_is_in_no_mean(site: Site, text: str) -> None:
    site.finish("alpha", "radio", 1, text)
    site.finish("alpha", "radio", 2, '{"q_score": {"final": 0.5}}')
    (row,) = _rows(site)
    assert (row.eval_q_score, row.finished_eval) == (0.5, 2)


def test_a_score_is_a_number_or_an_object_with_it_as_final(site: Site) -> None:
    site.finish("alpha", "radio", 1, '{"q_score": 0.25}')
    site.finish("alpha", "radio", 2, '{"q_score": {"final": 0.75}}')
    (row,) = _rows(site)
    assert (row.eval_q_score, row.finished_eval) == (0.5, 2)


def test_half_a_result_is_none(site: Site) -> None:
    site.finish("alpha", "radio", 1, '{"q_score": {"final"')
    (row,) = _rows(site)
    assert (row.eval_q_score, row.finished_eval) == (None, 0)


@pytest.mark.parametrize("task", ["radio", "ràdio: 100%"])
def test_results_of_workers_are_found_whatever_the_task_is_called(site: Site, task: str) -> None:
    path = result_path(site.results, "alpha", task, "house_3_template-tro_state.json")
    publish_result(path, {"q_score": {"final": 0.5}}, {"job_id": "1", "epoch": 1})
    site.finish("alpha", task, 4)
    results = ResultFolder(site.results)
    assert [results.has_result("alpha", task, number) for number in (3, 4, 5)] == [True, True, False]


def test_of_several_submissions_the_best_counts_and_teams_can_be_chosen(site: Site) -> None:
    site.results.mkdir()
    site.submit("privileged.alpha.json", "Alpha", 0.9, radio=0.8)
    site.submit("standard.b.json", "B", 0.4)
    assert [(row.team, row.sr_q_score) for row in _rows(site, "alpha")] == [("alpha", 0.8)]
    with pytest.raises(InvalidInputError, match="names 'c', but that team has no submission") as error:
        _rows(site, "c")
    assert "alpha, b" in error.value.next_step


def test_rows_are_csv_with_a_header() -> None:
    rows = [ComparedTask("a", "x,y", 1 / 3, None, 0, 1), ComparedTask("b", "t", 0.0, 1.0, 2, 2)]
    assert as_csv(rows) == (
        "team,task,sr_q_score,eval_q_score,finished_eval,started_eval\n"
        'a,"x,y",0.333333,,0,1\nb,t,0,1,2,2\n'
    )  # fmt: skip


def test_a_queue_tells_how_far_its_jobs_are(site: Site) -> None:
    first, second = site.generate().job_specs()
    done = Job(first, 0, 0.0, JobState.DONE, epoch=1, result=json.dumps({"q_score": {"final": 0.25}}))
    running = Job(second, 1, 0.0, JobState.IN_PROGRESS, epoch=1, lease_id="ab")
    other = Job(replace(second, job_id="x", instance="no number"), 2, 0.0)
    evaluation_of = evaluations_of_jobs([done, running, other])
    assert evaluation_of("alpha", "radio", 1) == Evaluation(True, True, 0.25)
    assert evaluation_of("alpha", "radio", 2) == Evaluation(True, False, None)
    assert evaluation_of("alpha", "radio", 3) == Evaluation()


def test_an_instance_with_a_job_that_is_done_is_done_whatever_its_other_jobs_are(site: Site) -> None:
    (spec, _) = site.generate().job_specs()
    again = Job(replace(spec, job_id="again"), 1, 0.0)
    done = Job(spec, 0, 0.0, JobState.DONE, epoch=1)
    assert evaluations_of_jobs([done, again])("alpha", "radio", 1) == Evaluation(True, True, None)
    assert evaluations_of_jobs([again, done])("alpha", "radio", 1) == Evaluation(True, True, None)
