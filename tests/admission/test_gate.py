"""Coroutines that wait for admission: woken directly, by one timer, and gone without a trace when cancelled."""

from __future__ import annotations

import asyncio
import logging
import random
import threading

import pytest

from headgate.admission import (
    SUCCESS,
    AdmissionController,
    Denied,
    OutcomeKind,
    Pressure,
    PressureReason,
    RequestAdmission,
    RequestItem,
    RequestKey,
    RequestOutcome,
)
from headgate.admission.laws import LimitLaw
from headgate.core import ReleaseOutcome, SystemClock, events
from headgate.core.errors import AdmissionDeniedError
from headgate.simulation import LoopClock, run_virtual
from tests.admission.admission_world import CHAT, OTHER, REFUSED, A, B, refused, until
from tests.admission.toy_laws import FixedLaw, ToyLaw

ITEM = RequestItem(CHAT, "g")


def admission(cap: int = 1, law: type[LimitLaw] = FixedLaw, told: list[events.Event] | None = None) -> RequestAdmission:
    emit = (lambda event: None) if told is None else told.append
    made = RequestAdmission(AdmissionController(law), LoopClock(), emit)
    made.register(A, cap, "m")
    return made


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_freed_slot_is_handed_over_before_release_returns_and_runs_in_the_next_turn() -> None:
    gate = admission()
    lease = await gate.acquire(ITEM)
    waiting = asyncio.ensure_future(gate.acquire(ITEM))
    await turns(1)
    assert gate.waiting() == 1
    gate.release(lease, SUCCESS)
    assert gate.waiting() == 0
    assert gate.in_flight(A.provider) == 1
    await turns(1)
    assert waiting.done()


def test_nothing_runs_while_nothing_changes() -> None:
    """A virtual loop without a timer refuses to wait; a poll, or a timer for nothing, would keep it going."""

    async def waits() -> None:
        gate = admission()
        await gate.acquire(ITEM)
        await asyncio.gather(*(gate.acquire(ITEM) for _ in range(100)))

    with pytest.raises(RuntimeError, match="no timer will trigger"):
        run_virtual(waits())


def test_one_timer_rings_at_the_deadline_and_at_the_end_of_a_cooldown() -> None:
    async def waits() -> None:
        gate = admission(2, ToyLaw)
        loop = asyncio.get_running_loop()
        gate.release(await gate.acquire(ITEM), refused(7.0))
        served = asyncio.ensure_future(gate.acquire(ITEM))
        with pytest.raises(AdmissionDeniedError, match="queue_timeout") as denied:
            await gate.acquire(RequestItem(CHAT, "g", deadline=loop.time() + 3.0))
        assert loop.time() == pytest.approx(3.0)
        assert denied.value.reason == "queue_timeout"
        lease = await served
        assert loop.time() == pytest.approx(7.0)
        gate.release(lease, SUCCESS)
        gate.validate()

    run_virtual(waits())


def test_a_thousand_deadlines_are_kept_each_at_its_time() -> None:
    async def waits() -> None:
        gate = admission()
        await gate.acquire(ITEM)
        loop = asyncio.get_running_loop()

        async def one(patience_s: float) -> float:
            with pytest.raises(AdmissionDeniedError):
                await gate.acquire(RequestItem(CHAT, "g", deadline=patience_s))
            return loop.time() - patience_s

        late = await asyncio.gather(*(one(1.0 + 0.37 * (n * 7919 % 1000)) for n in range(1000)))
        assert max(late) < 0.002
        assert min(late) > -0.002
        assert gate.waiting() == 0

    run_virtual(waits())


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    gate = admission()
    lease = await gate.acquire(ITEM)
    waiting = asyncio.ensure_future(gate.acquire(ITEM))
    await turns(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert gate.waiting() == 0
    gate.release(lease, SUCCESS)
    assert gate.in_flight(A.provider) == 0


async def test_a_waiter_that_is_cancelled_with_its_lease_on_the_way_passes_it_on() -> None:
    gate = admission()
    lease = await gate.acquire(ITEM)
    first, second = asyncio.ensure_future(gate.acquire(ITEM)), asyncio.ensure_future(gate.acquire(ITEM))
    await turns(1)
    gate.release(lease, SUCCESS)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.release(await second, SUCCESS)
    assert gate.in_flight(A.provider) == 0
    gate.validate()


@pytest.mark.parametrize("seed", range(8))
def test_cancelled_at_any_await_nothing_is_leaked(seed: int) -> None:
    rng = random.Random(seed)

    async def churn() -> None:
        gate = admission(3, ToyLaw)
        gate.register(B, 2, "n")
        gate.set_provider_cap(A.provider, 4)
        loop = asyncio.get_running_loop()
        outcomes = [SUCCESS, SUCCESS, REFUSED, RequestOutcome(OutcomeKind.PROVIDER_FAILURE)]

        async def one(number: int) -> None:
            key: RequestKey = rng.choice([CHAT, OTHER])
            deadline = loop.time() + rng.uniform(0, 20) if rng.random() < 0.5 else None
            async with gate.admit(RequestItem(key, f"g{number % 5}", deadline=deadline)) as admitted:
                await asyncio.sleep(rng.uniform(0, 2))
                admitted.outcome = rng.choice(outcomes)

        tasks = [asyncio.ensure_future(one(number)) for number in range(120)]
        for task in rng.sample(tasks, 60):
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.3]))
            task.cancel()
            gate.validate()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10_000)
        assert {type(r) for r in results} <= {type(None), asyncio.CancelledError, AdmissionDeniedError}
        gate.validate()
        assert gate.waiting() == gate.in_flight(A.provider) == 0
        await asyncio.sleep(400)
        leases = [gate.try_acquire(RequestItem(OTHER)) for _ in range(2)]
        assert not any(isinstance(lease, Denied) for lease in leases), "every slot is there again"

    run_virtual(churn())


async def test_the_block_of_a_lease_tells_how_its_attempt_ended() -> None:
    told: list[events.Event] = []
    controller = AdmissionController(FixedLaw, trace_requests=True)
    gate = RequestAdmission(controller, SystemClock(), told.append)
    gate.register(A, 1, "m")

    class OddError(Exception):
        pass

    async with gate.admit(ITEM):
        pass
    with pytest.raises(OddError):
        async with gate.admit(ITEM):
            raise OddError
    with pytest.raises(asyncio.CancelledError):
        async with gate.admit(ITEM):
            raise asyncio.CancelledError
    async with gate.admit(ITEM) as admitted:
        admitted.outcome = RequestOutcome(OutcomeKind.PROVIDER_TIMEOUT)
    outcomes = [event.outcome for event in told if isinstance(event, events.RequestLeaseReleased)]
    assert outcomes == ["success", "unexpected_exception", "local_cancelled", "provider_timeout"]


async def test_a_denial_is_an_error_that_says_why_and_what_to_do() -> None:
    gate = admission()
    with pytest.raises(AdmissionDeniedError, match="https://one b chat was not admitted: hard_policy_denial") as caught:
        await gate.acquire(RequestItem(OTHER))
    assert caught.value.code == "admission_denied"
    lease = await gate.acquire(ITEM)
    waiting = asyncio.ensure_future(gate.acquire(ITEM))
    await turns(1)
    gate.shutdown("the campaign ends")
    with pytest.raises(AdmissionDeniedError, match="shutdown \\(the campaign ends\\)"):
        await waiting
    assert gate.release(lease, SUCCESS) is ReleaseOutcome.RELEASED
    assert gate.release(lease, SUCCESS) is ReleaseOutcome.DUPLICATE


async def test_raised_caps_and_slots_wake_who_waits() -> None:
    gate = admission()
    await gate.acquire(ITEM)
    waiting = [asyncio.ensure_future(gate.acquire(ITEM)) for _ in range(3)]
    await turns(1)
    gate.register(A, 2, "m")
    await turns(1)
    assert [task.done() for task in waiting] == [True, False, False]
    gate.set_provider_cap(A.provider, 2)
    gate.register(A, 4, "m")
    await turns(1)
    assert [task.done() for task in waiting] == [True, False, False]
    gate.set_provider_cap(A.provider, 3)
    await turns(1)
    assert [task.done() for task in waiting] == [True, True, False]
    gate.set_provider_cap(A.provider, None)
    await asyncio.gather(*waiting)


def test_a_listener_is_told_of_pressure_and_of_its_end_by_time(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[float, RequestKey, Pressure | None]] = []

    async def listens() -> None:
        gate = admission(2, ToyLaw)
        loop = asyncio.get_running_loop()

        def fails(key: RequestKey, pressure: Pressure | None) -> None:
            raise ValueError("a defect of a listener")

        gate.on_change(fails)
        stop = gate.on_change(lambda key, pressure: heard.append((loop.time(), key, pressure)))
        gate.release(await gate.acquire(ITEM), REFUSED)
        await asyncio.sleep(30)
        stop()
        gate.release(await gate.acquire(ITEM), REFUSED)

    with caplog.at_level(logging.ERROR, logger="headgate.admission"):
        run_virtual(listens())
    assert [(round(at, 3), pressure.reason if pressure else None) for at, _, pressure in heard] == [
        (0.0, PressureReason.COOLDOWN),
        (2.0, None),
    ]
    assert "a defect of a listener" in caplog.text


async def test_a_waiter_of_another_event_loop_is_woken_there() -> None:
    gate = RequestAdmission(AdmissionController(FixedLaw), SystemClock(), lambda event: None)
    gate.register(A, 1, "m")
    lease = await gate.acquire(ITEM)
    other = asyncio.create_task(asyncio.to_thread(asyncio.run, gate.acquire(ITEM)))
    await asyncio.to_thread(until, lambda: gate.waiting() == 1)
    gate.release(lease, SUCCESS)
    gate.release(await asyncio.wait_for(other, 10), SUCCESS)
    assert gate.in_flight(A.provider) == 0


async def test_a_deadline_on_another_event_loop_is_kept_there() -> None:
    clock = SystemClock()
    gate = RequestAdmission(AdmissionController(FixedLaw), clock, lambda event: None)
    gate.register(A, 1, "m")
    await gate.acquire(ITEM)
    doomed = gate.acquire(RequestItem(CHAT, "g", deadline=clock.monotonic() + 0.05))
    with pytest.raises(AdmissionDeniedError, match="queue_timeout"):
        await asyncio.wait_for(asyncio.to_thread(asyncio.run, doomed), 10)


async def test_a_lease_for_a_loop_that_is_gone_goes_to_the_next() -> None:
    gate = RequestAdmission(AdmissionController(FixedLaw), SystemClock(), lambda event: None)
    gate.register(A, 1, "m")
    lease = await gate.acquire(ITEM)

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        orphan = gate.acquire(ITEM)
        task = loop.create_task(orphan)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        task._log_destroy_pending = False
        abandoned.append(task)

    abandoned: list[asyncio.Task[object]] = []
    thread = threading.Thread(target=abandon)
    thread.start()
    await asyncio.to_thread(thread.join)
    waiting = asyncio.ensure_future(gate.acquire(ITEM))
    await turns(1)
    assert gate.waiting() == 2
    gate.release(lease, SUCCESS)
    gate.release(await asyncio.wait_for(waiting, 10), SUCCESS)
    gate.validate()
    assert gate.in_flight(A.provider) == 0
    abandoned[0].get_coro().close()
