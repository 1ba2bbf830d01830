"""The only place where the pool is called and decides, with no `await` in between; and the tasks of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from headgate.core import Clock
from headgate.core.errors import HeadgateError
from headgate.core.events import Event
from headgate.elastic.errors import PoolClosedError
from headgate.elastic.outbox import Command
from headgate.elastic.pool import ElasticPool

_SHORTEST_TIMER_S: Final = 1e-3

T = TypeVar("T")


class Steps:
    """The pool with its timer, its listeners and its tasks. Owned by the service; called from one event loop only.

    The service enters it before the first step. Its tasks carry out the commands; they are cancelled when the context
    ends, and all of them on a programming error anywhere. An exception of the body passes unchanged; exceptions of
    tasks are raised as a group.

    Invariant: every report is followed by a decision, whose commands are started before anything is awaited.
    """

    def __init__(
        self,
        name: str,
        pool: ElasticPool,
        clock: Clock,
        hear: Callable[[Event], None],
        carry_out: Callable[[Command], None],
    ) -> None:
        self.pool = pool
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._name = name
        self.is_open = True
        self._clock = clock
        self._hear = hear
        self._carry_out = carry_out
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._change = asyncio.Event()
        self._is_watched = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        self._cancel()
        if isinstance(error, asyncio.CancelledError):  # perhaps the group's own, which only the group can tell
            await self._group.__aexit__(kind, error, traceback)
        else:
            await self._group.__aexit__(None, None, None)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def cancelled(self) -> None:
        """Cancel all tasks, and return once they have ended."""
        self._cancel()
        others = self._tasks - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    def do(self, act: Callable[[ElasticPool, float], T]) -> T:
        """Call the pool, let it decide, and start carrying out the commands.

        Raises:
            HeadgateError: the pool refuses the call.
            PoolClosedError: the pool has ended.
        """
        self.check_open()
        now = self._clock.monotonic()
        try:
            answer = act(self.pool, now)
        except HeadgateError:
            raise
        except Exception as error:
            self._break(error)
            raise
        try:
            self._go_on(now)
        except Exception as error:
            self._break(error)
            raise
        return answer

    def decide(self) -> None:
        """Let the pool act on deadlines that have passed."""
        self.do(lambda _pool, _now: None)

    def check_open(self) -> None:
        """Raise PoolClosedError if there will be no further step."""
        if not self.is_open:
            raise PoolClosedError(f"The elastic pool {self._name} has ended")

    async def changed(self) -> None:
        """Return after the next step; the end of the pool is the last one."""
        self._is_watched = True
        await self._change.wait()

    def close(self) -> None:
        """Stop deciding."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def _go_on(self, now: float) -> None:
        commands = self.pool.decide(now)
        for event in self.pool.take_events():
            self._hear(event)
        self._arm(now)
        for command in commands:
            self._carry_out(command)
        self._tell()

    def _break(self, error: Exception) -> None:
        """End everything: only half of a step was done, so any further decision could be wrong."""
        self.close()
        self._cancel()
        if asyncio.current_task() not in self._tasks:  # otherwise the error is raised in the task itself
            self.start(_raised(error), "failure")

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.close()

    def _tell(self) -> None:
        if self._is_watched:
            self._change.set()
            self._change = asyncio.Event()
            self._is_watched = False

    def _arm(self, now: float) -> None:
        at = self.pool.next_at()
        if at == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(_SHORTEST_TIMER_S, at - now), self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.is_open:
            self.start(self._tick(), "elastic timer")

    async def _tick(self) -> None:
        self.decide()


async def _raised(error: Exception) -> None:
    raise error
