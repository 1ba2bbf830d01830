"""Both clients against real servers on loopback: good ones, bad ones, and none."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection

from headgate.jobqueue.policy import (
    MalformedMessageError,
    PolicyClient,
    PolicyFailedError,
    PolicyLease,
    PolicyLostError,
    PolicyTimeoutError,
    PolicyUnreachableError,
    SyncPolicyClient,
)
from tests.jobqueue.policy.peer import METADATA, echo_sums, pack, peer, raw_peer, unpack

STATE: Final = {"state": np.array([1.0, 2.0])}
Talk = Callable[[ServerConnection], Awaitable[None]]


class Client:
    """Either client behind the methods of the asynchronous one."""

    def __init__(self, inner: PolicyClient | SyncPolicyClient) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in ("metadata", "url"):
            return getattr(self._inner, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            method = getattr(self._inner, name)
            if inspect.iscoroutinefunction(method):
                return await method(*arguments, **options)
            return await asyncio.to_thread(method, *arguments, **options)

        return call


@pytest.fixture(params=[PolicyClient, SyncPolicyClient], ids=["async", "sync"])
async def client_of(request: pytest.FixtureRequest) -> Any:
    made: list[Client] = []

    def make(port: int, host: str = "127.0.0.1", **options: Any) -> Client:
        client = Client(request.param(host, port, **options))
        made.append(client)
        return client

    yield make
    for client in made:
        await client.close()


async def silent(connection: ServerConnection) -> None:
    await connection.wait_closed()


async def test_the_metadata_is_read_first(client_of: Any) -> None:
    async with peer(echo_sums) as port:
        client = client_of(port)
        await client.connect()
        assert client.metadata == METADATA


async def test_actions_are_those_of_the_observations(client_of: Any) -> None:
    async with peer(echo_sums) as port:
        client = client_of(port)
        await client.reset()
        actions = [await client.act({"state": np.array([float(n)])}) for n in range(5)]
    assert [action.tolist() for action in actions] == [[0.0], [1.0], [2.0], [3.0], [4.0]]
    assert actions[0].dtype == np.float32


async def test_a_reset_is_this_message_and_waits_for_nothing(client_of: Any) -> None:
    came: list[Any] = []

    async def listen(connection: ServerConnection) -> None:
        came.append(await connection.recv())
        await echo_sums(connection)

    async with peer(listen) as port:
        client = client_of(port)
        await client.reset()
        await client.act(STATE)
    assert came == [b"\x81\xa5reset\xc3"]


async def test_the_answer_of_a_server_to_a_reset_is_no_action(client_of: Any) -> None:
    async def answer_everything(connection: ServerConnection) -> None:
        async for frame in connection:
            message = unpack(frame)
            answer = {"status": "reset"} if "reset" in message else {"action": message["state"]}
            await connection.send(pack(answer))

    async with peer(answer_everything) as port:
        client = client_of(port)
        await client.reset()
        await client.reset()
        for n in range(3):
            assert (await client.act({"state": np.array([n])})).tolist() == [n]


async def test_a_server_that_answers_observations_twice_ends_the_episode(client_of: Any) -> None:
    async def answer(connection: ServerConnection) -> None:
        async for frame in connection:
            for _ in range(2 if "state" in unpack(frame) else 0):
                await connection.send(pack({"action": unpack(frame)["state"]}))

    async def play(client: Any) -> None:
        await client.reset()
        for n in range(1_000):
            await client.act({"state": np.array([n])})

    async with peer(answer) as port:
        with pytest.raises(PolicyFailedError, match="sent an action that no observation had asked for"):
            await play(client_of(port))


async def test_text_is_the_traceback_of_the_server(client_of: Any) -> None:
    async def fail(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send("Traceback (most recent call last):\n  …\nRuntimeError: CUDA out of memory\n")

    async with peer(fail) as port:
        client = client_of(port)
        await client.connect()
        with pytest.raises(PolicyFailedError, match="RuntimeError: CUDA out of memory") as caught:
            await client.act(STATE)
        assert caught.value.report.startswith("Traceback")
        with pytest.raises(PolicyLostError, match="no open connection"):
            await client.act(STATE)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"\xc1nonsense", MalformedMessageError, "cannot be read"),
        (pack([1, 2]), MalformedMessageError, "must be a map"),
        (pack({"actions": np.zeros(2)}), PolicyFailedError, "no key 'action'"),
        (pack({"action": "left"}), PolicyFailedError, "must be numbers"),
        (pack({"action": None}), PolicyFailedError, "must be numbers"),
        (pack({"action": [[1], [2, 3]]}), PolicyFailedError, "is not an array"),
    ],
    ids=["bytes", "list", "other key", "text", "nothing", "ragged"],
)
async def test_an_answer_that_is_no_action_is_said(client_of: Any, answer: bytes, error: Any, words: str) -> None:
    async def say(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(answer)
        await connection.wait_closed()

    async with peer(say) as port:
        client = client_of(port)
        await client.connect()
        with pytest.raises(error, match=words):
            await client.act(STATE)
        with pytest.raises(PolicyLostError):
            await client.act(STATE)


async def test_a_server_whose_answers_have_no_action_is_told_so_by_the_time_out(client_of: Any) -> None:
    async def answer_otherwise(connection: ServerConnection) -> None:
        async for frame in connection:
            if "reset" not in unpack(frame):
                await connection.send(pack({"actions": np.zeros(2)}))

    async with peer(answer_otherwise) as port:
        client = client_of(port, act_timeout_s=0.05)
        await client.reset()
        with pytest.raises(PolicyTimeoutError, match=r"within 0\.05 s after one without 'action' \(it has 'actions'\)"):
            await client.act(STATE)


async def test_a_list_of_numbers_is_an_action(client_of: Any) -> None:
    async def say(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(pack({"action": [1, 2]}))

    async with peer(say) as port:
        client = client_of(port)
        await client.connect()
        assert (await client.act(STATE)).tolist() == [1, 2]


async def test_a_server_that_hangs_times_out_and_its_late_answer_is_never_read(client_of: Any) -> None:
    visits: list[int] = []

    async def hang_once(connection: ServerConnection) -> None:
        visits.append(1)
        await (silent if len(visits) == 1 else echo_sums)(connection)

    async with peer(hang_once) as port:
        client = client_of(port, act_timeout_s=0.05)
        await client.connect()
        with pytest.raises(PolicyTimeoutError, match=r"within 0\.05 s"):
            await client.act(STATE)
        with pytest.raises(PolicyLostError, match="no open connection"):
            await client.act(STATE)
        assert len(visits) == 1
        client = client_of(port)
        await client.reset()
        assert (await client.act(STATE)).tolist() == [3.0]


async def test_a_server_that_takes_nothing_in_times_out(client_of: Any) -> None:
    over = asyncio.Event()

    async def stand_still(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        await over.wait()
        connection.transport.abort()

    async with peer(stand_still) as port:
        client = client_of(port, act_timeout_s=0.2)
        await client.connect()
        with pytest.raises(PolicyTimeoutError):
            await client.act({"state": np.zeros(30_000_000, dtype=np.uint8)})
        over.set()


async def test_a_server_that_closes_within_the_episode_is_lost_and_not_called_again(client_of: Any) -> None:
    visits: list[int] = []

    async def leave(connection: ServerConnection) -> None:
        visits.append(1)
        await connection.recv()
        await connection.close(1001, "maintenance")

    async with peer(leave) as port:
        client = client_of(port)
        await client.connect()
        with pytest.raises(PolicyLostError, match="maintenance"):
            await client.act(STATE)
        with pytest.raises(PolicyLostError):
            await client.act(STATE)
        assert len(visits) == 1


async def test_a_server_whose_machine_goes_is_lost(client_of: Any) -> None:
    async def vanish(connection: ServerConnection) -> None:
        await connection.recv()
        connection.transport.abort()

    async with peer(vanish) as port:
        client = client_of(port)
        await client.connect()
        with pytest.raises(PolicyLostError, match="within the episode"):
            await client.act(STATE)


async def test_no_server_is_said_with_its_address(client_of: Any, unused_tcp_port: int) -> None:
    with pytest.raises(PolicyUnreachableError, match=f"127.0.0.1:{unused_tcp_port}") as caught:
        await client_of(unused_tcp_port).connect()
    assert caught.value.exit_code == 3
    assert "/healthz" in caught.value.next_step


async def test_an_unknown_host_is_said(client_of: Any) -> None:
    with pytest.raises(PolicyUnreachableError, match=r"no-such-host\.invalid"):
        await client_of(8000, host="no-such-host.invalid").connect()


async def test_a_server_that_says_nothing_first_times_out(client_of: Any) -> None:
    async with raw_peer(silent) as port:
        with pytest.raises(PolicyUnreachableError, match="in time"):
            await client_of(port, open_timeout_s=0.2).connect()


async def test_a_port_that_answers_no_http_is_no_policy_server(client_of: Any) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        with pytest.raises(PolicyUnreachableError, match="no policy server answers"):
            await client_of(server.sockets[0].getsockname()[1]).connect()


async def test_text_in_place_of_the_metadata_is_the_servers_error(client_of: Any) -> None:
    async def fail(connection: ServerConnection) -> None:
        await connection.send("RuntimeError: no weights")

    async with raw_peer(fail) as port:
        with pytest.raises(PolicyFailedError, match="no weights"):
            await client_of(port).connect()


async def test_another_server_is_gone_to_at_the_next_episode(client_of: Any) -> None:
    async def answer_nine(connection: ServerConnection) -> None:
        async for frame in connection:
            if "reset" not in unpack(frame):
                await connection.send(pack({"action": 9}))

    async with peer(echo_sums) as first, peer(answer_nine) as second:
        client = client_of(first)
        await client.reset()
        assert (await client.act(STATE)).tolist() == [3.0]
        await client.update_host("127.0.0.1", second)
        with pytest.raises(PolicyLostError):
            await client.act(STATE)
        await client.reset()
        assert (await client.act(STATE)).tolist() == 9


async def test_the_lease_is_said_when_the_connection_opens(client_of: Any) -> None:
    said: list[Any] = []

    async def note(connection: ServerConnection) -> None:
        assert connection.request is not None
        said.append([connection.request.headers.get(name) for name in ("X-Headgate-Lease", "X-Headgate-Epoch")])

    async with peer(note) as port:
        await client_of(port, lease=PolicyLease("c0ffee", 7)).connect()
        client = client_of(port)
        await client.connect()
        await client.update_host("127.0.0.1", port, lease=PolicyLease("bead", 8))
        await client.connect()
    assert said == [["c0ffee", "7"], [None, None], ["bead", "8"]]


async def test_an_observation_must_not_look_like_a_reset(client_of: Any) -> None:
    async with peer(echo_sums) as port:
        client = client_of(port)
        await client.connect()
        with pytest.raises(MalformedMessageError, match="'reset'"):
            await client.act({"reset": False})


async def test_a_closed_client_can_be_closed_again(client_of: Any) -> None:
    async with peer(echo_sums) as port:
        client = client_of(port)
        await client.close()
        await client.connect()
        await client.close()
        await client.close()
        with pytest.raises(PolicyLostError):
            client.metadata  # noqa: B018 - reading it is the test


async def test_a_cancelled_call_ends_the_connection() -> None:
    asked = asyncio.Event()

    async def hang(connection: ServerConnection) -> None:
        await connection.recv()
        asked.set()
        await connection.wait_closed()

    async with peer(hang) as port:
        client = PolicyClient("127.0.0.1", port)
        await client.connect()
        call = asyncio.create_task(client.act(STATE))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(PolicyLostError, match="no open connection"):
            await client.act(STATE)


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("gpu-7.example.com", 8000, "ws://gpu-7.example.com:8000"),
        ("10.0.0.7", 1, "ws://10.0.0.7:1"),
        ("::1", 80, "ws://[::1]:80"),
        ("[fe80::1]", 80, "ws://[fe80::1]:80"),
        ("wss://policy.example.com/", 443, "wss://policy.example.com:443"),
    ],
)
def test_an_address_is_written_in_these_ways(host: str, port: int, url: str) -> None:
    assert SyncPolicyClient(host, port).url == url


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("", 80),
        ("a b", 80),
        ("host/path", 80),
        ("http://host", 80),
        ("a\r\nb", 80),
        ("u:p@host", 80),
        ("host", 0),
        ("host", 65536),
    ],
)
def test_what_is_no_address_is_said(host: str, port: int) -> None:
    with pytest.raises(PolicyUnreachableError):
        PolicyClient(host, port)
