"""A job that a worker holds: what it is, what it needs, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from headgate.core import Clock, redacted
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.core.flaws import flaws_raised
from headgate.jobqueue import wire
from headgate.jobqueue.errors import LeaseLost, MachineUnfitError, NoServerError, StaleLeaseError
from headgate.jobqueue.reserved_server import ReservedServer
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.leases import JobLease
from headgate.jobqueue.worker.requests import RetryPolicy
from headgate.jobqueue.worker.results import Artifact, artifact_of

if TYPE_CHECKING:
    from headgate.jobqueue.worker.heartbeat import Heartbeat

_log = logging.getLogger("headgate.jobqueue.worker")

_MESSAGE_CHARS: Final = 4_000
_LOGGED_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Failed:
    """The work is at fault: the attempt is charged."""

    error: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The worker stops: the job goes back without charging the attempt."""

    reason: str


Ending: TypeAlias = Failed | Stopped


def ending_of(error: BaseException | None) -> Ending | None:
    """Return what to tell the server after the work raised `error`, or returned (None); None: it knows already."""
    match error:
        case None:
            return Failed("the work came to its end without complete(), fail() or give_back()")
        case StaleLeaseError() | LeaseLost():
            return None
        case asyncio.CancelledError() | KeyboardInterrupt() | SystemExit() | GeneratorExit():
            return Stopped("the worker was stopped")
        case NoServerError() | MachineUnfitError():
            return Stopped(error.message)
        case _:
            return Failed(error_text(error))


def error_text(error: BaseException) -> str:
    """Return the type and message of an error, without secrets; a group is represented by its first error."""
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    message = plain(redacted(str(first), limit_chars=_MESSAGE_CHARS))
    name = type(first).__qualname__
    return f"{name}: {message}" if message else name


def plain(text: str) -> str:
    """Return a text that every database and encoding accepts: without NUL and unpaired surrogates."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def may_pass(error: BaseException | None) -> bool:
    """Return whether an error ends only its job, so that the worker continues with the next one."""
    return isinstance(error, Exception | LeaseLost) and not isinstance(error, MachineUnfitError)


UNSERVED_S: Final = 600.0
"""How long a job whose servers are all gone keeps its worker: they may be restarted, and loading takes minutes."""

POLL_S: Final = 50.0
"""Wait of one long poll: shorter than the minute after which proxies close a silent connection."""

FOR_EVER: Final = RetryPolicy(patience_s=float("inf"))
_COMPLETION: Final = RetryPolicy(patience_s=3600.0)
"""A result is worth long retries: the server decides whether it counts, however long it was away."""

_ERROR_CHARS: Final = 16_000
_ENDING: Final = RetryPolicy(patience_s=60.0)
_RELEASING: Final = RetryPolicy(patience_s=5.0)
"""A stopping worker has only seconds; a release that is not delivered happens when the lease ends."""


def long_polls(longest_s: float | None, clock: Clock) -> Iterator[float]:
    """Yield the wait of each long poll, in seconds, until they add up to `longest_s`; None: forever."""
    until = float("inf") if longest_s is None else clock.monotonic() + longest_s
    while True:
        yield min(POLL_S, max(0.0, until - clock.monotonic()))
        if clock.monotonic() >= until:
            return


class ClaimedWork:
    """A job that a worker has claimed: what it is, and whether the work on it may go on.

    Attributes:
        id: the job's id.
        payload: the payload submitted with it.
        worker: the worker's name in the claim.
        attempt: number of this attempt, from 1, since the job was submitted or requeued.
    """

    def __init__(self, spec: wire.JobOut, lease: JobLease) -> None:
        self.spec = spec
        self.lease = lease
        self.id, self.worker, self.attempt = spec.id, spec.worker, spec.failures + 1
        self.payload: Mapping[str, Any] = spec.payload

    @property
    def epoch(self) -> int:
        """Number of this claim; the server refuses every write with another epoch."""
        return self.lease.ref.epoch

    @property
    def is_lost(self) -> bool:
        """True when the work must stop: the lease is over, the policy server is gone, or the work has stalled."""
        return bool(self.lease.loss)

    @property
    def loss(self) -> str:
        """Why the work must stop, in a sentence."""
        return self.lease.loss

    @property
    def is_finished(self) -> bool:
        """True when the server has been told how the job ended."""
        return self.lease.is_over


class HeldJob(ClaimedWork):
    """A claimed job, as an async context manager around the work on it. Owned by the worker that claimed it.

    Inside the context the lease is renewed automatically. When it is lost, the task is cancelled at once, and the
    context swallows that cancellation: the worker continues with its next job. An error that the work raises is
    reported as the attempt's failure; a worker that is stopped (cancelled) gives the job back.

    Invariant: the work is interrupted at most once.

    Attributes:
        lost: set when the work must stop, for work that waits for it instead of being cancelled.
        interrupt: stops the work; None while there is no work to stop.
        server: the policy server that the job has now, or None.
        last_server: the policy server that it had last, or None.
    """

    def __init__(
        self, spec: wire.JobOut, lease: JobLease, heartbeat: Heartbeat, client: JobQueueClient, clock: Clock
    ) -> None:
        super().__init__(spec, lease)
        self.lost = asyncio.Event()
        self.server: ReservedServer | None = None
        self.last_server: ReservedServer | None = None
        self.interrupt: Callable[[], object] | None = None
        self._was_interrupted = False
        self._heartbeat = heartbeat
        self._client = client
        self._clock = clock
        self._end_otherwise: Ending | None = None
        self._end_task: asyncio.Task[None] | None = None
        self._cancels_before = 0

    @property
    def lease_left_s(self) -> float:
        """Seconds for which the lease is certain to be valid; 0 when it is lost or over."""
        is_certain = not (self.is_lost or self.is_finished)
        return max(0.0, self.lease.fenced_at - self._clock.monotonic()) if is_certain else 0.0

    @property
    def reservation_key(self) -> tuple[str, int] | None:
        """The lease and epoch of the policy server that it uses."""
        return None if self.server is None else self.server.key

    # What the work does.

    @asynccontextmanager
    async def reserve(self, timeout_s: float | None = None) -> AsyncIterator[ReservedServer]:
        """Hold a policy server that serves the job's task for the duration of the context.

        Load slow things first: no other job can use the server meanwhile. The wait costs the job nothing.

        Raises:
            NoServerError: none became free within `timeout_s`, or none that serves the task was open for `UNSERVED_S`.
                A job that ends with this error is given back.
            WrongStateError: the job has no pool, so it needs no server.
            StaleLeaseError: the lease on the job is over.
        """
        server = await self.reserve_server(timeout_s)
        try:
            yield server
        finally:
            await self.release_server()

    async def reserve_server(self, timeout_s: float | None = None) -> ReservedServer:
        """Reserve as `reserve` does, but until `release_server` or the job's end."""
        served_at = self._clock.monotonic()
        for wait_s in long_polls(timeout_s, self._clock):
            request = wire.ReserveIn(**dict(self.lease.ref), wait_s=wait_s)
            try:
                answer = await self._client.reserve(request, FOR_EVER)
            except StaleLeaseError as error:
                self._note_loss(error.message)
                raise
            if answer.reservation is not None:
                self.server = self.last_server = ReservedServer.of(answer.reservation)
                _log.info("Job %s has policy server %s", self.id, self.server.resource_id)
                return self.server
            if answer.serving:
                served_at = self._clock.monotonic()
            elif self._clock.monotonic() - served_at >= UNSERVED_S:
                raise NoServerError(
                    f"no open policy server has served the task of job {self.id!r} for {UNSERVED_S:g} s"
                )
        raise NoServerError(
            f"job {self.id!r} got no policy server within {timeout_s:g} s "
            f"(servers that serve it: {answer.serving}, jobs ahead: {answer.ahead})"
        )

    async def release_server(self) -> None:
        """Give the policy server back before the job ends; allowed without one."""
        server, self.server = self.server, None
        if server is None or self.is_finished or self.is_lost:
            return
        request = wire.ReleaseIn(resource_id=server.resource_id, lease_id=server.lease_id, epoch=server.epoch)
        try:
            await self._client.release(request, _RELEASING)
        except StaleLeaseError as error:
            _log.info("Policy server %s was free already: %s", server.resource_id, error.message)
        except HeadgateError as error:
            _log.warning("Policy server %s was not released: %s", server.resource_id, error.message)

    def progress(self) -> None:
        """Report progress; a worker with `stall_after_s` stops a job that reports none."""
        self.lease.moved_at = self._clock.monotonic()  # called from any thread

    async def confirm(self) -> None:
        """Return once the server has confirmed that the lease is still valid.

        Raises:
            StaleLeaseError: the lease is over.
        """
        answer = await self._client.renew([self.lease.ref], FOR_EVER)
        if answer.renewals[0].status != "renewed":
            self._note_loss(answer.renewals[0].reason)
            raise StaleLeaseError(f"the lease on job {self.id!r} is over: {self.loss}")

    async def complete(
        self,
        result: Mapping[str, Any] | None = None,
        *,
        artifact: Artifact | Path | str | None = None,
        result_ref: str = "",
        checksum: str = "",
    ) -> None:
        """Submit the result; afterwards the job is done, and its policy server is free.

        Args:
            result: a small JSON object, shown in lists and read by collectors.
            artifact: the file with the whole result, which must be readable; its path and SHA-256 are submitted too.
            result_ref: location of the whole result, in place of a file.
            checksum: checksum of what `result_ref` refers to.

        Raises:
            StaleLeaseError: the lease is over; the result is kept in the history and does not count.
            InvalidInputError: the result is not a JSON object within the size limit, or the file cannot be read.
        """
        if artifact is not None:
            found = artifact if isinstance(artifact, Artifact) else await asyncio.to_thread(artifact_of, Path(artifact))
            result_ref, checksum = str(found.path), found.checksum
        body = self._completion(result or {}, result_ref, checksum)
        with self._ending():
            try:
                await self._client.complete(self.id, body, _COMPLETION)
            except StaleLeaseError as error:
                self._note_loss(error.message)
                raise
        self._finish("is done")

    def check_result(self, result: Mapping[str, Any]) -> None:
        """Check that a result may be submitted.

        Raises:
            InvalidInputError: as `complete`.
        """
        self._completion(result, "", "")

    async def fail(self, error: str | BaseException, *, retry: bool = True) -> None:
        """Report that the attempt failed; with `retry=False` the job is dead at once, as a retry would be useless."""
        said = error_text(error) if isinstance(error, BaseException) else redacted(error, limit_chars=_ERROR_CHARS)
        await self._fail(plain(said) or "no reason was given", retry=retry)

    async def give_back(self, reason: str = "") -> None:
        """Give the job back without charging the attempt: another worker gets it at once."""
        body = wire.GiveBackIn(**self.lease.fields, reason=plain(redacted(reason, limit_chars=2_000)))
        await self._tell(self._client.give_back(self.id, body, _RELEASING), "is given back")

    def stop(self, reason: str, ending: Ending | None = None, *, renew_on: bool = False) -> None:
        """Stop the work, unless it has been stopped or is over.

        Args:
            reason: why, in a sentence.
            ending: what to tell the server about it; None: it knows.
            renew_on: keep the lease until the work has stopped.
        """
        if not renew_on:
            self._heartbeat.drop(self.lease)
        if self.is_lost or self.is_finished:
            return
        self._end_otherwise = ending
        self._note_loss(reason, renew_on=renew_on)
        self._interrupt_now()
        if isinstance(ending, Failed):
            # At once: work that makes no progress may not react to being stopped either.
            self._begin_end(None)

    # The context.

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._cancels_before = task.cancelling()
        self.interrupt = task.cancel
        if self.is_lost:
            self._interrupt_now()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        task = asyncio.current_task()
        assert task is not None
        self.interrupt = None
        # As in asyncio.timeout: the cancellation is ours only if nobody else requested one.
        is_ours = self._was_interrupted and task.uncancel() <= self._cancels_before
        is_swallowed = may_pass(error) or (is_ours and isinstance(error, asyncio.CancelledError))
        await self.end(error)
        return is_swallowed

    async def end(self, error: BaseException | None) -> None:
        """Tell the server how the work ended, unless it knows; logs instead of raising wherever possible."""
        await asyncio.shield(self._begin_end(error))

    def _begin_end(self, error: BaseException | None) -> asyncio.Task[None]:
        if self._end_task is None:
            self._end_task = asyncio.create_task(self._end(error), name=f"end of job {self.id}")
        return self._end_task

    async def _end(self, error: BaseException | None) -> None:
        ending = None if self.is_finished else self._end_otherwise
        if ending is None and not (self.is_finished or self.is_lost):
            ending = ending_of(error)
        try:
            match ending:
                case None:
                    if isinstance(error, Exception) and not isinstance(error, StaleLeaseError):
                        _log.warning("Job %s was over when its work raised this:", self.id, exc_info=error)
                case Failed(text):
                    _log.error("Job %s failed: %s", self.id, text, exc_info=error)
                    await self._fail(text)
                case Stopped(reason):
                    await self.give_back(reason)
        except HeadgateError as trouble:
            _log.error("Job %s: the server was not told how it ended: %s", self.id, trouble.message)
        self._heartbeat.drop(self.lease)

    # Inside.

    def _completion(self, result: Mapping[str, Any], result_ref: str, checksum: str) -> wire.CompleteIn:
        large = "Put what is large into a file and hand that in as `artifact`."
        with flaws_raised(wire.CompleteIn, InvalidInputError, f"the result of job {self.id!r}: ", large):
            return wire.CompleteIn(**self.lease.fields, result=dict(result), result_ref=result_ref, checksum=checksum)

    async def _fail(self, text: str, *, retry: bool = True) -> None:
        body = wire.FailIn(**self.lease.fields, error=text, retry=retry)
        told = " ".join(text.split())  # an error starts with what happened and usually ends with why
        told = told if len(told) <= 2 * _LOGGED_CHARS else f"{told[:_LOGGED_CHARS]} … {told[-_LOGGED_CHARS:]}"
        await self._tell(self._client.fail(self.id, body, _ENDING), f"has failed: {told}")

    async def _tell(self, telling: Awaitable[object], how: str) -> None:
        with self._ending():
            try:
                await telling
            except StaleLeaseError as error:
                # Perhaps an earlier request's answer was lost; either way this worker no longer holds the job.
                _log.info("Job %s was over already: %s", self.id, error.message)
        self._finish(how)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """While the end is being reported, only the answer to that counts, not a renewal that crosses it."""
        self.lease.is_ending = True
        try:
            yield
        finally:
            self.lease.is_ending = False
            self._heartbeat.wake()

    def _finish(self, how: str) -> None:
        self.lease.is_over = True
        self.server = None
        self._heartbeat.drop(self.lease)
        _log.info("Job %s (epoch %d) %s", self.id, self.epoch, how)

    def _note_loss(self, reason: str, *, renew_on: bool = False) -> None:
        """Record that the work must stop."""
        if self.is_lost:
            return
        self.lease.loss = reason or "the lease is over"
        self.lost.set()
        if not renew_on:
            self._heartbeat.drop(self.lease)
        _log.warning("Job %s (epoch %d) must stop: %s", self.id, self.epoch, reason)

    def _interrupt_now(self) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            self._was_interrupted = True
            interrupt()
