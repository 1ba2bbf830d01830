"""The executor: the one way of a model call to its provider, admitted and tried again by one policy."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from headgate.admission.classify import OutcomeKind, RequestOutcome, classify, error_kind
from headgate.admission.effects import started
from headgate.admission.gate import RequestAdmission, denied_error, refuse_inside_a_loop
from headgate.admission.items import DenyReason, ProviderModel, RequestItem, RequestLease
from headgate.core import ChatReply, Clock, ErrorKind
from headgate.core.events import Emit, RequestDelayed, RetryDenied
from headgate.models import GiveUp, RetryPolicy

RESERVE: Final = 10.0
"""Retries that an endpoint may make before its requests have earned any."""

RESERVE_REFILL_PER_S: Final = 0.1
"""What a quiet endpoint earns by waiting, up to the reserve: six retries a minute."""

SAVED_AT_MOST: Final = 100.0
"""Retries that a busy endpoint can save up; an hour of health does not pay for an hour of retries."""

_ROUNDING: Final = 1e-9
"""Five times a fifth is a whole retry."""


@dataclass(slots=True)
class _Account:
    retries: float
    counted_at: float


class RetryBudget:
    """Says which retries an endpoint may make. Pure; one per executor, for all of its endpoints.

    Invariant: 0 <= retries saved <= max(`SAVED_AT_MOST`, `RESERVE`).
    """

    def __init__(self, share: float = 0.2) -> None:
        """Prepare a budget.

        Args:
            share: retries per request, in [0, 1]; 0 leaves the reserve alone.

        Raises:
            ValueError: if `share` lies outside [0, 1].
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share must be in [0, 1] (got {share!r})")
        self._share = share
        self._accounts: dict[ProviderModel, _Account] = {}
        self.denied: dict[ProviderModel, int] = {}

    def requested(self, account: ProviderModel, now: float) -> None:
        """Note a new request to `account`; its retries are none."""
        known = self._accounts.setdefault(account, _Account(RESERVE, now))
        if known.retries < SAVED_AT_MOST:
            known.retries += self._share

    def may_retry(self, account: ProviderModel, now: float) -> bool:
        """Return whether `account` may be asked once more, and book the retry if so; else count the denial."""
        known = self._accounts.setdefault(account, _Account(RESERVE, now))
        if known.retries < RESERVE:
            earned = max(0.0, now - known.counted_at) * RESERVE_REFILL_PER_S
            known.retries = min(RESERVE, known.retries + earned)
        known.counted_at = now
        if known.retries < 1.0 - _ROUNDING:
            self.denied[account] = self.denied.get(account, 0) + 1
            return False
        known.retries = max(0.0, known.retries - 1.0)
        return True

    def forget(self, account: ProviderModel) -> None:
        """Drop what is known of an endpoint that is asked no more."""
        self._accounts.pop(account, None)
        self.denied.pop(account, None)

    def validate(self) -> None:
        """Assert the invariant of the class."""
        for account, known in self._accounts.items():
            assert 0 <= known.retries <= max(SAVED_AT_MOST, RESERVE) + 1, f"{account}: {known.retries}"


AGAIN: Final = object()
"""The end of a call that whoever made it gave up: whoever else wants its answer has to ask for himself."""

T = TypeVar("T")

IDLE_AFTER_S: Final = 1.0
"""A call that waits for longer has nothing to do: whoever lent it something is told."""

_FINAL: Final = frozenset({DenyReason.UNREGISTERED, DenyReason.SHUTDOWN, DenyReason.TOO_LARGE})
"""Denials that waiting does not change."""

_GIVEN_UP: Final = frozenset({OutcomeKind.LOCAL_CANCELLED, OutcomeKind.LOCAL_TIMEOUT})
"""Ends that are the caller's own, and nobody else's."""


class CallsInFlight:
    """The calls that run, by request id. Owned by an executor; used from event loops and threads at once.

    An id is known while its call runs and no longer: this makes a repeated request harmless, and is no cache.
    """

    __slots__ = ("_lock", "_runs")

    def __init__(self) -> None:
        self._runs: dict[str, Future[Any] | None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def join(self, request_id: str) -> Future[Any] | None:
        """Return what will hold the end of a call that runs, `AGAIN` if it is given up; None: the caller makes it."""
        with self._lock:
            if request_id not in self._runs:
                self._runs[request_id] = None
                return None
            future = self._runs[request_id] = self._runs[request_id] or Future()
            return future

    def ended(self, request_id: str, result: object) -> None:
        """Give the result of a call to all who follow it; `AGAIN` where it was given up."""
        if (followed := self._over(request_id)) is not None:
            followed.set_result(result)

    def failed(self, request_id: str, error: BaseException) -> None:
        """Give the error of a call to all who follow it."""
        if (followed := self._over(request_id)) is not None:
            followed.set_exception(error)

    def _over(self, request_id: str) -> Future[Any] | None:
        with self._lock:
            return self._runs.pop(request_id)


class CallWatch:
    """What one call has cost so far. One per call; a subclass may act when the call begins and ends to idle.

    Attributes:
        wait_s: time spent on admission and back-off.
        is_idle: whether the call waits for longer than `IDLE_AFTER_S`; stays True when it ends while it waits.
        lease_id: of the lease under which the last attempt was sent.
    """

    __slots__ = ("attempts", "is_idle", "lease_id", "wait_s")

    def __init__(self) -> None:
        self.attempts = 0
        self.lease_id = ""
        self.wait_s = 0.0
        self.is_idle = False

    def idle(self) -> None:
        """The call waits for admission or in back-off, for longer than `IDLE_AFTER_S`."""
        self.is_idle = True

    def busy(self) -> None:
        """The call is about to be sent again."""
        self.is_idle = False


class RequestExecutor:
    """Runs model calls. One per campaign, or one per program; nothing reaches a provider past it.

    Every attempt is admitted anew and gives its lease back before any back-off, so that a call that waits holds
    nothing. What an attempt came to is decided once, in `classify`; whether it is tried again is the `RetryPolicy`'s
    decision, and for failures the `RetryBudget`'s.

    A call with the request id of one that runs is not sent: it gets that one's answer or error.
    """

    def __init__(
        self,
        admission: RequestAdmission,
        policy: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        *,
        clock: Clock,
        rng: random.Random,
        emit: Emit,
        queue_wait_s: float | None = None,
    ) -> None:
        """Prepare it; an attempt that waited `queue_wait_s` for admission is denied, never if that is None."""
        self._admission = admission
        self._policy = policy or RetryPolicy()
        self.budget = budget or RetryBudget()
        self._clock = clock
        self._rng = rng
        self._emit = emit
        self._queue_wait_s = queue_wait_s
        self._calls = CallsInFlight()

    async def call(self, item: RequestItem, attempt: Callable[[], Awaitable[T]], watch: CallWatch | None = None) -> T:
        """Return what an attempt returned, after as many attempts as the policy allows.

        Args:
            item: what is to be admitted; its correlation is that of the first attempt.
            attempt: sends the request once; called for each attempt.
            watch: what the call cost, readable while it runs and after it ended in whatever way.

        Raises:
            AdmissionDeniedError: if it was not admitted before its deadline, or never will be.
            BaseException: what the last attempt raised, unchanged.
        """
        request_id = item.correlation.request_id
        while request_id and (followed := self._calls.join(request_id)) is not None:
            # Shielded, so that a follower who is cancelled takes the answer from nobody else.
            if (end := await asyncio.shield(asyncio.wrap_future(followed))) is not AGAIN:
                return cast("T", end)
        try:
            result = await self._attempts(item, attempt, watch or CallWatch())
        except BaseException as error:
            if request_id and classify(error).kind in _GIVEN_UP:
                self._calls.ended(request_id, AGAIN)
            elif request_id:
                self._calls.failed(request_id, error)
            raise
        if request_id:
            self._calls.ended(request_id, result)
        return result

    def call_blocking(self, item: RequestItem, attempt: Callable[[], T], watch: CallWatch | None = None) -> T:
        """Return what an attempt returned, as `call` does, blocking the calling thread meanwhile.

        Attempts run in threads of their own, so that one of them may run an event loop.

        Raises:
            BlocksEventLoopError: if called from inside a running event loop, which it would block.
            AdmissionDeniedError: as `call` does.
            BaseException: what the last attempt raised, unchanged.
        """
        refuse_inside_a_loop("call_blocking", "call")
        return asyncio.run(self.call(item, lambda: asyncio.to_thread(attempt), watch))

    async def _leased(self, item: RequestItem, watch: CallWatch) -> RequestLease:
        """Return a lease, after waiting for it if need be; `watch` is told when that takes long."""
        answer = self._admission.try_acquire(item)
        if isinstance(answer, RequestLease):
            return answer
        if answer.reason in _FINAL:
            raise denied_error(item, answer)
        timer = asyncio.get_running_loop().call_later(IDLE_AFTER_S, watch.idle)
        try:
            return await self._admission.acquire(item)
        finally:
            timer.cancel()

    async def _attempts(self, item: RequestItem, attempt: Callable[[], Awaitable[T]], watch: CallWatch) -> T:
        now = self._clock.monotonic
        asked = now()
        self.budget.requested(item.key.account, asked)
        counts: dict[ErrorKind, int] = {}
        asking = item
        while True:
            try:
                if self._queue_wait_s is not None:
                    asking = asking._replace(deadline=asked + self._queue_wait_s)
                lease = await self._leased(asking, watch)
            finally:
                began = now()
                watch.wait_s += began - asked
            try:
                if watch.is_idle:
                    watch.busy()
                watch.attempts += 1
                watch.lease_id = lease.lease_id
                if self._admission.traces_requests:
                    self._emit(started(asking, lease.lease_id))
                result = await attempt()
            except BaseException as error:
                self._admission.release(lease, classify(error, wall=self._clock.wall()))
                pause_s = self._pause_after(error, item, counts)
                if pause_s is None:
                    raise
            else:
                outcome = _success(result) or RequestOutcome(OutcomeKind.SUCCESS, latency_s=now() - began)
                self._admission.release(lease, outcome)
                return result
            asked = now()
            if pause_s > IDLE_AFTER_S:
                watch.idle()
            try:
                await self._clock.sleep(pause_s)
            finally:
                before, asked = asked, now()
                watch.wait_s += asked - before
            asking = item._replace(correlation=item.correlation._replace(attempt=watch.attempts + 1))

    def _pause_after(self, error: BaseException, item: RequestItem, counts: dict[ErrorKind, int]) -> float | None:
        """Return how long to wait before the next attempt; None when `error` ends the call."""
        kind = error_kind(error)
        if kind is None:
            return None
        # One count for refusals, one for all failures: a request does not live longer by failing in turns.
        count = ErrorKind.RATE_LIMITED if kind is ErrorKind.RATE_LIMITED else ErrorKind.PROVIDER_FAILURE
        counts[count] = attempt = counts.get(count, 0) + 1
        asked_s = classify(error, wall=self._clock.wall()).retry_after_s
        decision = self._policy.decide(attempt, kind, asked_s, self._rng)
        if isinstance(decision, GiveUp):
            return None
        told, sent = item.correlation, sum(counts.values())
        about = (told.request_id, told.task_id, told.trace_id)
        if kind is not ErrorKind.RATE_LIMITED and not self.budget.may_retry(item.key.account, self._clock.monotonic()):
            self._emit(RetryDenied(item.group, kind.value, sent, *about))
            return None
        self._emit(RequestDelayed(item.group, kind.value, decision.after_s, sent, *about))
        return decision.after_s


def _success(reply: object) -> RequestOutcome | None:
    """Return the outcome of an attempt that was answered, where the answer tells it."""
    if isinstance(reply, ChatReply):
        return RequestOutcome(
            OutcomeKind.SUCCESS,
            None,
            reply.latency_s,
            reply.first_token_s,
            reply.completion_tokens,
            reply.prompt_tokens,
            reply.told,
        )
    return None
