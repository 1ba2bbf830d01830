"""Whatever happens to engines, leases and clients: each request ends once, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from headgate.core.errors import HeadgateError
from headgate.elastic.errors import EngineError, PoolFullError, RequestLostError
from tests.elastic.service.desk import Desk, opened, outgoing, virtual
from tests.elastic.service.in_memory import JSON, STREAM, FakeEngine, FakeLeases

ENGINES = 4
CLIENTS = 60


async def _client(desk: Desk, name: str, rng: random.Random, outcomes: Counter[str]) -> None:
    """Ask once, patiently or not, and make sure that the answer is whole and came once."""
    patience_s = rng.choice([1_000.0, 1_000.0, rng.uniform(0, 10)])
    await asyncio.sleep(rng.uniform(0, 60))
    try:
        async with asyncio.timeout(patience_s), desk.service.request(outgoing(name)) as answer:
            body = b""
            async for chunk in answer.chunks:
                body += chunk
                await asyncio.sleep(rng.choice([0.0, 0.0, 0.5]))
            assert body == b"abc"
    except TimeoutError:
        outcomes["withdrawn"] += 1
    except (RequestLostError, PoolFullError):
        outcomes["lost"] += 1
    else:
        outcomes["served"] += 1


async def _chaos(desk: Desk, leases: FakeLeases, rng: random.Random) -> None:
    """Let engines die, hang, refuse and come back, leases go, and operators change their minds."""
    for _ in range(40):
        await asyncio.sleep(rng.uniform(0, 4))
        engine = rng.choice(desk.engines)
        match rng.randrange(9):
            case 0:
                engine.die()
            case 1 | 2:
                engine.revive()
                engine.hangs.clear()
            case 3:
                engine.hangs.add(rng.choice(["load", "answer", "wake", "sleep", "abort"]))
            case 4:
                call = rng.choice(["load", "answer", "wake", "sleep", "abort"])
                engine.faults[call] = [EngineError(f"{call}: 502 Bad Gateway")] * rng.randrange(1, 5)
            case 5:
                desk.wants.workers = rng.randrange(1, ENGINES + 1)
            case 6 if leases.held:
                leases.held[rng.choice(sorted(leases.held))](rng.uniform(0, 5))
            case 7:
                rng.choice([desk.service.drain, desk.service.wake, desk.service.unpin])(engine.name)
            case _:
                leases.count = rng.randrange(1, ENGINES + 1)
        desk.validate()


@pytest.mark.parametrize("seed", range(30))
def test_every_request_ends_once_and_nothing_is_left(seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.choice([JSON, STREAM])
    engines = [FakeEngine(f"w{number}", service_s=rng.uniform(0.1, 4), content_type=kind) for number in range(ENGINES)]
    leases = FakeLeases(ENGINES)
    outcomes: Counter[str] = Counter()

    async def main() -> None:
        try:
            async with opened(*engines, leases=leases, queue_timeout=60.0, request_timeout=20.0) as desk:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_chaos(desk, leases, rng))
                    for number in range(CLIENTS):
                        group.create_task(_client(desk, f"r{number}", random.Random(f"{seed} {number}"), outcomes))
                for engine in engines:  # and once everything is well again, everything works again
                    engine.revive()
                    engine.hangs.clear()
                    engine.faults.clear()
                    desk.service.unpin(engine.name)
                leases.count = ENGINES
                async with leases.free:
                    leases.free.notify_all()
                async with asyncio.timeout(600):
                    assert await desk.ask("last") == b"abc"
                counts = desk.service.status().counts
        except HeadgateError as error:
            raise AssertionError from error
        assert sum(outcomes.values()) == CLIENTS
        # A client may go away after its engine has finished, while a part of the answer is still on the way to it.
        assert outcomes["served"] + 1 <= counts.served <= outcomes["served"] + 1 + outcomes["withdrawn"]
        assert counts.lost == outcomes["lost"]
        assert counts.arrived == CLIENTS + 1 == counts.served + counts.lost + counts.withdrawn
        assert not leases.held

    virtual(main)
