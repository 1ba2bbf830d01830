"""A storm of requests while workers come and go and one of them is killed: nothing is lost, nothing answered twice."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
import orjson
import pytest

from headgate.elastic.engines import EngineSpec, open_engine
from headgate.elastic.gateway import Gateway, GatewaySettings, running_gateway
from headgate.elastic.service import ElasticService
from headgate.elastic.settings import ElasticConfig
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.elastic.gateway.door import CHAT, QUICK
from tests.elastic.service.desk import Wants

REQUESTS = 300
SLOTS = 4
FLAGS = ("--model", "m", "--slots", str(SLOTS), "--reply-tokens", "8", "--token-s", "0.02")
PLAN = EnginePlan(model="m", slots=SLOTS, reply_tokens=8, token_s=0.02)


@dataclass
class Storm:
    """Requests of a campaign: every third is streamed; each asks for its own number to be said."""

    client: aiohttp.ClientSession
    answered: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, number: int) -> None:
        streams = number % 3 == 0
        text = " ".join([f"n{number}"] * 4)
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "stream": streams}
        headers = {"X-Headgate-Group": f"group-{number % 5}"}
        async with self.client.post(CHAT, json=body, headers=headers) as answer:
            read = await answer.read()
            assert answer.status == 200, read
        said, code = streamed(read) if streams else (orjson.loads(read)["choices"][0]["message"]["content"], "")
        if code:
            assert streams
            self.told[code] += 1
        else:
            assert said == " ".join([f"n{number}"] * 8)
            self.answered[f"n{number}"] += 1
        self.changed.set()

    async def until(self, answers: int) -> None:
        while self.answered.total() + self.told.total() < answers:
            self.changed.clear()
            await self.changed.wait()


def streamed(read: bytes) -> tuple[str, str]:
    """Return the text of a stream, and the code of the error that it ended with."""
    *events, last, rest = read.split(b"\n\n")
    assert rest == b""
    chunks = [orjson.loads(event.removeprefix(b"data: ")) for event in events]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    if last == b"data: [DONE]":
        return text, ""
    return text, orjson.loads(last.removeprefix(b"data: "))["error"]["code"]


async def come_and_go(
    storm: Storm, service: ElasticService, gateway: Gateway, killed: asyncio.subprocess.Process, killed_id: str
) -> None:
    """Let workers sleep and wake in the midst of the storm, and kill one that has requests."""
    await storm.until(REQUESTS // 10)
    service.scale(1)
    await storm.until(REQUESTS // 5)
    service.scale(3)
    await storm.until(2 * REQUESTS // 5)
    await service.until(lambda status: any(w.worker_id == killed_id and w.requests == SLOTS for w in status.workers))
    killed.kill()
    await storm.until(3 * REQUESTS // 5)
    service.drain(next(w.worker_id for w in service.status().workers if w.worker_id != killed_id))
    await storm.until(4 * REQUESTS // 5)
    service.wake_all(60)
    assert gateway.status().admission.in_flight <= gateway.status().admission.limit


@pytest.mark.slow
@pytest.mark.long  # `test_over_http.py` kills an engine with requests in flight
async def test_a_storm_of_requests_is_answered_although_workers_come_and_go_and_one_is_killed() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate.cli", "elastic", "fake-engine", "--port", "0", *FLAGS, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        killed_id = (await process.stdout.readline()).decode().strip()
        config = ElasticConfig(**QUICK, max_workers=3)
        async with serve_engine(PLAN) as one, serve_engine(PLAN) as other:
            engines = [await open_engine(EngineSpec(url=url), config) for url in (killed_id, one.url, other.url)]
            async with (
                ElasticService("storm", config, engines, policy=Wants(3)) as service,
                running_gateway(service, config, GatewaySettings(port=0), environ={}) as gateway,
                aiohttp.ClientSession(gateway.url, connector=aiohttp.TCPConnector(limit=0)) as client,
            ):
                storm = Storm(client)
                async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
                    for number in range(REQUESTS):
                        tasks.create_task(storm.ask(number))
                    tasks.create_task(come_and_go(storm, service, gateway, process, killed_id))

                counts, admission = service.status().counts, gateway.status().admission
                assert set(storm.answered.values()) == {1}
                assert set(storm.told) <= {"request_lost"}
                assert storm.answered.total() + storm.told.total() == REQUESTS
                assert storm.told.total() <= SLOTS
                assert (counts.served, counts.lost) == (storm.answered.total(), storm.told.total())
                assert counts.withdrawn == counts.refused == 0
                assert (admission.in_flight, admission.waiting) == (0, 0)
                both = Counter([*one.answered, *other.answered])
                assert set(both.values()) == {1}
                assert (one.crash_reason, other.crash_reason) == ("", "")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
