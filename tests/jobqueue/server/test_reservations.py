"""Reservations and policy servers over `/v1`."""

from __future__ import annotations

import asyncio

import pytest

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
    await in_line(queue.desk, servers=1)
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
