"""The service over real HTTP: engines that die, hang, refuse and come back, with requests in flight."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.elastic.engines import EngineSpec, Outgoing, open_engine
from headgate.elastic.errors import NotAnEngineError, RequestLostError, WorkerClaimedError
from headgate.elastic.service import ElasticService
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import WorkerState
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.service.desk import Wants

QUICK: dict[str, Any] = {
    "monitoring_interval": 0.1,
    "confirm_interval": 0.05,
    "drain_timeout": 0.5,
    "engine_timeout": 2.0,
    "engine_attempts": 2,
    "start_timeout": 5.0,
    "failed_retry": 0.2,
    "min_stable_period": 0.0,
    "max_losses": 10,
}

pytestmark = pytest.mark.usefixtures("folder_of_its_own")


@pytest.fixture
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def chat(request_id: str, *, stream: bool = False, tokens: int = 8) -> Outgoing:
    messages = [{"role": "user", "content": request_id}]
    body = {"model": "fake-model", "messages": messages, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return Outgoing(request_id, "/v1/chat/completions", orjson.dumps(body))


async def ask(service: ElasticService, request_id: str, **options: Any) -> bytes:
    """Return the answer of a chat, and make sure that it is one."""
    async with service.request(chat(request_id, **options)) as answer:
        body = b"".join([chunk async for chunk in answer.chunks])
        assert answer.status == 200, body
    return body


@asynccontextmanager
async def pool_of(urls: list[str], wants: int | None = None, **settings: Any) -> AsyncIterator[ElasticService]:
    """Serve a pool over engines at addresses; its policy wants so many workers."""
    config = ElasticConfig(**(QUICK | settings))
    engines = [await open_engine(EngineSpec(url=url), config) for url in urls]
    policy = Wants(len(urls) if wants is None else wants)
    async with ElasticService("chat", config, engines, policy=policy) as service:
        yield service


@asynccontextmanager
async def fakes(*plans: EnginePlan) -> AsyncIterator[list[FakeEngine]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serve_engine(plan)) for plan in plans]


def answered(engines: list[FakeEngine]) -> int:
    return sum(len(engine.answered) for engine in engines)


@pytest.mark.parametrize("api", ["sglang", "vllm"])
async def test_workers_sleep_and_wake_and_requests_are_answered_meanwhile(api: Any) -> None:
    async with fakes(EnginePlan(api=api), EnginePlan(api=api)) as engines:
        async with pool_of([engine.url for engine in engines]) as service:
            assert service.status().models == ("fake-model",)
            service.drain(engines[1].url)
            await service.until(lambda status: status.workers[1].state is WorkerState.INACTIVE)
            assert (engines[0].is_asleep, engines[1].is_asleep) == (False, True)
            answers = [ask(service, f"r{number}", stream=number % 2 == 0) for number in range(20)]
            service.wake(engines[1].url)
            for body in await asyncio.gather(*answers):
                assert b"data: [DONE]" in body or orjson.loads(body)["choices"]
            await service.until(lambda status: status.workers[1].state is WorkerState.ACTIVE)
            assert not engines[1].is_asleep
            assert service.status().counts.served == 20
        assert not any(engine.crashed for engine in engines)


async def test_an_engine_that_dies_loses_no_request_that_has_not_begun() -> None:
    async with fakes(*[EnginePlan(slots=8)] * 2) as engines, pool_of([engine.url for engine in engines]) as service:
        engines[0].hold()
        asked = [asyncio.create_task(ask(service, f"r{number}")) for number in range(12)]
        await engines[0].until(lambda: len(engines[0].running) > 3)
        engines[0].crash()
        for body in await asyncio.gather(*asked):
            assert orjson.loads(body)["choices"]
        await service.until(lambda status: status.workers[0].state is WorkerState.FAILED)
        assert answered(engines) == 12
        assert service.status().counts.lost == 0


async def test_a_stream_whose_engine_dies_breaks_in_its_readers_hands() -> None:
    async with fakes(EnginePlan(), EnginePlan()) as engines, pool_of([engine.url for engine in engines]) as service:
        for engine in engines:
            engine.hold(after_tokens=2)
        async with service.request(chat("r", stream=True)) as answer:
            chunks = aiter(answer.chunks)
            await anext(chunks)
            next(engine for engine in engines if engine.running).crash()
            with pytest.raises(RequestLostError, match="after a part of the answer had been sent"):
                async for _ in chunks:
                    pass


async def test_a_drain_that_never_ends_is_moved_and_then_the_engine_sleeps() -> None:
    async with fakes(EnginePlan(), EnginePlan()) as engines, pool_of([engine.url for engine in engines]) as service:
        engines[0].hold()
        asked = [asyncio.create_task(ask(service, f"r{number}")) for number in range(6)]
        await engines[0].until(lambda: len(engines[0].running) == 3)
        service.drain(engines[0].url)
        await asyncio.gather(*asked)
        await service.until(lambda status: status.workers[0].state is WorkerState.INACTIVE)
        assert (len(engines[0].answered), len(engines[1].answered)) == (0, 6)
        assert engines[0].is_asleep
        assert not engines[0].crashed, "memory of a busy engine was released"
        assert service.status().counts.handed_over == 3


async def test_a_client_that_goes_away_ends_its_request_in_the_engine() -> None:
    async with fakes(EnginePlan()) as engines, pool_of([engines[0].url]) as service:
        engines[0].hold(after_tokens=1)
        async with service.request(chat("r", stream=True)) as answer:
            await anext(aiter(answer.chunks))
        await engines[0].until(lambda: not engines[0].running)
        waiting = asyncio.create_task(ask(service, "s"))
        await engines[0].until(lambda: len(engines[0].running) == 1)
        waiting.cancel()
        await engines[0].until(lambda: not engines[0].running)
        assert len(engines[0].aborted) == 2


async def test_a_resume_that_fails_three_times_fails_the_worker_and_another_is_woken() -> None:
    async with fakes(*[EnginePlan()] * 3) as engines, pool_of([engine.url for engine in engines]) as service:
        for engine in engines[1:]:
            service.drain(engine.url)
        await service.until(lambda status: status.count(WorkerState.INACTIVE) == 2)
        engines[1].fail_next(3, 500, path="/resume_memory_occupation")
        for engine in engines[1:]:
            service.unpin(engine.url)
        await service.until(lambda status: status.workers[1].state is WorkerState.FAILED)
        await service.until(lambda status: status.workers[2].state is WorkerState.ACTIVE)
        await service.until(lambda status: status.workers[1].state is WorkerState.ACTIVE)
        assert not any(engine.crashed for engine in engines)
        await asyncio.gather(*(ask(service, f"r{number}") for number in range(12)))


async def test_an_engine_that_hangs_is_replaced_and_comes_back() -> None:
    async with fakes(EnginePlan(), EnginePlan()) as engines:
        urls = [engine.url for engine in engines]
        async with pool_of(urls, engine_timeout=0.3) as service:
            engines[0].hang()
            await asyncio.gather(*(ask(service, f"r{number}") for number in range(6)))
            assert service.status().workers[0].state is WorkerState.FAILED
            assert len(engines[1].answered) == 6
            engines[0].let_go()
            await service.until(lambda status: status.workers[0].state is WorkerState.ACTIVE)


async def test_a_storm_of_502_ends_with_every_request_answered() -> None:
    async with fakes(*[EnginePlan(slots=4)] * 2) as engines, pool_of([engine.url for engine in engines]) as service:
        engines[0].fail_next(3, 502, path="/v1/chat/completions")
        engines[1].fail_next(3, 503, path="/v1/chat/completions")
        await asyncio.gather(*(ask(service, f"r{number}") for number in range(40)))
        assert answered(engines) == 40
        assert service.status().counts.lost == 0


async def test_an_engine_that_cannot_sleep_is_refused_with_its_flag() -> None:
    async with fakes(EnginePlan(has_memory_saver=False), EnginePlan()) as engines:
        with pytest.raises(NotAnEngineError, match="--enable-memory-saver"):
            async with pool_of([engine.url for engine in engines]):
                pass


async def test_two_pools_do_not_share_an_engine() -> None:
    async with fakes(EnginePlan()) as engines, pool_of([engines[0].url]):
        with pytest.raises(WorkerClaimedError):
            async with pool_of([engines[0].url.replace("127.0.0.1", "localhost")]):
                pass


@asynccontextmanager
async def process(*flags: str) -> AsyncIterator[tuple[Process, str]]:
    """Give an engine that is a process of its own, and its address."""
    engine = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "headgate.cli",
        "elastic",
        "fake-engine",
        "--port",
        "0",
        *flags,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    try:
        assert engine.stdout is not None
        yield engine, (await engine.stdout.readline()).decode().strip()
    finally:
        if engine.returncode is None:
            engine.kill()
        await engine.communicate()


@pytest.mark.slow
async def test_kill_9_with_requests_in_flight_answers_each_of_them_once() -> None:
    flags = ("--token-s", "0.02", "--slots", "8")
    async with process(*flags) as (first, one), process(*flags) as (_, two), pool_of([one, two]) as service:
        answers: Counter[str] = Counter()

        async def count(request_id: str) -> None:
            body = orjson.loads(await ask(service, request_id, tokens=10))
            assert body["usage"]["completion_tokens"] == 10
            answers[request_id] += 1

        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(count(f"r{number}"))
            await service.until(lambda status: status.workers[0].requests == 8 and status.counts.served > 8)
            first.kill()
        assert answers == Counter(f"r{number}" for number in range(40))
        counts = service.status().counts
        assert (counts.served, counts.lost) == (40, 0)
        assert counts.handed_over >= 8
        await service.until(lambda status: status.workers[0].state is WorkerState.FAILED)
