"""What was said before a crash holds after it."""

from __future__ import annotations

import asyncio

import pytest

from headgate.core import ReleaseOutcome
from headgate.placement.service.hands import Running, WorkOrder
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_hands import FakeHands


def test_work_given_back_while_it_is_stopped_stays_given_back_after_a_crash(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("victim", priority=1), "d1")
            await desk.settle()
            desk.cluster.unkillable.add("victim")
            desk.service.submit(work("urgent", priority=9), "d1")
            await desk.settle()
            assert desk.stage("victim") == "stopping"
            assert desk.service.complete("victim") is ReleaseOutcome.RELEASED
            cluster = desk.cluster
        cluster.unkillable.clear()
        async with opens(cluster) as desk:
            await desk.settle()
            assert desk.stage("victim") == "done"

    virtual(main)


def test_a_pool_that_was_being_closed_is_closed(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            await desk.settle()
            desk.service.submit(work("t", priority=9), "d1")
            await desk.settle()
            desk.cluster.unkillable.add("t")
            desk.service.close_pool("rlhf")
            cluster = desk.cluster
        cluster.unkillable.clear()
        async with opens(cluster) as desk:
            await desk.settle()
            assert desk.service.pools() == ()
            assert desk.stage("t") == "withdrawn"
            assert cluster.groups == {}

    virtual(main)


def test_a_reserved_group_that_is_wanted_no_more_goes_when_its_work_ends(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}, {"cpu": 1}]))
            await desk.settle()
            desk.service.submit(work("t", priority=9), "d1")
            await desk.settle()
            desk.service.change_pool(pool(reserved=[]))
            await desk.settle()
            cluster = desk.cluster
        async with opens(cluster) as desk:
            await desk.settle()
            assert desk.stage("t") == "running"
            assert len(cluster.groups) == 1
            desk.hands.end("t")
            await desk.settle()
            assert cluster.groups == {}

    virtual(main)


def test_a_reserved_group_that_is_wanted_stays(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            await desk.settle()
            cluster = desk.cluster
        kept = set(cluster.groups)
        async with opens(cluster) as desk:
            await desk.settle()
            assert set(cluster.groups) == kept

    virtual(main)


def test_work_that_ends_while_the_rest_is_taken_up_decides_nothing(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(cpu=4))
            for name in ("first", "second"):
                desk.service.submit(work(name), "d1")
                await desk.settle()
            desk.cluster.unkillable.add("second")
            desk.service.withdraw("second")
            await desk.settle()
            cluster = desk.cluster
        adopt = FakeHands.adopt

        async def slowly(self: FakeHands, group_id: str, order: WorkOrder) -> Running | None:
            if order.request_id == "second":
                self.end("first")
                await asyncio.sleep(1)
            return await adopt(self, group_id, order)

        monkeypatch.setattr(FakeHands, "adopt", slowly)
        async with opens(cluster) as desk:
            await desk.settle()
            assert desk.stage("first") == "done"
            assert cluster.started("second") is not None
            assert desk.stage("second") == "stopping"  # not withdrawn while it still runs

    virtual(main)
