"""Tasks that many models get one after the other, made once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class TaskCache(Generic[T]):
    """The tasks made last, by (index, seed). Owned by one environment; a task is made again when it fell out.

    Two callers that ask for the same new task at once both make it: equal tasks, so nothing needs a lock.
    """

    def __init__(self, make: Callable[[int, int], Awaitable[T]], capacity: int = 512) -> None:
        self._make = make
        self._capacity = capacity
        self._tasks: OrderedDict[tuple[int, int], T] = OrderedDict()

    async def get(self, index: int, seed: int) -> T:
        """Return task `index` under `seed`; raises what making it raises."""
        key = (index, seed)
        if key not in self._tasks:
            self._tasks[key] = await self._make(index, seed)
            while len(self._tasks) > self._capacity:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        return self._tasks[key]
