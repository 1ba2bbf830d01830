"""The service over a cluster in memory: what happens to work, and what survives what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.core import ReleaseOutcome, events
from headgate.core.errors import JournalError, NotFoundError
from headgate.placement.amounts import amounts
from headgate.placement.errors import CannotFitError, UnknownPoolError
from headgate.placement.outcomes import PoolDiffers
from headgate.placement.rules import PreemptionRules
from headgate.placement.service.journal import Journal
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_hands import FakeCluster


def test_work_runs_in_a_reserved_group_and_its_result_is_kept(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            await desk.settle()
            desk.service.submit(work("train", priority=9), "d1")
            await desk.settle()
            assert desk.stage("train") == "running"
            assert desk.service.view("train").group_id.startswith("headgate-rlhf-r0-")
            desk.hands.end("train", b"42")
            await desk.settle()
            assert desk.stage("train") == "done"
            ended = desk.service.result("train")
            assert ended is not None
            assert (ended.kind, ended.payload) == ("returned", b"42")
            assert [group.state for group in desk.service.groups()] == ["free"]

    virtual(main)


def test_work_that_raises_fails_with_its_last_line(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            desk.hands.end("a", b"pickled", kind="raised", why="Traceback\n  line\nValueError: no data")
            await desk.settle()
            assert desk.stage("a") == "failed"
            assert desk.service.view("a").note == "ValueError: no data"
            ended = desk.service.result("a")
            assert ended is not None
            assert ended.why.startswith("Traceback")

    virtual(main)


def test_submit_again_after_a_lost_answer_is_the_same_request(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            first = desk.service.submit(work("a"), "d1")
            again = desk.service.submit(work("a", payload=b"other"), "d1")
            await desk.settle()
            assert (first.again, again.again) == (False, True)
            order = desk.cluster.started("a")
            assert order is not None
            assert order.payload == b"work"
            assert desk.cluster.log.count("start a 1") == 1

    virtual(main)


def test_refused_submissions_leave_nothing_in_the_journal(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            await desk.settle()
            with pytest.raises(UnknownPoolError):
                desk.service.submit(work("a", pool="other"), "d1")
            with pytest.raises(CannotFitError):
                desk.service.submit(work("b", cpu=7), "d1")
            assert desk.service.journal.names("requests") == set()
            with pytest.raises(NotFoundError):
                desk.service.view("a")

    virtual(main)


def test_a_victim_gets_its_state_back_and_is_not_charged(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster({"n1": amounts(cpu=2)}, states={"rollout": b"step 7"})) as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("rollout", priority=3, labels={"role": "rollout"}), "d1")
            await desk.settle(5)
            desk.service.submit(work("train", priority=9, labels={"role": "train"}), "d1")
            await desk.settle()
            assert (desk.stage("train"), desk.stage("rollout")) == ("running", "waiting")
            desk.hands.end("train")
            await desk.settle()
            order = desk.cluster.started("rollout")
            assert order is not None
            assert (order.state, order.epoch) == (b"step 7", 2)
            view = desk.service.view("rollout")
            assert (view.preemptions, view.losses) == (1, 0)
            assert desk.service.stats()["total_preemptions"] == 1
            assert desk.service.stats()["recent_preemptions"][0]["task_id"] == "rollout"

    virtual(main)


def test_state_of_an_earlier_stop_is_kept_when_a_later_one_saves_nothing(opens: Opens) -> None:
    async def main() -> None:
        cluster = FakeCluster({"n1": amounts(cpu=2)}, states={"rollout": b"step 7"})
        async with opens(cluster) as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("rollout", priority=3), "d1")
            await desk.settle(5)
            for name in ("t1", "t2"):
                desk.service.submit(work(name, priority=9), "d1")
                await desk.settle()
                desk.hands.end(name)
                await desk.settle(15)
                cluster.states["rollout"] = None
            order = desk.cluster.started("rollout")
            assert order is not None
            assert (order.state, order.epoch) == (b"step 7", 3)

    virtual(main)


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


def test_a_lease_is_given_back_exactly_once(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a", kind="lease", payload=b""), "d1")
            await desk.settle()
            view = desk.service.view("a")
            outcomes = [desk.service.release("a", view.lease_id, view.epoch) for _ in range(2)]
            await desk.settle()
            outcomes.append(desk.service.release("a", view.lease_id, view.epoch))
            assert outcomes == [ReleaseOutcome.RELEASED, ReleaseOutcome.DUPLICATE, ReleaseOutcome.DUPLICATE]
            assert desk.service.release("a", "p-0-0", view.epoch) is ReleaseOutcome.STALE
            assert desk.service.release("zz", "p-0-0", 1) is ReleaseOutcome.UNKNOWN
            assert desk.stage("a") == "done"

    virtual(main)


def test_a_lease_that_was_taken_away_is_given_back_by_leaving_the_line(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster({"n1": amounts(cpu=2)})) as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("lease", kind="lease", payload=b"", priority=1), "d1")
            await desk.settle(5)
            view = desk.service.view("lease")
            desk.service.submit(work("b", priority=9), "d1")
            await desk.settle()
            assert (desk.stage("lease"), desk.stage("b")) == ("waiting", "running")
            assert desk.service.release("lease", view.lease_id, view.epoch) is ReleaseOutcome.RELEASED
            assert desk.stage("lease") in {"withdrawn", "done"}
            assert desk.stage("b") == "running"

    virtual(main)


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
            assert desk.service.view("dead").note == "its driver was lost"
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
            desk.hands.end("a", b"late")
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
            assert desk.service.submit(work("a"), "new").again
            for _ in range(20):
                await desk.service.beat("new", desk.service.generation, 10**9, (), 1.0)
            assert desk.stage("a") == "running"
            assert desk.service.view("a").holder == "new"

    virtual(main)


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
            desk.hands.end("low", b"result")
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
            assert isinstance(told, PoolDiffers)
            assert told.differences == ("quota",)

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
            desk.hands.end("a")
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
            desk.hands.end("theirs")
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


def test_ended_requests_are_forgotten_after_an_hour(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            desk.hands.end("a", b"1")
            await desk.settle(3_590)
            assert desk.service.result("a") is not None
            await desk.settle(20)
            assert desk.service.result("a") is None
            assert desk.service.journal.names("requests") == set()

    virtual(main)


def test_two_services_never_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j").open()
    with pytest.raises(JournalError, match="is written by process"):
        Journal(tmp_path / "j").open()
    journal.close()
    again = Journal(tmp_path / "j").open()
    assert again.generation == 2
    again.close()
