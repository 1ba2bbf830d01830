"""A simulated engine: slots, and answers that take the longer the more of them are under way."""

from __future__ import annotations

import heapq

from headgate.elastic.replay.errors import ReplayFailedError


class SimulatedEngine:
    """One worker's engine. Exact: its clock counts steps, which all answers under way make at the same speed.

    Invariants: at most `slots` calls are with it; it is empty whenever it is put to sleep.
    """

    __slots__ = ("_answering", "_begin", "_calls", "_done", "_last_s", "_slots", "_step_s", "is_asleep", "name", "turn")

    def __init__(self, name: str, slots: int, step_s: tuple[float, ...], *, is_asleep: bool) -> None:
        self.name = name
        self.is_asleep = is_asleep
        self.turn = 0
        """Grows whenever `ends_at` may have changed: what was planned for an earlier turn is void."""
        self._slots = slots
        self._step_s = step_s
        self._calls: set[int] = set()
        self._answering: set[int] = set()
        self._begin: list[tuple[float, int]] = []  # a heap: steps at which an answer is complete, and whose it is
        self._done = 0.0
        self._last_s = 0.0

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, call: int) -> None:
        """Take a call; its answer begins later.

        Raises:
            ReplayFailedError: it sleeps, is full, or has the call already.
        """
        if self.is_asleep or len(self._calls) >= self._slots or call in self._calls:
            state = "asleep" if self.is_asleep else f"{len(self._calls)} of {self._slots} slots taken"
            raise ReplayFailedError(f"request {call} was sent to {self.name}, which cannot take it ({state})")
        self._calls.add(call)

    def answer(self, call: int, steps: float, now: float) -> None:
        """Begin the answer of a call that was taken."""
        self._advance(now)
        self._answering.add(call)
        heapq.heappush(self._begin, (self._done + steps, call))
        self.turn += 1

    def drop(self, call: int, now: float) -> None:
        """Let go of a call, wherever it stands; nothing where it is not there."""
        self._calls.discard(call)
        if call in self._answering:
            self._advance(now)
            self._answering.discard(call)
            self._begin = [one for one in self._begin if one[1] != call]
            heapq.heapify(self._begin)
            self.turn += 1

    def has(self, call: int) -> bool:
        """Tell whether a call is with it."""
        return call in self._calls

    def ends_at(self, now: float) -> float | None:
        """Return when the next answer is complete if nothing changes; None where none is under way."""
        if not self._begin:
            return None
        self._advance(now)
        left = max(0.0, self._begin[0][0] - self._done)
        return now + left * self._step_s[len(self._begin) - 1]

    def end(self, now: float) -> int:
        """End the answer that is complete next, and return whose it was."""
        self._advance(now)
        steps, call = heapq.heappop(self._begin)
        self._done = max(self._done, steps)
        self._answering.discard(call)
        self._calls.discard(call)
        self.turn += 1
        return call

    def _advance(self, now: float) -> None:
        if self._begin:
            self._done += (now - self._last_s) / self._step_s[len(self._begin) - 1]
        self._last_s = now
