"""The executor: the only path of a model call to its provider, with one policy for admission and retries."""

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
"""Retries available to an endpoint before its requests have earned any."""

RESERVE_REFILL_PER_S: Final = 0.1
"""Retries that an endpoint below the reserve regains over time: six a minute."""

SAVED_AT_MOST: Final = 100.0
"""The most retries that a busy endpoint can save up: an hour of health must not pay for an hour of retries."""

_ROUNDING: Final = 1e-9
"""Tolerance for rounding: five times a fifth counts as a whole retry."""


@dataclass(slots=True)
class _Account:
    retries: float
    counted_at: float


class RetryBudget:
    """Decides which retries an endpoint may make. Pure; one per executor, for all of its endpoints.

    Invariant: 0 <= retries saved <= max(`SAVED_AT_MOST`, `RESERVE`).
    """

    def __init__(self, share: float = 0.2) -> None:
        """Prepare a budget.

        Args:
            share: retries earned per request, in [0, 1]; 0 leaves only the reserve.

        Raises:
            ValueError: if `share` lies outside [0, 1].
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share must be in [0, 1] (got {share!r})")
        self._share = share
        self._accounts: dict[ProviderModel, _Account] = {}
        self.denied: dict[ProviderModel, int] = {}

    def requested(self, account: ProviderModel, now: float) -> None:
        """Note a new request to `account`; retries of it are not noted here."""
        known = self._accounts.setdefault(account, _Account(RESERVE, now))
        if known.retries < SAVED_AT_MOST:
            known.retries += self._share

    def may_retry(self, account: ProviderModel, now: float) -> bool:
        """Return whether `account` may be asked once more; spend a retry if so, else count the denial."""
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
        """Drop an endpoint that is no longer used."""
        self._accounts.pop(account, None)
        self.denied.pop(account, None)

    def validate(self) -> None:
        """Assert the invariant of the class."""
        for account, known in self._accounts.items():
            assert 0 <= known.retries <= max(SAVED_AT_MOST, RESERVE) + 1, f"{account}: {known.retries}"


AGAIN: Final = object()
"""The result of a call whose caller gave up: others who want the answer must make the call themselves."""

T = TypeVar("T")

IDLE_AFTER_S: Final = 1.0
"""A call that waits longer than this is idle: its `CallWatch` is notified, so that it can lend out its worker."""

_FINAL: Final = frozenset({DenyReason.UNREGISTERED, DenyReason.SHUTDOWN, DenyReason.TOO_LARGE})
"""Denials that waiting cannot change."""

_GIVEN_UP: Final = frozenset({OutcomeKind.LOCAL_CANCELLED, OutcomeKind.LOCAL_TIMEOUT})
"""Outcomes that concern only the caller itself."""


class CallsInFlight:
    """The running calls, by request id. Owned by an executor; used from event loops and threads at once.

    An id is known only while its call runs: this makes a repeated request harmless, but it is not a cache.
    """

    __slots__ = ("_lock", "_runs")

    def __init__(self) -> None:
        self._runs: dict[str, Future[Any] | None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def join(self, request_id: str) -> Future[Any] | None:
        """Return the future result of a running call, `AGAIN` if it is given up; None if the caller must make it."""
        with self._lock:
            if request_id not in self._runs:
                self._runs[request_id] = None
                return None
            future = self._runs[request_id] = self._runs[request_id] or Future()
            return future

    def ended(self, request_id: str, result: object) -> None:
        """Give a call's result to all who follow it; `AGAIN` if it was given up."""
        if (followed := self._over(request_id)) is not None:
            followed.set_result(result)

    def failed(self, request_id: str, error: BaseException) -> None:
        """Give a call's error to all who follow it."""
        if (followed := self._over(request_id)) is not None:
            followed.set_exception(error)

    def _over(self, request_id: str) -> Future[Any] | None:
        with self._lock:
            return self._runs.pop(request_id)


class CallWatch:
    """One call's attempts and waiting time so far. One per call; subclasses may react when it goes idle or resumes.

    Attributes:
        wait_s: time spent on admission and back-off.
        is_idle: whether the call has waited longer than `IDLE_AFTER_S`; stays True if it ends while waiting.
        lease_id: of the lease under which the last attempt was sent.
    """

    __slots__ = ("attempts", "is_idle", "lease_id", "wait_s")

    def __init__(self) -> None:
        self.attempts = 0
        self.lease_id = ""
        self.wait_s = 0.0
        self.is_idle = False

    def idle(self) -> None:
        """Note that the call waits longer than `IDLE_AFTER_S`, for admission or in back-off."""
        self.is_idle = True

    def busy(self) -> None:
        """Note that the call is about to be sent again."""
        self.is_idle = False


class RequestExecutor:
    """Runs model calls. One per campaign, or one per program; no request bypasses it.

    Every attempt is admitted anew and releases its lease before any back-off, so that a waiting call holds nothing.
    `classify` alone decides an attempt's outcome; the `RetryPolicy` decides whether to retry and, for failures, the
    `RetryBudget` must agree.

    A call with the request id of a running one is not sent: it gets that one's answer or error.
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
        """Prepare it; an attempt that waits `queue_wait_s` for admission is denied; None waits without limit."""
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
            item: what to admit; its correlation is that of the first attempt.
            attempt: sends the request once; called for each attempt.
            watch: records attempts and waiting time; readable while the call runs and after it ends.

        Raises:
            AdmissionDeniedError: if it was not admitted before its deadline, or never will be.
            BaseException: what the last attempt raised, unchanged.
        """
        request_id = item.correlation.request_id
        while request_id and (followed := self._calls.join(request_id)) is not None:
            # Shielded, so that cancelling one follower does not take the answer from the others.
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
        """Return what an attempt returned, as `call` does, blocking the calling thread.

        Attempts run in their own threads, so that an attempt may run an event loop.

        Raises:
            BlocksEventLoopError: if called inside a running event loop, which it would block.
            AdmissionDeniedError: as `call` does.
            BaseException: what the last attempt raised, unchanged.
        """
        refuse_inside_a_loop("call_blocking", "call")
        return asyncio.run(self.call(item, lambda: asyncio.to_thread(attempt), watch))

    async def _acquire(self, item: RequestItem, watch: CallWatch) -> RequestLease:
        """Return a lease, after waiting for it if need be; notify `watch` when that takes long."""
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
                lease = await self._acquire(asking, watch)
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
        """Return how long to wait before the next attempt; None if `error` ends the call."""
        kind = error_kind(error)
        if kind is None:
            return None
        # One count for refusals, one for all failures: alternating kinds of failure must not buy more attempts.
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
    """Return the outcome of an answered attempt from its reply; None if the reply has no figures."""
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
