"""The scheduler of the seed, over worker groups written for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headgate.core import events
from headgate.core.events import Event
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.service import ElasticCollector
from headgate.elastic.verl import LOGGER, ElasticConfig, ElasticScheduler, WorkerStatus, elastic_config
from headgate.simulation import LoopClock, run_virtual
from tests.elastic.verl.groups import BareGroup, HangingGroup, PlainGroup, ReleasingGroup, SeedGroup

QUICK: dict[str, Any] = {
    "monitoring_interval": 1.0,
    "scale_down_cooldown": 5.0,
    "scale_up_cooldown": 1.0,
    "min_stable_period": 2.0,
    "drain_timeout": 5.0,
    "failed_retry": 5.0,
}


def virtual(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())


@asynccontextmanager
async def started(group: Any, emitted: list[Event] | None = None, **settings: Any) -> AsyncIterator[ElasticScheduler]:
    """Start a scheduler over a group; nothing may be left of it afterwards."""
    scheduler = ElasticScheduler(
        ElasticConfig(**(QUICK | settings)),
        worker_group=group,
        clock=LoopClock(),
        emit=None if emitted is None else emitted.append,
    )
    await scheduler.start()
    try:
        yield scheduler
        scheduler._steps.pool.validate()  # type: ignore[union-attr]
    finally:
        await scheduler.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def settles(scheduler: ElasticScheduler, **metrics: float) -> None:
    """Wait until the metrics are as named."""
    async with asyncio.timeout(300):
        while any(scheduler.get_metrics()[name] != value for name, value in metrics.items()):
            await scheduler._steps.changed()  # type: ignore[union-attr]


def test_an_idle_group_goes_down_to_its_fewest_workers_which_are_flushed() -> None:
    async def main() -> None:
        group = SeedGroup()
        async with started(group, min_workers=2) as scheduler:
            assert scheduler.get_metrics()["active_workers"] == 4
            await settles(scheduler, inactive_workers=2)
            await asyncio.sleep(60)
            assert len(group.log) == 2
            assert scheduler.get_metrics() == {
                "active_workers": 2,
                "draining_workers": 0,
                "total_workers": 4,
                "active_requests": 0,
                "pending_requests": 0,
                "load_ratio": 0.0,
                "total_capacity": 16,
                "inactive_workers": 2,
                "starting_workers": 0,
                "failed_workers": 0,
            }

    virtual(main)


def test_what_workers_report_is_load_without_any_request_being_added() -> None:
    async def main() -> None:
        group = SeedGroup()
        async with started(group) as scheduler:
            await settles(scheduler, active_workers=1)
            awake = next(number for number, state in scheduler.workers.items() if state is WorkerStatus.ACTIVE)
            group.running[awake] = 20
            await settles(scheduler, active_workers=4)
            assert scheduler.get_metrics()["active_requests"] == 20
            group.running[awake] = 0
            await settles(scheduler, active_workers=1)

    virtual(main)


def test_requests_count_once_on_whichever_worker_the_group_runs_them() -> None:
    async def main() -> None:
        group = SeedGroup()
        group.running[2] = 8
        async with started(group, min_workers=4) as scheduler:
            for number in range(8):
                scheduler.add_request(f"r{number}")
            await asyncio.sleep(30)
            assert scheduler.get_metrics()["active_requests"] == 8
            assert scheduler.get_metrics()["load_ratio"] == 8 / 32

    virtual(main)


def test_a_backlog_of_500_never_scales_down() -> None:
    async def main() -> None:
        emitted: list[Event] = []
        async with started(SeedGroup(), emitted) as scheduler:
            for number in range(500):
                scheduler.add_request(f"r{number}")
            await asyncio.sleep(120)
            assert scheduler.get_metrics()["pending_requests"] == 500 - 32
            assert scheduler.get_metrics()["load_ratio"] == 500 / 32
            assert not [event for event in emitted if isinstance(event, events.WorkerChanged)]
            for number in range(500):
                scheduler.complete_request(f"r{number}")
                scheduler.complete_request(f"r{number}")
            assert scheduler.get_metrics()["load_ratio"] == 0
            await settles(scheduler, active_workers=1)

    virtual(main)


def test_a_busy_worker_is_never_flushed_however_long_its_drain_takes() -> None:
    async def main() -> None:
        group = SeedGroup(2)
        async with started(group) as scheduler:
            group.running = {0: 1, 1: 1}
            await asyncio.sleep(120)  # the group itself asserts that it is idle when it is flushed
            assert group.log == []
            group.running = {0: 0, 1: 0}
            await settles(scheduler, inactive_workers=1)

    virtual(main)


def test_requests_of_a_draining_worker_are_given_to_another_one() -> None:
    async def main() -> None:
        async with started(SeedGroup(2)) as scheduler:
            scheduler.add_request("a")
            scheduler.add_request("b")
            assert {scheduler.worker_of("a"), scheduler.worker_of("b")} == {0, 1}
            await settles(scheduler, inactive_workers=1)
            awake = next(number for number, state in scheduler.workers.items() if state is WorkerStatus.ACTIVE)
            assert scheduler.worker_of("a") == scheduler.worker_of("b") == awake
            scheduler.complete_request("a")
            assert scheduler.worker_of("a") is None

    virtual(main)


def test_memory_is_released_where_the_group_can_and_resumed_in_any_case() -> None:
    async def main() -> None:
        for group, log in ((ReleasingGroup(2), ["flush 1", "release 1", "resume 1"]), (SeedGroup(2), None)):
            async with started(group) as scheduler:
                await settles(scheduler, inactive_workers=1)
                await scheduler.wake_up_all_workers()
                assert [entry.replace("0", "1") for entry in group.log] == (log or ["flush 1", "resume 1"])

    virtual(main)


def test_all_workers_are_awake_for_a_validation_pass_and_then_follow_the_load() -> None:
    async def main() -> None:
        async with started(SeedGroup()) as scheduler:
            await settles(scheduler, active_workers=1)
            await scheduler.wake_up_all_workers()
            assert scheduler.get_metrics()["active_workers"] == 4
            await asyncio.sleep(300)
            assert scheduler.get_metrics()["active_workers"] == 4
            await scheduler.resume_elastic_scheduling()
            await settles(scheduler, active_workers=1)
            await scheduler.wake_up_all_workers(for_s=30)
            await settles(scheduler, active_workers=1)

    virtual(main)


def test_a_resume_that_fails_three_times_fails_the_worker_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        group = SeedGroup(2)
        async with started(group) as scheduler:
            await settles(scheduler, inactive_workers=1)
            group.fails["resume_worker_memory"] = 3
            await scheduler.wake_up_all_workers()
            assert scheduler.get_metrics()["failed_workers"] == 1
            await settles(scheduler, active_workers=2)

    virtual(main)
    assert "Failed to scale up worker" in caplog.text
    assert "RuntimeError: resume_worker_memory was told to fail" in caplog.text


def test_a_resume_that_hangs_stops_nothing_else() -> None:
    class Hanging(SeedGroup):
        async def resume_worker_memory(self, worker_id: int) -> None:
            await asyncio.Event().wait() if worker_id == 0 else await super().resume_worker_memory(worker_id)

    async def main() -> None:
        async with started(Hanging(), start_timeout=30.0) as scheduler:
            await settles(scheduler, active_workers=1)
            for number in range(64):
                scheduler.add_request(str(number))
            await settles(scheduler, active_workers=3)
            await settles(scheduler, failed_workers=1)
            for number in range(64):
                scheduler.complete_request(str(number))
            await settles(scheduler, active_workers=1)

    virtual(main)


def test_workers_that_are_read_at_once_share_one_status_of_the_group() -> None:
    async def main() -> None:
        group = SeedGroup(4)
        async with started(group, min_workers=4):
            await asyncio.sleep(60)
        assert 55 <= group.readings <= 65

    virtual(main)


def test_a_status_that_fails_once_changes_nothing_and_one_that_goes_on_failing_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        group = SeedGroup(2)
        async with started(group) as scheduler:
            group.fails["get_worker_status"] = 2
            await asyncio.sleep(20)
            assert scheduler.get_metrics()["failed_workers"] == 0
            group.fails["get_worker_status"] = 10_000
            await settles(scheduler, failed_workers=2)
            group.fails.clear()
            await settles(scheduler, failed_workers=0)

    virtual(main)
    assert "Failed to update worker status: get_worker_status() failed: RuntimeError" in caplog.text


def test_the_seeds_log_lines_are_written_under_its_logger(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with started(SeedGroup(2)) as scheduler:
            await settles(scheduler, inactive_workers=1)
            await scheduler.wake_up_all_workers()

    with caplog.at_level(logging.INFO, logger=LOGGER):
        virtual(main)
    said = [record.message for record in caplog.records if record.name == LOGGER]
    assert [line.replace("0", "1") for line in said] == [
        "Initialized elastic scheduler with 2 workers",
        "Started elastic scheduler",
        "Scaling down: draining worker 1",
        "Successfully drained and flushed worker 1",
        "Scaling up: activating worker 1",
        "Stopped elastic scheduler",
    ]


def test_a_group_that_has_nothing_but_a_size_is_counted_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with started(BareGroup()) as scheduler:
            for number in range(12):
                scheduler.add_request(str(number))
            await asyncio.sleep(30)
            assert scheduler.get_metrics()["active_requests"] == 12
            for number in range(12):
                scheduler.complete_request(str(number))
            await settles(scheduler, inactive_workers=2)
            await scheduler.wake_up_all_workers()

    virtual(main)
    assert "Worker group does not support cache flushing for worker" in caplog.text
    assert "Worker group does not support memory resumption for worker" in caplog.text


async def test_plain_methods_are_called_without_holding_the_loop_up() -> None:
    group = PlainGroup()
    quick = QUICK | {"monitoring_interval": 0.02, "confirm_interval": 0.01, "min_stable_period": 0.0}
    scheduler = ElasticScheduler(ElasticConfig(**(quick | {"scale_down_cooldown": 0.0})), worker_group=group)
    await scheduler.start()
    async with asyncio.timeout(30):
        await group.flushed.wait()
    await scheduler.stop()


async def test_a_plain_method_that_hangs_takes_one_thread_and_none_of_the_programs_own() -> None:
    group = HangingGroup()
    config = ElasticConfig(engine_timeout=0.01, monitoring_interval=0.02, confirm_interval=0.01, failed_retry=0.01)
    scheduler = ElasticScheduler(config, worker_group=group)
    await scheduler.start()
    try:
        async with asyncio.timeout(60):
            while not all(view.failures > 2 for view in scheduler.status().workers):  # type: ignore[union-attr]
                await scheduler._steps.changed()  # type: ignore[union-attr]
        assert group.readings == 1
        assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        group.may_return.set()
        await scheduler.stop()


def test_switched_off_it_counts_and_asks_nobody() -> None:
    async def main() -> None:
        group = SeedGroup()
        scheduler = ElasticScheduler(ElasticConfig(enable_elastic=False), worker_group=group, clock=LoopClock())
        await scheduler.start()
        for number in range(40):
            scheduler.add_request(str(number))
        scheduler.complete_request("0")
        await asyncio.sleep(100)
        await scheduler.wake_up_all_workers()
        await scheduler.resume_elastic_scheduling()
        metrics = scheduler.get_metrics()
        assert (metrics["active_requests"], metrics["pending_requests"], metrics["active_workers"]) == (32, 7, 4)
        assert group.log == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await scheduler.stop()

    virtual(main)


def test_starting_and_stopping_are_legal_twice_and_what_was_added_before_counts() -> None:
    async def main() -> None:
        scheduler = ElasticScheduler(ElasticConfig(**QUICK), worker_group=SeedGroup(), clock=LoopClock())
        scheduler.add_request("early")
        await scheduler.start()
        await scheduler.start()
        assert scheduler.worker_of("early") is not None
        await scheduler.stop()
        await scheduler.stop()
        await scheduler.start()
        assert scheduler.get_metrics()["active_requests"] == 1
        await scheduler.stop()

    virtual(main)


def test_its_pool_has_the_status_and_the_metrics_of_any_elastic_pool() -> None:
    async def main() -> None:
        async with started(SeedGroup(2)) as scheduler:
            registry = CollectorRegistry()
            registry.register(ElasticCollector(lambda: [status] if (status := scheduler.status()) else []))
            scheduler.add_request("a")
            scheduler.complete_request("a")
            await settles(scheduler, inactive_workers=1)
            served = {"pool": "verl", "outcome": "served"}
            assert registry.get_sample_value("headgate_elastic_requests_total", served) == 1
            asleep = {"pool": "verl", "state": "inactive"}
            assert registry.get_sample_value("headgate_elastic_workers", asleep) == 1
        assert scheduler.status() is None
        assert registry.get_sample_value("headgate_elastic_workers", asleep) is None

    virtual(main)


def test_the_seeds_thresholds_are_followed_unless_another_policy_is_named() -> None:
    async def main() -> None:
        for settings, policy in (({}, "threshold"), ({"policy": "predictive"}, "predictive")):
            async with started(SeedGroup(2), **settings) as scheduler:
                status = scheduler.status()
                assert status is not None
                assert status.policy == policy

    virtual(main)


def test_settings_come_from_a_training_configuration() -> None:
    config = elastic_config({"elastic_config": {"enable_elastic": True, "min_workers": 2, "monitoring_interval": 3.0}})
    assert (config.min_workers, config.monitoring_interval) == (2, 3.0)
    with pytest.raises(InvalidElasticError, match="min_workers must be <= world_size \\(got 2 > 1\\)"):
        ElasticScheduler(config, worker_group=SeedGroup(1))
    with pytest.raises(InvalidElasticError, match="requests_per_worker_capacity must be given"):
        ElasticScheduler(ElasticConfig(requests_per_worker_capacity=None), worker_group=SeedGroup(1))
