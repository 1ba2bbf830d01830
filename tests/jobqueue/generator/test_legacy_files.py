"""Files of the seed and our values, there and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.jobqueue import ImportedJob, Job, JobSpec, JobState, ResourceSpec
from headgate.jobqueue.generator import (
    imported_jobs,
    jobs_document,
    legacy_documents,
    resources_of,
    servers_document,
    servers_of,
)
from tests.jobqueue.generator.site import server


def jobs_of(document: object) -> list[JobSpec]:
    return [job.spec for job in imported_jobs(document)]


def _entry(**changed: Any) -> dict[str, Any]:
    entry = {
        "id": 0,
        "payload": {"team": "A", "team_slug": "a", "task": "radio", "instance_basename": "x_1_template-tro_state.json"},
        "resource_type": "a_1",
        "status": "pending",
        "attempts": 0,
    }
    return entry | changed


def _jobs(imported: list[ImportedJob]) -> list[Job]:
    """The jobs as a ledger has them once it has taken them in."""
    return [
        Job(one.spec, seq, 0.0, JobState.DONE if one.is_done else JobState.PENDING, epoch=one.attempts)
        for seq, one in enumerate(imported)
    ]


def _own_fields(document: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: entry[name] for name in ("id", "payload", "resource_type", "status", "attempts")} for entry in document
    ]


def test_a_job_is_read_whole() -> None:
    (job,) = imported_jobs([_entry(id=7, attempts=2, payload=_entry()["payload"] | {"more": [1, {"x": None}]})])
    payload = _entry()["payload"] | {"more": [1, {"x": None}]}
    assert json.loads(job.spec.payload) == payload
    assert job == ImportedJob(
        JobSpec("7", "a", "radio", "x_1_template-tro_state.json", "a", "a_1", job.spec.payload), False, 2
    )


@pytest.mark.parametrize(
    ("status", "is_done"), [("done", True), ("pending", False), ("in_progress", False), ("?", False)]
)
def test_done_jobs_are_done_and_all_others_pending(status: str, is_done: bool) -> None:
    (job,) = imported_jobs([_entry(status=status, attempts=3, assigned_to="w", assigned_at=1.5, last_heartbeat=2.5)])
    assert (job.is_done, job.attempts) == (is_done, 3)


def test_ids_are_text_and_positions_where_there_are_none() -> None:
    document = [_entry(id="b"), _entry(id=5), {"resource_type": "x"}, {"resource_type": "x", "id": None}]
    assert [job.job_id for job in jobs_of(document)] == ["b", "5", "2", "3"]


@pytest.mark.parametrize(
    ("payload", "team"),
    [
        ({"team_slug": "a", "team": "B"}, "a"),
        ({"team": "Robot Lab"}, "robot_lab"),
        ({"team": "!"}, "default"),
        ({"team_slug": None}, "default"),
        ({}, "default"),
    ],
)
def test_the_team_is_the_slug_or_made_of_the_name(payload: dict[str, Any], team: str) -> None:
    assert jobs_of([_entry(payload=payload)])[0].team == team


def test_a_job_without_payload_has_a_team_and_a_task_all_the_same() -> None:
    assert jobs_of([{"resource_type": ""}]) == [JobSpec("0", "default", "default")]


def _pools(jobs: list[tuple[str, str]], *resource_types: str) -> list[str]:
    """The pools of resource types, where jobs are given as (resource type, team)."""
    document = [_entry(id=n, resource_type=kind, payload={"team_slug": team}) for n, (kind, team) in enumerate(jobs)]
    servers = {kind: [server(f"h{n}")] for n, kind in enumerate(resource_types)}
    return [spec.pool for spec in resources_of(servers, jobs_of(document))]


def test_groups_of_one_team_are_one_pool_also_those_that_no_job_was_bound_to() -> None:
    assert _pools([("a_1", "a")], "a_1", "a_2", "a_10", "b_1") == ["a", "a", "a", "b_1"]


def test_groups_of_a_team_whose_slug_begins_alike_stay_apart() -> None:
    assert _pools([("a_1", "a"), ("a_b_1", "a_b")], "a_b_1", "a_1", "a_b_2", "a_2") == ["a_b", "a", "a_b", "a"]


@pytest.mark.parametrize(
    ("jobs", "resource_type", "pool"),
    [
        ([("a_1", "a"), ("a_1", "b")], "a_1", "a_1"),  # shared with another team
        ([("a_1", "a_1"), ("a", "a")], "a_1", "a_1"),  # the pool of team a_1, not a group of team a
        ([("a", "a")], "a_1", "a_1"),  # team a has a pool and no groups, so this is another team's
        ([("a_1", "a"), ("a_2", "a_2")], "a_2", "a_2"),
        ([("a_1", "a")], "a_01", "a_01"),
        ([("a_1", "a")], "a_0", "a_0"),
        ([("a_1", "a")], "a_x", "a_x"),
        ([("gpu", "a")], "gpu", "gpu"),
    ],
)
def test_what_is_not_surely_a_group_of_one_team_keeps_its_name(
    jobs: list[tuple[str, str]], resource_type: str, pool: str
) -> None:
    assert _pools(jobs, resource_type) == [pool]


def test_jobs_and_servers_are_in_the_same_pools_and_routes_keep_their_names() -> None:
    jobs = jobs_of([_entry(id=0), _entry(id=1, resource_type="a_2"), _entry(id=2, resource_type="gpu")])
    assert [(job.pool, job.resource_type) for job in jobs] == [("a", "a_1"), ("a", "a_2"), ("gpu", "gpu")]


def test_servers_stay_in_the_order_of_the_file() -> None:
    jobs = jobs_of([_entry()])
    document = {"a_2": [server("1"), server("2", note="kept")], "z": [server("3")], "a_1": [server("4")]}
    found = resources_of(document, jobs)
    assert [(spec.pool, spec.host) for spec in found] == [("a", "1"), ("a", "2"), ("z", "3"), ("a", "4")]
    assert json.loads(found[1].body) == server("2", note="kept")


def test_a_queue_in_motion_is_written_as_the_seed_does() -> None:
    spec = jobs_of([_entry(id=3)])[0]
    running = Job(spec, 0, 1.0, JobState.IN_PROGRESS, 2, 1, "ab", "worker-1", 90.0, 1234.5)
    assert jobs_document([running]) == [
        _entry(
            id=3, status="in_progress", attempts=2, assigned_to="worker-1", assigned_at=1234.5, last_heartbeat=1234.5
        )
    ]


@pytest.mark.parametrize(
    ("job_id", "written"),
    [("0", 0), ("12", 12), ("-1", -1), ("007", "007"), ("٣", "٣"), ("a", "a"), ("9" * 30, "9" * 30)],
)
def test_ids_that_are_numbers_are_written_as_numbers(job_id: str, written: object) -> None:
    assert jobs_document([Job(JobSpec(job_id, "a", "t"), 0, 0.0)])[0]["id"] == written


def test_what_only_the_queue_knows_is_put_into_the_payload() -> None:
    spec = JobSpec("j", "a", "radio", "i", "a", "a", '{"x": 1}', priority=3, max_attempts=9)
    document = jobs_document([Job(spec, 0, 0.0)])
    assert document[0]["payload"] == {"x": 1, "team_slug": "a", "task": "radio", "instance_basename": "i"}
    (read,) = jobs_of(document)
    assert replace(read, payload=spec.payload) == spec


def test_dead_jobs_stay_dead_in_the_file_and_come_back_pending() -> None:
    document = jobs_document([Job(JobSpec("j", "a", "t"), 0, 0.0, JobState.DEAD, epoch=3, failures=3)])
    assert document[0]["status"] == "dead"
    assert not imported_jobs(document)[0].is_done


def test_a_pool_of_groups_is_split_again_for_servers_of_the_seed() -> None:
    servers = {
        "a_1": [server("1")],
        "a_2": [server("2", compatible_task=["radio"]), server("3", compatible_task="radio")],
    }
    document = [_entry(id=0), _entry(id=1, resource_type="a_2"), _entry(id=2, resource_type="a_9")]
    jobs = imported_jobs(document)
    resources = resources_of(servers, [job.spec for job in jobs])
    written, listed = legacy_documents(_jobs(jobs), resources)
    assert listed == servers
    assert [entry["resource_type"] for entry in written] == ["a_1", "a_2", "a_2"]  # a_9 is not there, a_2 has two


def test_a_server_registered_without_a_body_is_written_with_its_rules() -> None:
    spec = ResourceSpec("a", "h", 1, frozenset({"y", "x"}), frozenset({"z"}))
    assert legacy_documents([], [spec])[1] == {
        "a": [{"host": "h", "port": 1, "compatible_task": ["x", "y"], "not_compatible_task": ["z"]}]
    }


# Laws.

_text = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1, max_size=8)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_extra = st.dictionaries(
    _text.filter(lambda name: name not in {"team", "compatible_task", "not_compatible_task"}), _json, max_size=2
)
_slugs = st.sampled_from(["a", "a_b", "a_1", "b", "ab"])
_tasks = st.sampled_from(["radio", "tidy", "x"])
_constraint = st.none() | _tasks | st.lists(_tasks, min_size=1, max_size=3)


@st.composite
def _servers(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(
        st.lists(_slugs.flatmap(lambda s: st.sampled_from([s, f"{s}_1", f"{s}_2"])) | _text, unique=True, max_size=5)
    )
    return {
        name: [
            draw(_extra)
            | server(f"h{number}-{position}", draw(st.integers(1, 65_535)))
            | {
                key: value
                for key in ("compatible_task", "not_compatible_task")
                if (value := draw(_constraint)) is not None
            }
            for position in range(draw(st.integers(1, 3)))
        ]
        for number, name in enumerate(names)
    }


@st.composite
def _documents(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(0, 6))
    ids = draw(
        st.lists(
            st.integers(-5, 10**6) | _text.filter(lambda t: not {"/", "\\"} & set(t) and t not in {".", ".."}),
            unique_by=str, min_size=count, max_size=count,
        )
    )  # fmt: skip
    return [
        {
            "id": job_id,
            "payload": draw(_extra)
            | {"team_slug": draw(_slugs), "task": draw(_tasks), "instance_basename": draw(_text)},
            "resource_type": draw(
                st.just("") | _slugs.flatmap(lambda s: st.sampled_from([s, f"{s}_1", f"{s}_2"])) | _text
            ),
            "status": draw(st.sampled_from(["pending", "done"])),
            "attempts": draw(st.integers(0, 2**31 - 1)),
        }
        for job_id in ids
    ]


@settings(max_examples=30)
@given(_documents())
def test_a_file_of_jobs_is_the_same_after_a_journey_through_a_queue(document: list[dict[str, Any]]) -> None:
    def normal(entry: dict[str, Any]) -> dict[str, Any]:
        job_id = entry["id"]
        is_number = isinstance(job_id, str) and job_id.isascii() and job_id.isdigit() and str(int(job_id)) == job_id
        return entry | {"id": int(job_id) if is_number else job_id}

    assert _own_fields(jobs_document(_jobs(imported_jobs(document)))) == [normal(entry) for entry in document]


@settings(max_examples=30)
@given(_documents())
def test_jobs_are_the_same_after_a_journey_through_a_file(document: list[dict[str, Any]]) -> None:
    jobs = imported_jobs(document)
    assert imported_jobs(json.loads(json.dumps(jobs_document(_jobs(jobs))))) == jobs


@settings(max_examples=30)
@given(_servers())
def test_a_file_of_servers_is_the_same_after_a_journey(document: dict[str, Any]) -> None:
    assert servers_document(servers_of(document, "r.json")) == document
    assert legacy_documents([], resources_of(document))[1] == document


@settings(max_examples=30)
@given(_documents(), _servers())
def test_every_server_is_in_one_pool_and_a_job_has_all_servers_of_its_type(
    document: list[dict[str, Any]], servers: dict[str, Any]
) -> None:
    jobs = jobs_of(document)
    resources = resources_of(servers, jobs)
    assert len(resources) == sum(map(len, servers.values()))
    for job in jobs:
        of_its_type = {entry["host"] for entry in servers.get(job.resource_type, [])}
        assert of_its_type <= {spec.host for spec in resources if spec.pool == job.pool}


@settings(max_examples=30)
@given(_documents(), _servers())
def test_written_files_are_read_as_they_were_meant(document: list[dict[str, Any]], servers: dict[str, Any]) -> None:
    imported = imported_jobs(document)
    resources = resources_of(servers, [job.spec for job in imported])
    jobs, listed = legacy_documents(_jobs(imported), resources)
    assert sorted(entry["host"] for entries in listed.values() for entry in entries) == sorted(
        r.host for r in resources
    )
    assert [entry["payload"] for entry in jobs] == [entry["payload"] for entry in document]
    for entry, job in zip(jobs, imported, strict=True):
        before = {r.host for r in resources if r.pool == job.spec.pool}
        assert {one["host"] for one in listed.get(entry["resource_type"], [])} <= before


def test_a_new_group_takes_no_name_of_another_pool() -> None:
    document = [_entry(), _entry(id=1, resource_type="z", payload={"team_slug": "a_2"})]
    servers = {"a_1": [server("1")], "a_2": [server("2")], "a_3": [server("3", compatible_task="tidy")]}
    imported = imported_jobs(document)
    resources = resources_of(servers, [job.spec for job in imported])
    assert [spec.pool for spec in resources] == ["a", "a_2", "a"]
    assert legacy_documents(_jobs(imported), resources)[1] == servers


def test_a_new_group_takes_no_name_that_jobs_of_another_pool_wait_for() -> None:
    document = [_entry(resource_type="a_2"), _entry(id=1, resource_type="a_1", payload={"team_slug": "b"})]
    imported = imported_jobs(document)
    resources = resources_of({"a_2": [server("1")]}, [job.spec for job in imported])
    jobs, listed = legacy_documents(_jobs(imported), resources)
    assert ([entry["resource_type"] for entry in jobs], list(listed)) == (["a_2", "a_1"], ["a_2"])


def test_a_job_keeps_its_group_as_long_as_that_takes_its_task() -> None:
    document = [_entry(id=n, resource_type="a_2") for n in range(3)]
    imported = imported_jobs(document)
    servers = {"a_1": [server("1")], "a_2": [server("2", compatible_task="radio")]}
    resources = resources_of(servers, [job.spec for job in imported])
    jobs, listed = legacy_documents(_jobs(imported), resources)
    assert ([entry["resource_type"] for entry in jobs], listed) == (["a_2"] * 3, servers)
