"""A bounded number of games that take seconds to start, lent to one episode each."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from headgate.core import errors

T = TypeVar("T")


class Playable(Protocol):
    """What a pool holds: something that blocks, and may have to be killed."""

    @property
    def can_be_lent(self) -> bool:
        """Whether it is alive and fit for another episode."""
        ...

    def kill(self) -> None:
        """End it; a call that is under way in another thread fails. Legal more than once, also once it is dead."""
        ...


G = TypeVar("G", bound=Playable)


class Pool(Generic[G]):
    """At most `size` games in this process, whatever the number of event loops; later borrowers wait in line.

    A game is started by the first call of an episode that gets none of the idle ones, and stays warm afterwards.
    Lives as long as the process. Invariant: loans + idle games that no loan uses never exceed `size` games.
    """

    def __init__(self, start: Callable[[], G], size: int) -> None:
        self._start = start
        self._free = size
        self._idle: list[G] = []
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()  # protects all of the above

    async def lend(self) -> Loan[G]:
        """Return the right to one game; waiting for it is a cancel point."""
        with self._lock:
            if self._free:
                self._free -= 1
                return Loan(self)
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            # Whoever returned a game may have given it to us at this very moment.
            if not turn.cancel():
                self.take_back(None)
            raise
        return Loan(self)

    def idle_or_new(self) -> G:
        """Return a game for a loan; blocks where one has to be started."""
        while (game := self._idle_one()) is not None:
            if game.can_be_lent:
                return game
            game.kill()
        return self._start()

    def take_back(self, game: G | None) -> None:
        """End a loan: keep its game warm, if it has one to give back, and let the next in line begin."""
        with self._lock:
            if game is not None:
                self._idle.append(game)
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1

    def _idle_one(self) -> G | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


class Loan(Generic[G]):
    """The right to one game. Owned by one episode; closed exactly once, whatever its calls are doing."""

    def __init__(self, pool: Pool[G]) -> None:
        self._pool = pool
        self._game: G | None = None
        self._is_calling = False
        self._is_closed = False
        self._is_cut_off = False
        self._lock = threading.Lock()  # protects all of the above; never held while the game is called

    async def call(self, what: Callable[[G], T]) -> T:
        """Return what `what` gives for the game, run in a thread; one call at a time.

        Raises:
            EnvironmentFailedError: if the game fails or cannot be started, the loan is closed, or an earlier, cancelled
                call has not ended.
        """
        return await asyncio.to_thread(self._called, what)

    def close(self) -> None:
        """Give the game back; kill it instead when a cancelled call still uses it. Legal more than once."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            game, is_calling = self._game, self._is_calling
            # From here on the game is nobody's, even if its call ends before it is killed.
            self._is_cut_off = is_calling and game is not None
        if not is_calling:
            self._give_back()
        elif game is not None:
            game.kill()  # the call fails, and its thread gives back

    def _called(self, what: Callable[[G], T]) -> T:
        with self._lock:
            if self._is_closed or self._is_calling:
                raise errors.EnvironmentFailedError("the game is asked after its episode, or twice at once")
            self._is_calling = True
        try:
            return what(self._game_to_call())
        finally:
            self._ended_call()

    def _ended_call(self) -> None:
        with self._lock:
            self._is_calling = False
            is_closed = self._is_closed
        if is_closed:
            self._give_back()

    def _game_to_call(self) -> G:
        """Return the game of the loan. One that was started for an episode that has ended meanwhile stays untouched."""
        if self._game is not None:
            return self._game
        game = self._pool.idle_or_new()
        with self._lock:
            self._game = game
            if self._is_closed:
                raise errors.EnvironmentFailedError("the episode ended before its game had started")
        return game

    def _give_back(self) -> None:
        """End the loan. Called once, by whoever is last: the one who closes it, or the thread of a cancelled call."""
        game = self._game
        if game is not None and (self._is_cut_off or not game.can_be_lent):
            game.kill()
            game = None
        self._pool.take_back(game)
