"""The clients of the job queue: one for asyncio, and one for programs without asyncio."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from headgate.core.errors import InvalidInputError
from headgate.core.flaws import flaws_in_words, flaws_raised
from headgate.jobqueue import wire, wire_servers
from headgate.jobqueue.blocking import BlockingClient, blocking, blocking_iterator
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.job import JobSpec, JobState
from headgate.jobqueue.names import part_problem
from headgate.jobqueue.records import Happening
from headgate.jobqueue.resource import ResourceSpec
from headgate.jobqueue.worker.requests import Anything, QueueAddress, Requests, RetryPolicy, queue_address

PAGE: Final = 1_000

MOST_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes per submission: a request stays small enough for any proxy and any retry."""


class JobQueueClient:
    """Client of a job queue; an async context manager, used by one event loop.

    Requests that may be repeated are repeated for as long as `retry` allows. Every method raises the queue's refusals
    as typed errors (`headgate.jobqueue.errors`, `UnauthorizedError`, `ForbiddenError`), and `QueueUnreachableError`
    when no server answers.

    Args:
        address: a URL, which may carry a token, or a `QueueAddress`; by default the environment's.
        retry: for how long and how often requests are retried.
        transport: an httpx transport, in place of the network.
    """

    def __init__(
        self,
        address: str | QueueAddress | None = None,
        *,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = address if isinstance(address, QueueAddress) else queue_address(address)
        self._retry = retry or RetryPolicy()
        self._transport = transport
        self._requests = Requests(self.address, self._retry, transport)

    def __copy__(self) -> JobQueueClient:
        """Return a client with the same options and no connection."""
        return JobQueueClient(self.address, retry=self._retry, transport=self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections; may be called twice."""
        await self._requests.close()

    # Jobs.

    async def submit(self, specs: Iterable[JobSpec]) -> wire.SubmitOut:
        """Submit jobs, in several parts if there are many; each part is accepted as a whole or not at all.

        Raises:
            InvalidJobError: a job breaks a rule.
            JobConflictError: a job exists with other contents.
        """
        added = existing = 0
        for part in _parts(specs):
            body = wire.SubmitIn.model_construct(jobs=part)  # each job was checked when it was made
            answer = await self._requests.send("POST", "/v1/jobs", wire.SubmitOut, body, key=uuid.uuid4().hex)
            added, existing = added + answer.added, existing + answer.existing
        return wire.SubmitOut(added=added, existing=existing)

    async def jobs(
        self,
        *,
        state: JobState | None = None,
        team: str | None = None,
        task: str | None = None,
        pool: str | None = None,
        after: int | None = None,
        limit: int = 100,
        dead: bool = False,
    ) -> wire.JobsOut:
        """Return a page of the jobs that match all filters; `dead` for those that will not be retried."""
        query = {"state": state, "team": team, "task": task, "pool": pool, "after": after, "limit": limit}
        return await self._requests.send("GET", "/v1/dead-jobs" if dead else "/v1/jobs", wire.JobsOut, query=query)

    async def all_jobs(self, /, **wish: Any) -> AsyncIterator[wire.JobOut]:
        """Yield all jobs that match the filters of `jobs`, in order of submission, page by page."""
        after: int | None = None
        while True:
            page = await self.jobs(**{"limit": PAGE, **wish, "after": after})
            for job in page.jobs:
                yield job
            after = page.next
            if after is None:
                return

    async def job(self, job_id: str) -> wire.JobOut:
        """Return a job."""
        return await self._requests.send("GET", _of_job(job_id), wire.JobOut)

    async def job_history(self, job_id: str) -> wire.HistoryOut:
        """Return the history of a job."""
        return await self._requests.send("GET", _of_job(job_id, "/history"), wire.HistoryOut)

    async def withdraw(self, job_id: str, reason: str = "") -> wire.EndOut:
        """Take a pending or running job out of the queue."""
        path, body = _of_job(job_id, "/withdraw"), wire.ReasonIn(reason=reason)
        return await self._requests.send("POST", path, wire.EndOut, body, can_repeat=False)

    async def withdraw_many(self, request: wire.WithdrawIn) -> wire.WithdrawOut:
        """Take many pending or running jobs out of the queue."""
        return await self._requests.send("POST", "/v1/jobs/withdraw", wire.WithdrawOut, request, can_repeat=False)

    async def requeue(self, request: wire.RequeueIn) -> wire.RequeueOut:
        """Give dead jobs all their attempts back."""
        return await self._requests.send("POST", "/v1/dead-jobs/requeue", wire.RequeueOut, request, can_repeat=False)

    # Work.

    async def claim(self, request: wire.ClaimIn, retry: RetryPolicy | None = None) -> wire.ClaimOut:
        """Claim jobs; with `wait_s`, wait in line for them."""
        return await self._requests.send(
            "POST", "/v1/claims", wire.ClaimOut, request, key=uuid.uuid4().hex, wait_s=request.wait_s, retry=retry
        )

    async def renew(
        self, leases: Sequence[wire.JobLeaseIn], retry: RetryPolicy | None = None, *, longest_s: float | None = None
    ) -> wire.RenewOut:
        """Renew leases, and their jobs' reservations, in one request; `longest_s` bounds each attempt to send it."""
        body = wire.RenewIn(leases=list(leases))
        return await self._requests.send(
            "POST", "/v1/leases/renew", wire.RenewOut, body, longest_s=longest_s, retry=retry
        )

    async def complete(
        self, job_id: str, body: wire.CompleteIn, retry: RetryPolicy | None = None
    ) -> wire.CompletionOut:
        """Submit a result; it counts once, however often it is sent.

        Raises:
            StaleLeaseError: the lease no longer holds the job; the result is kept in the history.
        """
        return await self._requests.send("POST", _of_job(job_id, "/complete"), wire.CompletionOut, body, retry=retry)

    async def complete_many(self, completions: Sequence[wire.CompletionIn]) -> wire.CompletionsOut:
        """Submit several results; each is accepted or refused on its own."""
        body = wire.CompletionsIn(completions=list(completions))
        return await self._requests.send("POST", "/v1/completions", wire.CompletionsOut, body)

    async def fail(self, job_id: str, body: wire.FailIn, retry: RetryPolicy | None = None) -> wire.EndOut:
        """Report that the work failed."""
        return await self._requests.send("POST", _of_job(job_id, "/fail"), wire.EndOut, body, retry=retry)

    async def give_back(self, job_id: str, body: wire.GiveBackIn, retry: RetryPolicy | None = None) -> wire.EndOut:
        """Give a job back without charging the attempt."""
        return await self._requests.send("POST", _of_job(job_id, "/give-back"), wire.EndOut, body, retry=retry)

    async def reserve(self, request: wire.ReserveIn, retry: RetryPolicy | None = None) -> wire.ReserveOut:
        """Reserve a policy server; with `wait_s`, wait in line. A job that already has one gets the same one again."""
        return await self._requests.send(
            "POST", "/v1/reservations", wire.ReserveOut, request, wait_s=request.wait_s, retry=retry
        )

    async def release(self, request: wire.ReleaseIn, retry: RetryPolicy | None = None) -> None:
        """Release a policy server before its job ends."""
        await self._requests.send("POST", "/v1/reservations/release", Anything, request, retry=retry)

    # Results and history.

    async def results(self, after: int = -1, limit: int = PAGE) -> wire.ResultsOut:
        """Return jobs completed after an entry of the history."""
        return await self._requests.send("GET", "/v1/results", wire.ResultsOut, query={"after": after, "limit": limit})

    async def all_results(self, after: int = -1) -> AsyncIterator[wire.FinishedOut]:
        """Yield all jobs completed after an entry of the history; resume later from the last one's `entry`."""
        while True:
            page = await self.results(after)
            for finished in page.results:
                yield finished
            if not page.results or page.next <= after:
                return
            after = page.next

    async def history(self, after: int = -1, limit: int = PAGE, what: Happening | None = None) -> wire.HistoryOut:
        """Return the queue's history after an entry."""
        query = {"after": after, "limit": limit, "what": what}
        return await self._requests.send("GET", "/v1/history", wire.HistoryOut, query=query)

    async def statistics(self) -> wire_servers.StatisticsOut:
        """Return the queue's statistics."""
        return await self._requests.send("GET", "/v1/statistics", wire_servers.StatisticsOut)

    # Policy servers.

    async def resources(self) -> list[wire_servers.ResourceOut]:
        """Return the policy servers."""
        return (await self._requests.send("GET", "/v1/resources", wire_servers.ResourcesOut)).resources

    async def register(self, specs: Sequence[ResourceSpec]) -> list[wire_servers.ResourceOut]:
        """Register policy servers, in several parts if there are many; one already registered gets the new rules.

        Raises:
            InvalidJobError: a server breaks a rule.
        """
        with flaws_raised(wire_servers.ResourceIn, InvalidJobError, "a policy server: "):
            servers = [wire_servers.ResourceIn.of(spec) for spec in specs]
        registered: list[wire_servers.ResourceOut] = []
        for start in range(0, len(servers), wire.MOST_AT_ONCE):
            body = wire_servers.ResourcesIn(resources=servers[start : start + wire.MOST_AT_ONCE])
            answer = await self._requests.send("POST", "/v1/resources", wire_servers.ResourcesOut, body)
            registered += answer.resources
        return registered

    async def drain(self, pool: str, index: int, reason: str = "") -> wire_servers.ResourceOut:
        """Let a policy server finish its job and assign it no other."""
        path, body = _of_resource(pool, index, "/drain"), wire.ReasonIn(reason=reason)
        return await self._requests.send("POST", path, wire_servers.ResourceOut, body)

    async def open(self, pool: str, index: int, reason: str = "") -> wire_servers.ResourceOut:
        """Make a policy server available again."""
        path, body = _of_resource(pool, index, "/open"), wire.ReasonIn(reason=reason)
        return await self._requests.send("POST", path, wire_servers.ResourceOut, body)

    async def remove(self, pool: str, index: int, *, force: bool = False) -> None:
        """Remove a policy server; with `force`, even while a job uses it."""
        query = {"force": "true"} if force else None
        await self._requests.send("DELETE", _of_resource(pool, index), Anything, query=query, can_repeat=False)


def _parts(specs: Iterable[JobSpec]) -> Iterator[list[wire.JobIn]]:
    """Yield jobs in as many submissions as they need."""
    part: list[wire.JobIn] = []
    size = 0
    for spec in specs:
        if part and (len(part) == wire.MOST_AT_ONCE or size + len(spec.payload) > MOST_BYTES):
            yield part
            part, size = [], 0
        try:
            part.append(wire.JobIn.of(spec))
        except ValidationError as error:
            raise InvalidJobError(f"job {spec.job_id!r:.100}: {flaws_in_words(error, wire.JobIn)}") from None
        size += len(spec.payload)
    if part:
        yield part


def _of_job(job_id: str, rest: str = "") -> str:
    # Paths such as `..` would be normalised to another path on the way.
    if (problem := part_problem(job_id)) is not None:
        raise InvalidInputError(f"a job's id {problem}", next_step="`headgate jobqueue jobs` lists the jobs.")
    return f"/v1/jobs/{quote(job_id, safe='')}{rest}"


def _of_resource(pool: str, index: int, rest: str = "") -> str:
    return f"/v1/resources/{quote(pool, safe='')}/{index}{rest}"


class SyncJobQueueClient(BlockingClient[JobQueueClient]):
    """`JobQueueClient` with blocking methods and the same rules. Threads may share it."""

    def __init__(
        self,
        address: str | QueueAddress | None = None,
        *,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(JobQueueClient(address, retry=retry, transport=transport), "headgate-jobqueue")
        self.address = self._asynchronous.address

    # Jobs.

    submit = blocking(JobQueueClient.submit)
    jobs = blocking(JobQueueClient.jobs)
    job = blocking(JobQueueClient.job)
    job_history = blocking(JobQueueClient.job_history)
    withdraw = blocking(JobQueueClient.withdraw)
    withdraw_many = blocking(JobQueueClient.withdraw_many)
    requeue = blocking(JobQueueClient.requeue)
    all_jobs = blocking_iterator(JobQueueClient.all_jobs)

    # Work.

    claim = blocking(JobQueueClient.claim)
    renew = blocking(JobQueueClient.renew)
    complete = blocking(JobQueueClient.complete)
    complete_many = blocking(JobQueueClient.complete_many)
    fail = blocking(JobQueueClient.fail)
    give_back = blocking(JobQueueClient.give_back)
    reserve = blocking(JobQueueClient.reserve)
    release = blocking(JobQueueClient.release)

    # Results and history.

    results = blocking(JobQueueClient.results)
    history = blocking(JobQueueClient.history)
    statistics = blocking(JobQueueClient.statistics)
    all_results = blocking_iterator(JobQueueClient.all_results)

    # Policy servers.

    resources = blocking(JobQueueClient.resources)
    register = blocking(JobQueueClient.register)
    drain = blocking(JobQueueClient.drain)
    open = blocking(JobQueueClient.open)
    remove = blocking(JobQueueClient.remove)
