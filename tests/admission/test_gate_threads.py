"""Threads that wait for admission: each woken for itself, none inside a loop, and interrupted without a trace."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headgate.admission import (
    SUCCESS,
    AdmissionController,
    OutcomeKind,
    RequestAdmission,
    RequestItem,
    RequestLease,
    RequestOutcome,
)
from headgate.core import ReleaseOutcome, SystemClock, events
from headgate.core.errors import AdmissionDeniedError, BlocksEventLoopError
from tests.admission.admission_world import CHAT, OTHER, A, refused, until
from tests.admission.toy_laws import FixedLaw, ToyLaw

ITEM = RequestItem(CHAT, "g")
CLOCK = SystemClock()


def admission(cap: int = 1, law: type[FixedLaw] = FixedLaw) -> RequestAdmission:
    made = RequestAdmission(AdmissionController(law), CLOCK, lambda event: None)
    made.register(A, cap, "m")
    return made


async def test_a_thread_that_runs_a_loop_may_not_block() -> None:
    gate = admission()
    with pytest.raises(BlocksEventLoopError, match="acquire_blocking would block the running event loop"):
        gate.acquire_blocking(ITEM)
    assert gate.in_flight(A.provider) == 0


def test_each_release_serves_one_waiting_thread_in_order() -> None:
    gate = admission()
    lease = gate.acquire_blocking(ITEM)
    served: list[tuple[int, RequestLease]] = []
    threads = []
    for number in range(4):
        thread = threading.Thread(target=lambda n=number: served.append((n, gate.acquire_blocking(ITEM))))
        thread.start()
        threads.append(thread)
        until(lambda n=number: gate.waiting() == n + 1)
    for number in range(4):
        gate.release(lease, SUCCESS)
        until(lambda n=number: len(served) == n + 1)
        assert served[-1][0] == number
        lease = served[-1][1]
        assert gate.waiting() == 3 - number
    gate.release(lease, SUCCESS)
    for thread in threads:
        thread.join(10)


def test_deadlines_and_cooldowns_are_kept_without_any_event_loop() -> None:
    gate = admission(2, ToyLaw)
    gate.release(gate.acquire_blocking(ITEM), refused(0.15))
    cooled = CLOCK.monotonic() + 0.15

    def patient() -> float:
        lease = gate.acquire_blocking(ITEM)
        gate.release(lease, SUCCESS)
        return lease.acquired_at

    def impatient() -> str:
        with pytest.raises(AdmissionDeniedError) as denied:
            gate.acquire_blocking(RequestItem(CHAT, "g", deadline=CLOCK.monotonic() + 0.05))
        return denied.value.reason

    with ThreadPoolExecutor(8) as pool:
        patients = [pool.submit(patient) for _ in range(3)]
        impatients = [pool.submit(impatient) for _ in range(3)]
        assert {future.result(20) for future in impatients} == {"queue_timeout"}
        assert all(future.result(20) >= cooled - 0.02 for future in patients)
    gate.validate()
    assert gate.in_flight(A.provider) == 0


def test_an_interrupt_while_waiting_leaks_nothing_and_the_others_wait_on() -> None:
    gate = admission()
    lease = gate.acquire_blocking(ITEM)
    denied: list[str] = []

    def other() -> None:
        until(lambda: gate.waiting() == 1)
        try:
            gate.acquire_blocking(RequestItem(CHAT, "g", deadline=CLOCK.monotonic() + 2.0))
        except AdmissionDeniedError as error:
            denied.append(error.reason)

    interrupted = threading.Event()

    def interrupts() -> None:
        until(lambda: gate.waiting() == 2)
        # Pressed until it is heard: a signal that comes between a thread's last look at signals and its sleep in the
        # kernel is seen when the sleep ends, and here nothing else would end it.
        while not interrupted.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            interrupted.wait(1.0)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have none
    threads = [threading.Thread(target=other), threading.Thread(target=interrupts)]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            gate.acquire_blocking(ITEM)
    finally:
        interrupted.set()
        threads[1].join(20)
        signal.signal(signal.SIGINT, before)
    for thread in threads:
        thread.join(20)
    assert denied == ["queue_timeout"], "the other one waited on"
    assert gate.waiting() == 0
    gate.release(lease, SUCCESS)
    assert gate.in_flight(A.provider) == 0
    gate.validate()


def test_a_thread_that_can_never_be_admitted_is_told_at_once() -> None:
    gate = admission()
    with pytest.raises(AdmissionDeniedError, match="hard_policy_denial"):
        gate.acquire_blocking(RequestItem(OTHER))
    gate.shutdown("over")
    with pytest.raises(AdmissionDeniedError, match="shutdown"):
        gate.acquire_blocking(ITEM)


async def test_an_interrupted_block_gives_its_lease_back_as_cancelled() -> None:
    gate = admission()
    with pytest.raises(SystemExit):
        async with gate.admit(ITEM):
            raise SystemExit
    assert gate.in_flight(A.provider) == 0
    (status,) = gate.statuses()
    assert status.last_outcome == "local_cancelled"


def test_an_interrupt_in_the_middle_of_a_release_loses_no_wake_up() -> None:
    interrupts = [KeyboardInterrupt]

    def emit(event: events.Event) -> None:
        if isinstance(event, events.RequestLeaseReleased) and interrupts:
            raise interrupts.pop()

    gate = RequestAdmission(AdmissionController(FixedLaw, trace_requests=True), CLOCK, emit)
    gate.register(A, 1, "m")
    lease = gate.acquire_blocking(ITEM)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gate.acquire_blocking, ITEM)
        until(lambda: gate.waiting() == 1)
        with pytest.raises(KeyboardInterrupt):
            gate.release(lease, SUCCESS)
        assert gate.release(lease, SUCCESS) is ReleaseOutcome.DUPLICATE
        gate.release(waiting.result(20), SUCCESS)
    assert gate.in_flight(A.provider) == 0


def test_an_interrupt_before_a_lease_is_returned_gives_it_back() -> None:
    def emit(event: events.Event) -> None:
        if isinstance(event, events.RequestLeaseAcquired):
            raise KeyboardInterrupt

    gate = RequestAdmission(AdmissionController(FixedLaw, trace_requests=True), CLOCK, emit)
    gate.register(A, 1, "m")
    with pytest.raises(KeyboardInterrupt):
        gate.try_acquire(ITEM)
    assert gate.in_flight(A.provider) == 0


def test_a_deadline_that_comes_later_is_kept() -> None:
    gate = admission()
    lease = gate.acquire_blocking(ITEM)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(gate.acquire_blocking, ITEM)
        until(lambda: gate.waiting() == 1)
        second = pool.submit(gate.acquire_blocking, RequestItem(CHAT, "g", deadline=CLOCK.monotonic() + 0.05))
        with pytest.raises(AdmissionDeniedError, match="queue_timeout"):
            second.result(20)
        gate.release(lease, SUCCESS)
        gate.release(first.result(20), SUCCESS)


def test_a_shutdown_wakes_every_thread() -> None:
    gate = admission()
    gate.acquire_blocking(ITEM)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(gate.acquire_blocking, ITEM) for _ in range(4)]
        until(lambda: gate.waiting() == 4)
        gate.shutdown("over")
        for future in waiting:
            with pytest.raises(AdmissionDeniedError, match="over"):
                future.result(20)


def test_threads_and_coroutines_share_slots_under_stress_and_leak_none() -> None:
    gate = admission(3)
    most = 0
    held = 0
    lock = threading.Lock()
    outcomes = [SUCCESS, RequestOutcome(OutcomeKind.PROVIDER_FAILURE), RequestOutcome(OutcomeKind.LOCAL_CANCELLED)]

    def note(change: int) -> None:
        nonlocal held, most
        with lock:
            held += change
            most = max(most, held)

    def in_thread(seed: int) -> int:
        rng = random.Random(seed)
        for _ in range(150):
            lease = gate.acquire_blocking(RequestItem(CHAT, f"t{seed}"))
            note(+1)
            note(-1)
            gate.release(lease, rng.choice(outcomes))
        return 150

    async def in_loop(seed: int) -> int:
        rng = random.Random(seed)

        async def one() -> None:
            for _ in range(30):
                async with gate.admit(RequestItem(CHAT, f"c{seed}")) as admitted:
                    note(+1)
                    await asyncio.sleep(0)
                    note(-1)
                    admitted.outcome = rng.choice(outcomes)

        await asyncio.gather(*(one() for _ in range(8)))
        return 240

    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(in_thread, seed) for seed in range(4)]
        futures += [pool.submit(lambda s=seed: asyncio.run(in_loop(s))) for seed in (8, 9)]
        assert sum(future.result(60) for future in futures) == 4 * 150 + 2 * 240
    gate.validate()
    assert most <= 3
    assert gate.waiting() == gate.in_flight(A.provider) == 0
