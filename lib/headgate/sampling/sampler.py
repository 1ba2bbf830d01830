"""One sampler per model: which samples fall due, at what rate, and when the model is paused."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from headgate.core import DAY_S, Model, events, record, unit_hash
from headgate.core.status import MANY_UNSCORED
from headgate.sampling.window import SlidingCount

Health = Literal["answered", "service_error", "exhausted", "neutral"]


@dataclass(slots=True)
class ErrorPause:
    """Counts consecutive service errors of one model and decides its pauses. Pure; owned by the model's sampler.

    Source: Affine's runner. `threshold` consecutive service errors pause the model for `base_s`, doubling with each
    further pause up to `max_s`; an answer resets both. Episodes that began before the pause say nothing about the
    service after it, so their outcomes are ignored: eight parallel failures cause one pause, not two. An exhausted
    quota pauses at once: it does not recover within seconds, and every further request would lose a sample.
    """

    threshold: int
    base_s: float
    max_s: float
    consecutive: int = 0
    level: int = 0
    paused_at: float | None = None
    paused_until: float | None = None
    since: float | None = None
    """When the first of the consecutive pauses began, possibly before a restart; None while the service answers."""

    def is_paused(self, now: float) -> bool:
        """Return whether the model is paused at `now`."""
        return self.paused_until is not None and now < self.paused_until

    @property
    def began_at(self) -> float | None:
        """When the current pause began, possibly before a restart; None while there is none."""
        return None if self.paused_until is None else self.paused_until - self._length_s(max(self.level - 1, 0))

    def observe(self, health: Health, *, started_at: float, now: float) -> float | None:
        """Note the outcome of an episode; return the seconds of the pause that it causes, None if it causes none."""
        if health == "neutral" or (self.paused_at is not None and started_at <= self.paused_at):
            return None
        if health == "answered":
            self.forget()
            return None
        self.consecutive += 1
        if (health == "service_error" and self.consecutive < self.threshold) or self.is_paused(now):
            return None
        duration = self._length_s(self.level)
        self.level = min(self.level + 1, 40)
        self.paused_at = now
        self.since = now if self.since is None else self.since
        self.paused_until = now + duration
        return duration

    def end(self) -> None:
        """End the pause: count errors from zero again, but keep the number of pauses so far."""
        self.consecutive = 0
        self.paused_until = None

    def forget(self) -> None:
        """Reset everything: no errors, no pauses."""
        self.consecutive = 0
        self.level = 0
        self.paused_until = self.since = None

    def restore(self, level: int, paused_until: float, now: float) -> None:
        """Take over a pause from before a restart."""
        self.level = level
        self.since = paused_until - sum(map(self._length_s, range(level)))
        if paused_until > now:
            self.paused_at = now
            self.paused_until = min(paused_until, now + self._length_s(max(level - 1, 0)))

    def _length_s(self, level: int) -> float:
        return min(self.base_s * 2.0**level, self.max_s)


GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""For any number of points, its multiples modulo 1 keep the smallest gap largest (three-gap theorem)."""


def interval_s(daily_rate: float, multiplier: float = 1.0) -> float:
    """Return the seconds between due times: 86 400 / (rate × multiplier)."""
    return DAY_S / (daily_rate * multiplier)


NEW_PAIRS_PER_S: Final = 20.0
"""How many new pairs get their first sample per second: a few start at once, and thousands do not form a herd."""


def phase_s(ordinal: int, place: int, places: int, shortest_s: float, own_s: float, seed: str) -> float:
    """Return the offset of a model's due times in one environment within its interval, in [0, `own_s`).

    The models are spread over the shortest interval by multiples of the golden ratio from a seeded start: 95 models at
    three times Affine's rates stay more than a second apart, which independent random offsets cannot guarantee. A
    model's environments then follow each other evenly over one interval.

    Args:
        ordinal: position of the model in the roster.
        place: position of the environment in the model's own order, from 0.
        places: number of the model's environments.
        shortest_s: shortest interval among the model's environments.
        own_s: interval of this environment.
        seed: the campaign's seed.
    """
    phase = (unit_hash(seed, "phase") + ordinal * GOLDEN) % 1.0
    return (phase * shortest_s + place / places * own_s) % own_s


@dataclass(slots=True)
class Cadence:
    """Due times of one model in one environment. Pure; owned by the model's sampler.

    `due` advances by exactly one interval per sample, so that no delay accumulates. When it lies in the past (after a
    pause or a restart), samples follow at half the interval until it has caught up, and dues older than the horizon are
    forgiven, all but the latest: a pause ends without a burst, a short one changes no daily count, and a rare sample is
    late rather than skipped.

    Attributes:
        daily_rate: samples per day before any multiplier.
        due: ideal time of the next sample.
        not_before: earliest actual time of the next sample.
        last_due: the due time last taken; the journal fences on it.
        first_at: when a new pair takes its first sample, whatever its due time; None for any other.
    """

    daily_rate: float
    due: float
    not_before: float = -math.inf
    last_due: float = -math.inf
    first_at: float | None = None

    @classmethod
    def new(cls, daily_rate: float, now: float, multiplier: float, phase_s: float, wait_s: float) -> Self:
        """Return the cadence of a pair that was never sampled; its due times have the offset `phase_s` from now.

        The first sample is taken after `wait_s`, or `phase_s` if that is less, and uses up the nearest due time, the
        next or the previous one; from the second on, samples are taken at their due times.
        """
        step = interval_s(daily_rate, multiplier)
        is_coming = phase_s < wait_s + step / 2
        due = now + phase_s - (0.0 if is_coming else step)
        return cls(daily_rate, due, first_at=now + min(wait_s, phase_s))

    @property
    def next_at(self) -> float:
        """Earliest time of the next sample."""
        return max(self.due, self.not_before) if self.first_at is None else self.first_at

    def take(self, now: float, multiplier: float) -> float:
        """Advance past the due sample and return its ideal time."""
        taken = self.due
        step = interval_s(self.daily_rate, multiplier)
        self.last_due, self.first_at = taken, None
        self.due = taken + step
        self.not_before = now + step / 2
        return taken

    def forgive(self, now: float, multiplier: float, horizon_s: float) -> int:
        """Drop dues that are more than `horizon_s`, and more than one interval, before `now`; return how many."""
        step = interval_s(self.daily_rate, multiplier)
        behind = now - max(horizon_s, step) - self.due
        if behind <= 0:
            return 0
        dropped = math.ceil(behind / step)
        self.due += dropped * step
        return dropped

    def rescale(self, now: float, before: float, after: float) -> None:
        """Keep the elapsed share of the current interval when the rate or multiplier changes by `after / before`."""
        self.due = now + (self.due - now) * before / after if self.due > now else self.due
        self.not_before = now + (self.not_before - now) * before / after if self.not_before > now else self.not_before

    def follow(self, last_due: float, multiplier: float) -> None:
        """Follow another process with the same journal that has already taken `last_due`."""
        self.last_due = last_due
        self.due = max(self.due, last_due + interval_s(self.daily_rate, multiplier))

    def resume(self, now: float, multiplier: float, spread: float) -> None:
        """Delay an overdue sample after a restart by `spread`, in [0, 1), of half an interval."""
        if self.due < now:
            self.not_before = now + spread * interval_s(self.daily_rate, multiplier) / 2


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
    """Consecutive pauses without an answer, after which a model is given up; None never gives one up."""
    seed: str = "headgate"


@dataclass(frozen=True, slots=True)
class PairHistory:
    """The history of one model in one environment from before this process.

    Attributes:
        counts: (time, samples) pairs of the last 24 h.
        last_due: the due time last taken; if only the store has it, the end of the last sample instead.
    """

    counts: tuple[tuple[float, int], ...] = ()
    last_due: float | None = None


@record
class Demand:
    """One sample that is due: it becomes a task once the journal has assigned its sequence number.

    `interval_s` is the current spacing of dues, by which the journal distinguishes a due time that another process has
    already taken from a new one. A pair's first sample comes out of schedule: `slot_at` is the due time that it uses up
    in the schedule. `sequence` and `stage` are set by task providers that number tasks themselves.
    """

    model: str
    environment: str
    due_at: float
    interval_s: float
    sequence: int | None = None
    stage: str = "sample"
    slot_at: float | None = None


def _recent() -> SlidingCount:
    return SlidingCount(bucket_s=300.0)


@dataclass(slots=True)
class _Line:
    """One environment of a sampler."""

    environment: str
    cadence: Cadence
    rate: float
    """Samples per day before any multiplier, and without the rates of settled environments added to it."""
    is_settled: bool = False
    samples: SlidingCount = field(default_factory=_recent)


class ModelSampler:
    """Decides when a model is sampled in each environment. Pure: takes `now`, returns demand and events.

    Owned by the campaign, one per model, from the model's entry into the roster to its removal. Samplers are
    independent: none waits for another, for a batch, or for a slow task. Times are seconds of one monotonic clock
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
        self.unscored = 0
        """Consecutive samples without a score because of errors that do not pause the model."""
        self.unscored_since: float | None = None
        """When the first of them ended."""
        self._has_answered = self._unscored_told = False
        self.is_held = False
        """Whether nothing falls due: the model has used up a 24 h budget, or enough samples wait for its engine."""
        self._share = 1.0
        self._held: frozenset[str] = frozenset()
        self._paused: frozenset[str] = frozenset()
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
            lines[environment] = _Line(environment, cadence, rate)
            lines[environment].samples.restore(known.counts, now)
        return lines

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments it samples."""
        return tuple(self._lines)

    def next_at(self, now: float) -> float | None:
        """Return when `due` next has something to do; None while held, or without environments to sample."""
        if not self._heap or self.is_held:
            return None
        if self.pause.paused_until is not None and self.pause.paused_until > now:
            return self.pause.paused_until
        return self._heap[0][0]

    def next_due(self, environment: str) -> float | None:
        """Return when an environment is next due by its rate, ignoring error pauses; None while it is not sampled."""
        is_out = self._lines[environment].is_settled or environment in self._held | self._paused
        return None if self.is_held or is_out else self._lines[environment].cadence.next_at

    def due(self, now: float) -> tuple[list[Demand], list[events.Event]]:
        """Return all demand that is due by `now`, each environment at most once, and the events to report."""
        happened: list[events.Event] = []
        if self.is_held or self.pause.is_paused(now):
            return [], happened
        happened.extend(self.end_pause(now))
        self._reboost(now, happened)
        demand: list[Demand] = []
        key = self.model.key
        while self._heap and self._heap[0][0] <= now:
            _, environment = heapq.heappop(self._heap)
            cadence = self._lines[environment].cadence
            dropped = cadence.forgive(now, self.multiplier, self._rules.catch_up_horizon_s)
            if dropped:
                happened.append(events.DuesForgiven(key, environment, dropped))
            if cadence.next_at <= now:
                first_at = cadence.first_at
                due_at = cadence.take(now, self.multiplier)
                step = interval_s(cadence.daily_rate, self.multiplier)
                if first_at is None:
                    demand.append(Demand(key, environment, due_at, step))
                else:
                    demand.append(Demand(key, environment, first_at, step, slot_at=due_at))
            heapq.heappush(self._heap, (cadence.next_at, environment))
        return demand, happened

    def settle(self, environment: str, now: float) -> None:
        """Stop sampling an environment; its rate goes to the model's other environments in proportion to theirs."""
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
        """Let nothing fall due in these environments, and only these; return whether that is a change."""
        if environments == self._held:
            return False
        self._held = environments
        self._rebuild()
        return True

    def steer(self, rates: Mapping[str, float], paused: frozenset[str], now: float) -> None:
        """Sample at these rates from now on, and not at all in the paused environments.

        A changed rate keeps the elapsed share of the current interval. When a pause ends, samples that fell due in it
        are caught up on or forgiven, as after a pause for errors.
        """
        self._paused = paused
        for environment, line in self._lines.items():
            rate = rates[environment]
            if rate != line.rate:
                line.cadence.rescale(now, line.rate, rate)
                line.cadence.daily_rate *= rate / line.rate
                line.rate = rate
        self._rebuild()

    def allot(self, share: float, now: float) -> None:
        """Sample at this share of the rates, > 0, from now on; keeps the elapsed share of the current interval."""
        for line in self._lines.values():
            line.cadence.rescale(now, self._share, share)
            line.cadence.daily_rate *= share / self._share
        self._share = share
        self._rebuild()

    def end_pause(self, now: float) -> list[events.Event]:
        """End a pause whose time is up; return the event to report, if any."""
        if self.pause.paused_until is None or self.pause.is_paused(now):
            return []
        return [self._resumed(now)]

    def retry(self, now: float) -> list[events.Event]:
        """End any pause early and reset the error count; return the event to report, if any."""
        happened: list[events.Event] = [self._resumed(now)] if self.pause.paused_until is not None else []
        self.pause.forget()
        return happened

    def was_taken(self, environment: str, last_due: float) -> None:
        """Follow the schedule of another process with the same journal, which has taken the due time."""
        self._lines[environment].cadence.follow(last_due, self.multiplier)
        self._rebuild()

    def scored(self, environment: str, now: float) -> None:
        """Count a scored sample towards the 24 h totals."""
        self._total.add(now)
        line = self._lines.get(environment)
        if line is not None:
            line.samples.add(now)

    def observe(self, health: Health, *, error: str | None, started_at: float, now: float) -> list[events.Event]:
        """Note the outcome of an episode; return the events to report: a pause, its end, or many unscored samples."""
        if error is not None:
            self.errors.add(now)
            self.last_error = (now, error)
        if health == "answered":
            self.unscored, self.unscored_since, self._has_answered, self._unscored_told = 0, None, True, False
        elif health == "neutral":
            self.unscored, self.unscored_since = self.unscored + 1, self.unscored_since or now
        named, why, pause, limit = (self.model.key, self.model.uid), error or "", self.pause, self._rules.max_pauses
        was_paused = pause.is_paused(now)
        duration = pause.observe(health, started_at=started_at, now=now)
        if duration is not None:
            if limit is not None and pause.level > limit:
                pause.forget()
                return [events.ModelGivenUp(*named, limit, why)]
            return [events.ModelPaused(*named, duration, pause.consecutive, pause.level, why)]
        if was_paused and not pause.is_paused(now):
            return [self._resumed(now)]
        if health == "neutral" and self.unscored >= MANY_UNSCORED and not self._unscored_told:
            self._unscored_told = True
            return [events.ModelUnscored(*named, self.unscored, why)]
        return []

    def resume_unscored(self, samples: int, since: float) -> None:
        """Add consecutive samples without a score from before a restart, unless the model has answered since."""
        if not self._has_answered:
            self.unscored, self.unscored_since = self.unscored + samples, since

    def recount(self, counts: Mapping[str, Sequence[tuple[float, int]]], now: float) -> None:
        """Replace the 24 h totals with these counts by environment, in the form of `PairHistory.counts`."""
        self._total = SlidingCount()
        for minutes in counts.values():
            self._total.restore(minutes, now)
        for environment, line in self._lines.items():
            line.samples = _recent()
            line.samples.restore(counts.get(environment, ()), now)

    def samples_24h(self, now: float) -> int:
        """Return the scored samples of the last 24 h, all environments together."""
        return self._total.total(now)

    def counts(self, now: float, last_s: float) -> dict[str, int]:
        """Return scored samples by environment over the last `last_s` seconds, exact to five minutes."""
        return {e: line.samples.recent(now, last_s) for e, line in self._lines.items()}

    def rate_per_day(self, environment: str) -> float:
        """Return the rate in force, multiplier included; 0 once settled, and while paused through `steer`."""
        line = self._lines[environment]
        return 0.0 if line.is_settled or environment in self._paused else line.cadence.daily_rate * self.multiplier

    def _wanted_multiplier(self, now: float) -> float:
        is_low = self._total.total(now) < self._rules.low_sample_threshold
        return self._rules.low_sample_multiplier if is_low else 1.0

    def _reboost(self, now: float, happened: list[events.Event]) -> None:
        wanted = self._wanted_multiplier(now)
        if wanted == self.multiplier:
            return
        for line in self._lines.values():
            line.cadence.rescale(now, self.multiplier, wanted)
        self.multiplier = wanted
        self._rebuild()
        happened.append(events.BoostChanged(self.model.key, wanted, self._total.total(now)))

    def _resumed(self, now: float) -> events.ModelResumed:
        paused_for = now - (self.pause.paused_at if self.pause.paused_at is not None else now)
        self.pause.end()
        return events.ModelResumed(self.model.key, self.model.uid, paused_for)

    def _rebuild(self) -> None:
        self._heap = [
            (line.cadence.next_at, environment)
            for environment, line in self._lines.items()
            if not line.is_settled and environment not in self._held and environment not in self._paused
        ]
        heapq.heapify(self._heap)

    def validate(self) -> None:
        """Assert that the heap holds each sampled environment exactly once, at its cadence's next time."""
        unsampled = self._held | self._paused
        sampled = {name for name, line in self._lines.items() if not line.is_settled and name not in unsampled}
        assert {e for _, e in self._heap} == sampled
        assert len(self._heap) == len(sampled)
        for at, environment in self._heap:
            assert at == self._lines[environment].cadence.next_at, (environment, at)
        self._total.validate()
