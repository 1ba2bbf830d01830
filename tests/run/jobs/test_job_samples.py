"""From a completed job to a sample."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import checked_name, errors
from headgate.jobqueue.generator import ResultFolder
from headgate.run.job_samples import (
    JobSampleRules,
    model_of_team,
    sample_of_job,
    stored_name,
    with_result_of_file,
)
from headgate.storage.schema import frame_of, validated
from tests.run.jobs.values import BEGAN, job

RULES = JobSampleRules()
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)


def test_a_job_becomes_a_sample_of_its_team_and_task() -> None:
    sample = sample_of_job(job(result={"q_score": 0.75, "steps": 12, "seed": 5}), RULES)
    assert (sample.model, sample.environment, sample.campaign, sample.stage) == (
        "team_a@main",
        "radio",
        "jobqueue",
        "job:main",
    )
    assert (sample.score, sample.success, sample.error_kind, sample.error) == (0.75, False, None, None)
    assert (sample.started_at, sample.finished_at, sample.latency_s) == (BEGAN + 10, BEGAN + 40, 30.0)
    assert (sample.queue_wait_s, sample.attempts, sample.turns, sample.seed, sample.index) == (10.0, 2, 12, 5, 7)


def test_where_a_score_comes_from_is_told_in_one_line() -> None:
    done = job(result_ref="s3://results/a\n.json", checksum="sha256:" + "ab" * 32)
    why = sample_of_job(done, RULES, "team_a/3").why
    assert why == (
        "q_score 0.75; job a.radio.1; instance house_radio_0_7; worker w-1; server team_a/3; "
        "result s3://results/a .json; sha256:" + "ab" * 32
    )


@pytest.mark.parametrize(
    ("result", "field", "score"),
    [
        ({"q_score": 1}, "q_score", 1.0),
        ({"q_score": {"final": 0.25}}, "q_score", 0.25),
        ({"scores": {"all": {"mean": 0.5}}}, "scores.all.mean", 0.5),
        ({"scores.all": 0.5}, "scores.all", 0.5),
    ],
)
def test_a_score_is_a_number_an_object_with_a_final_one_or_lies_deeper(
    result: dict[str, Any], field: str, score: float
) -> None:
    assert sample_of_job(job(result=result), JobSampleRules(score_field=field)).score == score


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, "the result has no q_score"),
        ({}, "the result has no q_score"),
        ({"q_score": {"other": 1}}, "the result has no q_score"),
        ({"q_score": "0.5"}, "must be a number (got '0.5')"),
        ({"q_score": True}, "must be a number (got True)"),
        ({"q_score": 1.5}, "must be in [0, 1] (got 1.5)"),
        ({"q_score": -0.1}, "must be in [0, 1] (got -0.1)"),
        ({"q_score": 10**400}, "must be in [0, 1] (got 1000"),
    ],
)
def test_a_result_without_a_usable_score_is_an_error_of_the_environment(result: Any, told: str) -> None:
    sample = sample_of_job(job(result=result), RULES)
    assert (sample.score, sample.success, sample.error_kind) == (None, False, "environment")
    assert told in (sample.error or "")


def test_success_is_what_the_result_says_else_the_full_score() -> None:
    said = sample_of_job(job(result={"q_score": 0.9, "success": True}), RULES)
    full = sample_of_job(job(result={"q_score": 1.0}), RULES)
    failed = sample_of_job(job(result={"success": True}), RULES)
    assert (said.success, full.success, failed.success) == (True, True, False)


def test_the_id_depends_on_queue_campaign_and_job_and_on_nothing_that_happens_to_the_job() -> None:
    first = sample_of_job(job(), RULES)
    again = sample_of_job(job(epoch=5, seq=9, finished_at=BEGAN + 99, worker="w-2"), RULES)
    others = [
        sample_of_job(job("a.radio.2"), RULES),
        sample_of_job(job(), JobSampleRules(queue="other")),
        sample_of_job(job(), JobSampleRules(campaign="other")),
    ]
    assert again.task_id == first.task_id
    assert again.trace_id != first.trace_id
    assert len({first.task_id, *(other.task_id for other in others)}) == 4


def test_a_job_without_a_result_gets_the_score_of_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "team_a/metrics"
    folder.mkdir(parents=True)
    (folder / "radio_7.json").write_text('{"q_score": {"final": 0.25}}')
    (folder / "radio_8.json").write_text("{")
    results = ResultFolder(tmp_path)
    told = with_result_of_file(job(result={}), results)
    assert sample_of_job(told, RULES).score == 0.25
    own = with_result_of_file(job(result={"q_score": 0.5}), results)
    broken = with_result_of_file(job(result=None, instance="8"), results)
    missing = with_result_of_file(job(result=None, instance="9"), results)
    assert [sample_of_job(one, RULES).score for one in (own, broken, missing)] == [0.5, None, None]


@given(
    team=NAMES,
    task=NAMES,
    result=st.none() | st.dictionaries(st.sampled_from(["q_score", "seed", "steps"]), st.floats() | st.integers()),
    instance=st.text(max_size=20),
    times=st.tuples(st.floats(0, 1e6), st.floats(-3600, 1e6), st.floats(-3600, 1e6)),
)
def test_every_job_makes_a_row_that_the_store_takes(
    team: str, task: str, result: Any, instance: str, times: tuple[float, float, float]
) -> None:
    at = [BEGAN + time for time in times]
    done = job(
        team=team, task=task, result=result, instance=instance, submitted_at=at[0], claimed_at=at[1],
        finished_at=max(at[1:]),
    )  # fmt: skip
    sifted = validated(frame_of([sample_of_job(done, RULES)]))
    assert sifted.bad.is_empty(), sifted.bad["reason"][0]


@given(NAMES, NAMES)
def test_names_of_teams_and_tasks_can_be_stored_and_stay_different(one: str, other: str) -> None:
    assert checked_name(stored_name(one), "task") == stored_name(one)
    assert (stored_name(one) == stored_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("turning_on_radio", "turning_on_radio"),
        ("affine:sat/1-b.c", "affine:sat/1-b.c"),
        ("Robot Lab+2", "Robot+20Lab+2B2"),
        ("a@b", "a+40b"),
        ("a..b", "a.+2Eb"),
        ("_x", "0++_x"),
        ("0 x", "0+20x"),
        (" x", "0+++20x"),
        ("ä", "0+++C3+A4"),
    ],
)
def test_characters_that_names_cannot_have_are_written_as_bytes(name: str, stored: str) -> None:
    assert stored_name(name) == stored
    assert model_of_team(name) == f"{stored}@main"


def test_a_name_that_grows_too_long_ends_with_a_hash_of_it() -> None:
    one, other = stored_name("ä" * 199 + "a"), stored_name("ä" * 199 + "b")
    assert one != other
    assert len(one) == 200
    assert re.fullmatch(r".+\+\+[0-9a-f]{16}", one)


def test_rules_that_cannot_work_are_refused() -> None:
    with pytest.raises(errors.InvalidNameError, match="queue 'job:a b'"):
        JobSampleRules(queue="a b")
    with pytest.raises(errors.InvalidNameError, match="campaign"):
        JobSampleRules(campaign="")
    with pytest.raises(errors.InvalidInputError, match="score's field must have a name"):
        JobSampleRules(score_field="")
