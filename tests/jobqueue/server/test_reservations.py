"""Reservations and policy servers over `/v1`."""

from __future__ import annotations

import asyncio

import pytest

from headgate.net.tokens import Scope
from tests.jobqueue.server.conftest import JOB, SERVER, Queue, in_line


async def _two_claims(queue: Queue) -> tuple[dict[str, object], dict[str, object]]:
    await queue.register(SERVER)
    await queue.submit(JOB, {**JOB, "id": "18"})
    first, second = await queue.claim(count=2)
    return tuple(  # type: ignore[return-value]
        {"job_id": one["job"]["id"], "lease_id": one["lease"]["lease_id"], "epoch": 1} for one in (first, second)
    )


async def test_a_claim_gets_a_server_and_the_same_one_again(queue: Queue) -> None:
    first, _ = await _two_claims(queue)
    got = (await queue.post("/v1/reservations", first)).json()["reservation"]
    assert (got["resource_id"], got["index"], got["resource"]["port"]) == ("team_a/0", 0, 8080)
    assert (await queue.post("/v1/reservations", first)).json()["reservation"] == got


async def test_without_a_free_server_the_place_in_line_is_told(queue: Queue) -> None:
    first, second = await _two_claims(queue)
    await queue.post("/v1/reservations", first)
    assert (await queue.post("/v1/reservations", second)).json() == {"reservation": None, "ahead": 0, "serving": 1}


async def test_a_released_server_goes_to_whoever_waits(queue: Queue) -> None:
    first, second = await _two_claims(queue)
    held = (await queue.post("/v1/reservations", first)).json()["reservation"]
    waiting = asyncio.create_task(queue.post("/v1/reservations", {**second, "wait_s": 60}))
    await in_line(queue.writer, servers=1)
    named = {key: held[key] for key in ("resource_id", "lease_id", "epoch")}
    assert (await queue.post("/v1/reservations/release", named)).json() == {"resource_id": held["resource_id"]}
    assert (await waiting).json()["reservation"]["epoch"] == 2
    late = await queue.post("/v1/reservations/release", named)
    assert (late.status_code, late.json()["code"]) == (409, "stale_lease")


async def test_waiting_in_vain_tells_the_place_in_line(queue: Queue) -> None:
    first, second = await _two_claims(queue)
    await queue.post("/v1/reservations", first)
    answer = await queue.post("/v1/reservations", {**second, "wait_s": 0.01})
    assert answer.json() == {"reservation": None, "ahead": 0, "serving": 1}


async def test_a_stale_or_unknown_claim_gets_no_server(queue: Queue) -> None:
    first, _ = await _two_claims(queue)
    stale = await queue.post("/v1/reservations", {**first, "epoch": 7})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_lease")
    unknown = await queue.post("/v1/reservations", {**first, "job_id": "no"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_job")


async def test_a_job_without_a_pool_needs_no_server(queue: Queue) -> None:
    await queue.submit({"id": "1", "team": "a", "task": "t"})
    answer = await queue.post("/v1/reservations", {"job_id": "1", **await queue.claimed()})
    assert (answer.status_code, answer.json()["code"]) == (409, "wrong_state")


async def test_servers_are_drained_opened_and_removed(queue: Queue) -> None:
    first, _ = await _two_claims(queue)
    drained = await queue.post("/v1/resources/team_a/0/drain", {"reason": "maintenance"})
    assert (drained.json()["state"], drained.json()["note"]) == ("draining", "maintenance")
    assert (await queue.post("/v1/reservations", first)).json()["reservation"] is None
    await queue.post("/v1/resources/team_a/0/open", {})
    assert (await queue.post("/v1/reservations", first)).json()["reservation"] is not None
    busy = await queue.http.delete("/v1/resources/team_a/0")
    assert (busy.status_code, busy.json()["code"]) == (409, "wrong_state")
    gone = await queue.http.delete("/v1/resources/team_a/0", params={"force": "true"})
    assert gone.json() == {"removed": "team_a/0"}
    assert (await queue.http.get("/v1/resources")).json() == {"resources": []}


async def test_a_pool_may_have_a_slash_in_its_name(queue: Queue) -> None:
    await queue.register({**SERVER, "pool": "lab/one"})
    drained = await queue.post("/v1/resources/lab/one/0/drain", {})
    assert drained.json()["resource_id"] == "lab/one/0"
    assert (await queue.http.delete("/v1/resources/lab%2Fone/0")).status_code == 200


async def test_an_unknown_server_is_404(queue: Queue) -> None:
    for answer in (
        await queue.post("/v1/resources/team_a/0/drain", {}),
        await queue.http.delete("/v1/resources/team_a/0"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_resource")


async def test_registering_again_gives_the_new_rules_and_keeps_the_number(queue: Queue) -> None:
    await queue.register(SERVER, {**SERVER, "port": 8081})
    await queue.register({**SERVER, "not_compatible_task": "radio", "gpu": "a100"})
    listed = (await queue.http.get("/v1/resources")).json()["resources"]
    assert [one["index"] for one in listed] == [0, 1]
    assert listed[0]["resource"]["gpu"] == "a100"


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "metadata.google.internal", "0.0.0.0", "2852039166"])
async def test_addresses_where_clouds_keep_credentials_are_refused(queue: Queue, host: str) -> None:
    answer = await queue.post("/v1/resources", {"resources": [{**SERVER, "host": host}]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_job")
    queue.set(allow_link_local=True)
    await queue.register({**SERVER, "host": host})


async def test_a_server_that_two_teams_register_is_one_server(queue: Queue) -> None:
    shared = {**SERVER, "pool": "team_b", "host": "SERVER1.example.com.", "compatible_task": ["radio"], "key": "b"}
    await queue.register(SERVER, shared)
    (listed,) = (await queue.http.get("/v1/resources")).json()["resources"]
    assert (listed["resource_id"], listed["resource"]) == ("team_a/0", {"host": SERVER["host"], "port": 8080})
    assert listed["also"] == [shared]
    pools = (await queue.http.get("/v1/statistics")).json()["pools"]
    assert [(one["pool"], one["servers"], one["free"]) for one in pools] == [("team_a", 1, 1), ("team_b", 1, 1)]

    await queue.submit(JOB, {**JOB, "id": "18", "team": "team_b", "pool": "team_b"})
    one, held = [await queue.claimed(teams=[team]) for team in ("team_a", "team_b")]
    first = await queue.post("/v1/reservations", {"job_id": "17", **one})
    assert first.json()["reservation"]["resource"] == {"host": SERVER["host"], "port": 8080}
    waiting = asyncio.create_task(queue.post("/v1/reservations", {"job_id": "18", **held, "wait_s": 60}))
    await in_line(queue.writer, servers=1)
    assert not waiting.done()
    reservation = first.json()["reservation"]
    ended = {name: reservation[name] for name in ("resource_id", "lease_id", "epoch")}
    await queue.post("/v1/reservations/release", ended)
    second = (await waiting).json()["reservation"]
    assert (second["resource_id"], second["epoch"], second["resource"]["key"]) == ("team_a/0", 2, "b")


async def test_a_workers_team_sees_a_shared_server_as_its_own_pool_names_it(queue: Queue) -> None:
    await queue.register({**SERVER, "key": "a"}, {**SERVER, "pool": "team_b", "key": "b"})
    await queue.submit({**JOB, "team": "team_b", "pool": "team_b"})
    reader = queue.token(Scope.READ, teams=["team_b"])
    answer = await queue.http.get("/v1/resources", headers=reader)
    (listed,) = answer.json()["resources"]
    assert (listed["pool"], listed["resource"]["key"], listed["also"]) == ("team_b", "b", [])
    assert 'key":"a' not in answer.text


async def test_the_legacy_protocol_lends_a_shared_server_once(queue: Queue) -> None:
    queue.set(legacy_acquire_wait_s=0.0)
    await queue.register(SERVER, {**SERVER, "pool": "team_b", "key": "b"})
    await queue.submit(JOB, {**JOB, "id": "18", "team": "team_b", "pool": "team_b"})
    for worker in ("one", "two"):
        assert (await queue.http.get(f"/job?worker={worker}")).json()["job"]
    assert (await queue.http.post("/resource/team_a/acquire?worker=one&job_id=17")).status_code == 200
    assert (await queue.http.post("/resource/team_b/acquire?worker=two&job_id=18")).status_code == 429
    await queue.http.post("/done/17?worker=one")
    assert (await queue.http.post("/resource/team_b/acquire?worker=two&job_id=18")).status_code == 429
    await queue.http.post("/resource/team_a/release?worker=one&job_id=17&resource_idx=0")
    answer = await queue.http.post("/resource/team_b/acquire?worker=two&job_id=18")
    assert answer.json() == {"index": 0, "resource": {"host": SERVER["host"], "port": 8080, "key": "b"}}


async def test_jobs_of_the_legacy_protocol_go_to_teams_in_turn(queue: Queue) -> None:
    teams = ("team_a", "team_b", "team_c")
    await queue.register(*({**SERVER, "pool": team, "host": f"{team}-{n}"} for team in teams for n in range(4)))
    await queue.submit(*({**JOB, "id": f"{team}.{n}", "team": team, "pool": team} for team in teams for n in range(4)))
    taken = [(await queue.http.get(f"/job?worker=w{n}")).json()["job"]["id"] for n in range(12)]
    assert taken == [f"{team}.{n}" for n in range(4) for team in teams]
