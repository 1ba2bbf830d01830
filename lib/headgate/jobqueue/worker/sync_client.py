"""The client of the job queue for programs that know no asyncio."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel

from headgate.jobqueue import wire
from headgate.jobqueue.job import JobSpec
from headgate.jobqueue.port import Happening
from headgate.jobqueue.resource import ResourceSpec
from headgate.jobqueue.worker import calls
from headgate.jobqueue.worker.address import QueueAddress, queue_address
from headgate.jobqueue.worker.calls import Call
from headgate.jobqueue.worker.client import PAGE
from headgate.jobqueue.worker.retrying import Heard, RetryPolicy, conversation
from headgate.jobqueue.worker.transport import client_options, request_options

T = TypeVar("T", bound=BaseModel)


class SyncJobQueueClient:
    """`JobQueueClient` with methods that block; the same rules hold. Threads may share it."""

    def __init__(
        self,
        address: str | QueueAddress | None = None,
        *,
        retry: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address if isinstance(address, QueueAddress) else queue_address(address)
        self._retry = retry or RetryPolicy()
        self._rng = random.Random()
        self._http = httpx.Client(**client_options(self.address), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; legal twice."""
        self._http.close()

    def send(self, call: Call[T], retry: RetryPolicy | None = None, *, longest_s: float | None = None) -> T:
        """Send a request until it is answered or patience ends; see `JobQueueClient.send`."""
        talk = conversation(call, retry or self._retry, self._rng, time.monotonic)
        wait_s = next(talk)
        while True:
            time.sleep(wait_s)
            heard = self._heard(call, longest_s)
            try:
                wait_s = talk.send(heard)
            except StopIteration as end:
                answer: T = end.value
                return answer

    def _heard(self, call: Call[Any], longest_s: float | None) -> Heard:
        try:
            return self._http.request(**request_options(call, longest_s))
        except httpx.TransportError as error:
            return error

    # Jobs.

    def submit(self, specs: Iterable[JobSpec]) -> wire.SubmitOut:
        """Submit jobs, in parts where they are many; each part is taken in whole or not at all."""
        added = existing = 0
        for call in calls.submissions(specs):
            answer = self.send(call)
            added, existing = added + answer.added, existing + answer.existing
        return wire.SubmitOut(added=added, existing=existing)

    def jobs(self, **wish: Any) -> wire.JobsOut:
        """Return a page of jobs: `state`, `team`, `task`, `pool`, `after`, `limit`, `dead` (`calls.jobs`)."""
        return self.send(calls.jobs(**wish))

    def all_jobs(self, **wish: Any) -> Iterator[wire.JobOut]:
        """Yield all jobs of a wish (`jobs`), by order of submission, page by page."""
        after: int | None = None
        while True:
            page = self.jobs(**{"limit": PAGE, **wish, "after": after})
            yield from page.jobs
            after = page.next
            if after is None:
                return

    def job(self, job_id: str) -> wire.JobOut:
        """Return a job."""
        return self.send(calls.job(job_id))

    def job_history(self, job_id: str) -> wire.HistoryOut:
        """Return what happened to a job."""
        return self.send(calls.job_history(job_id))

    def withdraw(self, job_id: str, reason: str = "") -> wire.EndOut:
        """Take a pending or running job out of the queue."""
        return self.send(calls.withdraw(job_id, reason))

    def requeue(self, request: wire.RequeueIn) -> wire.RequeueOut:
        """Give dead jobs all their attempts again."""
        return self.send(calls.requeue(request))

    # Work.

    def claim(self, request: wire.ClaimIn, retry: RetryPolicy | None = None) -> wire.ClaimOut:
        """Claim jobs; with `wait_s`, stand in line for them."""
        return self.send(calls.claim(request), retry)

    def renew(
        self, leases: Sequence[wire.JobLeaseIn], retry: RetryPolicy | None = None, *, longest_s: float | None = None
    ) -> wire.RenewOut:
        """Renew leases, and the reservations of their jobs, in one request."""
        return self.send(calls.renew(leases), retry, longest_s=longest_s)

    def complete(self, job_id: str, body: wire.CompleteIn, retry: RetryPolicy | None = None) -> wire.CompletionOut:
        """Hand a result in; it counts once however often it is sent."""
        return self.send(calls.complete(job_id, body), retry)

    def complete_many(self, completions: Sequence[wire.CompletionIn]) -> wire.CompletionsOut:
        """Hand several results in; each is taken or refused by itself."""
        return self.send(calls.complete_many(completions))

    def fail(self, job_id: str, body: wire.FailIn, retry: RetryPolicy | None = None) -> wire.EndOut:
        """Say that the work failed."""
        return self.send(calls.fail(job_id, body), retry)

    def give_back(self, job_id: str, body: wire.GiveBackIn, retry: RetryPolicy | None = None) -> wire.EndOut:
        """Give a job back, without blame."""
        return self.send(calls.give_back(job_id, body), retry)

    def reserve(self, request: wire.ReserveIn, retry: RetryPolicy | None = None) -> wire.ReserveOut:
        """Reserve a policy server; with `wait_s`, stand in line for one."""
        return self.send(calls.reserve(request), retry)

    def release(self, request: wire.ReleaseIn, retry: RetryPolicy | None = None) -> None:
        """Release a policy server before its job ends."""
        self.send(calls.release(request), retry)

    # Results and history.

    def results(self, after: int = -1, limit: int = PAGE) -> wire.ResultsOut:
        """Return jobs completed after an entry of the history."""
        return self.send(calls.results(after, limit))

    def all_results(self, after: int = -1) -> Iterator[wire.FinishedOut]:
        """Yield all jobs completed after an entry of the history; the last one's `entry` is where to go on later."""
        while True:
            page = self.results(after)
            yield from page.results
            if not page.results or page.next <= after:
                return
            after = page.next

    def history(self, after: int = -1, limit: int = PAGE, what: Happening | None = None) -> wire.HistoryOut:
        """Return what happened in the queue after an entry."""
        return self.send(calls.history(after, limit, what))

    def statistics(self) -> wire.StatisticsOut:
        """Return the queue at a glance."""
        return self.send(calls.statistics())

    # Policy servers.

    def resources(self) -> list[wire.ResourceOut]:
        """Return the policy servers."""
        return self.send(calls.resources()).resources

    def register(self, specs: Sequence[ResourceSpec]) -> list[wire.ResourceOut]:
        """Register policy servers; one that is there already gets the new rules."""
        return [one for call in calls.registrations(specs) for one in self.send(call).resources]

    def drain(self, pool: str, index: int, reason: str = "") -> wire.ResourceOut:
        """Let a policy server end its job and get no other."""
        return self.send(calls.change_resource(pool, index, "drain", reason))

    def open(self, pool: str, index: int, reason: str = "") -> wire.ResourceOut:
        """Hand a policy server out again."""
        return self.send(calls.change_resource(pool, index, "open", reason))

    def remove(self, pool: str, index: int, *, force: bool = False) -> None:
        """Take a policy server out; `force` even while a job uses it."""
        self.send(calls.remove_resource(pool, index, force=force))
