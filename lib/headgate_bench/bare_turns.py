"""The minimum cost of a turn: a message wakes a sleeping process, which answers it at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final, TypeVar, cast

from headgate.net import event_loop
from headgate_bench.echo_environment import TURN_S

_BYTES: Final = 64
"""Size of a message, about that of an echo turn."""

_UP_S: Final = 60.0

T = TypeVar("T")


class _Answers(asyncio.Protocol):
    """Sends a peer `seats` messages, then answers each message of the peer at once, and counts them."""

    def __init__(self, seats: int) -> None:
        self.count = 0
        self._seats = seats
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(bytes(self._seats * _BYTES))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None, "it is connected"
        self.count += len(data) // _BYTES
        self._transport.write(data)


def bare_turn_us(peers: int, seats: int, seconds: float) -> float:
    """Return the CPU time per message, in microseconds, of a process that does nothing else.

    Args:
        peers: number of processes, each of which sleeps for `TURN_S` per message, as a node does, and sends it back.
        seats: messages in flight per connection.
        seconds: how long to count messages.
    """
    return in_own_process(_measured, peers, seats, seconds)


def in_own_process(main: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    """Return the result of a coroutine run in a separate process, like a run: this process has other threads."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own:
        return own.submit(_run, main, arguments).result()


def _run(main: Callable[..., Coroutine[Any, Any, T]], arguments: tuple[object, ...]) -> T:
    return event_loop.run(main(*arguments))


async def _measured(peers: int, seats: int, seconds: float) -> float:
    answers, are_up = list[_Answers](), asyncio.Event()

    def connected() -> _Answers:
        answers.append(_Answers(seats))
        if len(answers) == peers:
            are_up.set()
        return answers[-1]

    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    processes = [get_context("spawn").Process(target=_turns, args=(port,)) for _ in range(peers)]
    for process in processes:
        process.start()
    try:
        async with asyncio.timeout(_UP_S):
            await are_up.wait()
        await asyncio.sleep(10 * TURN_S)
        count, cpu_s = sum(one.count for one in answers), time.process_time()
        await asyncio.sleep(seconds)
        cpu_s = time.process_time() - cpu_s
        return 1e6 * cpu_s / max(1, sum(one.count for one in answers) - count)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _turns(port: int) -> None:
    """Take a turn for each message, one after another."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while message := connection.recv(_BYTES, socket.MSG_WAITALL):
            time.sleep(TURN_S)
            connection.sendall(message)
