"""Rules that admit requests by tokens per minute, in simulated time, each with an endless backlog."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from headgate.admission import (
    AdmissionController,
    Correlation,
    OutcomeKind,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
    Ticket,
)
from headgate.admission.laws import LimitLaw
from headgate.core.rates import ModelRates, RateNote
from headgate.core.status import RequestStatus
from headgate.models import rate_notes
from headgate.run import RecentReplies
from headgate_bench.limited_providers import Agenda
from headgate_bench.minute_buckets import MinuteBuckets
from headgate_bench.rated_provider import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    REFUSAL_S,
    Asked,
    RatedCase,
    RatedProvider,
    RatedRecord,
)

_NAME: Final = ProviderModel("simulated", "model")
_KEY: Final = RequestKey(_NAME)
_FIRST_GUESS: Final = 512
"""Tokens reserved for a reply before the first one is known."""


class Rule(Protocol):
    """Decides which request of the backlog is sent, and when."""

    def ask(self, request: Asked, now: float) -> None:
        """Queue a request."""
        ...

    def due(self, now: float) -> list[Asked]:
        """Return the requests to send now."""
        ...

    def ended(self, request: Asked, kind: OutcomeKind, told: tuple[RateNote, ...], wait_s: float, now: float) -> None:
        """Handle the end of an attempt."""
        ...

    def next_at(self, now: float) -> float:
        """Return the time at which requests become due without any other event."""
        ...


class ControllerRule:
    """Request admission: with limits per minute, or only with a law for requests in flight."""

    def __init__(self, make_law: Callable[[int], LimitLaw], most: int, rates: ModelRates, *, heeds: bool) -> None:
        self._controller = AdmissionController(make_law, learns_rates=heeds)
        self._controller.register(_NAME, most, "bench", 0.0, rates)
        self._heeds = heeds
        self._replies: dict[str, RecentReplies] = {}
        self._ready: deque[Asked] = deque()
        self._waiting: dict[Ticket, Asked] = {}

    def ask(self, request: Asked, now: float) -> None:
        """Ask the controller, with the prompt's estimate off by a sixth, and the reply estimated from earlier ones."""
        tokens = (0, 0)
        if self._heeds:
            usual = self._replies.setdefault(request.group, RecentReplies()).usual
            estimate = round(request.prompt * (7 / 6 if request.prompt % 2 else 5 / 6))
            tokens = max(1, estimate), max(1, _FIRST_GUESS if usual is None else usual)
        answer = self._controller.request(RequestItem(_KEY, request.group, 1.0, None, Correlation(), *tokens), now)
        if isinstance(answer, RequestLease):
            request.lease = answer
            self._ready.append(request)
        else:
            assert isinstance(answer, Ticket)
            self._waiting[answer] = request

    def due(self, now: float) -> list[Asked]:
        """Return the requests that the controller has admitted."""
        if self._controller.changes_at <= now:
            self._controller.tick(now)
        for effect in self._controller.effects.drain():
            if isinstance(effect, Ticket):
                request = self._waiting.pop(effect)
                request.lease = effect.lease
                self._ready.append(request)
        due = list(self._ready)
        self._ready.clear()
        return due

    def ended(self, request: Asked, kind: OutcomeKind, told: tuple[RateNote, ...], wait_s: float, now: float) -> None:
        """Release the lease."""
        assert request.lease is not None
        notes = told if self._heeds else ()
        if kind is OutcomeKind.SUCCESS:
            outcome = RequestOutcome(
                kind, None, now - request.lease.acquired_at, None, request.reply, request.prompt, notes
            )
            if self._heeds:
                self._replies[request.group].add(request.reply)
        else:
            outcome = RequestOutcome(kind, wait_s or None, told=notes)
        self._controller.release(request.lease, outcome, now)
        request.lease = None

    def statuses(self, now: float) -> list[RequestStatus]:
        """Return the controller's status of requests."""
        return self._controller.accounts.statuses(now)

    def learnt(self, name: ProviderModel, of: str, limit: int, now: float) -> None:
        """Take over a limit that another process has learnt."""
        self._controller.learnt(name, of, limit, now)

    def set_rate_share(self, provider: str, share: float, now: float) -> None:
        """Use only a share of the limits that the roster states."""
        self._controller.set_rate_share(provider, share, now)

    def next_at(self, now: float) -> float:
        """Return when the controller needs its next tick."""
        return max(now, self._controller.changes_at)


class LiteLLMRule:
    """The rule of LiteLLM's usage-based routing (`lowest_tpm_rpm_v2` in its source), for one deployment.

    It counts per clock minute: a request counts when it is sent, its tokens in the minute in which its answer arrives,
    and nothing is reserved for a reply. A request is sent if the counters are below the limits and its prompt fits. It
    is treated favourably here: it has a counter for each unit, where LiteLLM has one for requests and one for all
    tokens; a request that does not fit waits for the next minute, with groups taking turns, where LiteLLM fails it with
    Retry-After 60. At most `most` requests run at once.
    """

    def __init__(self, case: RatedCase, most: int) -> None:
        self._limits = case.limits[0][1]
        self._most = most
        self._flying = 0
        self._minute = 0
        self._counts = [0, 0, 0, 0]
        self._queues: dict[str, deque[Asked]] = {}

    def ask(self, request: Asked, now: float) -> None:
        """Append the request to the queue of its group."""
        del now
        self._queues.setdefault(request.group, deque()).append(request)

    def due(self, now: float) -> list[Asked]:
        """Return all requests that the counters allow, with groups taking turns."""
        if int(now // 60) != self._minute:
            self._minute, self._counts = int(now // 60), [0, 0, 0, 0]
        due: list[Asked] = []
        while self._flying < self._most and any(self._queues.values()):
            name = next(name for name, queue in self._queues.items() if queue)
            queue = self._queues.pop(name)
            self._queues[name] = queue
            if not self._fits(queue[0]):
                break
            self._counts[0] += 1
            self._flying += 1
            due.append(queue.popleft())
        return due

    def _fits(self, request: Asked) -> bool:
        need = (1, request.prompt, 1, request.prompt)
        limits = zip(self._limits, self._counts, need, strict=True)
        return all(limit is None or count + wanted <= limit for limit, count, wanted in limits)

    def ended(self, request: Asked, kind: OutcomeKind, told: tuple[RateNote, ...], wait_s: float, now: float) -> None:
        """Count the tokens of an answer in the minute in which it arrived."""
        del told, wait_s
        self._flying -= 1
        if kind is OutcomeKind.SUCCESS and int(now // 60) == self._minute:
            self._counts[1] += request.prompt
            self._counts[2] += request.reply
            self._counts[3] += request.prompt + request.reply

    def next_at(self, now: float) -> float:
        """Return when the next minute begins."""
        return (now // 60 + 1) * 60


class OracleRule:
    """Knows the provider's buckets and all replies in advance, as no real rule can. Serves the group with the least."""

    def __init__(self, case: RatedCase, buckets: MinuteBuckets) -> None:
        self._case = case
        self._buckets = buckets
        self._owed = 0
        self._had: Counter[str] = Counter()
        self._queues: dict[str, deque[Asked]] = {}

    def ask(self, request: Asked, now: float) -> None:
        """Append the request to the queue of its group."""
        del now
        self._queues.setdefault(request.group, deque()).append(request)

    def due(self, now: float) -> list[Asked]:
        """Return the requests that the provider can answer without overdrawing any bucket."""
        left = self._buckets.left(now)
        due: list[Asked] = []
        while any(self._queues.values()):
            name = min((name for name, queue in self._queues.items() if queue), key=lambda name: self._had[name])
            request = self._queues[name][0]
            need = (1, request.prompt, self._owed + request.reply, self._owed + request.prompt + request.reply)
            if not all(have is None or have >= wanted for have, wanted in zip(left, need, strict=True)):
                break
            left = [
                None if have is None else have - spent
                for have, spent in zip(left, (1, request.prompt, 0, request.prompt), strict=True)
            ]
            self._owed += request.reply
            self._had[name] += request.units[self._case.scarce]
            due.append(self._queues[name].popleft())
        return due

    def ended(self, request: Asked, kind: OutcomeKind, told: tuple[RateNote, ...], wait_s: float, now: float) -> None:
        """Remove the finished request from the reserved tokens."""
        del kind, told, wait_s, now
        self._owed -= request.reply

    def next_at(self, now: float) -> float:
        """Return when to check again."""
        return now + 0.05


class Backlog:
    """Keeps requests of every group queued at a provider, which others may use too. Owned by one run."""

    def __init__(
        self, case: RatedCase, provider: RatedProvider, agenda: Agenda, rule: Rule, seed: int, waiting: int = 64
    ) -> None:
        self.agenda = agenda
        self._case = case
        self._provider = provider
        self._rule = rule
        self._jitter = random.Random(seed)
        self._alarm = -1.0
        for group in case.groups:
            for _ in range(waiting):
                self._begin(group.name)

    def _begin(self, group: str) -> None:
        self._rule.ask(self._provider.begin(group), self.agenda.now)

    def fill(self) -> None:
        """Send the due requests, and schedule the next check."""
        now = self.agenda.now
        while due := self._rule.due(now):
            for request in due:
                self._send(request, now)
        at = self._rule.next_at(now)
        if at < math.inf and not now < self._alarm <= at:
            self._alarm = max(at, now + 1e-6)
            self.agenda.at(self._alarm, self.fill)

    def _send(self, request: Asked, now: float) -> None:
        wait_s = self._provider.take(request, now)
        if wait_s is None:
            self.agenda.at(now + self._provider.service_s(request), partial(self._answered, request))
        else:
            self.agenda.at(now + REFUSAL_S, partial(self._refused, request, wait_s))

    def _told(self, now: float) -> tuple[RateNote, ...]:
        return rate_notes(self._provider.headers(now), 0.0)

    def _answered(self, request: Asked) -> None:
        now = self.agenda.now
        self._provider.answered(request, now)
        self._rule.ended(request, OutcomeKind.SUCCESS, self._told(now), 0.0, now)
        self._begin(request.group)
        self.fill()

    def _refused(self, request: Asked, wait_s: float) -> None:
        now = self.agenda.now
        self._provider.refused()
        self._rule.ended(request, OutcomeKind.RATE_LIMITED, self._told(now), wait_s if self._case.tells else 0.0, now)
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(request.refusals, 10))
        request.refusals += 1
        self.agenda.at(now + pause_s * self._jitter.uniform(0.5, 1.5), partial(self._again, request))
        self.fill()

    def _again(self, request: Asked) -> None:
        self._rule.ask(request, self.agenda.now)
        self.fill()


def play_rated(
    case: RatedCase, make_rule: Callable[[MinuteBuckets], Rule], *, seed: int, waiting: int = 64
) -> RatedRecord:
    """Return the record of a rule at a provider with limits per minute. Deterministic for a seed."""
    provider, agenda = RatedProvider(case, seed), Agenda()
    for at, _ in case.limits[1:]:
        agenda.at(at, partial(provider.follow, at))
    agenda.at(0.0, Backlog(case, provider, agenda, make_rule(provider.buckets), seed, waiting).fill)
    agenda.run(case.seconds)
    return provider.record
