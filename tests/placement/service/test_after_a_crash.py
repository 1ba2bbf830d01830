"""What was said before a crash holds after it."""

from __future__ import annotations

from headgate.core import ReleaseOutcome
from tests.placement.service.conftest import Opens, pool, virtual, work


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
