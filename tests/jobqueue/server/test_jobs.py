"""Submitting jobs, looking after them, collecting results."""

from __future__ import annotations

import pytest

from headgate.jobqueue.server import v1_jobs
from tests.jobqueue.server.conftest import JOB, SERVER, Queue


async def test_a_submitted_job_can_be_read_at_once(queue: Queue) -> None:
    answer = await queue.post("/v1/jobs", {"jobs": [{**JOB, "payload": {"seed": 1}}]})
    assert answer.json() == {"added": 1, "existing": 0}
    job = (await queue.http.get("/v1/jobs/17")).json()
    assert (job["state"], job["payload"], job["resource_type"], job["claimed_at"]) == (
        "pending",
        {"seed": 1},
        "team_a",
        None,
    )


async def test_jobs_that_are_there_are_counted_and_left_alone(queue: Queue) -> None:
    await queue.submit(JOB)
    answer = await queue.post("/v1/jobs", {"jobs": [JOB, {**JOB, "id": "18"}]})
    assert answer.json() == {"added": 1, "existing": 1}


async def test_a_job_with_other_contents_is_a_conflict_and_nothing_is_taken_in(queue: Queue) -> None:
    await queue.submit(JOB)
    answer = await queue.post("/v1/jobs", {"jobs": [{**JOB, "id": "18"}, {**JOB, "task": "other"}]})
    assert (answer.status_code, answer.json()["code"]) == (409, "job_conflict")
    assert (await queue.http.get("/v1/jobs/18")).status_code == 404


async def test_listing_goes_on_where_it_ended(queue: Queue) -> None:
    await queue.submit(*({**JOB, "id": str(number)} for number in range(5)))
    first = (await queue.http.get("/v1/jobs", params={"limit": 3})).json()
    assert [job["id"] for job in first["jobs"]] == ["0", "1", "2"]
    second = (await queue.http.get("/v1/jobs", params={"limit": 3, "after": first["next"]})).json()
    assert ([job["id"] for job in second["jobs"]], second["next"]) == (["3", "4"], None)


async def test_a_page_of_large_jobs_ends_early(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.jobqueue.server.v1_jobs._PAGE_BYTES", 1000)
    monkeypatch.setattr("headgate.jobqueue.server.v1_jobs._CHUNK", 2)
    await queue.submit(*({**JOB, "id": str(number), "payload": {"blob": "x" * 600}} for number in range(5)))
    page = (await queue.http.get("/v1/jobs")).json()
    assert ([job["id"] for job in page["jobs"]], page["next"]) == (["0", "1"], 1)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"state": "in_progress"}, ["17"]),
        ({"team": "team_b"}, ["b"]),
        ({"task": "dishes"}, ["d"]),
        ({"pool": ""}, ["b"]),
        ({"team": "nobody"}, []),
    ],
)
async def test_listing_shows_what_it_was_asked_for(queue: Queue, query: dict[str, str], ids: list[str]) -> None:
    await queue.register(SERVER)
    await queue.submit(JOB, {**JOB, "id": "d", "task": "dishes"}, {"id": "b", "team": "team_b", "task": "radio"})
    await queue.claim(tasks=["radio"], teams=["team_a"])
    listed = (await queue.http.get("/v1/jobs", params=query)).json()["jobs"]
    assert [job["id"] for job in listed] == ids


async def test_history_tells_the_life_of_a_job_without_lease_ids(queue: Queue) -> None:
    await queue.register(SERVER)
    await queue.submit(JOB)
    lease = await queue.claimed()
    await queue.post("/v1/jobs/17/fail", {**lease, "error": "crashed"})
    answer = await queue.http.get("/v1/jobs/17/history")
    entries = answer.json()["entries"]
    assert [(one["what"], one["worker"]) for one in entries] == [("submitted", ""), ("claimed", "w"), ("failed", "w")]
    assert lease["lease_id"] not in answer.text
    assert (await queue.http.get("/v1/jobs/no/history")).status_code == 404


async def test_history_can_be_asked_for_some_kinds(queue: Queue) -> None:
    await queue.register(SERVER)
    await queue.submit(JOB)
    await queue.claim()
    both = await queue.http.get("/v1/history", params={"what": ["claimed", "submitted"]})
    assert [one["what"] for one in both.json()["entries"]] == ["submitted", "claimed"]
    behind = await queue.http.get("/v1/history", params={"after": both.json()["next"]})
    assert behind.json() == {"entries": [], "next": both.json()["next"]}


async def test_results_are_collected_in_the_order_of_completion(queue: Queue) -> None:
    await queue.submit({"id": "1", "team": "a", "task": "t"}, {"id": "2", "team": "a", "task": "t"})
    first, second = await queue.claim(count=2)
    for one in (second, first):
        lease = {"lease_id": one["lease"]["lease_id"], "epoch": 1}
        await queue.post(f"/v1/jobs/{one['job']['id']}/complete", {**lease, "result": {"of": one["job"]["id"]}})
    page = (await queue.http.get("/v1/results", params={"limit": 1})).json()
    assert [one["job"]["result"] for one in page["results"]] == [{"of": "2"}]
    rest = (await queue.http.get("/v1/results", params={"after": page["next"]})).json()
    assert [one["job"]["result"] for one in rest["results"]] == [{"of": "1"}]


async def test_dead_jobs_are_listed_and_tried_again(queue: Queue) -> None:
    await queue.submit({"id": "1", "team": "a", "task": "t", "max_attempts": 1})
    lease = await queue.claimed()
    ended = await queue.post("/v1/jobs/1/fail", {**lease, "error": "no such scene"})
    assert ended.json() == {"job_id": "1", "state": "dead", "failures": 1}
    (dead,) = (await queue.http.get("/v1/dead-jobs")).json()["jobs"]
    assert dead["last_error"] == "no such scene"
    assert (await queue.post("/v1/dead-jobs/requeue", {"team": "other"})).json() == {"requeued": []}
    assert (await queue.post("/v1/dead-jobs/requeue", {"team": "a"})).json() == {"requeued": ["1"]}
    assert (await queue.http.get("/v1/jobs/1")).json()["failures"] == 0


@pytest.mark.parametrize(("named", "status", "code"), [("2", 409, "wrong_state"), ("3", 404, "unknown_job")])
async def test_jobs_named_one_by_one_are_all_requeued_or_none(queue: Queue, named: str, status: int, code: str) -> None:
    await queue.submit({"id": "1", "team": "a", "task": "t"}, {"id": "2", "team": "a", "task": "t"})
    await queue.post("/v1/jobs/1/withdraw", {"reason": "mistake"})
    answer = await queue.post("/v1/dead-jobs/requeue", {"job_ids": ["1", named]})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await queue.http.get("/v1/jobs/1")).json()["state"] == "dead"


async def test_a_withdrawn_job_is_dead_and_says_why(queue: Queue) -> None:
    await queue.submit(JOB)
    assert (await queue.post("/v1/jobs/17/withdraw", {"reason": "the team left"})).json()["state"] == "dead"
    assert "the team left" in (await queue.http.get("/v1/jobs/17")).json()["last_error"]
    again = await queue.post("/v1/jobs/17/withdraw", {})
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")


async def test_withdrawn_jobs_are_requeued_by_name_alone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1_jobs, "MOST_AT_ONCE", 2)
    await queue.submit(*({"id": f"{number}", "team": "a", "task": "t"} for number in range(4)))
    await queue.post("/v1/jobs/0/withdraw", {})
    await queue.post("/v1/jobs/withdraw", {"job_ids": ["1", "2"], "reason": "one submission a day"})
    await queue.post("/v1/jobs/3/fail", {**await queue.claimed(), "error": "withdrawn cash", "retry": False})
    assert (await queue.post("/v1/dead-jobs/requeue", {"team": "a"})).json() == {"requeued": ["3"]}
    assert (await queue.post("/v1/dead-jobs/requeue", {"job_ids": ["1"]})).json() == {"requeued": ["1"]}


async def test_many_jobs_are_withdrawn_by_team_and_task_or_by_name_all_or_none(queue: Queue) -> None:
    jobs = [(1, "a", "t"), (2, "a", "u"), (3, "b", "t"), (4, "a", "t")]
    await queue.submit(*({"id": f"{number}", "team": team, "task": task} for number, team, task in jobs))
    await queue.claim()
    some = {"team": "a", "task": "t", "reason": "left"}
    assert (await queue.post("/v1/jobs/withdraw", some)).json() == {"withdrawn": ["4", "1"]}, "a running one comes last"
    refused = await queue.post("/v1/jobs/withdraw", {"job_ids": ["2", "1"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")
    states = [(await queue.http.get(f"/v1/jobs/{number}")).json()["state"] for number, *_ in jobs]
    assert states == ["dead", "pending", "pending", "dead"]


async def test_nothing_is_withdrawn_without_saying_what(queue: Queue) -> None:
    refused = await queue.post("/v1/jobs/withdraw", {"reason": "all"})
    assert (refused.status_code, "without any, all jobs would be withdrawn" in refused.text) == (422, True)


async def test_statistics_say_which_lanes_nobody_serves(queue: Queue) -> None:
    await queue.submit(JOB, {**JOB, "id": "18", "pool": "elsewhere"})
    await queue.register(SERVER)
    await queue.claim()
    told = (await queue.http.get("/v1/statistics")).json()
    assert told["jobs"] == {"pending": 1, "in_progress": 1, "done": 0, "dead": 0}
    assert told["workers"] == 1
    assert {lane["pool"]: lane["is_served"] for lane in told["lanes"]} == {"team_a": True, "elsewhere": False}
    (pool,) = [pool for pool in told["pools"] if pool["pool"] == "team_a"]
    assert (pool["servers"], pool["free"], pool["busy"]) == (1, 1, 0)
