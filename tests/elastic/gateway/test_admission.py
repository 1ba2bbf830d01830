"""Admission in front of a pool: what its workers could take goes in, the rest waits its turn by weight."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from headgate.core import events
from headgate.elastic.errors import PoolClosedError, PoolFullError
from headgate.elastic.gateway.admission import PoolAdmission
from headgate.elastic.gateway.status import AdmissionView
from headgate.simulation import LoopClock
from tests.elastic.service.desk import Desk, opened, virtual
from tests.elastic.service.in_memory import FakeEngine


def admission_of(desk: Desk, weights: Mapping[str, float] | None = None) -> PoolAdmission:
    return PoolAdmission(desk.service, desk.service._config, weights or {}, LoopClock(), desk.events.append)


def test_as_many_requests_go_in_as_the_largest_workers_take_when_as_many_as_may_are_awake() -> None:
    async def main() -> None:
        engines = [FakeEngine(f"w{number}", slots=slots) for number, slots in enumerate((2, 5, 3))]
        async with opened(*engines, max_workers=2, requests_per_worker_capacity=8, wants=1) as desk:
            assert admission_of(desk).view() == AdmissionView(8, 0, 0, desk.service._config.max_queue)

    virtual(main)


def test_the_bound_follows_what_engines_tell_of_their_slots() -> None:
    async def main() -> None:
        engine = FakeEngine("w0", slots=4)
        async with opened(engine, requests_per_worker_capacity=8) as desk, asyncio.TaskGroup() as tasks:
            admission = admission_of(desk)
            following = tasks.create_task(admission.follow())
            assert admission.view().limit == 4
            engine.slots = 2
            await asyncio.sleep(3)  # virtual: a reading, and a look at it
            assert admission.view().limit == 2
            following.cancel()

    virtual(main)


def test_groups_that_wait_share_by_weight() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1), requests_per_worker_capacity=1) as desk:
            admission = admission_of(desk, {"heavy": 3.0})
            held = await admission.enter("m", "first", "r")
            served: list[str] = []

            async def pass_through(group: str, number: int) -> None:
                lease = await admission.enter("m", group, f"{group}{number}")
                served.append(group)
                admission.leave(lease)

            async with asyncio.TaskGroup() as tasks:
                for number in range(40):
                    tasks.create_task(pass_through("heavy", number))
                    tasks.create_task(pass_through("light", number))
                await asyncio.sleep(0)
                assert admission.view().waiting == 80
                admission.leave(held)
            assert Counter(served[:40]) == {"heavy": 30, "light": 10}

    virtual(main)


def test_no_more_wait_than_may_and_whoever_is_refused_is_told_when_to_come_again() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1), requests_per_worker_capacity=1, max_queue=1) as desk:
            admission = admission_of(desk)
            await admission.enter("m", "", "r0")
            waits = asyncio.create_task(admission.enter("m", "", "r1"))
            await asyncio.sleep(0)
            with pytest.raises(PoolFullError, match="1 requests wait") as caught:
                await admission.enter("m", "", "r2")
            assert caught.value.retry_after_s == 1.0
            waits.cancel()

    virtual(main)


def test_nobody_waits_longer_than_the_queue_timeout() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1), requests_per_worker_capacity=1, queue_timeout=7.0) as desk:
            admission = admission_of(desk)
            await admission.enter("m", "", "r0")
            began = asyncio.get_running_loop().time()
            with pytest.raises(PoolFullError, match="within queue_timeout 7 s"):
                await admission.enter("m", "", "r1")
            assert asyncio.get_running_loop().time() - began == pytest.approx(7.0, abs=0.01)
            assert admission.view().waiting == 0

    virtual(main)


def test_whoever_waits_when_the_gateway_stops_is_told() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0", slots=1), requests_per_worker_capacity=1) as desk:
            admission = admission_of(desk)
            await admission.enter("m", "", "r0")
            waits = asyncio.create_task(admission.enter("m", "", "r1"))
            await asyncio.sleep(0)
            admission.close("the gateway stops")
            with pytest.raises(PoolClosedError):
                await waits

    virtual(main)


def test_failures_neither_lower_the_bound_nor_open_a_breaker() -> None:
    async def main() -> None:
        from headgate.elastic.gateway.admission import FAILED

        async with opened(FakeEngine("w0", slots=4), requests_per_worker_capacity=4) as desk:
            admission = admission_of(desk)
            for number in range(50):
                admission.leave(await admission.enter("m", "", f"r{number}"), FAILED)
            assert admission.view().limit == 4
            assert [(each.limit, each.breaker) for each in admission.requests()] == [(4, "closed")]
            assert not desk.told(events.BreakerOpened)

    virtual(main)
