"""A request that is sent again with its Idempotency-Key is answered again, and done once."""

from __future__ import annotations

import asyncio

import pytest

from headgate.net.tokens import Scope
from tests.jobqueue.server.conftest import JOB, Queue, in_line

_KEY = {"Idempotency-Key": "7c9e6679"}
_A = {"id": "1", "team": "a", "task": "t"}


async def test_a_submission_sent_again_gets_the_first_answer(queue: Queue) -> None:
    first = await queue.post("/v1/jobs", {"jobs": [JOB]}, headers=_KEY)
    again = await queue.post("/v1/jobs", {"jobs": [JOB]}, headers=_KEY)
    assert first.json() == again.json() == {"added": 1, "existing": 0}
    assert "idempotent-replay" not in first.headers
    assert again.headers["idempotent-replay"] == "true"


async def test_a_claim_sent_again_hands_out_nothing_more(queue: Queue) -> None:
    await queue.submit(_A, {**_A, "id": "2"})
    first = await queue.post("/v1/claims", {"worker": "w"}, headers=_KEY)
    again = await queue.post("/v1/claims", {"worker": "w"}, headers=_KEY)
    assert first.json()["jobs"][0]["job"]["id"] == "1"
    assert again.content == first.content
    assert (await queue.http.get("/v1/jobs/2")).json()["state"] == "pending"


@pytest.mark.parametrize("wait", [{}, {"wait_s": 0.01}])
async def test_a_claim_in_vain_is_not_remembered(queue: Queue, wait: dict[str, float]) -> None:
    assert await queue.claim() == []  # a writer's first operation sweeps old answers away
    before = queue.writer.figures.commits
    for _ in range(3):
        answer = await queue.post("/v1/claims", {"worker": "w", **wait}, headers=_KEY)
        assert answer.json() == {"jobs": []}
    assert queue.writer.figures.commits == before


async def test_a_claim_that_waited_is_answered_again_too(queue: Queue) -> None:
    body = {"worker": "w", "wait_s": 60}
    waiting = asyncio.create_task(queue.post("/v1/claims", body, headers=_KEY))
    await in_line(queue.writer, claims=1)
    await queue.submit(_A, {**_A, "id": "2"})
    first = await waiting
    again = await queue.post("/v1/claims", body, headers=_KEY)
    assert (again.content, again.headers["idempotent-replay"]) == (first.content, "true")


async def test_the_same_claim_twice_in_line_is_served_once(queue: Queue) -> None:
    body = {"worker": "w", "wait_s": 60}
    waiting = [asyncio.create_task(queue.post("/v1/claims", body, headers=_KEY)) for _ in range(2)]
    await in_line(queue.writer, claims=2)
    await queue.submit(_A, {**_A, "id": "2"})
    first, second = await asyncio.gather(*waiting)
    assert first.content == second.content
    states = [job["state"] for job in (await queue.http.get("/v1/jobs")).json()["jobs"]]
    assert sorted(states) == ["in_progress", "pending"]


async def test_a_completion_with_a_key_counts_once(queue: Queue) -> None:
    await queue.submit(_A)
    lease = await queue.claimed()
    first = await queue.post("/v1/jobs/1/complete", lease, headers=_KEY)
    again = await queue.post("/v1/jobs/1/complete", lease, headers=_KEY)
    assert (first.json()["status"], again.json()["status"]) == ("done", "done")


async def test_a_refusal_with_a_key_is_refused_again_and_recorded_once(queue: Queue) -> None:
    await queue.submit(_A)
    late = {**await queue.claimed(), "result": {}}
    await queue.post("/v1/jobs/1/give-back", {name: late[name] for name in ("lease_id", "epoch")})
    first = await queue.post("/v1/jobs/1/complete", late, headers=_KEY)
    again = await queue.post("/v1/jobs/1/complete", late, headers=_KEY)
    assert (first.status_code, again.status_code) == (409, 409)
    assert again.headers["content-type"] == "application/problem+json"
    entries = (await queue.http.get("/v1/history", params={"what": "late_result"})).json()["entries"]
    assert len(entries) == 1


async def test_completions_of_made_up_leases_leave_nothing_behind(queue: Queue) -> None:
    await queue.submit(_A)
    made_up = {"job_id": "1", "lease_id": "ab" * 16, "epoch": 1, "result": {"x": "y" * 100_000}}
    many = {"completions": [made_up] * 50}
    reader = queue.store.reader()
    before = reader.history(-1, 99)
    for key in ({}, _KEY):
        answer = await queue.post("/v1/completions", many, headers=key)
        assert {one["status"] for one in answer.json()["completions"]} == {"stale"}
        one = {name: value for name, value in made_up.items() if name != "job_id"}
        assert (await queue.post("/v1/jobs/1/complete", one, headers=key)).status_code == 409
    assert reader.history(-1, 99) == before
    assert await queue.writer.do(lambda ledger, _: ledger.reply(":7c9e6679")) is None


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/jobs", {"jobs": [{**JOB, "id": "18"}]}), ("/v1/claims", {"worker": "w"}), ("/v1/jobs/17/withdraw", {})],
)
async def test_a_key_of_another_request_is_a_conflict(queue: Queue, path: str, body: dict[str, object]) -> None:
    await queue.post("/v1/jobs", {"jobs": [JOB]}, headers=_KEY)
    answer = await queue.post(path, body, headers=_KEY)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")


async def test_keys_belong_to_their_token(queue: Queue) -> None:
    one, other = queue.token(Scope.SUBMIT), queue.token(Scope.SUBMIT)
    await queue.submit(_A, headers={**one, **_KEY})
    answer = await queue.post("/v1/jobs", {"jobs": [JOB]}, headers={**other, **_KEY})
    assert answer.json() == {"added": 1, "existing": 0}


@pytest.mark.parametrize("key", ["", "x" * 201, "caf\u00e9"])
async def test_a_key_that_is_no_key_is_refused(queue: Queue, key: str) -> None:
    answer = await queue.post("/v1/jobs", {"jobs": [JOB]}, headers={b"Idempotency-Key": key.encode("latin-1")})  # type: ignore[dict-item]
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


async def test_an_answer_outlives_a_restart(queue: Queue) -> None:
    await queue.post("/v1/jobs", {"jobs": [JOB]}, headers=_KEY)
    assert queue.store.reply(":7c9e6679") is not None
