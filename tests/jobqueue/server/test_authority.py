"""Who may call what: every route with every kind of token, taken from the application itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route as MountedRoute

from headgate.core import SystemClock
from headgate.core.audit import audit_entries
from headgate.jobqueue.server import app, legacy
from headgate.jobqueue.server.endpoint import Endpoint
from headgate.net.tokens import Scope, Token, rotated
from tests.jobqueue.server.conftest import JOB, SERVER, Queue, bearer, in_line

SCOPES: dict[tuple[str, str], Scope | None] = {
    ("POST", "/v1/jobs"): Scope.SUBMIT,
    ("GET", "/v1/jobs"): Scope.READ,
    ("GET", "/v1/jobs/{job_id}"): Scope.READ,
    ("GET", "/v1/jobs/{job_id}/history"): Scope.READ,
    ("POST", "/v1/claims"): Scope.CLAIM,
    ("POST", "/v1/leases/renew"): Scope.CLAIM,
    ("POST", "/v1/jobs/{job_id}/complete"): Scope.COMPLETE,
    ("POST", "/v1/completions"): Scope.COMPLETE,
    ("POST", "/v1/jobs/{job_id}/fail"): Scope.COMPLETE,
    ("POST", "/v1/jobs/{job_id}/give-back"): Scope.CLAIM,
    ("POST", "/v1/reservations"): Scope.CLAIM,
    ("POST", "/v1/reservations/release"): Scope.CLAIM,
    ("GET", "/v1/dead-jobs"): Scope.READ,
    ("POST", "/v1/dead-jobs/requeue"): Scope.SUBMIT,
    ("POST", "/v1/jobs/withdraw"): Scope.SUBMIT,
    ("POST", "/v1/jobs/{job_id}/withdraw"): Scope.SUBMIT,
    ("GET", "/v1/results"): Scope.READ,
    ("GET", "/v1/history"): Scope.READ,
    ("GET", "/v1/statistics"): Scope.READ,
    ("GET", "/v1/resources"): Scope.READ,
    ("POST", "/v1/resources"): Scope.ADMIN,
    ("POST", "/v1/resources/{pool:path}/{index}/drain"): Scope.ADMIN,
    ("POST", "/v1/resources/{pool:path}/{index}/open"): Scope.ADMIN,
    ("DELETE", "/v1/resources/{pool:path}/{index}"): Scope.ADMIN,
    ("GET", "/"): None,
    ("GET", "/health"): None,
    ("GET", "/metrics"): Scope.READ,
    ("GET", "/openapi.json"): Scope.READ,
    ("GET", "/job"): Scope.LEGACY,
    ("POST", "/job/{job_id}/heartbeat"): Scope.LEGACY,
    ("POST", "/done/{job_id}"): Scope.LEGACY,
    ("POST", "/resource/{resource_type}/acquire"): Scope.LEGACY,
    ("POST", "/resource/{resource_type}/heartbeat"): Scope.LEGACY,
    ("POST", "/resource/{resource_type}/release"): Scope.LEGACY,
    ("POST", "/heartbeat"): Scope.LEGACY,
}
"""What each route needs, said a second time: a route that is not here fails the first test."""

GUARDED = [(key, scope) for key, scope in SCOPES.items() if scope is not None]


def _mounted(routes: list[Any]) -> Iterator[tuple[str, str]]:
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if isinstance(route, MountedRoute | APIRoute):
            methods = (route.methods or set()) - {"HEAD"}
            yield from ((method, route.path) for method in methods)
        elif inner is not None:
            yield from _mounted(inner.routes)
        else:
            raise TypeError(f"a route of a kind that this test does not know: {route!r}")


def _request(method: str, pattern: str) -> dict[str, Any]:
    filled = {"job_id": "17", "pool:path": "team_a", "index": "0", "resource_type": "team_a"}
    url = pattern
    for name, value in filled.items():
        url = url.replace("{" + name + "}", value)
    route = next((one for one in app.ROUTES if (one.method, one.pattern) == (method, pattern)), None)
    if route is None:
        url += "?worker=w&job_id=17&resource_idx=0"
    body = None if route is None or "body" not in route.takes else {**route.example}
    if body is not None and "wait_s" in body:
        body["wait_s"] = 0
    return {"method": method, "url": url, "json": body}


async def _ask(queue: Queue, key: tuple[str, str], headers: dict[str, str] | None = None) -> httpx.Response:
    return await queue.http.request(**_request(*key), headers=headers)


async def test_every_route_is_in_this_matrix(queue: Queue) -> None:
    assert set(_mounted(queue.app.router.routes)) == set(SCOPES)
    declared = {(route.method, route.pattern): route.scope for route in app.ROUTES}
    declared |= dict.fromkeys(legacy.ROUTES, Scope.LEGACY)
    assert declared == SCOPES


async def test_every_route_of_v1_goes_through_an_endpoint_that_asks_for_its_scope(queue: Queue) -> None:
    for route in queue.app.router.routes:
        if isinstance(route, MountedRoute) and not isinstance(route, APIRoute):
            assert isinstance(route.app, Endpoint)


@pytest.mark.parametrize(("key", "scope"), GUARDED, ids=str)
async def test_without_a_good_token_nothing_is_answered(queue: Queue, key: tuple[str, str], scope: Scope) -> None:
    queue.token(Scope.ADMIN)  # from now on, tokens are needed
    for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Bearer hgq_{'0' * 12}.{'x' * 43}"}):
        answer = await _ask(queue, key, headers)
        assert answer.status_code == 401, (key, answer.text)
        challenges = answer.headers.get_list("www-authenticate")
        assert challenges[0] == "Bearer"
        assert len(challenges) == 1 or challenges[1].startswith("Basic realm=")


@pytest.mark.parametrize(("key", "scope"), GUARDED, ids=str)
async def test_each_route_opens_to_its_own_scope_and_to_no_other(
    queue: Queue, key: tuple[str, str], scope: Scope
) -> None:
    for given in Scope:
        answer = await _ask(queue, key, queue.token(given))
        if given in {scope, Scope.ADMIN}:
            assert answer.status_code not in {401, 403}, (given, answer.text)
        else:
            assert answer.status_code == 403, (given, answer.text)


async def test_health_is_open_to_everybody(queue: Queue) -> None:
    queue.token(Scope.ADMIN)
    assert (await queue.http.get("/health")).json()["status"] == "healthy"


_OF_A_JOB = [key for key in SCOPES if "{job_id}" in key[1]] + [
    ("POST", "/v1/reservations"),
    ("POST", "/v1/dead-jobs/requeue"),
    ("POST", "/v1/jobs/withdraw"),
    *(key for key in SCOPES if key[1].startswith("/resource/")),
]


def _naming(key: tuple[str, str], job_id: str) -> dict[str, Any]:
    asked = _request(*key)
    url = asked["url"].replace("/17", f"/{job_id}").replace("job_id=17", f"job_id={job_id}")
    body = asked["json"]
    if body is not None:
        body = json.loads(json.dumps(body).replace('"17"', f'"{job_id}"'))
        body |= {"wait_s": 60} if "wait_s" in body else {}  # nobody stands in line for what he may not know of
    return {**asked, "url": url, "json": body}


@pytest.mark.parametrize("key", [*_OF_A_JOB, ("POST", "/v1/leases/renew"), ("POST", "/v1/completions")], ids=str)
@pytest.mark.parametrize("is_running", [False, True])
async def test_another_teams_job_is_answered_exactly_as_one_that_is_not_there(
    queue: Queue, key: tuple[str, str], is_running: bool
) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.register(SERVER, headers=admin)
    await queue.submit(JOB, headers=admin)
    if is_running:
        assert (await queue.http.get("/job", params={"worker": "w"}, headers=admin)).json()["job"]["id"] == "17"
    other = queue.token(*Scope, teams=["team_b"])
    there, absent = [await queue.http.request(**_naming(key, job_id), headers=other) for job_id in ("17", "99")]
    assert there.status_code == absent.status_code
    assert there.text == absent.text.replace("99", "17")
    assert dict(there.headers) == dict(absent.headers)


@pytest.mark.parametrize("key", _OF_A_JOB, ids=str)
async def test_another_teams_job_is_not_there(queue: Queue, key: tuple[str, str]) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.register(SERVER, headers=admin)
    await queue.submit(JOB, headers=admin)
    before = (await queue.http.get("/v1/jobs/17", headers=admin)).json()
    answer = await _ask(queue, key, queue.token(*Scope, teams=["team_b"]))
    expected = 400 if key[1].startswith("/done") else 404
    assert answer.status_code == expected, answer.text
    assert (await queue.http.get("/v1/jobs/17", headers=admin)).json() == before


_OF_ALL_TEAMS = [
    ("POST", "/v1/resources"),
    ("POST", "/v1/resources/{pool:path}/{index}/drain"),
    ("POST", "/v1/resources/{pool:path}/{index}/open"),
    ("DELETE", "/v1/resources/{pool:path}/{index}"),
    ("GET", "/metrics"),
]


@pytest.mark.parametrize("key", _OF_ALL_TEAMS, ids=str)
async def test_what_concerns_every_team_is_closed_to_tokens_of_some(queue: Queue, key: tuple[str, str]) -> None:
    assert (await _ask(queue, key, queue.token(Scope.ADMIN, teams=["team_a"]))).status_code == 403


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/dead-jobs", "/v1/results", "/v1/history", "/v1/resources"])
async def test_listings_show_a_token_its_teams_alone(queue: Queue, path: str) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.register(SERVER, {**SERVER, "pool": "team_b", "host": "b.example.com"}, headers=admin)
    for team in ("team_a", "team_b"):
        jobs = [{**JOB, "id": f"{team}-{n}", "team": team, "pool": team, "task": f"task_of_{team}"} for n in range(2)]
        await queue.submit(*jobs, headers=admin)
        await queue.post(f"/v1/jobs/{team}-1/withdraw", {"reason": f"by {team}"}, headers=admin)
    answer = await queue.http.get(path, headers=queue.token(Scope.READ, teams=["team_b"]))
    assert answer.status_code == 200
    assert "team_a" not in answer.text
    if path != "/v1/results":
        assert "team_b" in answer.text


async def test_a_token_withdraws_jobs_of_its_teams_alone(queue: Queue) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.submit(*({"id": team, "team": team, "task": "t"} for team in ("team_a", "team_b")), headers=admin)
    own = queue.token(Scope.SUBMIT, teams=["team_b"])
    assert (await queue.post("/v1/jobs/withdraw", {"task": "t"}, headers=own)).json() == {"withdrawn": ["team_b"]}
    assert (await queue.post("/v1/jobs/withdraw", {"team": "team_a"}, headers=own)).json() == {"withdrawn": []}


async def test_statistics_show_a_token_its_teams_alone(queue: Queue) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.register(SERVER, headers=admin)
    await queue.submit(JOB, {"id": "b", "team": "team_b", "task": "t"}, headers=admin)
    told = (await queue.http.get("/v1/statistics", headers=queue.token(Scope.READ, teams=["team_b"]))).json()
    assert (told["jobs"]["pending"], [lane["team"] for lane in told["lanes"]], told["pools"]) == (1, ["team_b"], [])


async def test_a_claim_gets_jobs_of_the_tokens_teams_alone(queue: Queue) -> None:
    admin, bound = queue.token(Scope.ADMIN), queue.token(Scope.CLAIM, teams=["team_b"])
    await queue.submit({"id": "a", "team": "team_a", "task": "t"}, headers=admin)
    for body in ({"worker": "w"}, {"worker": "w", "teams": ["team_a"]}):
        assert (await queue.post("/v1/claims", body, headers=bound)).json() == {"jobs": []}
    await queue.submit({"id": "b", "team": "team_b", "task": "t"}, headers=admin)
    (one,) = (await queue.post("/v1/claims", {"worker": "w"}, headers=bound)).json()["jobs"]
    assert one["job"]["id"] == "b"


async def test_another_teams_claim_can_be_neither_kept_nor_ended(queue: Queue) -> None:
    admin, bound = queue.token(Scope.ADMIN), queue.token(*Scope, teams=["team_b"])
    await queue.register(SERVER, headers=admin)
    await queue.submit(JOB, headers=admin)
    (one,) = (await queue.post("/v1/claims", {"worker": "w"}, headers=admin)).json()["jobs"]
    lease = {"lease_id": one["lease"]["lease_id"], "epoch": 1}
    named = {"job_id": "17", **lease}
    renewed = await queue.post("/v1/leases/renew", {"leases": [named]}, headers=bound)
    assert renewed.json()["renewals"][0]["status"] == "unknown"
    many = await queue.post("/v1/completions", {"completions": [named]}, headers=bound)
    assert many.json()["completions"][0]["status"] == "unknown"
    for how, more in (("complete", {}), ("fail", {"error": "x"}), ("give-back", {})):
        answer = await queue.post(f"/v1/jobs/17/{how}", {**lease, **more}, headers=bound)
        assert answer.status_code == 404
    assert (await queue.http.get("/v1/jobs/17", headers=admin)).json()["state"] == "in_progress"


async def test_jobs_of_another_team_cannot_be_submitted(queue: Queue) -> None:
    answer = await queue.post("/v1/jobs", {"jobs": [JOB]}, headers=queue.token(Scope.SUBMIT, teams=["team_b"]))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("job_id", ["17", "99"])
async def test_a_submission_does_not_say_whether_another_team_has_a_job_of_its_id(queue: Queue, job_id: str) -> None:
    await queue.submit(JOB, headers=queue.token(Scope.ADMIN))
    own = {"id": job_id, "team": "team_b", "task": "t"}
    answer = await queue.post("/v1/jobs", {"jobs": [own]}, headers=queue.token(Scope.SUBMIT, teams=["team_b"]))
    assert answer.status_code == 403
    assert answer.json()["detail"] == (
        f"job ids must begin with 'team_b.', as the token is bound to teams (got {job_id!r})"
    )


_OWN = {"id": "team_b.1", "team": "team_b", "task": "t", "pool": "team_b"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pool": "team_a"}, "the token is not for pool 'team_a' (job 'team_b.1')"),
        ({"priority": 1}, "priority must be <= 0 for this token (job 'team_b.1': 1)"),
    ],
)
async def test_a_team_gets_neither_the_servers_nor_the_turn_of_another(
    queue: Queue, changes: dict[str, Any], told: str
) -> None:
    own = queue.token(Scope.SUBMIT, teams=["team_b"])
    answer = await queue.post("/v1/jobs", {"jobs": [{**_OWN, **changes}]}, headers=own)
    assert (answer.status_code, answer.json()["detail"]) == (403, told)
    more = queue.token(Scope.SUBMIT, teams=["team_b"], pools=["team_a"], most_priority=1)
    await queue.submit({**_OWN, "pool": "team_a", "priority": 1}, headers=more)
    await queue.submit({**_OWN, "id": "team_b.2", "priority": -1}, headers=own)


@pytest.mark.parametrize("is_legacy", [False, True])
async def test_a_tokens_claims_are_of_its_pools_alone(queue: Queue, is_legacy: bool) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.register(SERVER, {**SERVER, "pool": "team_b", "host": "b.example.com"}, headers=admin)
    await queue.submit({**_OWN, "pool": "team_a"}, headers=admin)

    async def taken(**bounds: Any) -> list[str]:
        if is_legacy:
            header = queue.token(Scope.LEGACY, **bounds)
            job = (await queue.http.get("/job", params={"worker": "w"}, headers=header)).json()["job"]
            return [job["id"]] if job else []
        header = queue.token(Scope.CLAIM, **bounds)
        answer = await queue.post("/v1/claims", {"worker": "w", "pools": ["team_a", ""]}, headers=header)
        return [one["job"]["id"] for one in answer.json()["jobs"]]

    assert await taken(teams=["team_b"]) == []
    assert await taken(pools=["team_b"]) == []
    assert await taken(teams=["team_b"], pools=["team_a"]) == ["team_b.1"]


async def test_a_claim_does_not_lead_to_servers_of_another_pool(queue: Queue) -> None:
    admin = queue.token(Scope.ADMIN)
    await queue.register(SERVER, headers=admin)
    await queue.submit({**_OWN, "pool": "team_a"}, headers=admin)
    (one,) = (await queue.post("/v1/claims", {"worker": "w"}, headers=admin)).json()["jobs"]
    asked = {"job_id": "team_b.1", "lease_id": one["lease"]["lease_id"], "epoch": 1}
    answer = await queue.post("/v1/reservations", asked, headers=queue.token(Scope.CLAIM, teams=["team_b"]))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_jobs_without_a_pool_are_for_every_token(queue: Queue) -> None:
    await queue.submit({"id": "team_b.1", "team": "team_b", "task": "t"}, headers=queue.token(Scope.ADMIN))
    own = queue.token(Scope.CLAIM, teams=["team_b"], pools=["arms"])
    assert (await queue.post("/v1/claims", {"worker": "w"}, headers=own)).json()["jobs"]


async def test_a_team_sees_no_figure_of_another_teams_pool(queue: Queue) -> None:
    admin, own = queue.token(Scope.ADMIN), queue.token(Scope.READ, teams=["team_b"])
    await queue.register(SERVER, headers=admin)
    await queue.submit({**_OWN, "pool": "team_a"}, headers=admin)
    waiting = asyncio.create_task(
        queue.post("/v1/claims", {"worker": "w", "tasks": ["x"], "wait_s": 60}, headers=admin)
    )
    await in_line(queue.writer, claims=1)
    told = (await queue.http.get("/v1/statistics", headers=own)).json()
    assert (told["pools"], told["waiting_claims"]) == ([], 0)
    assert (await queue.http.get("/v1/resources", headers=own)).json() == {"resources": []}
    queue.app.state.service.long_polls.close()
    await waiting


@pytest.mark.parametrize("key", _OF_ALL_TEAMS, ids=str)
async def test_what_concerns_every_pool_is_closed_to_tokens_of_some(queue: Queue, key: tuple[str, str]) -> None:
    assert (await _ask(queue, key, queue.token(Scope.ADMIN, pools=["team_a"]))).status_code == 403


async def test_a_workers_token_speaks_for_that_worker_alone(queue: Queue) -> None:
    own = queue.token(Scope.CLAIM, Scope.LEGACY, worker="alice-1")
    assert (await queue.post("/v1/claims", {"worker": "alice-1"}, headers=own)).status_code == 200
    for answer in (
        await queue.post("/v1/claims", {"worker": "bob-1"}, headers=own),
        *[await _ask(queue, key, own) for key in legacy.ROUTES],
    ):
        assert answer.status_code == 403
    assert (await queue.http.get("/job", params={"worker": "alice-1"}, headers=own)).json() == {"job": None}


async def test_a_token_is_rotated_while_its_work_goes_on(queue: Queue) -> None:
    admin, old = queue.token(Scope.ADMIN), queue.token(Scope.CLAIM, Scope.COMPLETE, Scope.LEGACY)
    await queue.register(SERVER, headers=admin)
    await queue.submit({"id": "1", "team": "a", "task": "t"}, JOB, headers=admin)
    key = {"Idempotency-Key": "k"}
    claimed = await queue.post("/v1/claims", {"worker": "w", "pools": [""]}, headers=old | key)
    assert (await queue.http.get("/job", params={"worker": "w"}, headers=old)).json()["job"]["id"] == "17"
    texts: list[dict[str, str]] = []

    def rotate(found: Token, overlap_s: float) -> Token:
        changed, text = rotated(found, now=SystemClock().wall(), overlap_s=overlap_s)
        texts.append(bearer(text))
        return changed

    token_id = old["Authorization"].removeprefix("Bearer hgq_")[:12]
    queue.tokens.change(token_id, lambda found: rotate(found, 3600))
    lease = {name: claimed.json()["jobs"][0]["lease"][name] for name in ("lease_id", "epoch")}
    for header in (old, texts[0]):
        again = await queue.post("/v1/claims", {"worker": "w", "pools": [""]}, headers=header | key)
        assert again.json() == claimed.json()
        renewed = await queue.post("/v1/leases/renew", {"leases": [{"job_id": "1", **lease}]}, headers=header)
        assert renewed.json()["renewals"][0]["status"] == "renewed"
        assert (await queue.http.post("/job/17/heartbeat", params={"worker": "w"}, headers=header)).status_code == 200
    queue.tokens.change(token_id, lambda found: rotate(found, 0))
    done = [await queue.post("/v1/jobs/1/complete", lease, headers=header) for header in (old, *texts)]
    assert [answer.status_code for answer in done] == [401, 401, 200]


async def test_the_password_of_a_url_is_a_token(queue: Queue) -> None:
    text = queue.token(Scope.LEGACY)["Authorization"].removeprefix("Bearer ")
    answer = await queue.http.get("/job", params={"worker": "w"}, auth=("anything", text))
    assert answer.json() == {"job": None}


async def test_what_happens_to_jobs_is_logged_with_the_token(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="headgate.jobqueue.audit")
    header = queue.token(Scope.ADMIN)
    token_id = header["Authorization"].removeprefix("Bearer hgq_").partition(".")[0]
    await queue.submit({"id": "1", "team": "a", "task": "t"}, headers=header)
    await queue.http.get("/v1/jobs", headers=header)
    (one,) = (await queue.post("/v1/claims", {"worker": "w"}, headers=header)).json()["jobs"]
    await queue.post("/v1/jobs/1/complete", {"lease_id": one["lease"]["lease_id"], "epoch": 1}, headers=header)
    lines = [record.getMessage() for record in caplog.records if record.name == "headgate.jobqueue.audit"]
    assert lines == [
        f"token {token_id}: submitted job '1'; new: 1",
        f"token {token_id}: claimed job '1' as worker 'w'",
        f"token {token_id}: completed job '1' epoch 1: done",
    ]
    secret = header["Authorization"].partition(".")[2]
    assert secret not in caplog.text


async def test_every_change_of_an_operator_is_in_the_audit_trail(queue: Queue, audit_file: Path) -> None:
    header = queue.token(Scope.ADMIN)
    token_id = header["Authorization"].removeprefix("Bearer hgq_").partition(".")[0]
    await queue.register(SERVER, headers=header)
    await queue.submit(JOB, headers=header)
    for _ in range(2):
        again = header | {"Idempotency-Key": "k"}
        await queue.post("/v1/jobs/17/withdraw", {"reason": "no more"}, headers=again)
    await queue.post("/v1/dead-jobs/requeue", {"job_ids": ["17"]}, headers=header)
    for what in ("drain", "open"):
        await queue.post(f"/v1/resources/team_a/0/{what}", {"reason": "why"}, headers=header)
    await queue.http.delete("/v1/resources/team_a/0", headers=header)
    for refused in ("/v1/jobs/nix/withdraw", "/v1/resources/team_a/9/drain"):
        assert (await queue.post(refused, {}, headers=header)).status_code == 404
    entries = list(audit_entries())
    assert {entry.who for entry in entries} == {f"token test ({token_id})"}
    assert [(entry.what, entry.thing, entry.before, entry.after) for entry in entries] == [
        ("jobqueue register", "team_a/0", "", "policy servers: 1"),
        ("jobqueue withdraw", "17", "pending", "dead: no more"),
        ("jobqueue requeue", "job '17'", "dead", "pending"),
        ("jobqueue change server", "team_a/0", "open: ", "draining: why"),
        ("jobqueue change server", "team_a/0", "draining: why", "open: why"),
        ("jobqueue remove server", "team_a/0", "", "removed"),
    ]
    assert header["Authorization"].partition(".")[2] not in str(entries)


@pytest.mark.parametrize("key", [("POST", "/v1/jobs"), *legacy.ROUTES], ids=str)
async def test_a_page_of_another_site_changes_nothing(queue: Queue, key: tuple[str, str]) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403)):
        assert (await _ask(queue, key, {"Sec-Fetch-Site": site})).status_code == status
    assert (await _ask(queue, key, {"Sec-Fetch-Site": "same-origin"})).status_code != 403


async def test_a_link_from_another_site_may_read(queue: Queue) -> None:
    assert (await queue.http.get("/v1/statistics", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200


@pytest.mark.parametrize("key", [("POST", "/v1/claims"), ("GET", "/job"), ("GET", "/v1/statistics")], ids=str)
async def test_without_tokens_only_loopback_names_are_answered(queue: Queue, key: tuple[str, str]) -> None:
    rebound = {"Host": "evil.example.com:8000"}
    assert (await _ask(queue, key, rebound)).status_code == 421
    for host in ("127.0.0.1:8000", "[::1]:8000", "localhost"):
        assert (await _ask(queue, key, {"Host": host})).status_code == 200
    assert (await _ask(queue, key, rebound | queue.token(Scope.ADMIN))).status_code == 200
