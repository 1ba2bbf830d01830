"""A client with an endless backlog under a limit law, to measure the law at a provider."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from headgate.admission import OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted, LimitLaw
from headgate_bench.limited_providers.servers import Agenda, ProviderScript, server

SlotPolicy = Literal["held", "released"]
"""Whether a refused request keeps its slot during its back-off, or gives it to the next request in the backlog."""

FIRST_BACKOFF_S = 3.0
LONGEST_BACKOFF_S = 60.0


@dataclass(slots=True)
class LoadRecord:
    """The record of a run. Times are in simulated seconds.

    Attributes:
        seconds: length of the run.
        begun: requests taken from the backlog.
        answered_at: time of each good answer, in order.
        latencies: latency of each good answer, from its last attempt on.
        refused: attempts answered 429.
        failed: attempts answered 5xx; their request is retried at once.
        unfinished: requests in flight or in back-off at the end.
        limits: (time, limit) at each change of the limit.
    """

    seconds: float
    begun: int = 0
    answered_at: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    unfinished: int = 0
    limits: list[tuple[float, int]] = field(default_factory=list)

    @property
    def refused_share(self) -> float:
        """Share of the attempts that were answered 429."""
        return self.refused / max(1, self.refused + self.failed + len(self.answered_at))

    @property
    def lost(self) -> int:
        """Requests that were begun but neither answered nor still in progress."""
        return self.begun - len(self.answered_at) - self.unfinished

    def latency_s(self, share: float) -> float:
        """Return the latency that `share` of the good answers did not exceed; 0 without answers."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def limit_over(self, start: float, end: float) -> tuple[int, float]:
        """Return the highest and the mean limit between two times."""
        total, highest, limit, since = 0.0, 0, 0, start
        for at, new in self.limits:
            if at >= end:
                break
            if at > start:
                total += limit * (at - since)
                highest = max(highest, limit)
                since = at
            limit = new
        return max(highest, limit), (total + limit * (end - since)) / (end - start)


@dataclass(slots=True, eq=False)
class _Request:
    """A request of the backlog, with the number of its refusals since it was taken."""

    refusals: int = 0


class _Client:
    """Keeps as many requests in flight as the law allows. Owned by one run."""

    def __init__(
        self, script: ProviderScript, law: LimitLaw, policy: SlotPolicy, rng: random.Random, record: LoadRecord
    ) -> None:
        self.agenda = Agenda()
        self.open: set[_Request] = set()
        self._server = server(script, self.agenda, rng)
        self._script = script
        self._law = law
        self._policy = policy
        self._rng = rng
        self._record = record
        self._slots = 0
        self._again: deque[_Request] = deque()
        """Requests whose back-off has ended, first in the backlog."""
        self._ticks_at = -1.0
        self._opens_at = -1.0
        self._limit = 0

    def fill(self) -> None:
        """Tell the law the time, and send as many requests of the backlog as it allows."""
        law, now = self._law, self.agenda.now
        law.tick(now)
        self._expect_tick(now)
        if law.limit != self._limit:
            self._limit = law.limit
            self._record.limits.append((now, law.limit))
        while self._slots < law.limit:
            if law.blocked_until > now:
                self._expect_opening(law.blocked_until)
                return
            self._slots += 1
            self._send(self._next())

    def _next(self) -> _Request:
        if self._again:
            return self._again.popleft()
        request = _Request()
        self.open.add(request)
        self._record.begun += 1
        return request

    def _send(self, request: _Request) -> None:
        admitted = self._law.admitted(self._slots, self.agenda.now)
        self._server.begin(partial(self._ended, request, admitted))

    def _ended(self, request: _Request, admitted: Admitted, kind: OutcomeKind) -> None:
        now = self.agenda.now
        is_refused = kind is OutcomeKind.RATE_LIMITED
        outcome = RequestOutcome(
            kind, self._script.retry_after_s if is_refused else None, None if is_refused else now - admitted.at
        )
        self._law.observe(admitted, outcome, self._slots, now)
        if is_refused:
            self._refused(request, now)
        else:
            self._slots -= 1
            if kind is OutcomeKind.SUCCESS:
                self.open.remove(request)
                self._record.answered_at.append(now)
                self._record.latencies.append(now - admitted.at)
            else:
                self._record.failed += 1
                self._again.append(request)
        self.fill()

    def _refused(self, request: _Request, now: float) -> None:
        self._record.refused += 1
        pause_s = self._script.retry_after_s
        if pause_s is None:
            doubled = FIRST_BACKOFF_S * 2 ** min(request.refusals, 10)
            pause_s = min(LONGEST_BACKOFF_S, doubled * self._rng.uniform(0.5, 1.5))
        request.refusals += 1
        if self._policy == "held":
            self.agenda.at(now + pause_s, partial(self._retry, request))
        else:
            self._slots -= 1
            self.agenda.at(now + pause_s, partial(self._requeue, request))

    def _retry(self, request: _Request) -> None:
        if self._law.blocked_until > self.agenda.now:
            self.agenda.at(self._law.blocked_until, partial(self._retry, request))
            return
        self._send(request)

    def _requeue(self, request: _Request) -> None:
        self._again.append(request)
        self.fill()

    def _expect_tick(self, now: float) -> None:
        at = self._law.next_change_at(now)
        if at is not None and not now < self._ticks_at <= at:
            self._ticks_at = at
            self.agenda.at(at, self.fill)

    def _expect_opening(self, at: float) -> None:
        if self._opens_at != at:
            self._opens_at = at
            self.agenda.at(at, self.fill)


def load(
    script: ProviderScript, law: LimitLaw, *, seed: int, seconds: float = 600.0, policy: SlotPolicy = "held"
) -> LoadRecord:
    """Return the record of an endless backlog under `law` at a provider. Deterministic for a seed.

    A refused request is retried after Retry-After, or else after 3 s, doubling up to a minute, with a jitter of 50 %.
    """
    record = LoadRecord(seconds)
    client = _Client(script, law, policy, random.Random(seed), record)
    client.agenda.at(0.0, client.fill)
    client.agenda.run(seconds)
    record.unfinished = len(client.open)
    return record
