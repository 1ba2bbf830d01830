"""The guard against queues at the provider: more requests in flight, but the same throughput and slower answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from headgate.admission.laws.settings import QueueGuardSettings

_PRIOR: Final = 20
_MEMORY: Final = 400
_LEAST_S: Final = 1e-6

_HEAD_TOKENS: Final = 32
"""The time before an answer's first token equals that of about this many tokens."""

_LENGTHS_ALIKE: Final = 0.05
"""Variance of the logarithm of tokens below which they explain little of the latency: the slope would be chance."""

_CV_HALF_VARIANCE = 0.22
"""Variance of the logarithm of service times with a coefficient of variation of 0.5, for which cohorts are sized."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: the mean logarithm of the latency (in s) of `count` answers."""

    level: float
    count: int


class LatencyCohorts:
    """Measures the mean logarithm of latency by cohorts: attempts admitted in sequence and judged together.

    Attempts that ended within a fixed time are a biased sample: short answers come first. A cohort is complete except
    for the last few, always the same share, so that two cohorts can be compared. Logarithms are used because service
    times are skewed: one answer of ten minutes must not count as a hundred.

    Owned by a `QueueGuard`. Invariants (`validate`): answered <= ended <= recruited <= wanted.

    Attributes:
        number: number of the present cohort; an attempt with another number does not belong to it.
        variance: variance of the logarithm of latency, as measured so far.
    """

    def __init__(self, first: int, answered_share: float) -> None:
        self.number = 0
        self.variance = 0.25
        self._weight = _PRIOR
        self._share = answered_share
        self.begin(first)

    def begin(self, size: int) -> None:
        """Start a new cohort of `size` attempts; attempts of the former one are ignored from now on."""
        self.number += 1
        self._wanted = size
        self._enough = max(1, math.ceil(self._share * size))
        self._recruited = self._ended = self._answered = 0
        self._sum = self._squares = 0.0

    def recruit(self) -> int:
        """Return the cohort's number for an attempt that joins it, or 0 if it is full."""
        if self._recruited >= self._wanted:
            return 0
        self._recruited += 1
        return self.number

    def ended(self, cohort: int, level: float | None) -> bool:
        """Record the end of an attempt and the level of its answer; return whether the cohort is complete."""
        if cohort != self.number:
            return False
        self._ended += 1
        if level is not None:
            self._answered += 1
            self._sum += level
            self._squares += level * level
        return self._ended >= self._enough and self._recruited == self._wanted

    def measured(self) -> Measured | None:
        """Return the cohort's measurement; None if most of it was not answered."""
        count = self._answered
        if count < max(2, self._wanted / 2):
            return None
        mean = self._sum / count
        # Leaving out the slowest makes the variance look smaller than it is: a quarter is added.
        spread = max(0.01, 1.25 * (self._squares / count - mean * mean))
        self._weight = min(_MEMORY, self._weight + count)
        self.variance += (spread - self.variance) * count / self._weight
        return Measured(mean, count)

    def error(self, count: float, other: float) -> float:
        """Return the standard error of the difference of two measurements with these numbers of answers."""
        return math.sqrt(self.variance * (1 / count + 1 / other))

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert 0 <= self._answered <= self._ended <= self._recruited <= self._wanted
        assert self.variance > 0


class AnswerLevels:
    """The level of each answer: the logarithm of its latency, minus the part that its length in tokens explains.

    Requests of several environments share a limit, and answers of one may have ten times the tokens of another's: a
    changing mixture would look like a queue. How latency depends on length is learnt by regression, between not at all
    (0) and in proportion (1); the level of an answer is that of one as long as those of the first cohort.

    Owned by a `QueueGuard`. Invariant: 0 <= slope <= 1.
    """

    __slots__ = ("_common", "_count", "_length", "_level", "_reference", "_spread")

    def __init__(self) -> None:
        self._count = 0
        self._length = self._level = self._spread = self._common = 0.0
        self._reference: float | None = None

    @property
    def slope(self) -> float:
        """How much the logarithm of latency rises with that of the length."""
        slope = self._common / (self._spread + _LENGTHS_ALIKE)
        return 0.0 if slope < 0.0 else min(1.0, slope)

    def begin(self) -> None:
        """Make the answers so far, whose lengths were not corrected for, the reference for later ones."""
        self._reference = self._length

    def of(self, latency_s: float, tokens: int) -> float:
        """Return the level of an answer with this many tokens; 0 if the number is unknown."""
        level = math.log(max(_LEAST_S, latency_s))
        if tokens <= 0:
            return level
        length = math.log(tokens + _HEAD_TOKENS)
        self._count = min(self._count + 1, _MEMORY)
        weight = 1 / self._count
        longer, slower = length - self._length, level - self._level
        self._length += weight * longer
        self._level += weight * slower
        self._spread += weight * ((1 - weight) * longer * longer - self._spread)
        self._common += weight * ((1 - weight) * longer * slower - self._common)
        return level if self._reference is None else level - self.slope * (length - self._reference)


class Proposal(NamedTuple):
    """A limit that the guard wants, and why; see `LimitChange`."""

    limit: int
    reason: str


class _Phase(Enum):
    WATCHING = auto()
    SETTLING = auto()
    DESCENDING = auto()
    HOLDING = auto()
    DIPPING = auto()


class QueueGuard:
    """Holds a limit at the knee: where more requests in flight only make every answer slower.

    A provider that never refuses queues requests beyond its capacity. There, latency grows in proportion to the
    requests in flight; below the knee it does not depend on them. The guard *watches* the latency while the limit
    grows. When it has risen, the guard lowers the limit step by step and compares: if the latency falls with the limit,
    requests queued, and it *descends* until the latency no longer falls; if not, the answers themselves have become
    longer, and the limit returns to where it was. From then on it *holds* the limit where a short queue remains, and
    occasionally *dips* below the knee to measure again how long answers take without a queue.

    Pure; owned by an `AdaptiveLaw`. A level is a mean logarithm of latency, for answers of equal length: differences of
    levels are ratios.
    """

    def __init__(self, settings: QueueGuardSettings) -> None:
        self._settings = settings
        self._phase = _Phase.WATCHING
        self._cohorts = LatencyCohorts(settings.first_cohort, settings.answered_share)
        self._levels = AnswerLevels()
        self._base: float | None = None
        """Level without a queue, measured at `_base_limit` from `_base_count` answers."""
        self._base_limit = 0
        self._base_count = 0.0
        self._recent = 0.0
        """Fast average of levels, for a limit that doubles within one service time."""
        self._is_slow = False
        self._undo_limit = 0
        self._above_level = 0.0
        self._above_limit = 0
        """Level and limit before the last step down, with which the next measurement is compared."""
        self._is_first_step = False
        self._worst_level = 0.0
        self._worst_limit = 0
        """The worst measurement while the limit was held, and its limit; 0 for none."""
        self._growths = 0
        self._since_dip = 0

    @property
    def holds_limit(self) -> bool:
        """Whether the law must not raise the limit: because the guard sets it, or because answers have become slow."""
        return self._is_slow or self._phase is not _Phase.WATCHING

    def admitted(self, *, is_used: bool) -> int:
        """Return the cohort of an attempt, 0 for none; `is_used` if the limit is used, so that it can matter."""
        return self._cohorts.recruit() if is_used or self._base is None else 0

    def refused(self, limit: int) -> None:
        """Return the limit to the law, which has cut it to `limit` because the provider refused."""
        if self._phase is not _Phase.WATCHING:
            self._watch(limit)

    def ended(self, cohort: int, latency_s: float | None, tokens: int, limit: int) -> Proposal | None:
        """Record the end of a cohort's attempt, with its latency if it was answered; return the resulting proposal.

        `tokens` is the length of that answer; 0 if it is unknown or does not matter.
        """
        level = None if latency_s is None else self._levels.of(latency_s, tokens)
        if level is not None and self._phase is _Phase.WATCHING and self._base is not None:
            self._recent += (level - self._recent) / self._settings.recent
            # Only above the limit of the base: while the limit falls, the last to end are the longest.
            rise = self._recent - self._base
            self._is_slow = rise > self._settings.slow_at_once and limit > 1.3 * self._base_limit
            # An average with a memory of n has the spread of 2 n independent values.
            values = 2 * self._settings.recent
            if self._is_slow and rise > self._settings.certainty * self._cohorts.error(values, self._base_count):
                return self._settle(limit)
        if not self._cohorts.ended(cohort, level):
            return None
        measured = self._cohorts.measured()
        proposal = None if measured is None else self._judged(measured, limit)
        self._cohorts.begin(self._cohort_size(limit if proposal is None else proposal.limit))
        return proposal

    # Watching.

    def _settle(self, limit: int) -> Proposal:
        """Step down at once, without relying on the level, which lags behind a growing limit."""
        assert self._base is not None
        self._phase = _Phase.SETTLING
        self._undo_limit = limit
        new = max(1, int(limit * max(self._settings.fall, math.exp(self._base - self._recent))))
        self._cohorts.begin(self._cohort_size(new))
        return Proposal(new, "queueing")

    def _judged(self, measured: Measured, limit: int) -> Proposal | None:
        if self._base is None:
            self._levels.begin()
            self._recent = measured.level
            self._set_base(measured, limit)
            return None
        match self._phase:
            case _Phase.WATCHING:
                return self._watched(measured, limit, measured.level - self._base)
            case _Phase.SETTLING:
                return self._descend(measured.level, limit, limit * self._settings.fall)
            case _Phase.DESCENDING:
                return self._descended(measured, limit)
            case _Phase.HOLDING:
                return self._held(measured, limit, measured.level - self._base)
            case _Phase.DIPPING:
                return self._dipped(measured, limit)

    def _watched(self, measured: Measured, limit: int, rise: float) -> Proposal | None:
        assert self._base is not None
        certain = self._settings.certainty * self._cohorts.error(measured.count, self._base_count)
        if rise > max(self._settings.slow, certain):
            self._undo_limit = limit
            return self._descend(measured.level, limit, limit * max(self._settings.fall, math.exp(-rise)))
        if limit <= 1.1 * self._base_limit:
            # The limit is the same, so the length of answers has changed, and the base follows.
            self._base += rise * max(0.2, measured.count / (measured.count + self._base_count))
            self._base_count = min(1_000.0, self._base_count + measured.count)
        elif limit >= 1.5 * self._base_limit:
            # A higher limit without a queue: the base belongs to it from now on, but never rises with the limit.
            self._base_limit = limit
            self._base += 0.2 * min(0.0, rise)
        return None

    def _watch(self, limit: int) -> None:
        assert self._base is not None
        self._phase = _Phase.WATCHING
        self._recent, self._is_slow = self._base, False
        self._cohorts.begin(self._cohort_size(limit))

    # Looking for the knee.

    def _descend(self, level: float, limit: int, target: float) -> Proposal:
        if self._phase is not _Phase.DESCENDING:
            self._is_first_step = True
        self._phase = _Phase.DESCENDING
        self._above_level, self._above_limit = level, limit
        return Proposal(max(1, int(target)), "queueing")

    def _descended(self, measured: Measured, limit: int) -> Proposal:
        fall, full = self._fall(measured, limit)
        if self._is_first_step and fall < 0.4 * full:
            # Fewer requests did not make answers faster: they had not queued.
            self._set_base(measured, self._undo_limit)
            self._watch(self._undo_limit)
            return Proposal(self._undo_limit, "increased")
        self._is_first_step = False
        if fall > 0.7 * full and limit > 1:
            return self._descend(measured.level, limit, limit * self._settings.fall)
        self._worst_limit = self._growths = 0
        # The first measurement at the knee is hasty, so the next dip comes sooner.
        self._since_dip = self._settings.dip_every // 2
        return self._hold_at_knee(measured, limit)

    def _fall(self, measured: Measured, limit: int) -> tuple[float, float]:
        """Return how much the level fell with the last step down, and how much it would if all were queueing."""
        full = math.log(self._above_limit / limit) if limit < self._above_limit else 0.0
        return self._above_level - measured.level, full

    def _hold_at_knee(self, measured: Measured, limit: int) -> Proposal:
        self._phase = _Phase.HOLDING
        self._set_base(measured, limit)
        fall, _ = self._fall(measured, limit)
        knee = self._above_limit * math.exp(-max(0.0, fall)) * self._settings.knee_slack
        return Proposal(max(limit, round(knee)), "increased")

    # Holding the limit at the knee.

    def _held(self, measured: Measured, limit: int, rise: float) -> Proposal | None:
        settings = self._settings
        if self._was_cut_in_vain(measured, limit):
            undone, self._worst_limit = self._worst_limit, 0
            self._set_base(measured, limit)
            return Proposal(undone, "increased")
        self._since_dip += 1
        if self._since_dip >= settings.dip_every:
            self._phase, self._growths, self._since_dip = _Phase.DIPPING, 0, 0
            return self._dip(measured, limit)
        if rise > settings.hold_high:
            self._growths = 0
            return Proposal(max(1, int(limit * max(settings.fall, math.exp(settings.hold_mid - rise)))), "queueing")
        if rise < settings.hold_low:
            step = settings.hold_step * min(8, 2**self._growths)
            self._growths += 1
            return Proposal(limit + max(1, int(limit * step)), "increased")
        self._growths = 0
        return None

    def _was_cut_in_vain(self, measured: Measured, limit: int) -> bool:
        """Return whether the limit fell by a fifth since the worst measurement without answers becoming faster."""
        if self._worst_limit and limit <= 0.8 * self._worst_limit:
            if self._worst_level - measured.level < 0.4 * math.log(self._worst_limit / limit):
                return True
            self._worst_limit = 0
        if limit > self._worst_limit or measured.level > self._worst_level:
            self._worst_limit, self._worst_level = limit, measured.level
        return False

    def _dip(self, measured: Measured, limit: int) -> Proposal:
        self._above_level, self._above_limit = measured.level, limit
        return Proposal(max(1, int(limit * self._settings.dip)), "measuring")

    def _dipped(self, measured: Measured, limit: int) -> Proposal:
        fall, full = self._fall(measured, limit)
        if fall > 0.7 * full and limit > 1:
            return self._dip(measured, limit)
        return self._hold_at_knee(measured, limit)

    def _set_base(self, measured: Measured, limit: int) -> None:
        self._base, self._base_count, self._base_limit = measured.level, float(measured.count), limit

    def _cohort_size(self, limit: int) -> int:
        settings = self._settings
        rounds = settings.cohort_rounds * limit
        if self._phase in (_Phase.SETTLING, _Phase.DESCENDING):
            wanted = settings.descent_cohort * max(1.0, self._cohorts.variance / _CV_HALF_VARIANCE)
        else:
            wanted = max(settings.least_cohort, 2 * self._cohorts.variance / settings.precision**2)
            rounds = max(50, rounds)
        return max(settings.first_cohort, int(min(wanted, settings.most_cohort, rounds)))

    def validate(self) -> None:
        """Assert the invariants of the class."""
        self._cohorts.validate()
        assert 0 <= self._levels.slope <= 1
        assert self._base is not None or self._phase is _Phase.WATCHING, "a limit is held without a base"
        assert math.isfinite(self._recent)
