"""How much longer work is likely to run: as its submitter estimated, or as similar work ran before.

To order work, its mean run time matters less than how little more it may need: the Gittins index (1979), that is the
minimum, over all horizons, of the expected run time within the horizon divided by the chance to end within it. For work
with an estimate it is what remains of the estimate, as long as the estimates of its kind hold. If nothing is known it
grows with the time already run, which is least attained service; every finished run of a kind moves it towards what
work of that kind takes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import frexp, inf
from typing import Final

from headgate.placement.request import Occupancy

BINS: Final = 24
"""Durations are counted by powers of two, from a second to half a year."""

MOST_KINDS: Final = 1_000
"""Most kinds of work remembered; beyond that the one that ended least recently is forgotten."""

_ENOUGH: Final = 256.0
"""Beyond this many counted runs of a kind, all of its counts are halved, so that old runs weigh less."""

_PRIOR: Final = tuple(0.5 * 0.75**each for each in range(BINS))
"""The prior: two assumed runs of every kind, by which a quarter of the work that has run for a time ends before twice
that time. Work is assumed to have this heavy a tail until its own runs say otherwise."""

_GRACE_S: Final = 30.0
"""How much longer than twice its estimate work may take before that counts against it: starting takes time, too."""

_MOST_FALSE: Final = 0.25
"""Share of a kind's estimates that may be too short; one accurate estimate is assumed on top."""

_DISTRUST: Final = 2.0
"""Beyond that share, estimates are multiplied by this and by how far they fell short: what understating gains until it
is noticed is lost afterwards."""

_STATED: Final = "|stated"
"""Suffix of a kind's name under which runs are counted by how many times their estimate they took."""


def level(seconds: float) -> int:
    """Return the bin of a duration: its power of two."""
    return min(BINS - 1, max(0, frexp(seconds)[1] - 1))


def ran_s(request: Occupancy, now: float) -> float:
    """Return how long work has run in total, including its current start."""
    return request.served_s + (0.0 if request.started_at is None else max(0.0, now - request.started_at))


def kind_of_work(request: Occupancy) -> str:
    """Return the key by which runs are counted: pool and labels, or pool and driver if there are no labels."""
    wanted = request.request
    labels = ",".join(f"{key}={value}" for key, value in sorted(wanted.labels.items()))
    return f"{wanted.pool}|{labels or '|' + request.holder}"


@dataclass(slots=True)
class Durations:
    """Counted runs by kind of work. Owned by the ledger, journalled kind by kind.

    Attributes:
        counts: kind -> how many runs ended in each bin, latest kind last; under a second name how far its estimates
            were off.
    """

    counts: OrderedDict[str, list[float]] = field(default_factory=OrderedDict)
    _left: dict[str, dict[int, float]] = field(default_factory=dict)

    def learn(self, request: Occupancy, took_s: float) -> list[str]:
        """Count a run that ended by itself; return the kinds that changed, including one that was forgotten for it."""
        changed = self._count(kind_of_work(request), level(took_s))
        if request.request.estimated_duration_s > 0 and not request.outran:
            changed += self._count(kind_of_work(request) + _STATED, 0)
        return changed

    def has_outrun(self, running: Occupancy, now: float) -> bool:
        """Tell whether running work has outrun its estimate again: taken twice as long as was last counted for it."""
        return ran_s(running, now) >= _outruns_at_s(running)

    def outrun(self, running: Occupancy) -> list[str]:
        """Count that running work takes twice as long as was last counted; return the kinds that changed."""
        kind = kind_of_work(running) + _STATED
        if running.outran and kind in self.counts:
            self.counts[kind][running.outran] = max(0.0, self.counts[kind][running.outran] - 1.0)
        running.outran = min(BINS - 1, running.outran + 1)
        return self._count(kind, running.outran)

    def times_told(self, kind: str) -> float:
        """Return the factor by which estimates of a kind are multiplied; at least 1."""
        counts = self.counts.get(kind + _STATED)
        if counts is None or not any(counts[1:]):
            return 1.0
        most, longer = _MOST_FALSE * (sum(counts) + 1.0), 0.0
        for where in range(BINS - 1, 0, -1):
            longer += counts[where]
            if longer > most:
                return _DISTRUST * 2.0 ** (where + 1)
        return 1.0

    def _count(self, kind: str, where: int) -> list[str]:
        counts = self.counts.setdefault(kind, [0.0] * BINS)
        self.counts.move_to_end(kind)
        counts[where] += 1.0
        if sum(counts) > _ENOUGH:
            counts[:] = [each / 2 for each in counts]
        changed = [kind]
        if len(self.counts) > MOST_KINDS:
            changed.append(self.counts.popitem(last=False)[0])
        for each in changed:
            self._left.pop(each, None)
        return changed

    def left_s(self, request: Occupancy, now: float) -> float:
        """Return how much longer work is likely to run, in seconds: an index, small where it may end soon."""
        served_s = ran_s(request, now)
        told_s = request.request.estimated_duration_s
        if told_s > 0:
            told_s *= self.times_told(kind_of_work(request))
            return max(1.0, told_s - served_s, served_s - told_s)  # overdue work: as long again as it is overdue
        kind = kind_of_work(request) if self.counts else ""
        if kind not in self.counts:
            kind = ""  # all unknown kinds share one cache entry, so that asking about them costs no memory
        known, begin = self._left.setdefault(kind, {}), level(served_s)
        if begin not in known:
            known[begin] = _index(self.counts.get(kind), begin)
        return known[begin]

    def changes_at(self, running: Occupancy, now: float) -> float:
        """Return when `left_s` of running work will next change much, in monotonic seconds; infinite for never."""
        if running.started_at is None:
            return inf
        served_s = ran_s(running, now)
        told_s = running.request.estimated_duration_s
        if served_s < told_s:
            return now + told_s - served_s
        if served_s < (outruns_at_s := _outruns_at_s(running)) < inf:
            return now + outruns_at_s - served_s
        return now + 2.0 ** (level(served_s) + 1) - served_s

    def validate(self) -> None:
        """Assert that the memory is bounded."""
        assert len(self.counts) <= MOST_KINDS, "kinds are forgotten"
        assert self._left.keys() <= {"", *self.counts}, "what is worked out is of kinds that are remembered"
        for counts in self.counts.values():
            assert len(counts) == BINS, "a count for each bin"
            assert sum(counts) <= _ENOUGH, "counts are halved"


def _outruns_at_s(request: Occupancy) -> float:
    """Return the run time at which work has outrun its estimate once more; infinite if it has none."""
    told_s = request.request.estimated_duration_s
    return 2.0 ** (request.outran + 1) * told_s + _GRACE_S if told_s > 0 and request.outran < BINS - 1 else inf


def _index(counts: list[float] | None, begin: int) -> float:
    """Return the Gittins index of work whose run time so far lies in bin `begin`."""
    weights = [prior + each for prior, each in zip(_PRIOR, counts or [0.0] * BINS, strict=True)]
    begins_s = 2.0**begin if begin else 0.0
    alive = sum(weights[begin:])
    ended, spent, best = 0.0, 0.0, inf
    for end in range(begin, BINS):
        middle_s = max(1.5 * 2.0**end - begins_s, 0.0)
        ended += weights[end]
        spent += weights[end] * middle_s
        best = min(best, (spent + (alive - ended) * (2.0 ** (end + 1) - begins_s)) / ended)
    return best
