"""Episodes of one question and one answer, the most common kind."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headgate.core import Message
from headgate.environments.protocol import Score

T = TypeVar("T")


class TaskCache(Generic[T]):
    """An LRU cache of tasks by (index, seed). Owned by one environment; an evicted task is made again.

    Two callers that ask for the same new task at once both make it; the tasks are equal, so no lock is needed.
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


@dataclass(frozen=True, slots=True)
class SingleTurnEpisode:
    """An episode that ends with its first answer. It has nothing to close.

    Attributes:
        judge: returns the score of the answer.
    """

    opening: tuple[Message, ...]
    judge: Callable[[str], Awaitable[Score]]

    async def answer(self, reply: str) -> Score:
        """Return the score of `reply`."""
        return await self.judge(reply)

    async def close(self) -> None:
        """Do nothing."""


def question(text: str) -> tuple[Message, ...]:
    """Return `text` as the opening of an episode."""
    return (Message("user", text),)


def passed(why: str, answer: str | None = None) -> Score:
    """Return the full score."""
    return Score(1.0, success=True, why=why, answer=answer)


def failed(why: str, answer: str | None = None) -> Score:
    """Return the score of a wrong answer."""
    return Score(0.0, success=False, why=why, answer=answer)
