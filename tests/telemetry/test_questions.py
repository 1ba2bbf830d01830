"""What a campaign can be asked over the monitoring API beside its status."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import pytest

from headgate.core import errors, events
from headgate.core.events import CapacityPlan, CapacitySource, CapacityValue
from headgate.telemetry import Questions, monitor_app, new_registry, serve_monitor
from tests.telemetry.factories import status


@dataclass(frozen=True)
class Said:
    task_id: str
    state: str
    until: float | None = float("inf")


async def explain(task_id: str) -> Said:
    if task_id != "t-1":
        raise errors.NotFoundError(f"task {task_id} is not known here")
    return Said(task_id, "queued")


def tasks(model: str | None, environment: str | None, limit: int) -> list[Said]:
    return [] if model == "idle@main" else [Said(f"{model} {environment} {limit}", "queued", 5.0)]


def next_due(model: str, environment: str) -> Said | None:
    return Said(f"{model} {environment}", "not due", 9.0) if environment == "affine:sat" else None


def health() -> events.HealthReported:
    key = events.RequestKeyHealth("http://p small", 8, 3, 1, "cooldown", 99.0)
    counts = (20, 19, 7, 3, 29, 5, 19, 0)
    groups = ({"a": 7}, {"a": 19}, 0, {"workers": (19, 20)})
    return events.HealthReported("main", "r-1", "running", *counts, None, *groups, (key,), 0)


def capacity() -> CapacityPlan:
    value = CapacityValue(20, CapacitySource.ENVIRONMENT, "HEADGATE_WORKERS")
    return CapacityPlan({"workers": value}, {}, {})


@pytest.fixture
async def client():
    questions = Questions(explain, tasks, capacity, health, next_due)
    app = monitor_app(status, new_registry(), questions=questions)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client


async def test_a_task_is_explained(client) -> None:
    answer = await client.get("/status/tasks/t-1")
    assert answer.json() == {"task": {"task_id": "t-1", "state": "queued", "until": None}}


async def test_a_task_that_is_not_known_is_a_problem_document(client) -> None:
    answer = await client.get("/status/tasks/t-2")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


async def test_open_tasks_are_listed_by_model_and_environment(client) -> None:
    answer = await client.get("/status/tasks", params={"model": "a@main", "environment": "affine:sat", "limit": 3})
    assert [task["task_id"] for task in answer.json()["tasks"]] == ["a@main affine:sat 3"]
    assert (await client.get("/status/tasks", params={"limit": 0})).status_code == 422


async def test_where_no_task_of_a_pair_is_open_it_says_when_the_next_one_is_due(client) -> None:
    async def asked(**query: str) -> dict[str, object] | None:
        return (await client.get("/status/tasks", params=query)).json()["next"]

    said = await asked(model="idle@main", environment="affine:sat")
    assert said == {"task_id": "idle@main affine:sat", "state": "not due", "until": 9.0}
    assert await asked(model="idle@main", environment="test:other") is None
    assert await asked(model="idle@main") is await asked(model="a@main", environment="affine:sat") is None


async def test_health_and_capacity_are_plain_json(client) -> None:
    assert (await client.get("/status/health")).json()["health"]["requests"][0]["closed_by"] == "cooldown"
    plan = (await client.get("/status/capacity")).json()["capacity"]
    assert plan["configured"]["workers"]["source"] == "environment"
    assert plan["configured"]["workers"]["detail"] == "HEADGATE_WORKERS"


async def test_every_route_that_is_listed_answers(client) -> None:
    listed = (await client.get("/")).json()["endpoints"]
    for path in listed:
        filled = path.replace("{uid}", "1").replace("{env_name}", "affine:sat").replace("{task_id}", "t-1")
        assert (await client.get(filled)).status_code == 200, path


async def test_a_server_without_a_campaign_lists_no_questions() -> None:
    async with (
        serve_monitor(status, new_registry(), port=0) as server,
        httpx.AsyncClient(base_url=server.address) as client,
    ):
        assert "/status/capacity" not in (await client.get("/")).json()["endpoints"]
        assert (await client.get("/status/capacity")).status_code == 404
