"""A held job for programs that know no asyncio."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from headgate.jobqueue.wire import JobOut
from headgate.jobqueue.worker.endings import may_pass
from headgate.jobqueue.worker.errors import LeaseLost
from headgate.jobqueue.worker.held_job import HeldJob
from headgate.jobqueue.worker.publishing import publish
from headgate.jobqueue.worker.reserved import ReservedServer
from headgate.jobqueue.worker.results import Artifact

T = TypeVar("T")


class Loop(Protocol):
    """The event loop on another thread."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns there, or raise what it raises."""
        ...

    def post(self, act: Callable[[], object]) -> None:
        """Let something be done there, soon."""
        ...


class SyncHeldJob:
    """`HeldJob` with methods that block, as a context manager around the work on it; the same rules hold.

    When the work must stop, `LeaseLost` is raised in the main thread wherever it is; elsewhere at the next `check`,
    `progress` or other call. The context swallows it.

    Args:
        job: the job on the loop.
        loop: where it lives.
        watch: told which job the main thread works on, None when on none.
    """

    def __init__(self, job: HeldJob, loop: Loop, watch: Callable[[HeldJob | None], None]) -> None:
        self._job = job
        self._loop = loop
        self._watch = watch

    @property
    def spec(self) -> JobOut:
        """The job as the server has it."""
        return self._job.spec

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def payload(self) -> Mapping[str, Any]:
        """What was submitted with it."""
        return self._job.payload

    @property
    def epoch(self) -> int:
        """Number of this claim."""
        return self._job.epoch

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._job.attempt

    @property
    def server(self) -> ReservedServer | None:
        """The policy server that it has now."""
        return self._job.server

    @property
    def is_lost(self) -> bool:
        """True when the work must stop."""
        return self._job.is_lost

    @property
    def loss(self) -> str:
        """Why the work must stop, in a sentence."""
        return self._job.loss

    def check(self) -> None:
        """Return when the work may go on.

        Raises:
            LeaseLost: when it must stop.
        """
        if self._job.is_lost and not self._job.is_finished:
            raise LeaseLost(self._job.loss)

    def progress(self) -> None:
        """Say that the work goes on; see `HeldJob.progress`, and `check` for what it raises."""
        self.check()
        self._loop.post(self._job.progress)

    @contextmanager
    def reserve(self, timeout_s: float | None = None) -> Iterator[ReservedServer]:
        """Have a policy server for the time of the context; see `HeldJob.reserve`."""
        server = self._loop.run(self._job.reserve_server(timeout_s))
        try:
            yield server
        finally:
            self._loop.run(self._job.release_server())

    def complete(self, result: Mapping[str, Any] | None = None, **what: Any) -> None:
        """Hand the result in; arguments and errors as of `HeldJob.complete`."""
        self._loop.run(self._job.complete(result, **what))

    def publish(
        self, folder: Path, result: Mapping[str, Any], *, versions: Mapping[str, str] | None = None
    ) -> Artifact:
        """Write the result where it belongs; see `publishing.publish`."""
        return self._loop.run(publish(self._job, folder, result, versions=versions))

    def fail(self, error: str | BaseException, *, retry: bool = True) -> None:
        """Say that the attempt failed; see `HeldJob.fail`."""
        self._loop.run(self._job.fail(error, retry=retry))

    def give_back(self, reason: str = "") -> None:
        """Give the job back without blame; see `HeldJob.give_back`."""
        self._loop.run(self._job.give_back(reason))

    def __enter__(self) -> Self:
        self._watch(self._job)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._watch(None)
        self._loop.run(self._job.end(error))
        return may_pass(error)
