"""Drivers of the service: what they are told, and what becomes of their work when they go."""

from __future__ import annotations

import asyncio

from headgate.core import events
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_executor import FakeCluster


def test_a_driver_that_dies_leaves_nothing_behind_and_others_go_on(opens: Opens) -> None:
    async def main() -> None:
        async with opens(driver_lease_s=15.0, idle_group_s=1.0) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("dead"), "d1")
            desk.service.submit(work("alive"), "d2")
            for _ in range(20):
                await desk.service.beat("d2", desk.service.generation, 10**9, (), 1.0)
            await desk.settle()
            assert (desk.stage("dead"), desk.stage("alive")) == ("withdrawn", "running")
            assert desk.service.view("dead").note == "its driver died"
            assert [group.holder for group in desk.service.groups()] == ["alive"]
            assert any(isinstance(event, events.DriverLost) for event in desk.events)

    virtual(main)


def test_work_of_a_dead_driver_goes_on_where_that_is_the_policy(opens: Opens) -> None:
    async def main() -> None:
        async with opens(driver_lease_s=15.0, keep_work_of_lost_drivers=True) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle(60)
            assert desk.stage("a") == "running"
            desk.executor.end("a", b"late")
            await desk.settle()
            ended = desk.service.result("a")
            assert ended is not None
            assert ended.payload == b"late"

    virtual(main)


def test_a_driver_that_comes_back_takes_its_work_over(opens: Opens) -> None:
    async def main() -> None:
        async with opens(driver_lease_s=15.0) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "old")
            await desk.settle(10)
            assert not desk.service.submit(work("a"), "new")
            for _ in range(20):
                await desk.service.beat("new", desk.service.generation, 10**9, (), 1.0)
            assert desk.stage("a") == "running"
            assert desk.service.view("a").holder == "new"

    virtual(main)


def test_a_heartbeat_is_answered_as_soon_as_something_changes(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            await desk.settle()
            loop = asyncio.get_running_loop()
            beat = await desk.service.beat("d1", 0, 0, (), 0.0)
            before = loop.time()
            waiting = asyncio.create_task(desk.service.beat("d1", beat.generation, beat.number, (), 30.0))
            await asyncio.sleep(0)
            desk.service.submit(work("a"), "d1")
            beat = await waiting
            assert loop.time() < before + 0.1
            assert [(view.request_id, view.stage.value) for view in beat.views] == [("a", "running")]
            desk.executor.end("a")
            again = await desk.service.beat("d1", beat.generation, beat.number, (), 30.0)
            assert [view.stage.value for view in again.views] == ["done"]
            repeated = await desk.service.beat("d1", beat.generation, beat.number, (), 30.0)
            assert repeated.views == again.views, "an answer that was lost is given again"

    virtual(main)


def test_a_driver_is_told_only_of_its_own_and_of_what_it_watches(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("mine"), "d1")
            desk.service.submit(work("theirs"), "d2")
            await desk.settle()
            beat = await desk.service.beat("d1", 0, 0, (), 1.0)
            assert [view.request_id for view in beat.views] == ["mine"]
            beat = await desk.service.beat("d1", beat.generation, beat.number, ("theirs",), 1.0)
            assert [view.request_id for view in beat.views] == ["theirs"]
            desk.executor.end("theirs")
            beat = await desk.service.beat("d1", beat.generation, beat.number, (), 1.0)
            assert [view.stage.value for view in beat.views] == ["done"]

    virtual(main)


def test_after_a_restart_a_driver_is_told_everything_anew(opens: Opens) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        async with opens(cluster) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            beat = await desk.service.beat("d1", 0, 0, (), 0.0)
        async with opens(cluster) as desk:
            again = await desk.service.beat("d1", beat.generation, beat.number, (), 1.0)
            assert again.generation == beat.generation + 1
            assert [view.request_id for view in again.views] == ["a"]

    virtual(main)


def test_a_driver_that_goes_takes_its_work_along(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            for name in ("a", "b", "c", "d"):
                desk.service.submit(work(name), "d1")
            desk.service.submit(work("other"), "d2")
            await desk.settle()
            assert desk.service.withdraw_all("d1", "its driver ended") == 4
            await desk.settle()
            assert {view.stage.value for view in desk.service.requests() if view.holder == "d1"} == {"withdrawn"}
            assert desk.stage("other") == "running"

    virtual(main)
