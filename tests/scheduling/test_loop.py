"""The dispatch loop in virtual time: stages, retries, failures, defects, stops, cancellation, and no lost wake-up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from headgate.core import ChatError, ErrorKind, HolderId, Lease, ReleaseOutcome, Task, TaskId, events
from headgate.core.errors import InvalidInputError
from headgate.scheduling import (
    BoundedBorrow,
    Dispatcher,
    DispatchLoop,
    FrontierRules,
    LoopResult,
    RetryLaterError,
    RetryRules,
    RowGroup,
    TaskFailedError,
    Trace,
)
from headgate.simulation import LoopClock, run_virtual
from tests.scheduling.queued import task

MODEL = {"submission": 1, "llm_wait": 1}
LOCAL = {"submission": 1}
Work = Callable[[Task], Awaitable[object]]


def _stage(name: str, stage: str, group: str, needs: dict[str, int], *after: str) -> Task:
    depends_on = tuple(TaskId(a) for a in after)
    return replace(task(name, group, resources=needs), stage=stage, depends_on=depends_on)


def judged(rows: int) -> Iterator[RowGroup]:
    """Rows of rollout -> two judges -> aggregate."""
    for row in range(rows):
        yield RowGroup(
            f"row-{row}",
            (
                _stage(f"r{row}", "rollout", "policy", MODEL),
                _stage(f"j{row}.0", "judge", "judge", MODEL, f"r{row}"),
                _stage(f"j{row}.1", "judge", "judge", MODEL, f"r{row}"),
                _stage(f"a{row}", "aggregate", "local", LOCAL, f"j{row}.0", f"j{row}.1"),
            ),
        )


def single(rows: int, group: str = "m", needs: dict[str, int] | None = None) -> list[RowGroup]:
    return [RowGroup(f"{group}{n}", (task(f"{group}-{n}", group, resources=needs or MODEL),)) for n in range(rows)]


class World:
    """A loop with what happened in it."""

    def __init__(self, groups: Iterable[RowGroup], work: Work, *, capacity: int = 4, **more: Any) -> None:
        self.told: list[tuple[float, events.Event]] = []
        self.clock = LoopClock()
        limits = more.pop("limits", {"submission": 2 * capacity, "llm_wait": capacity})
        self.dispatcher = Dispatcher(limits, holder=HolderId("h"), is_roster_open=True, policy=more.pop("policy", None))
        trace = Trace(lambda event: self.told.append((self.clock.monotonic(), event)), run_id="run-1")
        self.loop = DispatchLoop(self.dispatcher, groups, work, now=self.clock.monotonic, trace=trace, **more)

    async def run(self) -> LoopResult:
        try:
            return await self.loop.run()
        finally:
            self.validate()

    def validate(self) -> None:
        """Nothing is left behind, however the run ended."""
        self.dispatcher.validate()
        self.loop.rows.validate()
        self.loop.graph.validate()
        assert not self.dispatcher.book.live
        assert not self.dispatcher.running

    def of(self, kind: type[events.Event]) -> list[Any]:
        return [event for _, event in self.told if type(event) is kind]


async def _takes_a_second(_task: Task) -> None:
    await asyncio.sleep(1.0)


async def _ran(groups: Iterable[RowGroup], work: Work = _takes_a_second, **more: Any) -> tuple[World, LoopResult]:
    world = World(groups, work, **more)
    return world, await world.run()


# Stages.


def test_stages_run_in_order_and_everything_is_done() -> None:
    ended: list[str] = []

    async def work(one: Task) -> None:
        await asyncio.sleep(1.0)
        assert all(d in ended for d in one.depends_on)
        ended.append(one.task_id)

    world, result = run_virtual(_ran(judged(5), work))
    assert (result.completed, result.failed, result.dropped, result.row_groups) == (20, 0, 0, 5)
    assert result.is_complete
    assert len(world.of(events.DependencyReady)) == 15
    assert len(world.loop.graph) == 0


def test_capacity_is_busy_from_begin_to_end() -> None:
    async def main() -> float:
        world, _ = await _ran(single(40), capacity=4)
        return world.clock.monotonic()

    assert run_virtual(main()) == pytest.approx(10.0)


def test_the_frontier_opens_as_many_rows_as_the_capacity_takes() -> None:
    world, result = run_virtual(_ran(single(40), capacity=4, frontier=FrontierRules(floor=1, cap=16)))
    assert result.is_complete
    assert world.loop.frontier.peak == 4
    assert max(e.active for e in world.of(events.RowGroupAdmitted)) == 4


def test_row_groups_are_asked_for_one_at_a_time() -> None:
    taken: list[int] = []

    def endless() -> Iterator[RowGroup]:
        for number, group in enumerate(single(1_000)):
            taken.append(number)
            yield group

    async def main() -> int:
        world = World(endless(), _takes_a_second, capacity=2)
        running = asyncio.create_task(world.run())
        await asyncio.sleep(2.5)
        world.loop.stop("enough")
        await running
        return len(taken)

    assert run_virtual(main()) <= 9


def test_a_failed_stage_drops_what_depends_on_it_and_nothing_else() -> None:
    async def work(one: Task) -> None:
        if one.task_id == "j1.0":
            raise TaskFailedError("the judge's answer has no score")

    world, result = run_virtual(_ran(judged(3), work))
    assert (result.completed, result.failed, result.dropped, result.row_groups) == (10, 1, 1, 3)
    assert not result.is_complete
    lost = {e.task_id: (e.reason, e.because_of) for e in world.of(events.NonRetryableDropped)}
    assert lost == {"j1.0": ("failed", "j1.0"), "a1": ("dependency_failed", "j1.0")}


def test_a_tolerant_aggregate_runs_on_what_there_is() -> None:
    async def work(one: Task) -> None:
        if one.task_id == "j0.0":
            raise ChatError(ErrorKind.PROVIDER_TIMEOUT, "no answer")

    _, result = run_virtual(_ran(judged(1), work, tolerant_stages=["aggregate"]))
    assert (result.completed, result.failed, result.dropped) == (3, 1, 0)


# Retries.


def test_a_task_that_fails_for_now_waits_for_the_time_it_was_given() -> None:
    starts: list[tuple[float, int]] = []

    async def work(one: Task) -> None:
        now = asyncio.get_running_loop().time()
        starts.append((now, one.attempt))
        if one.attempt < 3:
            raise RetryLaterError("cooldown", wait_s=7.0)

    world, result = run_virtual(_ran(single(1), work))
    assert starts == [(0.0, 1), (7.0, 2), (14.0, 3)]
    assert (result.completed, result.retried) == (1, 2)
    assert [e.wait_s for e in world.of(events.RetryDeferred)] == [7.0, 7.0]
    assert [e.attempt for e in world.of(events.RetryRedispatched)] == [2, 3]


def test_a_task_that_is_put_back_at_once_runs_again_and_ends_once() -> None:
    runs: list[int] = []

    async def work(one: Task) -> None:
        runs.append(one.attempt)
        await asyncio.sleep(1.0)
        if len(runs) < 4:
            raise RetryLaterError("its provider admits nothing", 0.0, is_failure=False)

    world, result = run_virtual(_ran(single(1), work))
    assert runs == [1, 1, 1, 1]
    assert (result.completed, result.retried) == (1, 3)
    world.dispatcher.validate()


def test_a_retry_has_given_its_lease_back_before_it_waits() -> None:
    async def work(one: Task) -> None:
        if one.task_id == "m-0" and one.attempt == 1:
            raise RetryLaterError("cooldown", wait_s=100.0)
        await asyncio.sleep(1.0)

    world, result = run_virtual(_ran(single(11), work, capacity=1))
    assert result.is_complete
    done = [e.task_id for e in world.of(events.TaskCompleted)]
    assert done[0] == done[-1] == "m-0"
    assert world.told[-1][0] == pytest.approx(101.0)


def test_deferred_retries_keep_no_row_from_opening() -> None:
    async def work(one: Task) -> None:
        if one.attempt == 1:
            raise RetryLaterError("cooldown", wait_s=50.0)

    world, result = run_virtual(_ran(single(20), work, capacity=2, frontier=FrontierRules(floor=1, cap=32)))
    assert result.is_complete
    assert world.told[-1][0] == pytest.approx(50.0)


def test_rows_whose_first_stage_is_put_off_keep_no_row_from_opening() -> None:
    def rows() -> Iterator[RowGroup]:
        for n in range(20):
            first = _stage(f"s{n}", "seed", "local", LOCAL)
            yield RowGroup(f"row-{n}", (first, _stage(f"m{n}", "rollout", "m", MODEL, f"s{n}")))

    async def work(one: Task) -> None:
        if one.stage == "seed" and one.attempt == 1:
            raise RetryLaterError("the source asks for a rest", wait_s=50.0)

    world, result = run_virtual(_ran(rows(), work, capacity=2, frontier=FrontierRules(floor=1, cap=32)))
    assert result.is_complete
    assert world.told[-1][0] == pytest.approx(50.0)


def test_waits_double_when_the_error_names_no_time_and_have_a_bound() -> None:
    async def work(_one: Task) -> None:
        raise RetryLaterError("later")

    rules = RetryRules(max_attempts=5, wait_s=1.0, max_wait_s=3.0)
    world, result = run_virtual(_ran(single(1), work, retries=rules))
    assert [e.wait_s for e in world.of(events.RetryDeferred)] == [1.0, 2.0, 3.0, 3.0]
    assert (result.failed, result.completed) == (1, 0)


def test_a_storm_loses_no_sample() -> None:
    async def work(_one: Task) -> None:
        if asyncio.get_running_loop().time() < 300.0:
            raise RetryLaterError("rate limited", wait_s=2.0)
        await asyncio.sleep(1.0)

    _, result = run_virtual(_ran(single(30), work))
    assert (result.completed, result.failed, result.dropped) == (30, 0, 0)


def test_a_task_that_has_been_failing_for_long_enough_fails_for_good() -> None:
    async def work(_one: Task) -> None:
        raise RetryLaterError("rate limited", wait_s=10.0)

    world, result = run_virtual(_ran(single(1), work, retries=RetryRules(for_s=25.0)))
    assert (result.failed, result.retried) == (1, 3)
    assert world.told[-1][0] == pytest.approx(30.0)


@pytest.mark.parametrize("rule", [{"max_attempts": 0}, {"for_s": -1.0}, {"wait_s": float("nan")}, {"max_wait_s": -1}])
def test_impossible_retry_rules_are_refused(rule: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(rule))):
        RetryRules(**rule)  # type: ignore[arg-type]


# Failures, defects, stops.


def test_a_providers_error_fails_that_sample_only() -> None:
    async def work(one: Task) -> None:
        if one.task_id == "m-3":
            raise ChatError(ErrorKind.PROVIDER_FAILURE, "503")

    _, result = run_virtual(_ran(single(6), work))
    assert (result.completed, result.failed) == (5, 1)


def test_work_that_cancels_itself_fails_that_sample_only() -> None:
    async def work(one: Task) -> None:
        if one.task_id == "m-3":
            raise asyncio.CancelledError

    _, result = run_virtual(_ran(single(6), work))
    assert (result.completed, result.failed) == (5, 1)


@pytest.mark.parametrize("defect", [TypeError("our own"), KeyError("our own"), AssertionError("our own")])
def test_an_error_of_ours_stops_the_run_with_its_traceback(defect: Exception) -> None:
    world: World | None = None

    async def work(one: Task) -> None:
        if one.task_id == "m-3":
            raise defect
        await asyncio.sleep(10.0)

    async def main() -> None:
        nonlocal world
        world = World(single(30), work)
        await world.run()

    with pytest.raises(type(defect), match="our own") as caught:
        run_virtual(main())
    assert caught.value is defect
    assert "work" in [entry.name for entry in caught.traceback]
    assert world is not None
    assert world.loop.stopped_by == "internal error"
    assert len(world.of(events.TaskCancelled)) == 3
    leases = [len(world.of(kind)) for kind in (events.TaskLeaseAcquired, events.TaskLeaseReleased)]
    assert leases[0] == leases[1]


def test_a_stop_drains_what_runs_and_starts_nothing_more() -> None:
    async def main() -> LoopResult:
        world = World(single(100), _takes_a_second)
        running = asyncio.create_task(world.run())
        await asyncio.sleep(2.5)
        world.loop.stop("the window is over")
        world.loop.stop("again")
        result = await running
        assert asyncio.get_running_loop().time() == pytest.approx(3.0)
        return result

    result = run_virtual(main())
    assert (result.completed, result.stopped_by) == (12, "the window is over")


def test_cancelling_a_run_cancels_its_tasks_and_gives_every_lease_back() -> None:
    async def main() -> World:
        world = World(single(100), _takes_a_second)
        running = asyncio.create_task(world.run())
        await asyncio.sleep(2.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return world

    world = run_virtual(main())
    assert len(world.of(events.TaskCancelled)) == 4
    assert world.of(events.SchedulerJobCompleted)[0].stopped_by == "interrupted"


def test_a_worker_that_is_cancelled_before_its_first_step_gives_its_lease_back() -> None:
    began: list[str] = []

    async def work(one: Task) -> None:
        began.append(one.task_id)

    def broken() -> Iterator[RowGroup]:
        yield from single(3)
        raise OSError("the source is gone")

    async def main() -> World:
        world = World(broken(), work)
        with pytest.raises(OSError, match="the source is gone"):
            await world.run()
        return world

    world = run_virtual(main())
    assert began == []
    spawned = [e.task_id for e in world.of(events.WorkerSpawned)]
    assert spawned
    assert [e.task_id for e in world.of(events.TaskCancelled)] == spawned


def test_a_worker_that_cannot_be_started_leaves_its_task_queued_and_its_lease_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_group: asyncio.TaskGroup, body: Any, *, name: str | None = None) -> None:
        raise MemoryError("no more tasks")

    async def main() -> World:
        world = World(single(3), _takes_a_second)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.TaskGroup, "create_task", refuse)
            with pytest.raises(MemoryError, match="no more tasks"):
                await world.run()
        return world

    world = run_virtual(main())
    assert len(world.dispatcher.queue) == 1
    failed = world.of(events.WorkerSpawnFailed)
    assert [(e.task_id, e.error) for e in failed] == [("m-0", "MemoryError: no more tasks")]


def test_a_task_that_can_never_run_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="task m-0 wants 9 of gpu, more than the limit of 0"):
        run_virtual(_ran(single(1, needs={"gpu": 9})))


def test_an_unknown_dependency_ends_the_run() -> None:
    group = RowGroup("g", (_stage("a", "judge", "j", MODEL, "nobody"),))
    with pytest.raises(InvalidInputError, match="depends on nobody"):
        run_virtual(_ran([group]))


# Waking up.


def test_no_wake_up_is_lost_whatever_lets_a_task_run() -> None:
    """Each turn one change frees the only way on; a loop that sleeps on would end the simulation with an error."""
    needs = {"workers": 1}

    async def main() -> list[float]:
        starts: list[float] = []

        async def work(_one: Task) -> None:
            starts.append(asyncio.get_running_loop().time())

        world = World(single(5, needs=needs), work, limits={"workers": 1}, frontier=FrontierRules(5, 5))
        dispatcher = world.dispatcher
        dispatcher.hold("m", 10.0)
        running = asyncio.create_task(world.run())
        await asyncio.sleep(10)
        dispatcher.set_limit("workers", 0)
        dispatcher.unhold("m")
        await asyncio.sleep(10)
        dispatcher.set_pressure("m", "breaker_open")
        dispatcher.set_limit("workers", 1)
        await asyncio.sleep(10)
        dispatcher.set_pressure("m", "cooldown", until=35.0)
        await running
        return starts

    assert run_virtual(main()) == [35.0] * 5


def test_a_parked_task_lets_others_run_meanwhile() -> None:
    async def main() -> World:
        async def work(one: Task) -> None:
            if one.task_id == "m-0":
                lease = world.dispatcher.lease_of(one.task_id)
                assert lease is not None
                assert world.dispatcher.park(lease, world.clock.monotonic())
                assert world.loop.why(one.task_id).state == "parked"
                await asyncio.sleep(30.0)
                assert world.dispatcher.unpark(lease, world.clock.monotonic())
            await asyncio.sleep(1.0)

        world = World(single(11), work, capacity=1, frontier=FrontierRules(1, 4))
        await world.run()
        return world

    world = run_virtual(main())
    assert world.told[-1][0] == pytest.approx(31.0)
    assert world.of(events.TaskCompleted)[0].task_id == "m-1"
    assert (len(world.of(events.TaskParked)), len(world.of(events.TaskUnparked))) == (1, 1)


def test_pressure_on_one_model_never_idles_the_other() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def work(one: Task) -> None:
            order.append(one.model)
            await asyncio.sleep(1.0)

        rows = [group for pair in zip(single(6, "a"), single(6, "z"), strict=True) for group in pair]
        world = World(rows, work, capacity=1, frontier=FrontierRules(12, 12))
        world.dispatcher.set_pressure("a", "cooldown", until=4.0)
        await world.run()
        assert asyncio.get_running_loop().time() == pytest.approx(12.0)
        return order

    assert run_virtual(main())[:4] == ["z"] * 4


def test_work_for_a_pressured_endpoint_that_starts_after_all_is_not_told_as_held() -> None:
    async def main() -> World:
        world = World([*single(2, "a"), *single(2, "z")], _takes_a_second, capacity=4, frontier=FrontierRules(1, 8))
        world.dispatcher.set_pressure("a", "no_room")
        await world.run()
        return world

    world = run_virtual(main())
    assert [event.model for event in world.of(events.TaskSelected)] == ["z", "z", "a", "a"]
    assert world.of(events.AdmissionBlocked) == []


def test_rows_of_a_model_in_cooldown_keep_no_other_models_rows_from_being_opened() -> None:
    async def main() -> float:
        rows = [*single(6, "a"), *single(8, "z")]
        world = World(rows, _takes_a_second, capacity=2, frontier=FrontierRules(1, 100))
        world.dispatcher.set_pressure("a", "cooldown", until=4.0)
        await world.run()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(7.0)  # 14 s of work on 2 units, none of which was ever idle


def test_a_reserve_that_lapses_wakes_the_loop() -> None:
    policy = BoundedBorrow(reserve_share=0.5, reserve_for_s=3.0)
    world, result = run_virtual(_ran(single(8), capacity=4, policy=policy, frontier=FrontierRules(8, 8)))
    assert result.is_complete
    starts = Counter(round(at, 6) for at, event in world.told if isinstance(event, events.WorkerSpawned))
    assert starts == {0.0: 2, 1.0: 2, 2.0: 2, 3.0: 2}


# What is told.


def test_why_names_the_gates_that_the_loop_adds() -> None:
    async def main() -> list[tuple[str, str, float | None]]:
        said = []

        async def work(one: Task) -> None:
            if one.stage == "rollout" and one.attempt == 1:
                raise RetryLaterError("cooldown", wait_s=9.0)

        world = World(judged(1), work)
        running = asyncio.create_task(world.run())
        await asyncio.sleep(1.0)
        for name in ("j0.0", "r0", "nobody"):
            why = world.loop.why(TaskId(name))
            said.append((why.state, why.gate, why.until))
        await running
        return said

    assert run_virtual(main()) == [
        ("waiting", "dependency", None),
        ("deferred", "retry", 9.0),
        ("unknown", "none", None),
    ]


def test_leases_and_demand_can_be_accounted_for_from_events_alone() -> None:
    world, result = run_virtual(_ran(judged(6), capacity=2))
    leased: Counter[str] = Counter()
    queued: Counter[str] = Counter()
    for _, event in world.told:
        if isinstance(event, events.ReadyEnqueued):
            queued.update(dict(event.resources))
        elif isinstance(event, events.TaskLeaseAcquired):
            queued.subtract(dict(event.resources))
            leased.update(dict(event.resources))
        elif isinstance(event, events.TaskLeaseReleased):
            leased.subtract(dict(event.resources))
        assert all(0 <= units <= world.dispatcher.book.limits[name] for name, units in leased.items())
        assert all(units >= 0 for units in queued.values())
    assert not +leased
    assert not +queued
    assert len(world.of(events.RowGroupCheckpointed)) == result.row_groups == 6


def test_a_run_tells_its_begin_its_health_and_its_end() -> None:
    world, _ = run_virtual(_ran(single(8), capacity=1, health_every_s=2.0))
    assert isinstance(world.told[0][1], events.SchedulerJobStarted)
    assert isinstance(world.told[-1][1], events.SchedulerJobCompleted)
    assert [at for at, e in world.told if isinstance(e, events.SchedulerHealthSnapshot)] == [0, 2, 4, 6, 8, 8]
    middle = world.of(events.SchedulerHealthSnapshot)[2]
    assert (middle.running, dict(middle.leased)["llm_wait"], middle.active_row_groups) == (1, 1, 1)


def test_a_lease_that_comes_back_twice_is_told_and_counts_once() -> None:
    told: list[events.Event] = []
    dispatcher = Dispatcher({"workers": 1}, holder=HolderId("h"), is_roster_open=True, trace=Trace(told.append))
    dispatcher.enqueue([task("t")])
    granted = dispatcher.next(0.0)
    lease = granted.lease  # type: ignore[union-attr]
    assert isinstance(lease, Lease)
    assert dispatcher.finished(task("t"), lease) is ReleaseOutcome.RELEASED
    assert dispatcher.finished(task("t"), lease) is ReleaseOutcome.DUPLICATE
    assert [e.outcome for e in told if isinstance(e, events.ReleaseDiagnostic)] == ["duplicate"]
