"""What every request works with: the desk, a reader, the authority and the settings of one server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from headgate.core import Clock
from headgate.jobqueue.desk import Desk
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.port import Reader
from headgate.jobqueue.server.bodies import LargeBodies
from headgate.jobqueue.server.errors import TokenEndedError, TooManyOpenError
from headgate.jobqueue.server.metrics import Metrics
from headgate.jobqueue.server.settings import ServerSettings
from headgate.jobqueue.server.waiting import LongPolls
from headgate.net.authority import Authority, Caller
from headgate.net.hosts import HostNames

T = TypeVar("T")


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
        desk: works on the ledger; open.
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

    desk: Desk
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
