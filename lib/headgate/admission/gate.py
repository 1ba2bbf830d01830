"""The gate that every request passes to its provider: admission for coroutines and threads, around one controller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVarTuple, Unpack

from headgate.admission.classify import SUCCESS, OutcomeKind, RequestOutcome
from headgate.admission.controller import AdmissionController
from headgate.admission.items import (
    Denied,
    Pressure,
    PressureChanged,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    Ticket,
)
from headgate.core import Clock, ReleaseOutcome
from headgate.core.errors import AdmissionDeniedError, BlocksEventLoopError
from headgate.core.events import Emit
from headgate.core.rates import UNLIMITED, ModelRates
from headgate.core.status import RequestStatus

_EARLY_S: Final = 0.001
"""By rounding, a timer may fire this much too early; it then counts as on time, or it would fire again at once."""


class LoopAlarm:
    """One timer on one event loop. Owned by a `RequestAdmission`; lives as long as the loop is used with it."""

    __slots__ = ("_at", "_clock", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[float], float]) -> None:
        """Prepare an alarm.

        Args:
            loop: runs the timer.
            clock: measures the times that it is set to.
            ring: called on the loop with the current time; returns when to ring next, infinite for never.
        """
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._at = math.inf
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_usable(self) -> bool:
        """Whether its loop is still open."""
        return not self._loop.is_closed()

    def set(self, at: float, *, running: asyncio.AbstractEventLoop | None) -> None:
        """Ring at `at` if earlier than its set time. Any thread may call it; `running` is that thread's loop."""
        if at >= self._at:
            return
        if running is self._loop:
            self._set(at)
        else:
            # A closed loop has nothing left to wake.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._set, at)

    def _set(self, at: float) -> None:
        if at >= self._at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_later(max(0.0, at - self._clock.monotonic()), self._fired)

    def _fired(self) -> None:
        due, self._at, self._handle = self._at, math.inf, None
        now = self._clock.monotonic()
        self._set(self._ring(due if now < due < now + _EARLY_S else now))


Ts = TypeVarTuple("Ts")
Listener = Callable[[RequestKey, Pressure | None], None]
"""Called with a key whose pressure changed, and its pressure now, in the thread of the change; must return at once."""

_log = logging.getLogger("headgate.admission")
_CANCELLED: Final = RequestOutcome(OutcomeKind.LOCAL_CANCELLED)
_FAILED: Final = RequestOutcome(OutcomeKind.UNEXPECTED_EXCEPTION)


class AdmittedRequest:
    """A request that is admitted for as long as its `with` block runs.

    Attributes:
        outcome: outcome to release the lease with; by default success, or what the block's exception implies.
    """

    __slots__ = ("lease", "outcome")

    def __init__(self, lease: RequestLease) -> None:
        self.lease = lease
        self.outcome: RequestOutcome | None = None


class RequestAdmission:
    """Admits requests of coroutines, on any number of event loops, and of threads.

    Owned by a campaign or a program; lives as long as it. `_lock` protects the controller and is held only for
    decisions: events, listeners and wake-ups follow after it is released. A released slot completes the next waiter's
    future before `release` returns, so that the waiter runs in the same turn of the loop. One timer per loop fires for
    changes by time alone; nothing is polled, and nothing runs while nothing changes.
    """

    def __init__(self, controller: AdmissionController, clock: Clock, emit: Emit) -> None:
        self._controller = controller
        self._accounts = controller.accounts
        self._now = clock.monotonic
        self._clock = clock
        self._emit = emit
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._alarms: dict[asyncio.AbstractEventLoop, LoopAlarm] = {}

    @property
    def traces_requests(self) -> bool:
        """Whether events of single requests are emitted."""
        return self._controller.effects.trace_requests

    # Requests.

    async def acquire(self, item: RequestItem) -> RequestLease:
        """Return a lease, waiting for it until the item's deadline. If cancelled at any point, nothing is held.

        Raises:
            AdmissionDeniedError: if the deadline came first, the model is not registered, or admission was shut down.
        """
        controller = self._controller
        with self._lock:
            answer = controller.request(item, self._now())
            if isinstance(answer, Ticket):
                loop = asyncio.get_running_loop()
                waker = answer.waker = loop.create_future()
        if isinstance(answer, Ticket):
            try:
                if loop not in self._alarms:
                    self._add_alarm(loop)
                if controller.effects.pending or controller.changes_at < math.inf:
                    self._carry_out()
                await waker
            except BaseException:
                self._change(controller.cancel, answer)
                raise
            if answer.lease is not None:
                return answer.lease
            assert answer.denied is not None
            raise denied_error(item, answer.denied)
        if controller.effects.pending:
            self._carry_out_before(answer)
        if isinstance(answer, RequestLease):
            return answer
        raise denied_error(item, answer)

    def try_acquire(self, item: RequestItem) -> RequestLease | Denied:
        """Return a lease, or why there is none now. Never wait, and never overtake waiters."""
        with self._lock:
            answer = self._controller.try_acquire(item, self._now())
        if self._controller.effects.pending:
            self._carry_out_before(answer)
        return answer

    def acquire_blocking(self, item: RequestItem) -> RequestLease:
        """Return a lease, blocking the calling thread for as long as `acquire` would wait.

        Raises:
            AdmissionDeniedError: as `acquire` does.
            BlocksEventLoopError: if the thread runs an event loop.
        """
        refuse_inside_a_loop("acquire_blocking", "acquire")
        return asyncio.run(self.acquire(item))

    def release(self, lease: RequestLease, outcome: RequestOutcome) -> ReleaseOutcome:
        """Release a lease with its attempt's outcome, and wake the next waiter; only the first release counts."""
        controller = self._controller
        with self._lock:
            done = controller.release(lease, outcome, self._now())
        if controller.effects.pending or controller.changes_at < math.inf:
            self._carry_out()
        return done

    @asynccontextmanager
    async def admit(self, item: RequestItem) -> AsyncIterator[AdmittedRequest]:
        """Hold a lease for the block and release it with the outcome, however the block ends."""
        admitted = AdmittedRequest(await self.acquire(item))
        try:
            yield admitted
        except BaseException as error:
            is_ours = isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit)
            self.release(admitted.lease, admitted.outcome or (_CANCELLED if is_ours else _FAILED))
            raise
        self.release(admitted.lease, admitted.outcome or SUCCESS)

    # Changes that may come while requests are in flight.

    def register(self, name: ProviderModel, cap: int, alias: str, rates: ModelRates = UNLIMITED) -> None:
        """Register a model; see `AdmissionController.register`."""
        with self._lock:
            self._controller.register(name, cap, alias, self._now(), rates)
        self._carry_out()

    def unregister(self, name: ProviderModel, alias: str) -> None:
        """Withdraw an alias of a model; see `AdmissionController.unregister`."""
        self._change(self._controller.unregister, name, alias)

    def learnt(self, name: ProviderModel, of: str, limit: int) -> None:
        """Take over what other processes know of a limit; see `AdmissionController.learnt`."""
        self._change(self._controller.learnt, name, of, limit)

    def retry(self, name: ProviderModel) -> None:
        """End a model's cooldown; see `AdmissionController.retry`."""
        self._change(self._controller.retry, name)

    def set_provider_cap(self, provider: str, slots: int | None) -> None:
        """Bound the requests in flight at a provider; see `AdmissionController.set_provider_cap`."""
        self._change(self._controller.set_provider_cap, provider, slots)

    def set_rate_share(self, provider: str, share: float) -> None:
        """Set this process's share of a provider's limits per minute; see `AdmissionController.set_rate_share`."""
        self._change(self._controller.set_rate_share, provider, share)

    def shutdown(self, reason: str) -> None:
        """Deny all waiting and future requests; releases still count."""
        self._change(self._controller.shutdown, reason)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` whenever the pressure on a key changes; return a function that removes it.

        Must be called inside the event loop whose timer reports changes by time alone.
        """
        with self._lock:
            self._listeners.append(listener)
            self._controller.watch(self._now())
        loop = asyncio.get_running_loop()
        if loop not in self._alarms:
            self._add_alarm(loop)
        self._carry_out()
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # Views.

    def is_rated(self, name: ProviderModel) -> bool:
        """Return whether a limit per minute applies to a model at its provider."""
        account = self._accounts.by_name.get(name)
        return account is not None and account.rates is not None

    def pressure(self, key: RequestKey) -> Pressure | None:
        """Return what a request of `key` would have to wait for now; None if nothing."""
        with self._lock:
            return self._accounts.pressure(key, self._now())

    def pressing(self, provider: str) -> int:
        """Return how many waiters more slots of a provider would admit at once."""
        with self._lock:
            return self._accounts.pressing(provider, self._now())

    def in_flight(self, provider: str) -> int:
        """Return how many requests are in flight at a provider."""
        with self._lock:
            return self._accounts.in_flight(provider)

    def waiting(self) -> int:
        """Return how many requests wait for admission."""
        with self._lock:
            return self._accounts.waiting()

    def statuses(self) -> list[RequestStatus]:
        """Return the status of every known request key."""
        with self._lock:
            return self._accounts.statuses(self._now())

    def validate(self) -> None:
        """Assert the invariants of the controller."""
        with self._lock:
            self._controller.validate(self._now())

    # Inside.

    def _change(self, what: Callable[[Unpack[Ts], float], object], *of: *Ts) -> None:
        """Apply a change to the controller now, and carry out its effects."""
        with self._lock:
            what(*of, self._now())
        self._carry_out()

    def _carry_out(self) -> None:
        """Carry out the effects so far: wake answered waiters, emit events, notify listeners, set the timers."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        controller = self._controller
        while controller.effects.pending:
            with self._lock:
                effects = controller.effects.drain()
            done = 0
            try:
                for effect in effects:
                    if isinstance(effect, Ticket):
                        self._wake(effect, running)
                    elif isinstance(effect, PressureChanged):
                        self._tell(effect)
                    else:
                        self._emit(effect)
                    done += 1
            finally:
                if done < len(effects):
                    # Interrupted: answered waiters must still be woken, by the next call at the latest.
                    with self._lock:
                        controller.effects.pending[:0] = effects[done:]
        at = controller.changes_at
        if at < math.inf:
            for alarm in list(self._alarms.values()):
                alarm.set(at, running=running)

    def _carry_out_before(self, answer: RequestLease | Denied) -> None:
        """Carry out effects before an answer is returned; if interrupted, release its lease, which nobody will see."""
        try:
            self._carry_out()
        except BaseException:
            if isinstance(answer, RequestLease):
                self.release(answer, _CANCELLED)
            raise

    def _wake(self, ticket: Ticket, running: asyncio.AbstractEventLoop | None) -> None:
        waker = ticket.waker
        assert waker is not None
        if waker.get_loop() is running:
            _complete(waker)
        else:
            try:
                waker.get_loop().call_soon_threadsafe(_complete, waker)
            except RuntimeError:
                # Its loop is closed: nothing will ever read the answer.
                self._change(self._controller.cancel, ticket)

    def _tell(self, change: PressureChanged) -> None:
        for listener in list(self._listeners):
            try:
                listener(change.key, change.pressure)
            except Exception:  # noqa: BLE001 - the boundary around listeners: reported, the others go on
                _log.exception("a listener failed on a change of pressure on %s; the others go on", change.key)

    def _add_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Add a timer on `loop`; drop those of closed loops."""
        self._alarms = {known: alarm for known, alarm in self._alarms.items() if alarm.is_usable}
        self._alarms[loop] = LoopAlarm(loop, self._clock, self._ring)

    def _ring(self, now: float) -> float:
        """Pass the time to the controller; return when it needs it next."""
        with self._lock:
            self._controller.tick(now)
        self._carry_out()
        return self._controller.changes_at


def refuse_inside_a_loop(called: str, instead: str) -> None:
    """Return if the thread may block.

    Raises:
        BlocksEventLoopError: if it runs an event loop, which would be blocked.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlocksEventLoopError(
        f"{called} would block the running event loop", next_step=f"Await `{instead}` instead, or call it in a thread."
    )


def denied_error(item: RequestItem, denied: Denied) -> AdmissionDeniedError:
    """Return the error that says why a request was not admitted."""
    detail = f" ({denied.detail})" if denied.detail else ""
    message = f"a request of {item.group or 'no group'} to {item.key} was not admitted: {denied.reason.value}{detail}"
    return AdmissionDeniedError(message, reason=denied.reason.value, retry_at=denied.retry_at)


def _complete(waker: asyncio.Future[None]) -> None:
    if not waker.done():
        waker.set_result(None)
