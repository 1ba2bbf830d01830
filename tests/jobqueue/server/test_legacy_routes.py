"""The seed's routes answer as the seed's server does, byte for byte where its workers look."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

from headgate.jobqueue import LedgerWriter
from headgate.jobqueue.server import ServerSettings, Service, build_app, legacy
from headgate.jobqueue.server.serving import statistics_line
from headgate.jobqueue.stores import MemoryStore
from headgate.net.authority import Authority
from headgate.net.token_stores import MemoryTokens
from headgate.net.tokens import Scope
from tests.jobqueue.server.conftest import JOB, SERVER, Queue, in_line

_TYPED = {**JOB, "resource_type": "team_a_1", "payload": {"team": "Team A", "task": "radio"}}


@pytest.fixture
async def seeded(queue: Queue) -> Queue:
    queue.set(legacy_acquire_wait_s=0.0)
    await queue.register({**SERVER, "compatible_task": ["radio"], "gpu": "a100"})
    await queue.submit(_TYPED)
    return queue


async def _get(queue: Queue, path: str) -> tuple[int, str]:
    answer = await queue.http.get(path)
    return answer.status_code, answer.text


async def _post(queue: Queue, path: str) -> tuple[int, str]:
    answer = await queue.http.post(path)
    return answer.status_code, answer.text


_OK = (200, '{"status":"ok"}')
_TOOK = (
    200,
    '{"job":{"id":"17","payload":{"team":"Team A","task":"radio"},"resource_type":"team_a_1"}}',
)
_ACQUIRED = (
    200,
    '{"index":0,"resource":{"host":"server1.example.com","port":8080,"compatible_task":["radio"],"gpu":"a100"}}',
)
_NOT_ASSIGNED = '{"detail":"Job not assigned to worker"}'
_SERVER = "/resource/team_a_1"


async def test_a_whole_job_is_answered_as_by_the_seed(seeded: Queue) -> None:
    assert await _get(seeded, "/job?worker=w") == _TOOK
    assert await _get(seeded, "/job?worker=w") == (200, '{"job":null}')
    assert await _post(seeded, "/job/17/heartbeat?worker=w") == _OK
    assert await _post(seeded, f"{_SERVER}/acquire?worker=w&job_id=17") == _ACQUIRED
    assert await _post(seeded, f"{_SERVER}/acquire?worker=w&job_id=17") == _ACQUIRED
    assert await _post(seeded, f"{_SERVER}/heartbeat?worker=w&job_id=17&resource_idx=0") == _OK
    assert await _post(seeded, "/heartbeat?worker=w") == (
        200,
        '{"status":"ok","jobs_heartbeated":1,"resources_heartbeated":{"team_a_1":1},"total_resources_heartbeated":1}',
    )
    assert await _post(seeded, "/done/17?worker=w") == _OK
    assert await _post(seeded, "/done/17?worker=w") == (400, _NOT_ASSIGNED)
    assert await _post(seeded, f"{_SERVER}/release?worker=w&job_id=17&resource_idx=0") == _OK
    assert (await seeded.http.get("/v1/jobs/17")).json()["state"] == "done"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/job/17/heartbeat?worker=stranger", (404, _NOT_ASSIGNED)),
        ("/job/nix/heartbeat?worker=w", (404, _NOT_ASSIGNED)),
        ("/done/17?worker=stranger", (400, _NOT_ASSIGNED)),
        ("/done/nix?worker=w", (400, _NOT_ASSIGNED)),
        ("/resource/nix/acquire?worker=w&job_id=17", (404, '{"detail":"Unknown resource type"}')),
        (f"{_SERVER}/acquire?worker=stranger&job_id=17", (404, _NOT_ASSIGNED)),
        (f"{_SERVER}/heartbeat?worker=w&job_id=17&resource_idx=0", (404, '{"detail":"Resource lease not found"}')),
        (
            f"{_SERVER}/release?worker=w&job_id=17&resource_idx=0",
            (404, '{"detail":"Resource lease not found or mismatch"}'),
        ),
        (
            "/heartbeat?worker=stranger",
            (
                200,
                '{"status":"ok","jobs_heartbeated":0,"resources_heartbeated":{},"total_resources_heartbeated":0}',
            ),
        ),
    ],
)
async def test_what_is_refused_is_refused_as_by_the_seed(seeded: Queue, path: str, expected: tuple[int, str]) -> None:
    await _get(seeded, "/job?worker=w")
    assert await _post(seeded, path) == expected


@pytest.mark.parametrize(
    "path",
    [
        f"{_SERVER}/release?worker=other&job_id=17&resource_idx=0",
        f"{_SERVER}/release?worker=w&job_id=17&resource_idx=1",
        f"{_SERVER}/release?worker=w&job_id=18&resource_idx=0",
        "/resource/team_b_1/release?worker=w&job_id=17&resource_idx=0",
    ],
)
async def test_a_release_must_name_worker_job_and_server(seeded: Queue, path: str) -> None:
    await _get(seeded, "/job?worker=w")
    await _post(seeded, f"{_SERVER}/acquire?worker=w&job_id=17")
    assert await _post(seeded, path) == (404, '{"detail":"Resource lease not found or mismatch"}')


async def test_a_missing_parameter_is_told_in_the_form_of_fastapi(queue: Queue) -> None:
    assert await _get(queue, "/job") == (
        422,
        '{"detail":[{"type":"missing","loc":["query","worker"],"msg":"Field required","input":null}]}',
    )
    assert await _post(queue, f"{_SERVER}/release?worker=w&job_id=17&resource_idx=x") == (
        422,
        (
            '{"detail":[{"type":"int_parsing","loc":["query","resource_idx"],'
            '"msg":"Input should be a valid integer, unable to parse string as an integer","input":"x"}]}'
        ),
    )


async def test_a_path_of_the_seed_that_is_none_has_errors_in_its_form(queue: Queue) -> None:
    assert await _get(queue, "/job/17") == (404, '{"detail":"Not Found"}')
    assert await _get(queue, "/done/17") == (405, '{"detail":"Method Not Allowed"}')


async def test_without_a_free_server_acquire_is_429(seeded: Queue) -> None:
    await seeded.submit({**_TYPED, "id": "18"})
    for worker, job_id in (("one", 17), ("two", 18)):
        await _get(seeded, f"/job?worker={worker}")
        answer = await _post(seeded, f"{_SERVER}/acquire?worker={worker}&job_id={job_id}")
    assert answer == (429, '{"detail":"No resources available"}')


async def test_an_acquire_that_is_held_open_gets_the_server_when_it_is_free(seeded: Queue) -> None:
    seeded.set(legacy_acquire_wait_s=60.0)
    await seeded.submit({**_TYPED, "id": "18"})
    for worker in ("one", "two"):
        await _get(seeded, f"/job?worker={worker}")
    await _post(seeded, f"{_SERVER}/acquire?worker=one&job_id=17")
    waiting = asyncio.create_task(_post(seeded, f"{_SERVER}/acquire?worker=two&job_id=18"))
    await in_line(seeded.writer, servers=1)
    await _post(seeded, "/done/17?worker=one")
    assert not waiting.done()
    await _post(seeded, f"{_SERVER}/release?worker=one&job_id=17&resource_idx=0")
    assert await waiting == _ACQUIRED


async def test_leases_of_the_seeds_workers_are_as_long_as_the_settings_say(seeded: Queue) -> None:
    seeded.set(job_heartbeat_timeout_s=1234.0, resource_heartbeat_timeout_s=567.0)
    await _get(seeded, "/job?worker=w")
    await _post(seeded, f"{_SERVER}/acquire?worker=w&job_id=17")

    def leases(ledger: object, _: object) -> tuple[float, float]:
        (job,) = ledger.running()  # type: ignore[attr-defined]
        return job.lease_s, ledger.resources()["team_a/0"].lease_s  # type: ignore[attr-defined]

    assert await seeded.writer.do(leases) == (1234.0, 567.0)


async def _v1(queue: Queue, path: str, **body: object) -> int:
    return (await queue.post(path, body)).status_code


async def test_a_claim_of_v1_can_be_neither_kept_nor_ended_under_its_workers_name(seeded: Queue) -> None:
    zombie = await seeded.claimed("w")
    await seeded.post("/v1/jobs/17/give-back", zombie)
    lease = await seeded.claimed("w")
    server = (await seeded.post("/v1/reservations", {"job_id": "17", **lease})).json()["reservation"]
    assert await _v1(seeded, "/v1/jobs/17/complete", **zombie) == 409
    assert await _post(seeded, "/done/17?worker=w") == (400, _NOT_ASSIGNED)
    assert await _post(seeded, "/job/17/heartbeat?worker=w") == (404, _NOT_ASSIGNED)
    assert await _post(seeded, f"{_SERVER}/acquire?worker=w&job_id=17") == (404, _NOT_ASSIGNED)
    for what in ("heartbeat", "release"):
        assert (await _post(seeded, f"{_SERVER}/{what}?worker=w&job_id=17&resource_idx=0"))[0] == 404
    told = (await seeded.http.post("/heartbeat?worker=w")).json()
    assert (told["jobs_heartbeated"], told["total_resources_heartbeated"]) == (0, 0)
    assert (await seeded.http.get("/v1/resources")).json()["resources"][0]["epoch"] == server["epoch"]
    assert await _v1(seeded, "/v1/jobs/17/complete", **lease) == 200


async def test_a_claim_made_here_cannot_be_named_by_v1(seeded: Queue) -> None:
    await _get(seeded, "/job?worker=w")
    lease_id = await seeded.writer.do(lambda ledger, _: next(iter(ledger.running())).lease_id)
    assert await _v1(seeded, "/v1/jobs/17/complete", lease_id=lease_id, epoch=1) == 422
    assert await _v1(seeded, "/v1/jobs/17/complete", lease_id=lease_id.rpartition(":")[2], epoch=1) == 409
    assert await _post(seeded, "/done/17?worker=w") == _OK


async def test_a_worker_of_the_same_name_with_another_token_is_another_worker(seeded: Queue) -> None:
    seeded.token(Scope.ADMIN)
    zombie, successor = seeded.token(Scope.LEGACY), seeded.token(Scope.LEGACY)
    for header in (zombie, successor):
        taken = await seeded.http.get("/job?worker=w", headers=header)
        assert taken.json()["job"]["id"] == "17"
        if header is zombie:
            await seeded.writer.do(lambda ledger, at: ledger.expire(at._replace(now=at.now + 10_000)))
    assert (await seeded.http.post("/done/17?worker=w", headers=zombie)).status_code == 400
    assert (await seeded.http.post("/done/17?worker=w", headers=successor)).status_code == 200


async def test_a_server_without_legacy_routes_has_none(writer: LedgerWriter, store: MemoryStore) -> None:
    authority = Authority(MemoryTokens(), needs_no_tokens=True)
    app = build_app(Service(writer, store.reader(), authority, ServerSettings(legacy_routes=False)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        for method, path in legacy.ROUTES:
            answer = await http.request(method, path.format(job_id="17", resource_type="a"), params={"worker": "w"})
            assert answer.status_code == 404
        assert (await http.post("/v1/claims", json={"worker": "w"})).status_code == 200
    authority.close()


async def test_jobs_that_need_no_server_are_not_for_the_seeds_workers(queue: Queue) -> None:
    await queue.submit({"id": "1", "team": "a", "task": "t"})
    assert await _get(queue, "/job?worker=w") == (200, '{"job":null}')


async def test_the_log_says_what_the_seeds_log_says(seeded: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="headgate.jobqueue")
    for method, path in (
        ("GET", "/job?worker=w"),
        ("POST", f"{_SERVER}/acquire?worker=w&job_id=17"),
        ("POST", f"{_SERVER}/heartbeat?worker=w&job_id=17&resource_idx=0"),
        ("POST", "/done/17?worker=w"),
        ("POST", f"{_SERVER}/release?worker=w&job_id=17&resource_idx=0"),
    ):
        await seeded.http.request(method, path)
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "headgate.jobqueue"]
    assert lines == [
        ("INFO", "Job 17 assigned to w (attempt 1)"),
        ("INFO", "Resource team_a_1[0] allocated to w for job 17"),
        ("INFO", "Resource team_a_1[0] heartbeat to w for job 17"),
        ("INFO", "Job 17 finished by w"),
        ("WARNING", "Resource team_a_1[0] freed (released by worker)"),
    ]


async def test_the_line_of_statistics_has_the_seeds_fields(seeded: Queue) -> None:
    await _get(seeded, "/job?worker=w")
    await _post(seeded, f"{_SERVER}/acquire?worker=w&job_id=17")
    assert await seeded.writer.do(lambda ledger, _: statistics_line(ledger)) == (
        "Jobs: 1 | Pending jobs: 0 | In progress: 1 | Finished jobs: 0 | Dead jobs: 0 | Resource pools: 1 | "
        "Resource counts: {'team_a': 1} | "
        "Resource utilization by resource type: {'team_a': '1/1 (100.0%)'} | "
        "In-progress jobs per resource type: Counter({'team_a_1': 1})"
    )
