"""Simulated providers: each takes attempts and answers them, after the time it takes."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from headgate.admission import OutcomeKind
from headgate.simulation.providers.scripts import Agenda, ProviderScript

Answer = Callable[[OutcomeKind], None]
"""Told how an attempt ended, at the time at which it ended."""


class Server(Protocol):
    """A provider that runs in a simulation."""

    def begin(self, answer: Answer) -> None:
        """Take an attempt now; `answer` is called when it has ended."""
        ...


class _Times:
    """Service times of a script."""

    def __init__(self, script: ProviderScript, rng: random.Random) -> None:
        self._mu, self._sigma = script.log_moments
        self._rng = rng

    def draw(self) -> float:
        return self._rng.lognormvariate(self._mu, self._sigma)


class RefusingServer:
    """Serves every attempt on its own, and refuses those beyond a cap on concurrency or on the rate."""

    def __init__(self, script: ProviderScript, agenda: Agenda, rng: random.Random) -> None:
        self._script = script
        self._agenda = agenda
        self._rng = rng
        self._times = _Times(script, rng)
        self._active = 0
        self._tokens = script.bucket
        self._filled_at = 0.0

    def begin(self, answer: Answer) -> None:
        """Take an attempt, or refuse it."""
        now, script = self._agenda.now, self._script
        if self._refuses(now):
            self._agenda.at(now + script.refusal_s, partial(answer, OutcomeKind.RATE_LIMITED))
            return
        self._active += 1
        service_s = self._times.draw()
        if script.failing_share and self._rng.random() < script.failing_share:
            self._agenda.at(now + service_s / 2, partial(self._end, answer, OutcomeKind.PROVIDER_FAILURE))
        else:
            self._agenda.at(now + service_s, partial(self._end, answer, OutcomeKind.SUCCESS))

    def _end(self, answer: Answer, kind: OutcomeKind) -> None:
        self._active -= 1
        answer(kind)

    def _refuses(self, now: float) -> bool:
        script = self._script
        if script.storm is not None and script.storm[0] <= now < script.storm[1]:
            return True
        if script.counted == "concurrency":
            return self._active >= script.cap_at(now)
        self._tokens = min(script.bucket, self._tokens + (now - self._filled_at) * script.cap_at(now))
        self._filled_at = now
        if self._tokens < 1:
            return True
        self._tokens -= 1
        return False


class SharingServer:
    """Refuses nothing: every attempt in service gets an equal share, and at most one server's worth.

    Kept by a clock that runs at the pace of one attempt's service: an attempt ends when it has advanced by its service
    time. The pace changes only when an attempt begins or ends.
    """

    def __init__(self, script: ProviderScript, agenda: Agenda, rng: random.Random) -> None:
        self._script = script
        self._agenda = agenda
        self._times = _Times(script, rng)
        self._served = 0.0
        self._told_at = 0.0
        self._ends: list[tuple[float, int, Answer]] = []
        self._number = 0
        self._plan = 0

    def begin(self, answer: Answer) -> None:
        """Take an attempt."""
        self._advance()
        self._number += 1
        heapq.heappush(self._ends, (self._served + self._times.draw(), self._number, answer))
        self._schedule()

    def _pace(self) -> float:
        return min(1.0, self._script.cap_at(self._told_at) / max(1, len(self._ends)))

    def _advance(self) -> None:
        now = self._agenda.now
        self._served += (now - self._told_at) * self._pace()
        self._told_at = now

    def _schedule(self) -> None:
        self._plan += 1
        if self._ends:
            in_s = max(0.0, self._ends[0][0] - self._served) / self._pace()
            self._agenda.at(self._agenda.now + in_s, partial(self._end, self._plan))

    def _end(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        _, _, answer = heapq.heappop(self._ends)
        self._schedule()
        answer(OutcomeKind.SUCCESS)


def server(script: ProviderScript, agenda: Agenda, rng: random.Random) -> Server:
    """Return the provider that a script describes."""
    kind = SharingServer if script.counted == "sharing" else RefusingServer
    return kind(script, agenda, rng)
