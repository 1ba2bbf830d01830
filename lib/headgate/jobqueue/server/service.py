"""What every request works with: the writer, a reader, the authority, the settings, and requests held open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from starlette.types import Receive

from headgate.core import Clock
from headgate.jobqueue.errors import HungUp, StoreFailedError, TokenEndedError, TooManyOpenError
from headgate.jobqueue.port import Reader
from headgate.jobqueue.server.bodies import LargeBodies
from headgate.jobqueue.server.metrics import Metrics
from headgate.jobqueue.server.settings import ServerSettings
from headgate.jobqueue.writer import LedgerWriter
from headgate.net.authority import Authority, Caller
from headgate.net.hosts import HostNames

T = TypeVar("T")


class LongPolls:
    """All requests of one server that stand in line. Lives on its event loop.

    Invariant: what is in `_waiting` is not done, or its request is about to take it out.
    """

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many requests stand in line."""
        return len(self._waiting)

    async def stand(self, standing: Coroutine[Any, Any, T], receive: Receive) -> T | None:
        """Return what comes of standing in line, or None when the server stops before.

        Args:
            standing: may be cancelled at any moment.
            receive: of the request, whose body has been read.

        Raises:
            HungUp: the client is gone; `standing` was cancelled.
        """
        waiting = asyncio.ensure_future(standing)
        gone = asyncio.ensure_future(_gone(receive))
        self._waiting.add(waiting)
        if self._is_closed:
            waiting.cancel()
        try:
            await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise HungUp
            return None if waiting.cancelled() else waiting.result()
        finally:
            self._waiting.discard(waiting)
            waiting.cancel()
            gone.cancel()
            # Both are ended before the request is: whoever cancels a writer's waiter must let it leave its line.
            await asyncio.gather(waiting, gone, return_exceptions=True)

    def close(self) -> None:
        """Let nobody stand in line any more: those who do are answered that their turn has not come."""
        self._is_closed = True
        for waiting in list(self._waiting):
            waiting.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Listings:
    """Asks a store's reader, in threads. Any coroutine of the server may use it; it lives as long as the server.

    Args:
        open_reader: opens a reader; called again after one has failed.
    """

    def __init__(self, open_reader: Callable[[], Reader]) -> None:
        self._open_reader = open_reader
        self._reader: Reader | None = None
        self._lock = Lock()  # protects `_reader`; readers themselves take any thread

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Return what a reader answers.

        Raises:
            StoreFailedError: the database cannot be read.
        """
        return await asyncio.to_thread(self._ask, question)

    def close(self) -> None:
        """Give the connection up; legal twice."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _ask(self, question: Callable[[Reader], T]) -> T:
        with self._lock:
            if self._reader is None:
                self._reader = self._open_reader()
            reader = self._reader
        try:
            return question(reader)
        except StoreFailedError:
            with self._lock:
                if self._reader is reader:
                    reader.close()
                    self._reader = None
            raise


@dataclass(slots=True)
class Service:
    """One server's parts. Owned by `serving`, which closes what it has opened.

    Attributes:
        writer: works on the ledger; open.
        listings: for people and collectors.
        authority: tells callers by their tokens.
        settings: what the server goes by.
        clock: for expiry of tokens and records.
        metrics: what has been served.
        long_polls: requests that stand in line.
        large_bodies: requests that send much.
        names: that it answers to without a token.
        started_at: monotonic time.
        description: makes the OpenAPI document.
    """

    writer: LedgerWriter
    listings: Listings
    authority: Authority
    settings: ServerSettings
    clock: Clock
    metrics: Metrics
    long_polls: LongPolls
    started_at: float
    description: Callable[[], dict[str, Any]] = dict
    large_bodies: LargeBodies = field(default_factory=LargeBodies)
    names: HostNames = field(default_factory=HostNames)
    _open: Counter[str] = field(default_factory=Counter)

    async def check_still_let_in(self, token: str | None) -> None:
        """Return when whoever stood in line may still have what he waited for.

        Raises:
            TokenEndedError: his token has ended meanwhile.
        """
        if not await self.authority.still_lets_in(token, self.clock.wall()):
            raise TokenEndedError("the token ended while its request waited; the job or server went back to the queue")

    @contextmanager
    def opened(self, caller: Caller) -> Iterator[None]:
        """Count a request as open while the context is.

        Raises:
            TooManyOpenError: its token has too many already.
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
