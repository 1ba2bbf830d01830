"""The real SGLang gateway (`smg` from PyPI) before two engines."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from headgate.elastic import ElasticConfig
from headgate.elastic.engines import Engine
from headgate.elastic.service import ElasticService, PoolStatus
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.elastic.engines.conftest import Open
from tests.elastic.engines.subjects import CHAT

SMG = shutil.which("smg", path=str(Path(sys.executable).parent)) or shutil.which("smg")
TOKENS = 40

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SMG is None, reason="the package smg is not installed; `make setup` brings it"),
]


@asynccontextmanager
async def engine() -> AsyncIterator[str]:
    """The address of an engine that takes a second for an answer."""
    async with serve_engine(EnginePlan(token_s=0.025, reply_tokens=TOKENS)) as running:
        yield running.url


@asynccontextmanager
async def gateway() -> AsyncIterator[str]:
    """The address of a gateway without workers."""
    port, metrics_port = free_ports(2)
    options = ("--policy", "round_robin", "--log-level", "error", "--shutdown-grace-period-secs", "0")
    running = await asyncio.create_subprocess_exec(
        str(SMG), "launch", "--host", "127.0.0.1", "--port", str(port), *options,
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await listening(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        await running.wait()


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; the gateway cannot choose one by itself."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def listening(port: int) -> None:
    """Return once somebody listens: the gateway does not say so."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return


async def ask(gateway_url: str) -> int:
    """Send a chat through the gateway; return its status, and 0 for an answer that is not whole."""
    body = {"model": "fake-model", "messages": [{"role": "user", "content": "a b c"}]}
    async with aiohttp.ClientSession() as session, session.post(gateway_url + CHAT, json=body) as answer:
        said = await answer.json()
        is_whole = answer.status != 200 or said["usage"]["completion_tokens"] == TOKENS
        return answer.status if is_whole else 0


async def until_running(engine: Engine, count: int) -> None:
    """Return once an engine has so many requests."""
    while (await engine.load()).running < count:  # noqa: ASYNC110 - an engine tells nobody of its requests
        await asyncio.sleep(0.02)


def states(status: PoolStatus) -> list[str]:
    return [str(worker.state) for worker in status.workers]


async def test_workers_come_and_go_without_a_request_lost(opened: Open) -> None:
    async with gateway() as router, engine() as url_a, engine() as url_b:
        one = await opened(url=url_a, router=router)
        two = await opened(url=url_b, router=router)
        await one.check()
        await two.check()

        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(ask(router)) for _ in range(8)]
            await until_running(one, 4)
            await until_running(two, 4)

            await two.sleep()

            assert (await two.load()).is_asleep
            sent += [tasks.create_task(ask(router)) for _ in range(4)]
            await until_running(one, 4)
            assert (await two.load()).is_idle

            await two.wake()
            sent += [tasks.create_task(ask(router)) for _ in range(4)]
            await until_running(two, 2)

        assert [request.result() for request in sent] == [200] * 16


async def test_a_gateway_whose_engines_all_sleep_says_so_and_kills_none(opened: Open) -> None:
    async with gateway() as router, engine() as url_a, engine() as url_b:
        one = await opened(url=url_a, router=router)
        two = await opened(url=url_b, router=router)
        await one.check()
        await two.check()
        await one.sleep()

        assert await ask(router) == 200

        await two.sleep()
        assert await ask(router) == 404  # no worker is left that has the model
        assert (await one.load()).is_asleep
        assert (await two.load()).is_asleep
        await one.wake()
        assert await ask(router) == 200


async def test_a_pool_follows_the_load_of_a_gateway_that_others_use(opened: Open) -> None:
    config = ElasticConfig(
        policy="target",
        max_workers=2,
        requests_per_worker_capacity=4,
        monitoring_interval=0.2,
        panic_window=0.4,
        stable_window=0.8,
        min_stable_period=0,
        confirm_interval=0.05,
    )
    async with gateway() as router, engine() as url_a, engine() as url_b:
        engines = [await opened(url=url_a, router=router), await opened(url=url_b, router=router)]
        await engines[1].sleep()
        async with ElasticService("routed", config, engines) as service:
            is_over = False

            async def keep_asking() -> list[int]:
                return [await ask(router) for _ in iter(lambda: is_over, True)]

            async with asyncio.TaskGroup() as tasks:
                clients = [tasks.create_task(keep_asking()) for _ in range(6)]
                await service.until(lambda status: states(status) == ["active", "active"])
                is_over = True
            await service.until(lambda status: sorted(states(status)) == ["active", "inactive"])

            sent = [status for client in clients for status in client.result()]
            assert set(sent) == {200}
