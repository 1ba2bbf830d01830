"""Groups, nodes and pools of the service: made, lost, made again, closed."""

from __future__ import annotations

from headgate.placement.amounts import amounts
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_executor import FakeCluster


def test_a_group_is_free_only_after_its_occupant_is_seen_dead(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster({"n1": amounts(cpu=2)}, unkillable={"a"})) as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("a", priority=1), "d1")
            await desk.settle(5)
            desk.service.submit(work("b", priority=9), "d1")
            await desk.settle(10)
            assert desk.stage("b") == "clearing"
            assert [group.state for group in desk.service.groups()] == ["quarantined"]
            desk.cluster.unkillable.clear()
            await desk.settle(2)
            assert desk.stage("b") == "running"

    virtual(main)


def test_a_group_that_vanishes_is_seen_within_seconds(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            await desk.settle()
            before = [group.group_id for group in desk.service.groups()]
            desk.cluster.groups.clear()
            await desk.settle(12)
            after = [group.group_id for group in desk.service.groups()]
            assert len(after) == 1
            assert after != before

    virtual(main)


def test_a_dead_node_has_its_work_run_elsewhere(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster({"n1": amounts(cpu=4), "n2": amounts(cpu=4)})) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            (group,) = desk.service.groups()
            del desk.cluster.nodes[group.nodes[0]]
            await desk.settle(20)
            assert desk.stage("a") == "running"
            (group,) = [each for each in desk.service.groups() if each.holder == "a"]
            assert set(group.nodes) <= set(desk.cluster.nodes)

    virtual(main)


def test_the_death_of_a_node_is_one_loss_for_its_work(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster({"n1": amounts(cpu=4), "n2": amounts(cpu=4)})) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            (group,) = desk.service.groups()
            del desk.cluster.nodes[group.nodes[0]]
            desk.executor.end("a", kind="died", why="its node has died")
            await desk.settle()
            assert desk.stage("a") == "running"
            assert desk.service.view("a").losses == 1

    virtual(main)


def test_a_group_that_cannot_be_made_is_tried_again(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster(failing_creations=2)) as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle(10)
            assert desk.stage("a") == "running"

    virtual(main)


def test_closing_a_pool_leaves_nothing_of_it(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            desk.service.close_pool("rlhf")
            await desk.settle(2)
            assert desk.cluster.groups == {}
            assert desk.cluster.works == {}
            assert desk.service.pools() == ()
            assert desk.service.journal.names("groups") == set()

    virtual(main)


def test_another_form_of_an_open_pool_is_told(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            told = desk.service.open_pool(pool(cpu=4))
            assert told.differences
            assert told.differences == ("quota",)

    virtual(main)
