"""What every request works with: the writer, a reader, the authority, the settings, and requests held open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

from starlette.requests import ClientDisconnect, Request

from headgate.core import Clock, SystemClock
from headgate.core.tasks import first_ended
from headgate.jobqueue.errors import TokenEndedError, TooManyOpenError
from headgate.jobqueue.server.bodies import LargeBodies
from headgate.jobqueue.server.metrics import Metrics
from headgate.jobqueue.server.settings import ServerSettings
from headgate.jobqueue.stores.sql import Reader
from headgate.jobqueue.writer import LedgerWriter
from headgate.net.asgi import disconnected
from headgate.net.authority import EVERYBODY, Authority, Caller, Refused
from headgate.net.hosts import HostNames, check_site
from headgate.net.refusals import token_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LongPolls:
    """All waiting requests of one server. Lives on its event loop.

    Invariant: a future in `_waiting` is not done, or its request is about to remove it.
    """

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many requests are waiting."""
        return len(self._waiting)

    async def stand(self, standing: Coroutine[Any, Any, T], request: Request) -> T | None:
        """Return the outcome of waiting in line, or None when the server stops first.

        Args:
            standing: may be cancelled at any moment.
            request: the waiting request; its body has been read.

        Raises:
            ClientDisconnect: the client is gone; `standing` was cancelled.
        """
        waiting = asyncio.ensure_future(standing)
        self._waiting.add(waiting)
        if self._is_closed:
            waiting.cancel()
        try:
            # Both end before the request does: a cancelled waiter of the writer still has to leave its line.
            async with first_ended(waiting, disconnected(request)):
                if not waiting.done():
                    raise ClientDisconnect
                return None if waiting.cancelled() else waiting.result()
        finally:
            self._waiting.discard(waiting)

    def close(self) -> None:
        """End all waiting, now and later: waiting requests are answered that their turn has not come."""
        self._is_closed = True
        for waiting in list(self._waiting):
            waiting.cancel()


class Service:
    """One server's parts, which every request works with. Closes its reader; the caller closes writer and authority."""

    def __init__(
        self,
        writer: LedgerWriter,
        reader: Reader,
        authority: Authority,
        settings: ServerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.writer = writer
        self._reader = reader
        self.authority = authority
        self.settings = settings or ServerSettings()
        self.clock = clock or SystemClock()
        self.metrics = Metrics(writer)
        self.long_polls = LongPolls()
        self.large_bodies = LargeBodies()
        self.started_at = self.clock.monotonic()
        self._names = HostNames(self.settings.host)
        self._open: Counter[str] = Counter()

    def close(self) -> None:
        """Close its reader and its thread for large bodies; may be called twice."""
        self._reader.close()
        self.large_bodies.close()

    async def listed(self, question: Callable[[Reader, *Ts], T], *of: *Ts) -> T:
        """Return the reader's answer to a question, read in a thread.

        Raises:
            StoreFailedError: the database cannot be read.
        """
        return await asyncio.to_thread(question, self._reader, *of)

    async def let_in(self, request: Request, method: str) -> Caller | Refused:
        """Return who makes a request, or why it is refused; refusals are counted.

        Raises:
            MisdirectedError: without tokens, it names another server as its host.
            CrossSiteError: a web page made a browser send it, or may have.
        """
        verdict = await self.authority.identify(_token(request), self.clock.wall())
        if isinstance(verdict, Refused):
            self.metrics.refused(verdict.reason.value)
            return verdict
        if verdict is EVERYBODY:
            self._names.check(request.headers.get("host"))
        check_site(request.headers.get, method)
        return verdict

    async def check_still_let_in(self, request: Request) -> None:
        """Check that a request that has waited may still have what it waited for.

        Raises:
            TokenEndedError: its token has ended meanwhile.
        """
        if not await self.authority.still_lets_in(_token(request), self.clock.wall()):
            raise TokenEndedError("the token ended while its request waited; the job or server went back to the queue")

    @contextmanager
    def opened(self, caller: Caller) -> Iterator[None]:
        """Count a request as open while the context is.

        Raises:
            TooManyOpenError: its token already has too many.
        """
        name = caller.token_id
        if self._open[name] >= self.settings.most_open_per_token:
            raise TooManyOpenError(f"the token has {self._open[name]} open requests, the most allowed")
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]


def _token(request: Request) -> str | None:
    return token_of(request.headers.get("authorization"))
