"""The clients of the job queue: for asyncio, and for programs that know none."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar

import httpx
from pydantic import BaseModel

from headgate.jobqueue import wire
from headgate.jobqueue.blocking import BlockingClient, blocking
from headgate.jobqueue.job import JobSpec
from headgate.jobqueue.port import Happening
from headgate.jobqueue.resource import ResourceSpec
from headgate.jobqueue.worker import calls
from headgate.jobqueue.worker.address import QueueAddress, queue_address
from headgate.jobqueue.worker.calls import Call
from headgate.jobqueue.worker.retrying import Heard, RetryPolicy, conversation

T = TypeVar("T", bound=BaseModel)

PAGE: Final = 1_000


CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""For an answer that the server gives at once; a commit behind a full group takes a fraction of it."""

BEYOND_WAIT_S: Final = 10.0
"""For the answer to a long poll, beyond the time that the server was asked to wait."""


class ClientOptions(TypedDict):
    """What both clients of httpx are made with."""

    base_url: str
    headers: dict[str, str]
    limits: httpx.Limits
    trust_env: bool
    verify: ssl.SSLContext


def client_options(address: QueueAddress) -> ClientOptions:
    """Return how to make a client.

    Long polls each hold a connection, so that their number is not bounded; the proxies of the environment are for the
    world outside, and would cut long polls off.
    """
    return ClientOptions(
        base_url=address.url,
        headers={**address.headers, "User-Agent": "headgate-jobqueue"},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=False,
        verify=httpx.create_ssl_context(),  # with SSL_CERT_FILE, which `trust_env` would leave out
    )


def request_options(call: Call[Any], longest_s: float | None = None) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.request`; `longest_s` bounds the wait for an answer."""
    headers = {"Idempotency-Key": call.key} if call.key else {}
    content = None if call.body is None else _content(call.body)
    if content is not None:
        headers["Content-Type"] = "application/json"
    answer_s = call.wait_s + BEYOND_WAIT_S if call.wait_s else ANSWER_S
    connect_s = CONNECT_S
    if longest_s is not None:
        answer_s, connect_s = min(answer_s, longest_s), min(connect_s, longest_s)
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query) or None,
        "content": content,
        "headers": headers,
        "timeout": httpx.Timeout(ANSWER_S, connect=connect_s, read=answer_s, pool=CONNECT_S),
    }


def _content(body: BaseModel) -> bytes:
    # What was not given stays out: a server's own keys are passed on to workers as they came.
    return body.model_dump_json(exclude_unset=True).encode()


class JobQueueClient:
    """Asks a job queue; an async context manager, used by one event loop.

    Requests that can be repeated are repeated for as long as `retry` says. Every method raises what the queue refuses
    as an error of its own type (`headgate.jobqueue.errors`, `UnauthorizedError`, `ForbiddenError`), and
    `QueueUnreachableError` when nobody answers.

    Args:
        address: a URL, which may carry a token, or an address; the environment's without it.
        retry: for how long, and how often.
        transport: of httpx, in place of the network.
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
        self._rng = random.Random()
        self._http = httpx.AsyncClient(**client_options(self.address), transport=transport)

    def __copy__(self) -> JobQueueClient:
        """Return a client with the same options and no connection."""
        return JobQueueClient(self.address, retry=self._retry, transport=self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections; legal twice."""
        await self._http.aclose()

    async def send(self, call: Call[T], retry: RetryPolicy | None = None, *, longest_s: float | None = None) -> T:
        """Send a request until it is answered or patience ends.

        Args:
            call: the request.
            retry: in place of the client's.
            longest_s: seconds for one attempt at most.
        """
        talk = conversation(call, retry or self._retry, self._rng, time.monotonic)
        wait_s = next(talk)
        while True:
            await asyncio.sleep(wait_s)
            heard = await self._heard(call, longest_s)
            try:
                wait_s = talk.send(heard)
            except StopIteration as end:
                answer: T = end.value
                return answer

    async def _heard(self, call: Call[Any], longest_s: float | None) -> Heard:
        try:
            return await self._http.request(**request_options(call, longest_s))
        except httpx.TransportError as error:
            return error

    # Jobs.

    async def submit(self, specs: Iterable[JobSpec]) -> wire.SubmitOut:
        """Submit jobs, in parts where they are many; each part is taken in whole or not at all.

        Raises:
            InvalidJobError: a job breaks a rule.
            JobConflictError: one exists with other contents.
        """
        added = existing = 0
        for call in calls.submissions(specs):
            answer = await self.send(call)
            added, existing = added + answer.added, existing + answer.existing
        return wire.SubmitOut(added=added, existing=existing)

    async def jobs(self, /, **wish: Any) -> wire.JobsOut:
        """Return a page of jobs: `state`, `team`, `task`, `pool`, `after`, `limit`, `dead` (`calls.jobs`)."""
        return await self.send(calls.jobs(**wish))

    async def all_jobs(self, **wish: Any) -> AsyncIterator[wire.JobOut]:
        """Yield all jobs of a wish (`jobs`), by order of submission, page by page."""
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
        return await self.send(calls.job(job_id))

    async def job_history(self, job_id: str) -> wire.HistoryOut:
        """Return what happened to a job."""
        return await self.send(calls.job_history(job_id))

    async def withdraw(self, job_id: str, reason: str = "") -> wire.EndOut:
        """Take a pending or running job out of the queue."""
        return await self.send(calls.withdraw(job_id, reason))

    async def requeue(self, request: wire.RequeueIn) -> wire.RequeueOut:
        """Give dead jobs all their attempts again."""
        return await self.send(calls.requeue(request))

    # Work.

    async def claim(self, request: wire.ClaimIn, retry: RetryPolicy | None = None) -> wire.ClaimOut:
        """Claim jobs; with `wait_s`, stand in line for them."""
        return await self.send(calls.claim(request), retry)

    async def renew(
        self, leases: Sequence[wire.JobLeaseIn], retry: RetryPolicy | None = None, *, longest_s: float | None = None
    ) -> wire.RenewOut:
        """Renew leases, and the reservations of their jobs, in one request."""
        return await self.send(calls.renew(leases), retry, longest_s=longest_s)

    async def complete(
        self, job_id: str, body: wire.CompleteIn, retry: RetryPolicy | None = None
    ) -> wire.CompletionOut:
        """Hand a result in; it counts once however often it is sent.

        Raises:
            StaleLeaseError: the job is not this lease's any more; the result is kept in the history.
        """
        return await self.send(calls.complete(job_id, body), retry)

    async def complete_many(self, completions: Sequence[wire.CompletionIn]) -> wire.CompletionsOut:
        """Hand several results in; each is taken or refused by itself."""
        return await self.send(calls.complete_many(completions))

    async def fail(self, job_id: str, body: wire.FailIn, retry: RetryPolicy | None = None) -> wire.EndOut:
        """Say that the work failed."""
        return await self.send(calls.fail(job_id, body), retry)

    async def give_back(self, job_id: str, body: wire.GiveBackIn, retry: RetryPolicy | None = None) -> wire.EndOut:
        """Give a job back, without blame."""
        return await self.send(calls.give_back(job_id, body), retry)

    async def reserve(self, request: wire.ReserveIn, retry: RetryPolicy | None = None) -> wire.ReserveOut:
        """Reserve a policy server; with `wait_s`, stand in line for one."""
        return await self.send(calls.reserve(request), retry)

    async def release(self, request: wire.ReleaseIn, retry: RetryPolicy | None = None) -> None:
        """Release a policy server before its job ends."""
        await self.send(calls.release(request), retry)

    # Results and history.

    async def results(self, after: int = -1, limit: int = PAGE) -> wire.ResultsOut:
        """Return jobs completed after an entry of the history."""
        return await self.send(calls.results(after, limit))

    async def all_results(self, after: int = -1) -> AsyncIterator[wire.FinishedOut]:
        """Yield all jobs completed after an entry of the history; the last one's `entry` is where to go on later."""
        while True:
            page = await self.results(after)
            for finished in page.results:
                yield finished
            if not page.results or page.next <= after:
                return
            after = page.next

    async def history(self, after: int = -1, limit: int = PAGE, what: Happening | None = None) -> wire.HistoryOut:
        """Return what happened in the queue after an entry."""
        return await self.send(calls.history(after, limit, what))

    async def statistics(self) -> wire.StatisticsOut:
        """Return the queue at a glance."""
        return await self.send(calls.statistics())

    # Policy servers.

    async def resources(self) -> list[wire.ResourceOut]:
        """Return the policy servers."""
        return (await self.send(calls.resources())).resources

    async def register(self, specs: Sequence[ResourceSpec]) -> list[wire.ResourceOut]:
        """Register policy servers; one that is there already gets the new rules."""
        return [one for call in calls.registrations(specs) for one in (await self.send(call)).resources]

    async def drain(self, pool: str, index: int, reason: str = "") -> wire.ResourceOut:
        """Let a policy server end its job and get no other."""
        return await self.send(calls.change_resource(pool, index, "drain", reason))

    async def open(self, pool: str, index: int, reason: str = "") -> wire.ResourceOut:
        """Hand a policy server out again."""
        return await self.send(calls.change_resource(pool, index, "open", reason))

    async def remove(self, pool: str, index: int, *, force: bool = False) -> None:
        """Take a policy server out; `force` even while a job uses it."""
        await self.send(calls.remove_resource(pool, index, force=force))


class SyncJobQueueClient(BlockingClient[JobQueueClient]):
    """`JobQueueClient` with methods that block; the same rules hold. Threads may share it."""

    def __init__(
        self,
        address: str | QueueAddress | None = None,
        *,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(JobQueueClient(address, retry=retry, transport=transport), "headgate-jobqueue")
        self.address = self._asynchronous.address

    send = blocking(JobQueueClient.send)

    # Jobs.

    submit = blocking(JobQueueClient.submit)
    jobs = blocking(JobQueueClient.jobs)
    job = blocking(JobQueueClient.job)
    job_history = blocking(JobQueueClient.job_history)
    withdraw = blocking(JobQueueClient.withdraw)
    requeue = blocking(JobQueueClient.requeue)

    def all_jobs(self, **wish: Any) -> Iterator[wire.JobOut]:
        """Yield all jobs of a wish (`jobs`), by order of submission, page by page."""
        after: int | None = None
        while True:
            page = self.jobs(**{"limit": PAGE, **wish, "after": after})
            yield from page.jobs
            after = page.next
            if after is None:
                return

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

    def all_results(self, after: int = -1) -> Iterator[wire.FinishedOut]:
        """Yield all jobs completed after an entry of the history; the last one's `entry` is where to go on later."""
        while True:
            page = self.results(after)
            yield from page.results
            if not page.results or page.next <= after:
                return
            after = page.next

    # Policy servers.

    resources = blocking(JobQueueClient.resources)
    register = blocking(JobQueueClient.register)
    drain = blocking(JobQueueClient.drain)
    open = blocking(JobQueueClient.open)
    remove = blocking(JobQueueClient.remove)
