"""The policy server over real sockets: the protocol, health, fencing, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Final

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy import (
    Action,
    PolicyClient,
    PolicyFailedError,
    PolicyLease,
    PolicyLostError,
    PolicyRefusedError,
    PolicyServer,
    decode,
    encode,
)
from tests.jobqueue.policy import peer

X: Final = {"x": np.array([2.0])}


class Counting:
    """A policy that counts: its action is the number of observations since the reset."""

    def __init__(self) -> None:
        self.resets = 0
        self.acts = 0
        self.is_acting = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {"policy": "counting"}

    def reset(self) -> None:
        self.resets += 1
        self.acts = 0

    def act(self, observation: Mapping[str, Any]) -> Action:
        if "fail" in observation:
            raise ZeroDivisionError("the policy divides by zero")
        self.is_acting.set()
        assert self.go_on.wait(timeout=30)
        self.acts += 1
        return np.array([self.acts], dtype=np.int64)


def client_of(server: PolicyServer, epoch: int | None = None, lease_id: str = "lease") -> PolicyClient:
    lease = None if epoch is None else PolicyLease(f"{lease_id}-{epoch}", epoch)
    return PolicyClient("127.0.0.1", server.port, lease=lease)


async def test_programs_that_speak_the_public_format_are_served() -> None:
    async with PolicyServer(Counting()) as server, connect(server.url, compression=None) as connection:
        assert peer.unpack(await connection.recv()) == {"policy": "counting"}
        for number in (1, 2):
            await connection.send(peer.pack(X))
            answer = peer.unpack(await connection.recv())
            assert answer["action"].tolist() == [number]
            assert answer["server_timing"]["infer_ms"] >= 0
        await connection.send(b"\x81\xa5reset\xc3")
        await connection.send(peer.pack(X))
        assert peer.unpack(await connection.recv())["action"].tolist() == [1]


async def test_health_is_asked_on_the_same_port_while_an_episode_runs() -> None:
    async with PolicyServer(Counting()) as server, client_of(server), httpx.AsyncClient() as http:
        answer = await http.get(f"http://127.0.0.1:{server.port}/healthz")
    assert (answer.status_code, answer.text) == (200, "OK\n")


async def test_health_answers_while_the_policy_computes() -> None:
    policy = Counting()
    policy.go_on.clear()
    async with PolicyServer(policy) as server, client_of(server) as client, httpx.AsyncClient() as http:
        acting = asyncio.create_task(client.act(X))
        await asyncio.to_thread(policy.is_acting.wait, 30)
        answer = await http.get(f"http://127.0.0.1:{server.port}/healthz")
        policy.go_on.set()
        await acting
    assert answer.text == "OK\n"


async def test_what_is_no_websocket_is_told_so() -> None:
    async with PolicyServer(Counting()) as server, httpx.AsyncClient() as http:
        assert (await http.get(f"http://127.0.0.1:{server.port}/")).status_code == 426


async def test_a_policy_that_fails_sends_its_traceback_and_the_server_lives_on() -> None:
    async with PolicyServer(Counting()) as server:
        async with client_of(server) as client:
            with pytest.raises(PolicyFailedError, match="divides by zero") as caught:
                await client.act({"fail": True})
        assert "Traceback" in caught.value.report
        async with client_of(server) as client:
            assert (await client.act(X)).tolist() == [1]


@pytest.mark.parametrize("frame", ["text", b"\xc1", b"\x90"], ids=["text", "nonsense", "list"])
async def test_a_client_that_sends_nonsense_is_told_so(frame: str | bytes) -> None:
    async with PolicyServer(Counting()) as server, connect(server.url) as connection:
        await connection.recv()
        await connection.send(frame)
        assert "MalformedMessageError" in str(await connection.recv())
        with pytest.raises(ConnectionClosed):
            await connection.recv()
        assert connection.close_code == 1007


async def test_a_second_client_is_refused_while_an_episode_runs() -> None:
    async with PolicyServer(Counting()) as server:
        async with client_of(server) as first:
            with pytest.raises(PolicyRefusedError, match="another episode is running"):
                await client_of(server).connect()
            with pytest.raises(InvalidStatus) as caught:
                await connect(server.url)
            assert caught.value.response.status_code == 503
            assert (await first.act(X)).tolist() == [1]
            await first.close()
        async with client_of(server) as second:
            assert (await second.act(X)).tolist() == [1]


async def test_a_newer_reservation_takes_over_with_a_fresh_episode() -> None:
    policy = Counting()
    async with PolicyServer(policy) as server, client_of(server, 4) as old:
        await old.act(X)
        async with client_of(server, 5) as new:
            assert (await new.act(X)).tolist() == [1]
            with pytest.raises(PolicyRefusedError, match="given to another: epoch 5"):
                await old.act(X)
            with pytest.raises(PolicyRefusedError, match=r"epoch 4 .* is not newer than epoch 5"):
                await old.connect()
            assert (await new.act(X)).tolist() == [2]


async def test_an_old_reservation_is_refused_even_when_the_server_is_free() -> None:
    async with PolicyServer(Counting()) as server:
        async with client_of(server, 5):
            pass
        with pytest.raises(InvalidStatus) as caught:
            await connect(server.url, additional_headers=PolicyLease("old", 4).headers)
        assert caught.value.response.status_code == 409


async def test_a_holder_whose_connection_broke_comes_back() -> None:
    async with PolicyServer(Counting()) as server, client_of(server, 5) as broken:
        await broken.act(X)
        async with client_of(server, 5) as again:
            assert (await again.act(X)).tolist() == [1]


async def test_a_takeover_waits_until_the_running_act_is_over() -> None:
    policy = Counting()
    policy.go_on.clear()
    async with PolicyServer(policy) as server, client_of(server, 1) as old:
        acting = asyncio.create_task(old.act(X))
        await asyncio.to_thread(policy.is_acting.wait, 30)
        new = client_of(server, 2)
        connecting = asyncio.create_task(new.connect())
        with pytest.raises(PolicyRefusedError):
            await acting
        assert policy.resets == 1
        policy.go_on.set()
        await connecting
        assert (await new.act(X)).tolist() == [1]
        assert policy.resets == 2
        await new.close()


async def test_lease_headers_that_cannot_be_read_are_a_bad_request() -> None:
    async with PolicyServer(Counting()) as server:
        with pytest.raises(InvalidStatus) as caught:
            await connect(server.url, additional_headers={"X-Headgate-Lease": "a"})
    assert caught.value.response.status_code == 400


async def test_many_that_come_at_once_are_one_at_a_time() -> None:
    async with PolicyServer(Counting()) as server, contextlib.AsyncExitStack() as stack:
        clients = [client_of(server) for _ in range(8)]
        for client in clients:
            stack.push_async_callback(client.close)
        outcomes = await asyncio.gather(*(client.connect() for client in clients), return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 1
    assert all(outcome is None or isinstance(outcome, PolicyRefusedError) for outcome in outcomes)


async def test_stopping_lets_the_episode_end_and_takes_no_new_one() -> None:
    async with PolicyServer(Counting()) as server, httpx.AsyncClient() as http:
        client = client_of(server)
        await client.connect()
        stopping = asyncio.create_task(server.stop(grace_s=60))
        await asyncio.sleep(0)
        assert (await http.get(f"http://127.0.0.1:{server.port}/healthz")).status_code == 503
        with pytest.raises(PolicyRefusedError, match="stopping"):
            await client_of(server).connect()
        assert (await client.act(X)).tolist() == [1]
        await client.close()
        await stopping


async def test_stopping_without_grace_cuts_the_episode_off() -> None:
    async with PolicyServer(Counting()) as server:
        client = client_of(server)
        await client.connect()
        await server.stop(grace_s=0.01)
        with pytest.raises(PolicyLostError):
            await client.act(X)
        await server.stop()


async def test_an_address_in_use_is_said() -> None:
    async with PolicyServer(Counting()) as server:
        with pytest.raises(InvalidInputError, match=f"cannot listen on 127.0.0.1:{server.port}"):
            await PolicyServer(Counting(), port=server.port).__aenter__()


async def test_an_observation_arrives_as_it_was_sent() -> None:
    seen: list[Any] = []

    class Seeing(Counting):
        def act(self, observation: Mapping[str, Any]) -> Action:
            seen.append(observation)
            return super().act(observation)

    sent = {"rgb": np.arange(48, dtype=np.uint8).reshape(4, 4, 3), "nested": {"q": np.float32(0.5)}, "task": "tidy"}
    async with PolicyServer(Seeing()) as server, client_of(server) as client:
        await client.act(sent)
    assert encode(seen[0]) == encode(sent)
    assert decode(encode(sent))["rgb"].shape == (4, 4, 3)
