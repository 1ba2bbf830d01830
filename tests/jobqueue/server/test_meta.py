"""Health, figures, the description and the page."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.jobqueue import Ledger
from headgate.jobqueue.server import v1_servers
from headgate.jobqueue.server.serving import statistics_line
from headgate.jobqueue.wire_servers import LaneOut
from tests.jobqueue.server.conftest import JOB, SERVER, Queue


async def _figures(queue: Queue) -> dict[tuple[str, ...], float]:
    text = (await queue.http.get("/metrics")).text
    return {
        (sample.name.removeprefix("headgate_jobqueue_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_health_counts_jobs(queue: Queue) -> None:
    await queue.submit(JOB)
    told = (await queue.http.get("/health")).json()
    assert (told["status"], told["database"]) == ("healthy", "open")
    assert told["jobs"] == {"pending": 1, "in_progress": 0, "done": 0, "dead": 0}
    assert told["uptime_s"] >= 0


async def test_figures_say_what_was_done(queue: Queue) -> None:
    await queue.register(SERVER, {**SERVER, "port": 8081})
    await queue.submit(JOB, {**JOB, "id": "18"})
    lease = await queue.claimed()
    await queue.post("/v1/reservations", {"job_id": "17", **lease})
    await queue.post("/v1/jobs/17/complete", {**lease, "epoch": 5})
    busy = await _figures(queue)
    assert busy["jobs", "in_progress"] == busy["jobs", "pending"] == 1
    assert (busy["servers", "team_a", "busy"], busy["servers", "team_a", "free"]) == (1, 1)
    await queue.post("/v1/jobs/17/complete", lease)
    figures = await _figures(queue)
    assert figures["claims_total",] == 1
    assert (figures["ended_claims_total", "done"], figures["ended_claims_total", "stale"]) == (1, 1)
    assert figures["reservations_total",] == 1
    assert figures["reservation_wait_seconds_count",] == 1
    assert figures["request_seconds_count", "POST /v1/claims", "200"] == 1
    assert figures["request_seconds_count", "POST /v1/jobs/{job_id}/complete", "409"] == 1
    assert figures["commits_total",] >= 5
    assert figures["waiting_operations",] == 0


async def test_a_server_of_several_pools_counts_in_each(queue: Queue) -> None:
    await queue.register(SERVER, {**SERVER, "pool": "team_b"})
    figures = await _figures(queue)
    assert (figures["servers", "team_a", "free"], figures["servers", "team_b", "free"]) == (1, 1)
    line = await queue.writer.do(lambda ledger, _: statistics_line(ledger))
    assert "Resource counts: {'team_a': 1, 'team_b': 1}" in line


async def test_the_description_says_what_each_route_takes_and_answers(queue: Queue) -> None:
    document = (await queue.http.get("/openapi.json")).json()
    claim = document["paths"]["/v1/claims"]["post"]
    assert claim["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ClaimIn"}
    assert claim["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ClaimOut"
    }
    assert {"401", "403", "408", "413", "415", "422", "429", "500", "503"} <= set(claim["responses"])
    assert claim["operationId"] == "post_claim"
    assert "/resource/{resource_type}/acquire" in document["paths"]
    operations = [one for path in document["paths"].values() for one in path.values()]
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids)) == 35
    assert all(one["tags"] and one["summary"] for one in operations)


async def test_the_examples_of_the_description_are_taken(queue: Queue) -> None:
    document = (await queue.http.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if content:
            url = path.replace("{job_id}", "17").replace("{pool}", "team_a").replace("{index}", "0")
            answer = await queue.post(
                url, {**content["example"], **({"wait_s": 0} if "wait_s" in content["example"] else {})}
            )
            assert answer.status_code in {200, 404, 409}, (path, answer.text)


async def test_the_address_itself_says_how_to_watch_the_queue(queue: Queue) -> None:
    answer = await queue.http.get("/")
    assert answer.headers["content-type"].startswith("text/plain")
    assert f"headgate console --jobqueue {str(queue.http.base_url).rstrip('/')}\n" in answer.text


async def test_health_and_figures_do_not_look_at_every_lane(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may ask for the health, and the writer's thread answers it."""

    def looked(ledger: Ledger) -> None:
        raise AssertionError("it took a step for each lane")

    await queue.submit(JOB)
    monkeypatch.setattr(Ledger, "lane_counts", looked)
    assert (await queue.http.get("/health")).status_code == 200
    assert (await _figures(queue))["jobs", "pending"] == 1
    assert "Pending jobs: 1" in await queue.writer.do(lambda ledger, _: statistics_line(ledger))


async def test_the_lanes_of_the_statistics_are_written_out_beside_the_writer(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ten thousand of them, claims would wait for a quarter of a second."""
    threads, lane_of = set[str](), v1_servers._lane

    def lane(*given: Any) -> LaneOut:
        threads.add(threading.current_thread().name)
        return lane_of(*given)

    await queue.submit(JOB)
    monkeypatch.setattr(v1_servers, "_lane", lane)
    (told,) = (await queue.http.get("/v1/statistics")).json()["lanes"]
    assert (told["pending"], told["done"]) == (1, 0)
    assert threads
    assert "headgate-writer" not in threads
