"""What was said before a crash holds after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.core import ReleaseOutcome
from headgate.core.errors import JournalError
from headgate.placement.amounts import amounts
from headgate.placement.rules import PreemptionRules
from headgate.placement.service.journal import Journal
from headgate.placement.service.protocol import Running, WorkOrder
from headgate.simulation import LoopClock
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_executor import FakeCluster, FakeExecutor


def test_a_killed_service_goes_on_where_it_was(opens: Opens) -> None:
    """Waiting work waits, running work runs on, nothing is started twice, and unknown groups go."""

    async def main() -> None:
        cluster = FakeCluster({"n1": amounts(cpu=4)}, states={})
        async with opens(cluster) as desk:
            desk.service.open_pool(pool(cpu=4, reserved=[{"cpu": 2}]))
            await desk.settle()
            desk.service.set_rules(PreemptionRules(max_preemptions=1))
            desk.service.submit(work("high", priority=9), "d1")
            desk.service.submit(work("low", priority=3), "d1")
            desk.service.submit(work("queued", priority=3), "d1")
            await desk.settle()
            first = desk.service.generation
            assert [desk.stage(each) for each in ("high", "low", "queued")] == ["running", "running", "waiting"]
        cluster.groups["headgate-rlhf-d-9.9"] = ("n1",)
        async with opens(cluster) as desk:
            assert desk.service.generation == first + 1
            assert [desk.stage(each) for each in ("high", "low", "queued")] == ["running", "running", "waiting"]
            assert "headgate-rlhf-d-9.9" not in cluster.groups
            assert {"adopt high 1", "adopt low 1"} <= set(cluster.log)
            assert desk.service.rules().max_preemptions == 1
            desk.executor.end("low", b"result")
            await desk.settle()
            assert (desk.stage("low"), desk.stage("queued")) == ("done", "running")
            assert cluster.log.count("start high 1") == 1
            assert sum(line.startswith("start low") for line in cluster.log) == 1
            order = cluster.started("queued")
            assert order is not None
            assert order.payload == b"work"

    virtual(main)


def test_work_that_died_while_the_service_was_away_starts_again(opens: Opens) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        async with opens(cluster) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
        cluster.works.clear()
        async with opens(cluster) as desk:
            await desk.settle()
            assert desk.stage("a") == "running"
            assert desk.service.view("a").losses == 1
            assert cluster.log[-1] == "start a 2"

    virtual(main)


def test_a_start_that_a_crash_has_cut_off_is_no_loss_of_its_work(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with opens() as desk:

            async def never(group_id: str, nodes: object, order: WorkOrder) -> Running:
                del group_id, nodes, order
                await asyncio.Event().wait()
                raise AssertionError

            monkeypatch.setattr(desk.executor, "start", never)
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            assert desk.stage("a") == "placing"
            cluster = desk.cluster
        async with opens(cluster) as desk:
            await desk.settle()
            view = desk.service.view("a")
            assert (view.stage.value, view.losses, view.epoch) == ("running", 0, 2)

    virtual(main)


def test_a_group_that_vanished_while_the_service_was_away_is_made_anew(opens: Opens) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        async with opens(cluster) as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            desk.service.submit(work("a", priority=9), "d1")
            await desk.settle()
        cluster.works.clear()
        cluster.groups.clear()
        async with opens(cluster) as desk:
            await desk.settle(2)
            assert desk.stage("a") == "running"
            assert [group.reserved for group in desk.service.groups()].count(True) == 1
            assert set(cluster.groups) == {group.group_id for group in desk.service.groups()}

    virtual(main)


def test_two_services_never_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j").open()
    with pytest.raises(JournalError, match="is written by process"):
        Journal(tmp_path / "j").open()
    journal.close()
    again = Journal(tmp_path / "j").open()
    assert again.generation == 2
    again.close()


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
            desk.executor.end("t")
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
        adopt = FakeExecutor.adopt

        async def slowly(self: FakeExecutor, group_id: str, order: WorkOrder) -> Running | None:
            if order.request_id == "second":
                self.end("first")
                await asyncio.sleep(1)
            return await adopt(self, group_id, order)

        monkeypatch.setattr(FakeExecutor, "adopt", slowly)
        async with opens(cluster) as desk:
            await desk.settle()
            assert desk.stage("first") == "done"
            assert cluster.started("second") is not None
            assert desk.stage("second") == "stopping"  # not withdrawn while it still runs

    virtual(main)


@pytest.mark.parametrize("step_s", [2 * 86_400.0, -2 * 86_400.0, 400 * 86_400.0, -400 * 86_400.0])
def test_no_time_of_a_journal_is_to_come_after_the_clock_was_set(opens: Opens, step_s: float) -> None:
    async def main() -> None:
        cluster, clock = FakeCluster({"n1": amounts(cpu=2)}, states={}), LoopClock()
        async with opens(cluster, clock) as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("first"), "d1")
            desk.service.submit(work("second"), "d1")
            await desk.settle()
        clock.step_wall(step_s)
        async with opens(cluster, clock) as desk:
            now = clock.monotonic()
            requests = [desk.service.ledger.requests[name] for name in ("first", "second")]
            assert all(request.waiting_since <= now for request in requests)
            assert all(request.submitted_at <= now for request in requests)
            desk.executor.end("first", b"result")
            await desk.settle()
            assert desk.stage("second") == "running"

    virtual(main)
