"""Claims over `/v1`: once handed out, once counted."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from headgate.core import SystemClock
from headgate.jobqueue.server import RunningServer
from headgate.net.tokens import Scope, revoked
from tests.jobqueue.server.conftest import JOB, SERVER, Queue, in_line

_A = {"id": "1", "team": "a", "task": "t"}
_STRANGER = {"lease_id": "ab" * 16, "epoch": 1}
_KEY = {"Idempotency-Key": "7c9e6679"}


async def test_a_claim_carries_the_job_and_its_lease(queue: Queue) -> None:
    await queue.submit({**_A, "payload": {"n": 1}})
    (one,) = await queue.claim(lease_s=30)
    assert (one["job"]["id"], one["job"]["payload"], one["job"]["state"]) == ("1", {"n": 1}, "in_progress")
    assert (one["lease"]["epoch"], one["lease"]["lease_s"], one["lease"]["renew_every_s"]) == (1, 30, 10)
    assert await queue.claim("other") == []


async def test_claims_are_narrowed_to_what_the_worker_asks_for(queue: Queue) -> None:
    await queue.submit(_A, {**_A, "id": "2", "task": "u"}, {**_A, "id": "3", "team": "b"})
    assert [one["job"]["id"] for one in await queue.claim(tasks=["u"], count=5)] == ["2"]
    assert [one["job"]["id"] for one in await queue.claim(teams=["b"], count=5)] == ["3"]
    assert await queue.claim(pools=["p"], count=5) == []


async def test_renewal_says_for_each_lease_what_became_of_it(queue: Queue) -> None:
    await queue.register(SERVER)
    await queue.submit(JOB)
    lease = await queue.claimed()
    await queue.post("/v1/reservations", {"job_id": "17", **lease})
    named = [{"job_id": "17", **lease}, {"job_id": "17", **_STRANGER}, {"job_id": "no", **_STRANGER}]
    renewals = (await queue.post("/v1/leases/renew", {"leases": named})).json()["renewals"]
    assert [one["status"] for one in renewals] == ["renewed", "lost", "unknown"]
    assert renewals[0]["reservation"]["resource"] == {"host": "server1.example.com", "port": 8080}


async def test_a_completion_counts_once_and_its_repetition_is_told(queue: Queue) -> None:
    await queue.submit(_A)
    body = {**await queue.claimed(), "result": {"q_score": 0.5}, "result_ref": "/results/1.json"}
    assert (await queue.post("/v1/jobs/1/complete", body)).json() == {"job_id": "1", "status": "done", "reason": ""}
    assert (await queue.post("/v1/jobs/1/complete", body)).json()["status"] == "repeated"
    job = (await queue.http.get("/v1/jobs/1")).json()
    assert (job["state"], job["result"], job["result_ref"]) == ("done", {"q_score": 0.5}, "/results/1.json")


async def test_a_stale_completion_is_refused_and_recorded(queue: Queue) -> None:
    await queue.submit(_A)
    old = await queue.claimed("first")
    await queue.post("/v1/jobs/1/give-back", {**old, "reason": "preempted"})
    await queue.claimed("second")
    answer = await queue.post("/v1/jobs/1/complete", {**old, "result": {"late": True}})
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_lease")
    history = (await queue.http.get("/v1/history", params={"what": "late_result"})).json()["entries"]
    assert [(one["epoch"], one["note"]) for one in history] == [(1, '{"late":true}')]


@pytest.mark.parametrize("how", ["complete", "fail", "give-back"])
async def test_ending_an_unknown_job_is_404_and_a_lease_never_given_409(queue: Queue, how: str) -> None:
    await queue.submit(_A)
    body = {**_STRANGER, **({"error": "x"} if how == "fail" else {})}
    assert (await queue.post(f"/v1/jobs/no/{how}", body)).json()["code"] == "unknown_job"
    assert (await queue.post(f"/v1/jobs/1/{how}", body)).json()["code"] == "stale_lease"


async def test_many_completions_are_each_answered(queue: Queue) -> None:
    await queue.submit(_A, {**_A, "id": "2"})
    one, two = await queue.claim(count=2)
    leases = [{"job_id": c["job"]["id"], "lease_id": c["lease"]["lease_id"], "epoch": 1} for c in (one, two)]
    wrong = [{**leases[1], "epoch": 9}, {**leases[1], "job_id": "no"}]
    answer = await queue.post("/v1/completions", {"completions": [leases[0], *wrong, leases[0]]})
    said = [one["status"] for one in answer.json()["completions"]]
    assert (answer.status_code, said) == (200, ["done", "stale", "unknown", "repeated"])


async def test_a_failed_job_is_tried_again_until_it_is_dead(queue: Queue) -> None:
    await queue.submit({**_A, "max_attempts": 2})
    first = await queue.post("/v1/jobs/1/fail", {**await queue.claimed(), "error": "one"})
    second = await queue.post("/v1/jobs/1/fail", {**await queue.claimed(), "error": "two"})
    assert [answer.json()["state"] for answer in (first, second)] == ["pending", "dead"]


async def test_a_failure_that_cannot_be_mended_ends_the_job(queue: Queue) -> None:
    await queue.submit(_A)
    answer = await queue.post("/v1/jobs/1/fail", {**await queue.claimed(), "error": "no scene", "retry": False})
    assert answer.json()["state"] == "dead"


async def test_giving_back_blames_nobody(queue: Queue) -> None:
    await queue.submit(_A)
    answer = await queue.post("/v1/jobs/1/give-back", {**await queue.claimed(), "reason": "preempted"})
    assert answer.json() == {"job_id": "1", "state": "pending", "failures": 0}


async def test_a_waiting_claim_is_served_when_a_job_comes(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.claim("patient", wait_s=60))
    await in_line(queue.writer, claims=1)
    await queue.submit(_A)
    assert [one["job"]["id"] for one in await waiting] == ["1"]


async def test_a_claim_in_vain_comes_back_empty_in_time(queue: Queue) -> None:
    assert await queue.claim(wait_s=0.01) == []
    assert await queue.writer.do(lambda ledger, _: ledger.waiting_claims) == 0


async def test_a_worker_that_hangs_up_leaves_the_line(live: RunningServer) -> None:
    writer = live.service.writer
    async with httpx.AsyncClient(base_url=live.url) as http:
        waiting = asyncio.create_task(http.post("/v1/claims", json={"worker": "w", "wait_s": 300}))
        await in_line(writer, claims=1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await in_line(writer)
    async with httpx.AsyncClient(base_url=live.url) as http:
        await http.post("/v1/jobs", json={"jobs": [_A]})
        assert (await http.get("/v1/jobs/1")).json()["state"] == "pending"


async def test_a_token_that_ends_while_its_claim_stands_in_line_gets_nothing(queue: Queue) -> None:
    admin, token = queue.token(Scope.ADMIN), queue.token(Scope.CLAIM)
    body = {"worker": "w", "wait_s": 60}
    waiting = [asyncio.create_task(queue.post("/v1/claims", body, headers={**token, **key})) for key in ({}, _KEY)]
    await in_line(queue.writer, claims=2)
    _revoke(queue, token)
    await queue.submit(_A, {**_A, "id": "2"}, headers=admin)
    for answer in await asyncio.gather(*waiting):
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"]
    jobs = (await queue.http.get("/v1/jobs", headers=admin)).json()["jobs"]
    assert [(job["state"], job["failures"]) for job in jobs] == [("pending", 0)] * 2


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_a_token_that_ends_while_its_job_waits_for_a_server_gets_none(queue: Queue, is_legacy: bool) -> None:
    admin, token = queue.token(Scope.ADMIN), queue.token(Scope.LEGACY if is_legacy else Scope.CLAIM)
    await queue.register(SERVER, headers=admin)
    await queue.submit(JOB, headers=admin)
    (claimed,) = (await queue.post("/v1/claims", {"worker": "w"}, headers=admin)).json()["jobs"]
    held = {"job_id": "17", "lease_id": claimed["lease"]["lease_id"], "epoch": 1}
    await queue.post("/v1/reservations", held, headers=admin)
    await queue.submit({**JOB, "id": "18"}, headers=admin)
    if is_legacy:
        await queue.http.get("/job?worker=w", headers=token)
        path = "/resource/team_a/acquire?worker=w&job_id=18"
        waiting = asyncio.create_task(queue.http.post(path, headers=token))
    else:
        (claimed,) = (await queue.post("/v1/claims", {"worker": "w"}, headers=token)).json()["jobs"]
        waits = {"job_id": "18", "lease_id": claimed["lease"]["lease_id"], "epoch": 1, "wait_s": 60}
        waiting = asyncio.create_task(queue.post("/v1/reservations", waits, headers=token))
    await in_line(queue.writer, servers=1)
    _revoke(queue, token)
    end = {"lease_id": held["lease_id"], "epoch": 1}
    await queue.post(f"/v1/jobs/{held['job_id']}/complete", end, headers=admin)
    assert (await waiting).status_code == 401
    (server,) = (await queue.http.get("/v1/resources", headers=admin)).json()["resources"]
    assert server["job_id"] is None


def _revoke(queue: Queue, token: dict[str, str]) -> None:
    token_id = token["Authorization"].removeprefix("Bearer hgq_")[:12]
    queue.tokens.change(token_id, lambda found: revoked(found, now=SystemClock().wall()))


async def test_a_reference_that_no_database_can_keep_is_refused(queue: Queue) -> None:
    """It would be kept as another one, and the same completion be refused when it is sent again."""
    await queue.submit(_A)
    lease = await queue.claimed()
    answer = await queue.post("/v1/jobs/1/complete", {**lease, "result_ref": "a\0b"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body.result_ref")
