"""Learns limits per minute that neither the roster nor the answers state, from the times of refusals. Pure.

A provider that counts usage admits everything until nothing is left, and then refuses everything, however little is
in flight, until the debt is repaid: an outbreak. From the last refusal of one outbreak to the first of the next, the
refill equals the usage, in the limited unit: this measures the limit to within a percent or two.
"""

from __future__ import annotations

import math
from operator import add
from statistics import fmean, pstdev
from typing import Final

from headgate.admission.classify import RequestOutcome

_ROW: Final = 3
"""Consecutive refusals, with nothing accepted that was sent after the first, that make an outbreak: a provider that
limits requests in flight refuses one and accepts the next."""

_LEARNT_ROW: Final = 2
"""The same while a limit is in force."""

_LEAST_SHARE: Final = 0.05
"""Minimum share of refused attempts from one outbreak to the next for anything to be learnt: a settled law has 2 %."""

_LEAST_S: Final = 20.0
_LEAST_ANSWERS: Final = 10
"""Minimum time and answers between outbreaks for a measurement. Up to two sooner ones in a row belong to a debt."""

_USUAL_KEPT: Final = 0.8
"""Factor on the usual rate of answers with each outbreak. Less than half of that rate is not learnt, as recovery from a
storm of refusals looks the same."""

_LEAST_KEPT: Final = 0.75
"""The least factor that one measurement applies to a learnt limit: a time of little demand looks like a low limit."""

_LEAST_MEASURED: Final = 3
_REMEMBERED: Final = 6
"""Measurements from which the unit is found: they agree best in the limited one."""

_CLEARLY: Final = 0.5
"""Another unit replaces the present one if its spread is below this fraction of the present one's."""

_LONGER: Final = 1.5
"""Replies in flight are longer than answered ones, as long ones take longer. They are still to be paid for."""

_STEP_S: Final = 15.0
_FIRST_STEP: Final = 0.005
_LARGEST_STEP: Final = 0.16
_EVEN_STEPS: Final = 8
_STEPS_TO_DOUBLE: Final = 2
"""A limit in use grows by half a percent per step, doubling every half minute: after two minutes of even growth, or
at once if it was measured only before it was in force."""

_USED: Final = 0.8
_MOST_GROWTH: Final = 8.0
"""Growth beyond the measured limit, as a factor, at which the limit is forgotten."""

_PAUSE_S: Final = 3.0
_LONGEST_PAUSE_S: Final = 15.0
"""Pause before one attempt tests whether an outbreak is over; doubled each time."""

_TRIALS: Final = 6
"""Consecutive outbreaks with as many refusals as before, after which a learnt limit is given up."""

_REST_S: Final = 600.0
"""Pause before a limit is learnt again; doubled each time."""


class RateLearner:
    """The limit per minute that an account's refusals imply. Owned by its account, created by the first refusal.

    Attributes:
        unit: the limited unit, as its index in `RATE_UNITS`.
        limit: this process's limit per minute; infinite while none is learnt.
        mean_reply: expected tokens of the reply to a request in flight.
        pause_s: pause before one attempt tests whether an outbreak is over.
        is_heard: whether the limit comes from other processes, with no refusal of this one having changed it since.
    """

    def __init__(self, now: float) -> None:
        self.unit = 0
        self.limit = math.inf
        self.mean_reply = self.pause_s = 0.0
        self.is_heard = False
        # The row of refusals: the very first one may be in the middle of an outbreak.
        self._is_out = True
        self._row = self._most = 0
        self._began_at = self._refused_at = now
        # Attempts since an outbreak began, and answers since its last refusal.
        self._refused = self._low = self._answered = 0
        self._amounts = [0, 0, 0, 0]
        self._since = now
        self._usual = 0.0
        # The learnt limit, and its growth.
        self._known = 0.0
        self._measured, self._seen = list[list[float]](), list[float]()
        self._echoes = self._failures = 0
        self._rest_s, self._rests_until = _REST_S, -math.inf
        self._steps = self._even_steps = self._step_amount = 0
        self._step_at = math.inf

    def answered(self, sent_at: float, outcome: RequestOutcome, now: float) -> bool:
        """Record an answer; return whether the limit changed."""
        if sent_at >= self._refused_at:
            self._row, self._is_out = 0, False
        self._answered += 1
        sent, said = outcome.prompt_tokens, outcome.tokens
        self._amounts = [*map(add, self._amounts, (1, sent, said, sent + said))]
        return now >= self._step_at and self._grow(now)

    def _grow(self, now: float) -> bool:
        amount = self._amounts[self.unit]
        used, self._step_amount = amount - self._step_amount, amount
        seconds, self._step_at = now - self._step_at + _STEP_S, now + _STEP_S
        if used < _USED * self.limit * seconds / 60:
            return False
        doublings = max(0, self._steps - self._even_steps) // _STEPS_TO_DOUBLE
        self.limit *= 1 + min(_LARGEST_STEP, _FIRST_STEP * 2**doublings)
        self._steps += 1
        if self.limit > _MOST_GROWTH * self._known:
            self._forget()
        return True

    def _forget(self) -> None:
        self.limit = self._step_at = math.inf
        self._failures = 0
        self._measured.clear()

    def refused(self, in_flight: int, now: float) -> bool:
        """Record the refusal of the `in_flight`-th request in flight; return whether a learnt limit is used up."""
        if not self._row:
            self._began_at, self._most = now, in_flight
        self._row += 1
        self._refused += 1
        self._low += in_flight == 1 or 2 * in_flight <= self._most
        self._refused_at = now
        if self._is_out:
            self.pause_s = min(_LONGEST_PAUSE_S, max(_PAUSE_S, 2 * self.pause_s))
        elif self._row < (_ROW if self.limit == math.inf else _LEARNT_ROW):
            return False
        else:
            self._is_out = True
            self.pause_s = 0.0
            self._learn(now)
        self._amounts = [0, 0, 0, 0]
        self._since = now
        self._step_amount = 0
        return self.limit < math.inf

    def _rates(self, until: float) -> list[float]:
        """Return the answered amounts per minute since the last outbreak; empty if too little to measure."""
        seconds = until - self._since
        is_measured = seconds >= _LEAST_S and self._amounts[0] >= _LEAST_ANSWERS
        return [amount * 60 / seconds for amount in self._amounts] if is_measured else []

    def _learn(self, now: float) -> None:
        """Learn, at the start of an outbreak, from the answers since the last one."""
        rates = self._rates(self._began_at)
        self._seen = rates or self._seen
        is_much = self._refused >= _LEAST_SHARE * (self._refused + self._answered)
        is_low = self._low >= _ROW
        self._refused = self._low = self._answered = 0
        if self.limit == math.inf:
            requests = rates[0] if rates else 0.0
            usual, self._usual = self._usual, max(requests, _USUAL_KEPT * self._usual)
            if not (is_much and is_low and requests > usual / 2) or now < self._rests_until:
                return
        else:
            self._failures = self._failures + 1 if is_much else 0
            if self._failures == _TRIALS:
                self._rests_until, self._rest_s = now + self._rest_s, 2 * self._rest_s
                self._forget()
                return
        if rates:
            self._measure(rates)
        else:
            self._echoes += 1
            if self._echoes > 2:
                self._known, self._even_steps = self._known / 2, 0
        self.limit = self._known
        self._steps, self._step_at = 0, now + _STEP_S
        self.is_heard = False

    def heard(self, unit: int, limit: float, now: float) -> None:
        """Adopt this process's share of a limit that other processes have learnt, and grow from there.

        If its own measurement between outbreaks is higher, it adopts that instead. An infinite limit was given up.
        """
        if limit == math.inf:
            if unit == self.unit:
                self._forget()
            return
        grown = 1.0
        if self.limit < math.inf and unit == self.unit:
            grown = self.limit / self._known
        elif own := self._rates(now) or self._seen:
            limit = max(limit, own[unit])
        self.unit, self._known, self._even_steps = unit, limit / grown, _EVEN_STEPS
        self._measured.clear()
        self._step_amount = self._amounts[unit]
        self.limit = limit
        self._steps, self._step_at = 0, now + _STEP_S
        self.is_heard = True

    def _measure(self, rates: list[float]) -> None:
        self.mean_reply = _LONGER * rates[2] / rates[0]
        self._echoes = 0
        units = [unit for unit in (3, 2, 0, 1) if rates[unit]]
        unit, before = units[0], self._known
        if self.limit < math.inf:
            self._measured = [*self._measured[1 - _REMEMBERED :], rates]
            unit = self._find_unit(units)
        self._known = rates[unit]
        if self._measured and unit == self.unit:
            self._known = max(self._known, _LEAST_KEPT * before)
        self.unit = unit
        self._even_steps = _EVEN_STEPS if self._measured else 0

    def _find_unit(self, units: list[int]) -> int:
        """Return the unit in which measurements clearly agree best, else the present one."""
        if self.unit not in units:
            return units[0]
        if len(self._measured) < _LEAST_MEASURED:
            return self.unit
        found = {unit: [rates[unit] for rates in self._measured] for unit in units}
        spread = {unit: pstdev(each) / fmean(each) for unit, each in found.items()}
        best = min(units, key=spread.__getitem__)
        return best if spread[best] < _CLEARLY * spread[self.unit] else self.unit
