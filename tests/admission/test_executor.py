from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headgate.admission import CallWatch, Correlation, ProviderModel, RequestItem, RequestKey, RetryBudget
from headgate.admission.executor import RESERVE
from headgate.core import ChatError, ErrorKind, SystemClock
from headgate.core.errors import AdmissionDeniedError
from headgate.core.events import RequestDelayed, RequestLeaseAcquired, RetryDenied
from headgate.models import RetryPolicy
from tests.admission.executor_world import ACCOUNT, FORMS, KEY, ExecutorWorld, Form


def ending(*ends: BaseException | str) -> Callable[[], Awaitable[str]]:
    """Return an attempt that ends in one of `ends` after the other."""
    left = list(ends)

    async def attempt() -> str:
        end = left.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    return attempt


def failed(kind: ErrorKind, retry_after_s: float | None = None) -> ChatError:
    return ChatError(kind, f"scripted {kind}", retry_after_s=retry_after_s)


BUSY = ErrorKind.RATE_LIMITED
DOWN = ErrorKind.PROVIDER_FAILURE


@pytest.mark.parametrize("form", FORMS)
async def test_refusals_are_not_counted_among_the_failures(form: Form) -> None:
    world = ExecutorWorld(policy=RetryPolicy(max_attempts=2))
    ends = [failed(BUSY), failed(BUSY), failed(DOWN), failed(BUSY), failed(BUSY), "answered"]
    assert await world.call(form, ending(*ends)) == "answered"
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_failures_of_different_kinds_share_one_count(form: Form) -> None:
    world = ExecutorWorld(policy=RetryPolicy(max_attempts=2))
    with pytest.raises(ChatError) as caught:
        await world.call(form, ending(failed(DOWN), failed(ErrorKind.CONNECTION), "never"))
    assert caught.value.kind is ErrorKind.CONNECTION


@pytest.mark.parametrize("form", FORMS)
async def test_every_retry_is_told_with_its_wait_and_its_request(form: Form) -> None:
    world = ExecutorWorld()
    await world.call(form, ending(failed(BUSY), failed(DOWN), "answered"))
    assert world.told(RequestDelayed) == [
        RequestDelayed("m@main", "rate_limited", world.slept[0], 1, "r-1", "t-1", "0" * 32),
        RequestDelayed("m@main", "provider_failure", world.slept[1], 2, "r-1", "t-1", "0" * 32),
    ]


@pytest.mark.parametrize("form", FORMS)
async def test_every_attempt_is_admitted_by_itself_under_the_id_of_its_request(form: Form) -> None:
    world = ExecutorWorld(trace=True)
    await world.call(form, ending(failed(BUSY), failed(DOWN), "answered"))
    acquired = world.told(RequestLeaseAcquired)
    assert [(e.request_id, e.attempt, e.task_id) for e in acquired] == [("r-1", n, "t-1") for n in (1, 2, 3)]
    assert len({e.lease_id for e in acquired}) == 3


@pytest.mark.parametrize("form", FORMS)
async def test_no_slot_is_held_during_a_back_off(form: Form) -> None:
    world = ExecutorWorld(cap=1)
    held: list[int] = []
    block = world.clock.block
    world.clock.block = lambda s: (held.append(world.admission.in_flight(ACCOUNT.provider)), block(s))  # type: ignore[method-assign, func-returns-value, assignment]
    world.executor._sleep = world.clock.block
    await world.call(form, ending(failed(DOWN), "answered"))
    assert held == [0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("defect", [TypeError("unsupported operand"), KeyError("score"), AssertionError("never")])
async def test_a_defect_of_ours_is_raised_unchanged_after_one_attempt(form: Form, defect: Exception) -> None:
    world = ExecutorWorld()
    with pytest.raises(type(defect)) as caught:
        await world.call(form, ending(defect))
    assert caught.value is defect
    assert world.kinds == ["unexpected_exception"]
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_a_time_limit_of_our_own_is_no_failure_of_the_provider(form: Form) -> None:
    world = ExecutorWorld()
    with pytest.raises(TimeoutError):
        await world.call(form, ending(TimeoutError()))
    assert world.kinds == ["local_timeout"]
    world.assert_nothing_is_held()


def test_an_interrupt_of_a_thread_gives_its_lease_back_as_cancelled() -> None:
    world = ExecutorWorld()

    def attempt() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.executor.call_blocking(RequestItem(KEY, "m@main"), attempt)
    assert world.kinds == ["local_cancelled"]
    world.assert_nothing_is_held()


async def test_the_blocking_form_refuses_to_block_a_running_loop() -> None:
    world = ExecutorWorld()
    with pytest.raises(RuntimeError, match="event loop"):
        world.executor.call_blocking(RequestItem(KEY, "m@main"), lambda: "never")
    world.assert_nothing_is_held()


@pytest.mark.parametrize("form", FORMS)
async def test_what_is_not_registered_is_denied_without_an_attempt(form: Form) -> None:
    world = ExecutorWorld()
    item = RequestItem(RequestKey(ProviderModel("http://elsewhere", "m")), "m@main")
    with pytest.raises(AdmissionDeniedError) as caught:
        await world.call(form, ending("never"), item=item)
    assert caught.value.reason == "hard_policy_denial"
    world.assert_nothing_is_held()


async def test_a_request_that_waits_too_long_for_admission_is_denied() -> None:
    world = ExecutorWorld(cap=1, clock=SystemClock(), queue_wait_s=0.05)
    lease = await world.admission.acquire(RequestItem(KEY, "other"))
    with pytest.raises(AdmissionDeniedError) as caught:
        await world.call("async", ending("never"))
    assert caught.value.reason == "queue_timeout"
    assert world.admission.waiting() == 0
    world.admission.release(lease, world.learnt[0] if world.learnt else _success())
    world.assert_nothing_is_held()


def _success() -> Any:
    from headgate.admission import SUCCESS

    return SUCCESS


# The retry budget.


@pytest.mark.parametrize("form", FORMS)
async def test_an_endpoint_that_is_down_gets_no_more_retries_than_its_budget(form: Form) -> None:
    world = ExecutorWorld(budget=RetryBudget(0.2))
    for _ in range(100):
        with pytest.raises(ChatError):
            await world.call(form, ending(*[failed(DOWN)] * 4))
    retries = len(world.kinds) - 100
    waited = sum(world.slept)
    assert retries <= 0.2 * 100 + RESERVE + 0.1 * waited
    assert world.told(RetryDenied)
    assert world.told(RetryDenied)[0].outcome == "provider_failure"
    assert len(world.told(RetryDenied)) == world.executor.budget.denied[ACCOUNT]


@pytest.mark.parametrize("form", FORMS)
async def test_a_refusal_is_waited_for_even_when_the_budget_is_spent(form: Form) -> None:
    world = ExecutorWorld(budget=RetryBudget(0.0))
    for _ in range(5):
        with pytest.raises(ChatError):
            await world.call(form, ending(*[failed(DOWN)] * 4))
    assert await world.call(form, ending(*[failed(BUSY)] * 20, "answered")) == "answered"


# Idle calls.


class _Told(CallWatch):
    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self.told = told

    def idle(self) -> None:
        super().idle()
        self.told.append("idle")

    def busy(self) -> None:
        super().busy()
        self.told.append("busy")


@pytest.mark.parametrize("form", FORMS)
async def test_a_long_back_off_is_told_when_it_begins_and_when_it_has_ended(form: Form) -> None:
    world, told = ExecutorWorld(), list[str]()
    await world.call(form, ending(failed(BUSY, 5.0), "answered"), _Told(told))
    assert told == ["idle", "busy"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_short_back_off_is_told_to_nobody(form: Form) -> None:
    world, told = ExecutorWorld(policy=RetryPolicy(base_s=0.5)), list[str]()
    await world.call(form, ending(failed(DOWN), "answered"), _Told(told))
    assert told == []


async def test_a_call_that_ends_while_it_waits_stays_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.admission.executor.IDLE_AFTER_S", 0.01)
    world, told = ExecutorWorld(cap=1, clock=SystemClock()), list[str]()
    lease = await world.admission.acquire(RequestItem(KEY, "other"))
    watch = _Told(told)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await world.call("async", ending("never"), watch)
    assert told == ["idle"]
    assert watch.is_idle
    world.admission.release(lease, _success())
    world.assert_nothing_is_held()


async def test_a_call_that_waited_for_admission_is_busy_again_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.admission.executor.IDLE_AFTER_S", 0.01)
    world, told = ExecutorWorld(cap=1, clock=SystemClock()), list[str]()
    lease = await world.admission.acquire(RequestItem(KEY, "other"))
    asyncio.get_running_loop().call_later(0.05, world.admission.release, lease, _success())

    async def attempt() -> str:
        told.append("sent")
        return "answered"

    await world.call("async", attempt, _Told(told))
    assert told == ["idle", "busy", "sent"]


async def test_a_watch_that_raises_leaves_no_lease_behind() -> None:
    class Broken(CallWatch):
        def busy(self) -> None:
            raise RuntimeError("the watch is broken")

    world, watch = ExecutorWorld(), Broken()
    watch.is_idle = True
    with pytest.raises(RuntimeError, match="the watch is broken"):
        await world.call("async", ending("never"), watch)
    world.assert_nothing_is_held()


# Cancellation.


async def _awkward() -> str:
    for _ in range(3):
        await asyncio.sleep(0)
    return "answered"


@pytest.mark.parametrize("is_contended", [False, True])
@pytest.mark.parametrize("turns", range(14))
async def test_a_call_cancelled_at_any_moment_leaves_nothing_held(turns: int, is_contended: bool) -> None:
    world = ExecutorWorld(cap=1, policy=RetryPolicy(base_s=0.0), clock=SystemClock())
    left = [failed(DOWN), failed(BUSY, 0.0)]

    async def attempt() -> str:
        await _awkward()
        if left:
            raise left.pop(0)
        return "answered"

    other = await world.admission.acquire(RequestItem(KEY, "other")) if is_contended else None
    task = asyncio.create_task(world.call("async", attempt))
    for turn in range(turns):
        await asyncio.sleep(0)
        if other is not None and turn == 2:
            world.admission.release(other, _success())
            other = None
    task.cancel()
    await asyncio.wait([task])
    if other is not None:
        world.admission.release(other, _success())
    assert task.cancelled() or task.result() == "answered"
    world.assert_nothing_is_held()


async def test_a_cancelled_attempt_is_learnt_as_cancelled_and_not_sent_again() -> None:
    world = ExecutorWorld()
    task = asyncio.create_task(world.call("async", asyncio.Event().wait))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert world.kinds == ["local_cancelled"]
    world.assert_nothing_is_held()


async def test_a_slot_that_was_handed_over_to_a_cancelled_call_goes_to_the_next() -> None:
    world = ExecutorWorld(cap=1)
    lease = await world.admission.acquire(RequestItem(KEY, "other"))
    first = asyncio.create_task(world.call("async", ending("never")))
    second = asyncio.create_task(world.call("async", ending("answered")))
    await asyncio.sleep(0)
    world.admission.release(lease, _success())
    first.cancel()
    assert await second == "answered"
    assert first.cancelled()
    world.assert_nothing_is_held()


async def test_correlation_of_the_item_that_was_given_stays_as_it_is() -> None:
    world = ExecutorWorld()
    item = RequestItem(KEY, "m@main", 1.0, None, Correlation("r-9", 1))
    await world.call("async", ending(failed(BUSY), "answered"), item=item)
    assert item.correlation.attempt == 1


# Calls with one request id.


async def test_a_call_with_the_id_of_one_that_runs_is_not_sent_and_gets_its_answer() -> None:
    world, go, sent = ExecutorWorld(), asyncio.Event(), list[int]()

    async def attempt() -> str:
        sent.append(1)
        await go.wait()
        return "answered"

    calls = [asyncio.create_task(world.call("async", attempt)) for _ in range(3)]
    await asyncio.sleep(0.01)
    go.set()
    assert await asyncio.gather(*calls) == ["answered"] * 3
    assert (len(sent), world.kinds) == (1, ["success"])
    assert await world.call("async", attempt) == "answered"
    assert len(sent) == 2, "an id is known while its call runs and no longer"
    world.assert_nothing_is_held()


async def test_calls_with_one_id_share_an_error_but_not_a_cancellation() -> None:
    world, go = ExecutorWorld(), asyncio.Event()
    ends: list[BaseException | str] = [failed(ErrorKind.BAD_REQUEST), "answered"]

    async def attempt() -> str:
        await go.wait()
        end = ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    first, second = (asyncio.create_task(world.call("async", attempt)) for _ in range(2))
    await asyncio.sleep(0.01)
    go.set()
    errors = await asyncio.gather(first, second, return_exceptions=True)
    assert all(isinstance(e, ChatError) and e.kind is ErrorKind.BAD_REQUEST for e in errors)
    go.clear()
    first, second, third = (asyncio.create_task(world.call("async", attempt)) for _ in range(3))
    await asyncio.sleep(0.01)
    first.cancel()
    third.cancel()
    go.set()
    assert await second == "answered"
    assert first.cancelled()
    assert third.cancelled()
    assert world.kinds == ["provider_failure", "local_cancelled", "success"]
    world.assert_nothing_is_held()


async def test_a_thread_and_a_coroutine_can_follow_each_other() -> None:
    world, go, sent = ExecutorWorld(), threading.Event(), list[str]()
    is_sent, loop = asyncio.Event(), asyncio.get_running_loop()

    async def by_thread() -> str:
        sent.append("thread")
        loop.call_soon_threadsafe(is_sent.set)
        go.wait(10)
        return "answered"

    blocking = asyncio.create_task(world.call("blocking", by_thread))
    await is_sent.wait()
    following = asyncio.create_task(world.call("async", ending("never")))
    await asyncio.sleep(0.01)
    go.set()
    assert await asyncio.gather(blocking, following) == ["answered", "answered"]
    assert sent == ["thread"]
    world.assert_nothing_is_held()


def test_threads_share_the_cap_and_all_are_served() -> None:
    world, peak, running, lock = ExecutorWorld(cap=2, clock=SystemClock()), [0], [0], threading.Lock()

    def attempt() -> str:
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        time.sleep(0.002)
        with lock:
            running[0] -= 1
        return "answered"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: world.executor.call_blocking(RequestItem(KEY, "m@main"), attempt), range(40)))
    assert answers == ["answered"] * 40
    assert peak == [2]
    world.assert_nothing_is_held()
