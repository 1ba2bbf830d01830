"""One sampler per model: what falls due, how fast, and when to leave the model alone."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.core import Model, unit_hash
from headgate.core.events import BoostChanged, DuesForgiven, Event, ModelGivenUp, ModelPaused, ModelResumed
from headgate.sampling.cadence import NEW_PAIRS_PER_S, Cadence, interval_s, phase_s
from headgate.sampling.error_pause import ErrorPause, Health
from headgate.sampling.window import SlidingCount


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """The rules that all samplers of a campaign follow; see `headgate.config.Settings` for each."""

    low_sample_threshold: int = 200
    low_sample_multiplier: float = 3.0
    catch_up_horizon_s: float = 3_600.0
    error_threshold: int = 3
    error_pause_s: float = 900.0
    max_pause_s: float = 86_400.0
    max_pauses: int | None = None
    """Pauses without an answer in between, after which a model is given up; None never gives one up."""
    seed: str = "headgate"


@dataclass(frozen=True, slots=True)
class PairHistory:
    """What is known of one model in one environment from before this process.

    Attributes:
        counts: (time, samples) pairs of the last 24 h.
        last_due: the due time last taken; the end of the last sample when only the store was there to tell.
    """

    counts: tuple[tuple[float, int], ...] = ()
    last_due: float | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """One sample that somebody wants: it becomes a task once the journal has given it its sequence number.

    `interval_s` is the spacing of dues at the time, by which the journal tells a due time that another process took
    already from a new one. A pair's first sample comes out of turn: `slot_at` is the due time that it takes in the
    schedule. `sequence` and `stage` are set by task providers that count themselves.
    """

    model: str
    environment: str
    due_at: float
    interval_s: float
    sequence: int | None = None
    stage: str = "sample"
    slot_at: float | None = None


@dataclass(slots=True)
class _Line:
    """One environment of a sampler."""

    environment: str
    cadence: Cadence
    is_settled: bool = False
    samples: SlidingCount = field(default_factory=lambda: SlidingCount(bucket_s=300.0))


class ModelSampler:
    """Decides when a model is sampled in each environment. Pure: takes `now`, returns demand and events.

    Owned by the campaign, one per model, from the model's entry into the roster to its removal. Samplers know nothing
    of each other: none waits for another, for a batch, or for a slow task. Times are seconds of one monotonic clock
    that is aligned with the epoch at start.
    """

    def __init__(
        self,
        model: Model,
        rates: Mapping[str, float],
        rules: SamplingRules,
        *,
        ordinal: int,
        now: float,
        history: Mapping[str, PairHistory] | None = None,
    ) -> None:
        self.model = model
        self._rules = rules
        self._total = SlidingCount()
        self.errors = SlidingCount(span_s=3_600.0, bucket_s=60.0)
        self.pause = ErrorPause(rules.error_threshold, rules.error_pause_s, rules.max_pause_s)
        self.last_error: tuple[float, str] | None = None
        self.is_held = False
        """Whether its model has used up a budget of 24 h: nothing falls due until there is room again."""
        self._held: frozenset[str] = frozenset()
        past = history or {}
        for pair in past.values():
            self._total.restore(pair.counts, now)
        self.multiplier = self._wanted_multiplier(now)
        self._lines = self._make_lines(rates, ordinal, now, past)
        self._heap: list[tuple[float, str]] = []
        self._rebuild()

    def _make_lines(
        self, rates: Mapping[str, float], ordinal: int, now: float, past: Mapping[str, PairHistory]
    ) -> dict[str, _Line]:
        order = sorted(rates, key=lambda e: unit_hash(self._rules.seed, self.model.key, e))
        shortest = min((interval_s(rate, self.multiplier) for rate in rates.values()), default=1.0)
        lines: dict[str, _Line] = {}
        for place, environment in enumerate(order):
            rate = rates[environment]
            own = interval_s(rate, self.multiplier)
            known = past.get(environment, PairHistory())
            if known.last_due is None:
                phase = phase_s(ordinal, place, len(order), shortest, own, self._rules.seed)
                wait = (ordinal * len(order) + place) / NEW_PAIRS_PER_S
                cadence = Cadence.new(rate, now, self.multiplier, phase, wait)
            else:
                cadence = Cadence(rate, known.last_due + own, last_due=known.last_due)
                cadence.forgive(now, self.multiplier, self._rules.catch_up_horizon_s)
                cadence.resume(now, self.multiplier, unit_hash(self._rules.seed, self.model.key, environment, "resume"))
            lines[environment] = _Line(environment, cadence)
            lines[environment].samples.restore(known.counts, now)
        return lines

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments it samples."""
        return tuple(self._lines)

    def next_at(self, now: float) -> float | None:
        """Return when `due` has something to do next; None for one that is held, or has no environments."""
        if not self._heap or self.is_held:
            return None
        if self.pause.paused_until is not None and self.pause.paused_until > now:
            return self.pause.paused_until
        return self._heap[0][0]

    def due(self, now: float) -> tuple[list[Demand], list[Event]]:
        """Return all demand that has fallen due by `now`, each environment at most once, and what happened."""
        happened: list[Event] = []
        if self.is_held or self.pause.is_paused(now):
            return [], happened
        happened.extend(self.end_pause(now))
        self._reboost(now, happened)
        demand: list[Demand] = []
        while self._heap and self._heap[0][0] <= now:
            _, environment = heapq.heappop(self._heap)
            cadence = self._lines[environment].cadence
            dropped = cadence.forgive(now, self.multiplier, self._rules.catch_up_horizon_s)
            if dropped:
                happened.append(DuesForgiven(self.model.key, environment, dropped))
            if cadence.next_at <= now:
                first_at = cadence.first_at
                due_at = cadence.take(now, self.multiplier)
                step = interval_s(cadence.daily_rate, self.multiplier)
                one = Demand(self.model.key, environment, due_at, step)
                demand.append(one if first_at is None else replace(one, due_at=first_at, slot_at=due_at))
            heapq.heappush(self._heap, (cadence.next_at, environment))
        return demand, happened

    def settle(self, environment: str, now: float) -> None:
        """Sample an environment no further; its rate goes to the model's others, to each in proportion to its own."""
        line = self._lines.get(environment)
        if line is None or line.is_settled:
            return
        line.is_settled = True
        left = [other.cadence for other in self._lines.values() if not other.is_settled]
        if left:
            factor = 1 + line.cadence.daily_rate / sum(cadence.daily_rate for cadence in left)
            for cadence in left:
                cadence.rescale(now, 1.0, factor)
                cadence.daily_rate *= factor
        self._rebuild()

    def hold(self, environments: frozenset[str]) -> bool:
        """Let nothing fall due in these environments, and only these; return whether that is another choice."""
        if environments == self._held:
            return False
        self._held = environments
        self._rebuild()
        return True

    def end_pause(self, now: float) -> list[Event]:
        """End a pause whose time is over; return that it ended, or nothing."""
        if self.pause.paused_until is None or self.pause.is_paused(now):
            return []
        return [self._resumed(now)]

    def was_taken(self, environment: str, last_due: float) -> None:
        """Another process of the same journal took the due time: follow its schedule."""
        self._lines[environment].cadence.follow(last_due, self.multiplier)
        self._rebuild()

    def scored(self, environment: str, now: float) -> None:
        """Count a scored sample towards the 24 h totals."""
        self._total.add(now)
        line = self._lines.get(environment)
        if line is not None:
            line.samples.add(now)

    def observe(self, health: Health, *, error: str | None, started_at: float, now: float) -> list[Event]:
        """Take the outcome of an episode; return the pause or its end that follows, or that the model is given up."""
        if error is not None:
            self.errors.add(now)
            self.last_error = (now, error)
        was_paused = self.pause.is_paused(now)
        duration = self.pause.observe(health, started_at=started_at, now=now)
        if duration is not None:
            pause, limit = self.pause, self._rules.max_pauses
            if limit is not None and pause.level > limit:
                pause.forget()
                return [ModelGivenUp(self.model.key, self.model.uid, limit, error or "")]
            return [ModelPaused(self.model.key, self.model.uid, duration, pause.consecutive, pause.level, error or "")]
        if was_paused and not self.pause.is_paused(now):
            return [self._resumed(now)]
        return []

    def samples_24h(self, now: float) -> int:
        """Return the scored samples of the last 24 h, all environments together."""
        return self._total.total(now)

    def counts(self, now: float, last_s: float) -> dict[str, int]:
        """Return scored samples by environment over the last `last_s` seconds, exact to five minutes."""
        return {e: line.samples.recent(now, last_s) for e, line in self._lines.items()}

    def rate_per_day(self, environment: str) -> float:
        """Return the rate in force, multiplier included; 0 once settled."""
        line = self._lines[environment]
        return 0.0 if line.is_settled else line.cadence.daily_rate * self.multiplier

    def _wanted_multiplier(self, now: float) -> float:
        is_low = self._total.total(now) < self._rules.low_sample_threshold
        return self._rules.low_sample_multiplier if is_low else 1.0

    def _reboost(self, now: float, happened: list[Event]) -> None:
        wanted = self._wanted_multiplier(now)
        if wanted == self.multiplier:
            return
        for line in self._lines.values():
            line.cadence.rescale(now, self.multiplier, wanted)
        self.multiplier = wanted
        self._rebuild()
        happened.append(BoostChanged(self.model.key, wanted, self._total.total(now)))

    def _resumed(self, now: float) -> ModelResumed:
        paused_for = now - (self.pause.paused_at if self.pause.paused_at is not None else now)
        self.pause.end()
        return ModelResumed(self.model.key, self.model.uid, paused_for)

    def _rebuild(self) -> None:
        self._heap = [
            (line.cadence.next_at, environment)
            for environment, line in self._lines.items()
            if not line.is_settled and environment not in self._held
        ]
        heapq.heapify(self._heap)

    def validate(self) -> None:
        """Assert that the heap holds each environment that is not settled once, at the time of its cadence."""
        sampled = {name for name, line in self._lines.items() if not line.is_settled and name not in self._held}
        assert {e for _, e in self._heap} == sampled
        assert len(self._heap) == len(sampled)
        for at, environment in self._heap:
            assert at == self._lines[environment].cadence.next_at, (environment, at)
        self._total.validate()
