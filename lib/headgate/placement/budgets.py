"""Preemption budgets: a share of the pool per interval, a minimum that each label keeps, and no pair twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.placement.amounts import Amounts, total
from headgate.placement.pool import Pool
from headgate.placement.request import Occupancy, Stage
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import Refusal

MOST_PAIRS: Final = 10_000
"""Most pairs remembered; beyond that the oldest are forgotten before their interval is over."""

_PARTS: Final = 1_000_000


@dataclass(slots=True)
class Budgets:
    """Records recent preemptions and decides whether more are allowed. Owned by the ledger; lives as long as it.

    Reserved groups on loan are reclaimed without consulting the budgets.

    Attributes:
        rules: the limits; may be replaced at any time.
    """

    rules: PreemptionRules
    _stopped: dict[str, list[tuple[float, Amounts]]] = field(default_factory=dict)
    _pairs: dict[frozenset[str], float] = field(default_factory=dict)

    def allows(
        self, pool: Pool, victims: Sequence[Occupancy], preemptor_id: str, running: Iterable[Occupancy], now: float
    ) -> Refusal | None:
        """Return why these victims of one pool may not be stopped together now, or None if they may.

        `running` is all placed work of that pool; only work in the stage RUNNING counts.
        """
        return (
            self._pair_rests(victims, preemptor_id, now)
            or _label_keeps(pool, victims, running)
            or self._share_is_used(pool, victims, now)
        )

    def record(self, pool: Pool, victims: Sequence[Occupancy], preemptor_id: str, now: float) -> None:
        """Remember that these victims of one pool are stopped now."""
        self.forget(now)
        if not victims:
            return
        size = total(each.request.size for each in victims)
        self._stopped.setdefault(pool.name, []).append((now, size))
        for victim in victims:
            pair = frozenset((preemptor_id, victim.request_id))
            self._pairs.pop(pair, None)
            self._pairs[pair] = now
        while len(self._pairs) > MOST_PAIRS:
            del self._pairs[next(iter(self._pairs))]

    def forget(self, now: float) -> None:
        """Drop entries older than the interval of their limit."""
        self._stopped = {name: recent for name in self._stopped if (recent := self._recent(name, now))}
        while self._pairs:
            pair, at = next(iter(self._pairs.items()))
            if now < at + self.rules.pair_interval_s:
                break
            del self._pairs[pair]

    def validate(self) -> None:
        """Check the invariants: entries in order of time, pairs of two, and no more pairs than the bound."""
        for stopped in self._stopped.values():
            times = [at for at, _ in stopped]
            assert times, "pools without stopped work are forgotten"
            assert times == sorted(times), "stopped work is remembered in order"
        assert len(self._pairs) <= MOST_PAIRS, "pairs are forgotten"
        assert list(self._pairs.values()) == sorted(self._pairs.values()), "pairs are remembered in order"
        assert all(len(pair) == 2 for pair in self._pairs), "nothing stops itself"

    def _recent(self, pool_name: str, now: float) -> list[tuple[float, Amounts]]:
        stopped = self._stopped.get(pool_name, ())
        return [(at, size) for at, size in stopped if now < at + self.rules.budget_interval_s]

    def _pair_rests(self, victims: Sequence[Occupancy], preemptor_id: str, now: float) -> Refusal | None:
        for victim in victims:
            at = self._pairs.get(frozenset((preemptor_id, victim.request_id)))
            if at is not None and now < (until := at + self.rules.pair_interval_s):
                return Refusal(
                    "pair_interval",
                    f"{preemptor_id} and {victim.request_id} preempted each other {now - at:.0f} s ago, "
                    f"and pair_interval_s is {self.rules.pair_interval_s:g}",
                    until,
                )
        return None

    def _share_is_used(self, pool: Pool, victims: Sequence[Occupancy], now: float) -> Refusal | None:
        if not (recent := self._recent(pool.name, now)):
            return None
        size = total(each.request.size for each in victims)
        waits_for: float | None = None
        for number, (at, _) in enumerate(recent):
            if self._within(pool, total([size, *(later for _, later in recent[number:])])):
                break
            waits_for = at
        if waits_for is None:
            return None
        return Refusal(
            "budget",
            f"{size} more would be over budget_share {self.rules.budget_share:g} of pool {pool.name} in "
            f"budget_interval_s {self.rules.budget_interval_s:g}",
            waits_for + self.rules.budget_interval_s,
        )

    def _within(self, pool: Pool, size: Amounts) -> bool:
        parts = round(self.rules.budget_share * _PARTS)
        quota = dict(pool.quota.units)
        return all(units * _PARTS <= quota[name] * parts for name, units in size.units if name in quota)


def _label_keeps(pool: Pool, victims: Sequence[Occupancy], running: Iterable[Occupancy]) -> Refusal | None:
    """Return the refusal for the label value of which preemption would leave too few, or None."""
    if not pool.min_available:
        return None
    stopped = {each.request_id for each in victims}
    left = [each for each in running if each.stage is Stage.RUNNING and each.request_id not in stopped]
    for written, least in pool.min_available.items():
        if any(_carries(each, written) for each in victims):
            count = sum(_carries(each, written) for each in left)
            if count < least:
                return Refusal(
                    "min_available",
                    f"pool {pool.name} keeps at least {least} with {written}; {count} would be left",
                )
    return None


def _carries(occupancy: Occupancy, written: str) -> bool:
    key, _, value = written.partition("=")
    return occupancy.request.labels.get(key) == value
