"""The control API and its client: a pool is looked at, followed and steered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from headgate.core import Secret
from headgate.core.audit import audit_entries
from headgate.core.errors import ForbiddenError, InvalidInputError, UnauthorizedError
from headgate.elastic.errors import GatewayUnreachableError, InvalidElasticError, UnknownWorkerError
from headgate.elastic.gateway import GatewayClient, GatewayStatus
from headgate.elastic.worker import Pin, WorkerState
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.elastic.gateway.door import Door, opened

TWO = (EnginePlan(model="m"), EnginePlan(model="m"))
T = TypeVar("T")


async def steer(door: Door, act: Callable[[GatewayClient], T], token: str = "") -> T:
    """Call the client, which blocks, beside the loop of the gateway."""

    def calling() -> T:
        with GatewayClient(door.gateway.url, Secret(token)) as client:
            return act(client)

    return await asyncio.to_thread(calling)


async def test_a_status_is_the_same_on_both_sides_of_the_wire() -> None:
    async with opened(*TWO) as door:
        await asyncio.gather(*(door.ask() for _ in range(3)))
        status = await steer(door, GatewayClient.status)

        assert isinstance(status, GatewayStatus)
        assert status.pool.counts.served == 3
        assert [worker.worker_id for worker in status.pool.workers] == [engine.url for engine in door.engines]
        assert status.pool.workers[0].state is WorkerState.ACTIVE
        assert GatewayStatus.from_json(status.as_json()) == status


async def test_whatever_an_operator_does_is_in_the_audit_trail(audit_file: Path) -> None:
    environ = {"STEERS": "steers-token"}
    async with opened(*TWO, environ=environ, tokens_env={"root": "STEERS"}) as door:
        url, pool = door.engine.url, door.service.name
        await steer(door, lambda client: client.drain(url), "steers-token")
        await steer(door, lambda client: client.unpin(url), "steers-token")
        await steer(door, lambda client: client.scale(2), "steers-token")
        with pytest.raises(UnknownWorkerError):
            await steer(door, lambda client: client.drain("nobody"), "steers-token")
        entries = list(audit_entries())
    assert [(entry.what, entry.thing) for entry in entries] == [
        ("elastic drain", f"{pool} {url}"),
        ("elastic unpin", f"{pool} {url}"),
        ("elastic scale", pool),
    ]
    assert [(entry.before, entry.after) for entry in entries[:2]] == [
        ("by load", "kept asleep"),
        ("kept asleep", "by load"),
    ]
    assert entries[2].after == '{"workers":2}'
    assert {entry.who for entry in entries} == {"token root"}
    assert "steers-token" not in str(entries)


async def test_a_worker_is_put_to_sleep_woken_and_given_back_by_a_part_of_its_name() -> None:
    async with opened(*TWO, config={"min_workers": 1}) as door:
        url = door.engine.url
        port = url.rpartition(":")[2]

        status = await steer(door, lambda client: client.drain(url))
        assert (pinned := status.pool.worker(url)) is not None
        assert pinned.pin is Pin.ASLEEP
        await door.until(lambda: door.engine.is_asleep)

        status = await steer(door, lambda client: client.wake(port))
        assert (pinned := status.pool.worker(url)) is not None
        assert pinned.pin is Pin.AWAKE
        await door.until(lambda: door.service.status().workers[0].state is WorkerState.ACTIVE)

        status = await steer(door, lambda client: client.unpin(port))
        assert (pinned := status.pool.worker(url)) is not None
        assert pinned.pin is None


async def test_a_name_of_no_worker_and_one_of_several_are_told() -> None:
    async with opened(*TWO) as door:
        with pytest.raises(UnknownWorkerError, match="no worker is 'w9'; the pool tests has http://"):
            await steer(door, lambda client: client.drain("w9"))
        with pytest.raises(UnknownWorkerError, match="'127' is part of the names of http://"):
            await steer(door, lambda client: client.drain("127"))


async def test_the_number_of_workers_is_set_and_given_back() -> None:
    async with opened(*TWO) as door:
        status = await steer(door, lambda client: client.scale(1))
        assert status.pool.desired.workers == 1
        assert "operator" in status.pool.desired.because
        assert (await steer(door, lambda client: client.wake_all(60))).pool.desired.workers == 2
        assert (await steer(door, GatewayClient.resume)).pool.desired.because == "the test wants 2"
        assert (await steer(door, lambda client: client.scale(None))).pool.desired.workers == 2


async def test_a_number_that_breaks_a_rule_is_refused_with_the_rule() -> None:
    async with opened(*TWO) as door:
        with pytest.raises(InvalidElasticError, match="between min_workers 1 and max_workers 2"):
            await steer(door, lambda client: client.scale(9))
        with pytest.raises(InvalidInputError, match=r"body\.workers: .* \(got 0\)"):
            await steer(door, lambda client: client.scale(0))
        with pytest.raises(InvalidInputError, match=r"body\.for_s"):
            await steer(door, lambda client: client.wake_all(-1))


async def test_whoever_watches_sees_a_change_when_it_happens() -> None:
    async with opened(*TWO) as door:
        loop = asyncio.get_running_loop()
        seen: asyncio.Queue[GatewayStatus] = asyncio.Queue()

        def watching(client: GatewayClient) -> None:
            for status in client.watch():
                loop.call_soon_threadsafe(seen.put_nowait, status)
                if "operator" in status.pool.desired.because:
                    return

        watcher = asyncio.create_task(steer(door, watching))
        async with asyncio.timeout(30):
            assert "operator" not in (await seen.get()).pool.desired.because
            door.service.scale(1)
            while "operator" not in (await seen.get()).pool.desired.because:
                pass
            await watcher


async def test_a_status_that_is_known_is_not_sent_again() -> None:
    async with opened(config={"monitoring_interval": 1000.0}) as door:
        await door.until(lambda: door.service.status().workers[0].load is not None)
        async with door.http.get("/elastic/v1/status") as answer:
            mark = answer.headers["ETag"]
        async with door.http.get("/elastic/v1/status?wait=0.01", headers={"If-None-Match": mark}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        await door.ask()
        async with door.http.get("/elastic/v1/status?wait=300", headers={"If-None-Match": mark}) as answer:
            assert (answer.status, answer.headers["ETag"] == mark) == (200, False)


async def test_mistakes_of_a_request_are_problem_documents() -> None:
    async with opened() as door:
        async with door.http.get("/elastic/v1/status?wait=soon") as answer:
            problem = await answer.json()
            assert (answer.status, answer.content_type) == (422, "application/problem+json")
            assert (problem["code"], problem["errors"][0]["field"]) == ("invalid_input", "query.wait")
        async with door.http.post("/elastic/v1/scale", json={"worker": 2}) as answer:
            fields = [flaw["field"] for flaw in (await answer.json())["errors"]]
            assert (answer.status, fields) == (422, ["body.workers", "body.worker"])
        async with door.http.post("/elastic/v1/scale", data=b"{") as answer:
            assert (answer.status, (await answer.json())["code"]) == (422, "invalid_input")


async def test_a_token_that_may_ask_may_not_steer_where_there_are_operators() -> None:
    environ = {"ASKS": "token-that-asks", "STEERS": "token-that-steers"}
    async with opened(*TWO, environ=environ, tokens_env="ASKS", operators_env={"root": "STEERS"}) as door:
        assert await steer(door, GatewayClient.status, "token-that-asks")
        with pytest.raises(ForbiddenError, match="may not steer"):
            await steer(door, lambda client: client.scale(1), "token-that-asks")
        with pytest.raises(UnauthorizedError):
            await steer(door, GatewayClient.status)
        assert (await steer(door, lambda client: client.scale(1), "token-that-steers")).pool.desired.workers == 1


async def test_an_address_where_nobody_listens_is_told_as_such() -> None:
    async with opened() as door:
        gone = door.gateway.url
    with GatewayClient(gone) as client, pytest.raises(GatewayUnreachableError, match=gone):
        await asyncio.to_thread(client.status)


async def test_an_address_of_something_else_is_told_as_such() -> None:
    async with serve_engine() as engine:
        with (
            GatewayClient(engine.url) as client,
            pytest.raises(GatewayUnreachableError, match="is not an elastic gateway"),
        ):
            await asyncio.to_thread(client.status)


async def test_a_page_of_another_site_may_not_steer() -> None:
    async with opened() as door:
        headers = {"Sec-Fetch-Site": "cross-site"}
        async with door.http.post("/elastic/v1/scale", json={"workers": 1}, headers=headers) as answer:
            assert (answer.status, (await answer.json())["code"]) == (403, "cross_site")


async def test_a_gateway_closes_although_somebody_watches_it() -> None:
    async with opened(config={"monitoring_interval": 1000.0}) as door:
        watching = asyncio.create_task(door.http.get("/elastic/v1/status?wait=300"))
        await asyncio.sleep(0)
    with pytest.raises(aiohttp.ClientError):
        await watching
