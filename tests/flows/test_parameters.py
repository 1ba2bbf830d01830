"""The form that the UI makes of each flow."""

from __future__ import annotations

import pytest
from prefect import Flow

from flows.benchmark import benchmark
from flows.comparison import leaderboard
from flows.evaluation import evaluate, rank
from flows.jobqueue import drain_jobqueue, generate_jobs, requeue_dead_jobs
from flows.sampling import keep_sampling, sample_environment
from flows.upkeep import compact_samples, report

FLOWS = [
    sample_environment,
    keep_sampling,
    evaluate,
    rank,
    generate_jobs,
    drain_jobqueue,
    requeue_dead_jobs,
    report,
    leaderboard,
    compact_samples,
    benchmark,
]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_every_parameter_is_typed_and_described_in_a_sentence(flow: Flow) -> None:
    for name, schema in flow.parameters.properties.items():
        assert schema.get("type") or schema.get("anyOf") or schema.get("allOf"), name
        assert schema["description"].endswith("."), name


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_only_what_has_no_sensible_default_must_be_given(flow: Flow) -> None:
    assert flow.parameters.required == (["environment"] if flow is sample_environment else [])


def test_numbers_have_bounds_that_the_form_knows() -> None:
    schema = sample_environment.parameters.properties
    assert schema["duration_s"]["exclusiveMinimum"] == 0
    assert schema["workers"]["anyOf"][0]["minimum"] == 1


def test_flows_have_the_names_of_the_documentation() -> None:
    assert [flow.name for flow in FLOWS] == [
        "sample-environment",
        "keep-sampling",
        "evaluate",
        "rank",
        "generate-jobs",
        "drain-jobqueue",
        "requeue-dead-jobs",
        "report",
        "leaderboard",
        "compact-samples",
        "benchmark",
    ]
