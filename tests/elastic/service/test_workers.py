"""What the service does with engines: one call at a time, leases before memory, and every failure told."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headgate.core import events
from headgate.elastic.errors import EngineError, PoolClosedError, UnknownWorkerError
from headgate.elastic.service import ElasticService
from headgate.elastic.worker import EngineLoad, Pin, WorkerState
from tests.elastic.service.desk import opened, outgoing, virtual
from tests.elastic.service.in_memory import STREAM, FakeEngine, FakeLeases

ACTIVE, DRAINING, INACTIVE, FAILED = (
    WorkerState.ACTIVE,
    WorkerState.DRAINING,
    WorkerState.INACTIVE,
    WorkerState.FAILED,
)


def test_a_worker_that_is_not_needed_drains_and_sleeps_and_wakes_again() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1")) as desk:
            asked = [asyncio.create_task(desk.ask(f"r{number}")) for number in range(4)]
            desk.wants.workers = 1
            await desk.service.until(lambda status: status.count(INACTIVE) == 1)
            assert await asyncio.gather(*asked) == [b"abc"] * 4
            desk.wants.workers = 2
            await desk.service.until(lambda status: status.count(ACTIVE) == 2)
            slept = next(engine for engine in desk.engines if engine.log)
            assert slept.log == ["sleep", "wake"]
            assert desk.service.status().times.start.count == 1
            assert desk.service.status().demand.start_s == pytest.approx(0.5, abs=0.01)

    virtual(main)


def test_a_drain_that_takes_too_long_moves_requests_without_their_clients_seeing_it() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0", service_s=1_000), FakeEngine("w1")]
        async with opened(*engines, drain_timeout=5.0) as desk:
            desk.service.drain("w1")
            await desk.reaches(1, INACTIVE)
            asked = [asyncio.create_task(desk.ask(name)) for name in ("a", "b")]
            await asyncio.sleep(0.1)
            desk.service.wake("w1")
            desk.service.drain("w0")
            assert await asyncio.gather(*asked) == [b"abc", b"abc"]
            assert sorted(engines[0].aborted) == sorted(engines[1].finished) == ["a", "b"]
            await desk.reaches(0, INACTIVE)
            assert engines[0].log == ["sleep"]
            assert desk.service.status().counts.handed_over == 2

    virtual(main)


def test_what_an_engine_says_of_a_request_after_its_abort_is_no_answer() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0", service_s=6.5, chunks=(b"cut short",)), FakeEngine("w1")]
        async with opened(*engines, drain_timeout=5.0) as desk:
            desk.service.drain("w1")
            await desk.reaches(1, INACTIVE)
            asked = asyncio.create_task(desk.ask("a"))
            await asyncio.sleep(0.01)
            engines[0].hangs.add("abort")
            desk.service.wake("w1")
            desk.service.drain("w0")
            assert await asked == b"abc"
            assert engines[0].finished == ["a"], "it was computed here while the abort was under way"

    virtual(main)


def test_a_stream_on_a_draining_worker_may_end_and_then_is_cut() -> None:
    async def main() -> None:
        short = FakeEngine("w0", content_type=STREAM, service_s=3)
        async with opened(short, FakeEngine("w1"), drain_timeout=2.0, stream_drain_timeout=20.0) as desk:
            desk.service.drain("w1")
            await desk.reaches(1, INACTIVE)
            asked = asyncio.create_task(desk.ask("a"))
            await asyncio.sleep(3.5)
            desk.service.unpin("w1")
            desk.service.drain("w0")
            assert await asked == b"abc"
            await desk.reaches(0, INACTIVE)
            assert short.aborted == []

    virtual(main)


def test_a_drain_that_never_ends_by_others_requests_does_not_put_the_engine_to_sleep() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1", others=1)) as desk:
            desk.service.drain("w1")
            await asyncio.sleep(60)
            assert desk.state(1) is DRAINING
            assert desk.engines[1].log == []
            assert desk.told(events.CountsDiffer)
            desk.engines[1].others = 0
            await desk.reaches(1, INACTIVE)

    virtual(main)


def test_a_wake_that_fails_counts_as_failed_and_another_worker_is_woken() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0"), FakeEngine("w1", is_asleep=True), FakeEngine("w2", is_asleep=True)]
        async with opened(*engines, wants=1) as desk:
            engines[1].faults["wake"] = [EngineError("resume was answered 500") for _ in range(3)]
            desk.wants.workers = 2
            await desk.reaches(1, FAILED)
            await desk.reaches(2, ACTIVE)
            assert desk.service.status().workers[1].last_error == "resume was answered 500"
            desk.wants.workers = 3
            await desk.reaches(1, ACTIVE)
            assert desk.service.status().counts.failures["w1"] >= 3

    virtual(main)


def test_a_wake_that_hangs_is_given_up_and_cancelled_before_the_next_call() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0"), FakeEngine("w1", is_asleep=True), FakeEngine("w2", is_asleep=True)]
        async with opened(*engines, wants=1, start_timeout=10.0) as desk:
            engines[1].hangs.add("wake")
            desk.wants.workers = 2
            await desk.reaches(1, FAILED)
            assert "did not start in 10 s" in desk.service.status().workers[1].last_error
            await desk.reaches(2, ACTIVE)
            engines[1].hangs.clear()
            desk.wants.workers = 3
            await desk.reaches(1, ACTIVE)  # the engine itself asserts that no two calls overlap

    virtual(main)


def test_an_engine_that_answers_no_readings_fails_and_what_it_had_is_answered_elsewhere() -> None:
    async def main() -> None:
        engines = [FakeEngine("w0", service_s=1_000), FakeEngine("w1")]
        async with opened(*engines) as desk:
            asked = [asyncio.create_task(desk.ask(f"r{number}")) for number in range(4)]
            await asyncio.sleep(0.1)
            engines[0].hangs.add("load")
            assert await asyncio.gather(*asked) == [b"abc"] * 4
            assert desk.state(0) is FAILED
            assert "did not answer within 2 s" in desk.service.status().workers[0].last_error
            await asyncio.sleep(0.1)
            assert engines[0].running == 0, "its connections are closed"

    virtual(main)


def test_an_engine_that_comes_back_is_used_again() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1")) as desk:
            desk.engines[0].die()
            await desk.reaches(0, FAILED)
            desk.engines[0].revive()
            await desk.reaches(0, ACTIVE)
            assert await desk.ask("a") == b"abc"

    virtual(main)


def test_a_sleep_that_fails_is_no_sleep() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1")) as desk:
            desk.engines[1].faults["sleep"] = [EngineError("flush was answered 400")]
            desk.service.drain("w1")
            await desk.reaches(1, FAILED)
            await desk.reaches(1, INACTIVE)
            assert desk.engines[1].log == ["sleep"]

    virtual(main)


def test_a_worker_is_awake_only_while_it_holds_a_lease() -> None:
    async def main() -> None:
        leases = FakeLeases(2)
        engines = [FakeEngine("w0"), FakeEngine("w1", is_asleep=True)]
        async with opened(*engines, wants=1, leases=leases) as desk:
            assert set(leases.held) == {"w0"}
            desk.wants.workers = 2
            await desk.reaches(1, ACTIVE)
            assert set(leases.held) == {"w0", "w1"}
            desk.wants.workers = 1
            await desk.service.until(lambda status: status.count(INACTIVE) == 1)
            assert len(leases.held) == 1
        assert not leases.held

    virtual(main)


def test_a_worker_that_waits_for_its_lease_is_forgotten_when_it_is_no_longer_wanted() -> None:
    async def main() -> None:
        leases = FakeLeases(1)
        async with opened(FakeEngine("w0"), FakeEngine("w1", is_asleep=True), wants=1, leases=leases) as desk:
            desk.wants.workers = 2
            await desk.reaches(1, WorkerState.STARTING)
            await asyncio.sleep(60)
            assert desk.state(1) is WorkerState.STARTING, "it waits as long as it takes"
            assert desk.service.status().counts.awake_s == pytest.approx(60, abs=10), "that of w0"
            desk.wants.workers = 1
            await desk.reaches(1, INACTIVE)
            leases.count = 2
            await asyncio.sleep(60)
            assert (set(leases.held), desk.engines[1].log) == ({"w0"}, [])
            assert desk.service.status().counts.awake_s == pytest.approx(120, abs=10), "that of w0"

    virtual(main)


def test_a_lease_that_is_wanted_back_from_another_thread_puts_its_worker_to_sleep_in_time() -> None:
    async def main() -> None:
        leases = FakeLeases(2)
        async with opened(FakeEngine("w0", service_s=100), FakeEngine("w1"), leases=leases) as desk:
            asked = [asyncio.create_task(desk.ask(f"r{number}")) for number in range(3)]
            await asyncio.sleep(0.1)
            lost = leases.held["w0"]
            thread = threading.Thread(target=lost, args=(8.0,))
            thread.start()
            thread.join()
            desk.wants.workers = 1
            assert await asyncio.gather(*asked) == [b"abc"] * 3
            await desk.reaches(0, INACTIVE)
            assert asyncio.get_running_loop().time() < 9
            assert "w0" not in leases.held
            lost(1.0)  # of a lease that was given back: nothing happens
            await asyncio.sleep(1)

    virtual(main)


def test_the_lease_of_a_worker_that_fails_is_given_back_once_it_is_let_go() -> None:
    async def main() -> None:
        leases = FakeLeases(2)
        async with opened(FakeEngine("w0"), FakeEngine("w1"), leases=leases) as desk:
            desk.engines[1].die()
            await desk.reaches(1, FAILED)
            await asyncio.sleep(0.1)
            assert set(leases.held) == {"w0"}

    virtual(main)


def test_an_engine_that_somebody_else_put_to_sleep_gives_its_lease_back() -> None:
    async def main() -> None:
        leases = FakeLeases(2)
        async with opened(FakeEngine("w0"), FakeEngine("w1"), leases=leases) as desk:
            desk.engines[1].is_asleep = True
            desk.service.drain("w1")
            await desk.reaches(1, INACTIVE)
            await asyncio.sleep(0.1)
            assert set(leases.held) == {"w0"}
            assert desk.engines[1].log == []

    virtual(main)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_worker_that_comes_back_without_its_lease_takes_another_one_or_sleeps(*, is_there: bool) -> None:
    async def main() -> None:
        leases = FakeLeases(2)
        # Readings that are far apart keep it draining until the next decision, which turns it back.
        async with opened(FakeEngine("w0"), FakeEngine("w1"), leases=leases, confirm_interval=3.0) as desk:
            desk.engines[1].die()
            await desk.reaches(1, FAILED)
            leases.count = 2 if is_there else 1
            desk.engines[1].revive()
            await desk.reaches(1, ACTIVE)
            assert desk.engines[1].log == []
            await asyncio.sleep(20)
            assert set(leases.held) == ({"w0", "w1"} if is_there else {"w0"})
            assert desk.state(1) is (ACTIVE if is_there else WorkerState.STARTING)
            assert desk.engines[1].is_asleep is not is_there

    virtual(main)


def test_an_event_that_cannot_be_told_ends_the_service() -> None:
    async def served() -> None:
        async with opened(FakeEngine("w0"), FakeEngine("w1"), wants=1) as desk:
            desk.service._emit = None  # type: ignore[assignment]
            await asyncio.sleep(1_000)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            await served()
        assert caught.group_contains(TypeError)

    virtual(main)


def test_a_service_that_has_ended_says_so_to_whoever_steers_or_watches_it() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0")) as desk:
            watching = asyncio.create_task(desk.service.until(lambda status: False))
            await asyncio.sleep(1)
            await desk.service.stop(1)
            with pytest.raises(PoolClosedError, match="chat has ended"):
                await watching
            with pytest.raises(PoolClosedError):
                await desk.service.until(lambda status: False)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(desk.service.changed(), 1_000)
            with pytest.raises(PoolClosedError):
                desk.service.scale(1)
            assert not desk.service.status().is_open

    virtual(main)


def test_a_lease_that_cannot_be_given_back_does_not_hold_the_pool_up() -> None:
    async def main() -> None:
        leases = FakeLeases(2, refuses_back=True)
        async with opened(FakeEngine("w0"), FakeEngine("w1"), leases=leases) as desk:
            desk.service.drain("w1")
            await desk.reaches(1, INACTIVE)

    virtual(main)


def test_an_operator_scales_pins_and_gives_the_pool_back() -> None:
    async def main() -> None:
        async with opened(*(FakeEngine(f"w{number}") for number in range(3)), wants=1) as desk:
            service = desk.service
            service.scale(3)
            await asyncio.sleep(30)
            assert service.status().count(ACTIVE) == 3
            service.scale(None)
            await service.until(lambda status: status.count(INACTIVE) == 2)
            service.wake_all(60)
            await service.until(lambda status: status.count(ACTIVE) == 3)
            service.resume()
            await service.until(lambda status: status.count(INACTIVE) == 2)
            service.drain("w0")
            await service.until(lambda status: status.workers[0].state is INACTIVE and status.count(ACTIVE) == 1)
            assert service.status().workers[0].pin is Pin.ASLEEP
            with pytest.raises(UnknownWorkerError):
                service.wake("w9")

    virtual(main)


def test_engines_stay_as_they_are_when_the_service_ends() -> None:
    async def main() -> None:
        kept = FakeEngine("w0")
        async with opened(kept) as desk:
            await desk.service.stop(1)
        assert not kept.is_asleep

    virtual(main)


class Mistaken(FakeEngine):
    """An engine whose adapter has a mistake."""

    async def load(self) -> EngineLoad:
        await asyncio.sleep(0.5)
        raise TypeError("no such argument")


def test_a_mistake_in_an_engine_ends_the_service_and_all_requests_with_its_traceback() -> None:
    asked: list[asyncio.Task[bytes]] = []

    async def served() -> None:
        async with opened(Mistaken("w0", service_s=10), FakeEngine("w1")) as desk:
            asked.append(asyncio.create_task(desk.ask("a")))
            await asyncio.sleep(1_000)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            await served()
        assert caught.group_contains(TypeError, match="no such argument")
        await asyncio.wait(asked)
        failed = asked[0].exception()
        assert isinstance(failed, PoolClosedError)
        assert failed.message == "The elastic pool chat has failed"

    virtual(main)


def test_a_pool_that_breaks_its_rules_ends_the_service_from_whoever_called_it() -> None:
    async def steers(service: ElasticService) -> None:
        with pytest.raises(TypeError):
            service.scale(None)

    async def served() -> None:
        async with opened(FakeEngine("w0")) as desk:
            await asyncio.sleep(0.5)
            desk.wants.decide = None  # type: ignore[assignment,method-assign]
            await asyncio.create_task(steers(desk.service))
            await asyncio.sleep(1_000)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            await served()
        assert caught.group_contains(TypeError)

    virtual(main)


def test_an_exception_of_the_body_comes_out_as_it_is() -> None:
    async def main() -> None:
        with pytest.raises(KeyError):
            async with opened(FakeEngine("w0")):
                raise KeyError

    virtual(main)


def test_whoever_waits_for_a_change_is_woken_by_it() -> None:
    async def main() -> None:
        async with opened(FakeEngine("w0"), monitoring_interval=1_000.0) as desk:
            await asyncio.sleep(1)
            changes = [asyncio.create_task(desk.service.changed()) for _ in range(2)]
            await asyncio.sleep(1)
            assert not any(change.done() for change in changes)
            async with desk.service.request(outgoing("r")):
                await asyncio.wait(changes)

    virtual(main)
