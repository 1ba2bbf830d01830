"""A bounded number of games that take seconds to start, lent to episodes in turns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, Protocol, TypeVar

from headgate.core import errors
from headgate.environments.shares import MODEL, FairSlots, Hold

T = TypeVar("T")

PATIENCE_S: Final = 1.0
"""A game that a model has above its share is not taken from it sooner."""

IDLE_S: Final = 3.0
"""An episode whose model thinks for longer gives its game to another model's where there are more models than games.
What it has done is done again later, which takes up to a second."""


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
    """At most `size` games in this process, whatever the number of event loops; shared among models as `FairSlots` are.

    A game is started by the first call of an episode that gets none of the idle ones, and stays warm afterwards.
    Lives as long as the process. Invariant: games and those being started never exceed `size`, but for those being
    killed. Calls have threads of their own: one that hangs keeps none from what else runs in threads.
    """

    def __init__(self, start: Callable[[], G], size: int, *, idle_s: float = IDLE_S) -> None:
        self._start = start
        self._idle: list[G] = []
        self._lock = threading.Lock()  # protects the idle ones
        self.slots: Final = FairSlots(size, patience_s=PATIENCE_S, turn_s=idle_s)
        self.threads: Final = ThreadPoolExecutor(size, thread_name_prefix="headgate-game")

    async def lend(self) -> Loan[G]:
        """Return the right to one game; waiting for it is a cancel point."""
        loan = Loan(self, MODEL.get())
        await loan.take_turn()
        return loan

    async def begun(self, begin: Callable[[G], T]) -> tuple[Loan[G], T]:
        """Return the right to one game on which `begin` was called, and what that gave."""
        loan = await self.lend()
        try:
            return loan, await loan.call(begin)
        except BaseException:
            loan.close()
            raise

    async def asked(self, what: Callable[[G], T]) -> T:
        """Return what `what` gives for a game that is lent for this alone."""
        loan, told = await self.begun(what)
        loan.close()
        return told

    def idle_or_new(self) -> G:
        """Return a game for a loan; blocks where one has to be started."""
        while (game := self._idle_one()) is not None:
            if game.can_be_lent:
                return game
            game.kill()
        return self._start()

    def keep(self, game: G) -> None:
        """Keep a game warm for the next one."""
        with self._lock:
            self._idle.append(game)

    def _idle_one(self) -> G | None:
        with self._lock:
            return self._idle.pop() if self._idle else None


class Loan(Generic[G]):
    """The right to one game. Owned by one episode; closed exactly once, whatever its calls are doing.

    While the episode waits for its model the game may go to one of another model. The calls that it has had are then
    made again, on another game, before the next one: games play equally whenever they are asked the same.
    """

    def __init__(self, pool: Pool[G], model: str) -> None:
        self._pool = pool
        self._model = model
        self._hold: Hold | None = None
        self._game: G | None = None
        self._had: list[Callable[[G], object]] = []
        self._is_calling = False
        self._is_wanted_back = False
        self._is_closed = False
        self._is_cut_off = False
        # Protects all of the above; never held while the game is called, or the slots are.
        self._lock = threading.Lock()

    async def take_turn(self) -> None:
        """Wait for a slot."""
        hold = await self._pool.slots.take(self._model, self._give_back_soon)
        with self._lock:
            if not self._is_closed:
                self._hold = hold
                return
        self._pool.slots.give_back(hold)

    async def call(self, what: Callable[[G], T]) -> T:
        """Return what `what` gives for the game, run in a thread; one call at a time.

        Raises:
            EnvironmentFailedError: if the game fails or cannot be started, the loan is closed, or an earlier, cancelled
                call has not ended.
        """
        while not self._begins_call():
            await self.take_turn()
        called = self._pool.threads.submit(self._called, what)
        called.add_done_callback(lambda called: self._ended_call() if called.cancelled() else None)
        return await asyncio.wrap_future(called)

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

    def _begins_call(self) -> bool:
        """Begin a call; return False when the turn is over."""
        with self._lock:
            if self._is_closed or self._is_calling:
                raise errors.EnvironmentFailedError("the game is asked after its episode, or twice at once")
            self._is_calling = self._hold is not None
            self._use()
            return self._is_calling

    def _use(self) -> None:
        if self._hold is not None:
            self._hold.since = time.monotonic()

    def _called(self, what: Callable[[G], T]) -> T:
        try:
            done = what(self._game_to_call())
            self._had.append(what)
            return done
        finally:
            self._ended_call()

    def _ended_call(self) -> None:
        with self._lock:
            self._is_calling = False
            self._use()
            gives_back = self._is_closed or self._is_wanted_back
        if gives_back:
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
        for again in self._had:
            again(game)
        return game

    def _give_back_soon(self) -> None:
        """Give the game to another model, now or when the call has ended that is under way."""
        with self._lock:
            self._is_wanted_back = True
            is_idle = self._hold is not None and not self._is_calling
        if is_idle:
            self._give_back()

    def _give_back(self) -> None:
        """End the turn: called by whoever is last, the one who ends it or the thread of a call."""
        with self._lock:
            game, hold, self._game, self._hold, self._is_wanted_back = self._game, self._hold, None, None, False
        if game is not None and (self._is_cut_off or not game.can_be_lent):
            game.kill()
        elif game is not None:
            self._pool.keep(game)
        if hold is not None:
            self._pool.slots.give_back(hold)
