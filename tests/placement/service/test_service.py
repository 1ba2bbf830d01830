"""The service over a cluster in memory: what happens to work."""

from __future__ import annotations

import pytest

from headgate.core import ReleaseOutcome, events
from headgate.core.errors import NotFoundError
from headgate.placement.amounts import amounts
from headgate.placement.errors import CannotFitError, UnknownPoolError
from headgate.simulation import LoopClock
from tests.placement.service.conftest import Opens, pool, virtual, work
from tests.placement.service.fake_executor import FakeCluster


def test_work_runs_in_a_reserved_group_and_its_result_is_kept(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool(reserved=[{"cpu": 2}]))
            await desk.settle()
            desk.service.submit(work("train", priority=9), "d1")
            await desk.settle()
            assert desk.stage("train") == "running"
            assert desk.service.view("train").group_id.startswith("headgate-rlhf-r0-")
            desk.executor.end("train", b"42")
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
            desk.executor.end("a", b"pickled", kind="raised", why="Traceback\n  line\nValueError: no data")
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
            assert (first, again) == (True, False)
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
            desk.executor.end("train")
            await desk.settle()
            order = desk.cluster.started("rollout")
            assert order is not None
            assert (order.state, order.epoch) == (b"step 7", 2)
            view = desk.service.view("rollout")
            assert (view.preemptions, view.losses) == (1, 0)
            assert desk.service.stats()["total_preemptions"] == 1
            assert desk.service.stats()["recent_preemptions"][0]["task_id"] == "rollout"

    virtual(main)


class _TickingClock(LoopClock):
    """Every look at it takes a millisecond."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + self.looks / 1_000


def test_a_planned_preemption_tells_what_its_decision_took(opens: Opens) -> None:
    async def main() -> None:
        async with opens(FakeCluster({"n1": amounts(cpu=2)}), _TickingClock()) as desk:
            desk.service.open_pool(pool(cpu=2))
            desk.service.submit(work("low", priority=3), "d1")
            await desk.settle(5)
            desk.service.submit(work("high", priority=9), "d1")
            await desk.settle()
            (planned,) = [each for each in desk.events if isinstance(each, events.PreemptionPlanned)]
            assert planned.evaluated_ms == pytest.approx(1.0)

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
                desk.executor.end(name)
                await desk.settle(15)
                cluster.states["rollout"] = None
            order = desk.cluster.started("rollout")
            assert order is not None
            assert (order.state, order.epoch) == (b"step 7", 3)

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


def test_ended_requests_are_forgotten_after_an_hour(opens: Opens) -> None:
    async def main() -> None:
        async with opens() as desk:
            desk.service.open_pool(pool())
            desk.service.submit(work("a"), "d1")
            await desk.settle()
            desk.executor.end("a", b"1")
            await desk.settle(3_590)
            assert desk.service.result("a") is not None
            await desk.settle(20)
            assert desk.service.result("a") is None
            assert desk.service.journal.names("requests") == set()

    virtual(main)
