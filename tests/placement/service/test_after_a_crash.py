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
