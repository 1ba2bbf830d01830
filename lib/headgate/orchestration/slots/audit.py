"""Compares the slots that a limit counts as taken with the known leases; reports and fixes the differences."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.admission import NAME_PREFIX, LimitRule
from headgate.admission.bank import LimitSeen
from headgate.core.audit import record_change
from headgate.orchestration.slots.service import Holder, SlotService, known_slots

SECOND_LOOK_S: Final = 6.0
"""Seconds between the two readings of an audit: longer than the lag of the register."""


class Disagreements:
    """Readings of limits that do not match the known leases. Owned by the slot broker.

    A single reading proves little, as the register lags by seconds; a difference that lasts is reported once.
    """

    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._since: dict[str, float] = {}
        self._told: dict[str, int] = {}

    def note(self, limit: str, active: int, known: int, now: float) -> bool:
        """Record a reading; return whether a difference should be reported."""
        if active == known:
            self._since.pop(limit, None)
            self._told.pop(limit, None)
            return False
        lasting = now - self._since.setdefault(limit, now) >= self._lasting_s
        is_news = lasting and self._told.get(limit) != active - known
        if is_news:
            self._told[limit] = active - known
        return is_news


@dataclass(frozen=True, slots=True)
class LimitReport:
    """A limit and the holders of its slots.

    Attributes:
        holders: the living processes that hold slots of it, or want some.
    """

    name: str
    seen: LimitSeen
    holders: tuple[Holder, ...]

    @property
    def known(self) -> int:
        """Slots under leases of living processes."""
        return known_slots(self.name, self.holders)

    @property
    def difference(self) -> int:
        """Taken slots beyond the known ones: positive if slots leaked, negative if some were given back twice."""
        return self.seen.active_slots - self.known


async def limit_reports(service: SlotService, names: Iterable[str] = ()) -> list[LimitReport]:
    """Return the limits `names` with their holders; without names, all that Headgate uses or has named.

    Raises:
        OrchestratorUnreachableError: if the API does not answer.
    """
    holders = [holder for holder in await service.holders() if not holder.is_stale]
    used = {name for holder in holders for name in holder.holdings}
    wanted = set(names)
    return [
        LimitReport(name, seen, tuple(holder for holder in holders if name in holder.holdings))
        for name, seen in await service.limits()
        if name in wanted or (not wanted and (name in used or name.startswith(NAME_PREFIX)))
    ]


async def audit_limits(service: SlotService, names: Iterable[str] = (), *, fix: bool = False) -> list[LimitReport]:
    """Return the limits whose active slots differ from the known leases in two readings; `fix` corrects them.

    Raises:
        OrchestratorUnreachableError: if the API does not answer.
    """
    first = {report.name: report for report in await limit_reports(service, names) if report.difference}
    if not first:
        return []
    await asyncio.sleep(SECOND_LOOK_S)
    second = [report for report in await limit_reports(service, list(first)) if report.difference]
    if fix:
        for report in second:
            await service.set_active_slots(report.name, report.known)
            counts = {"before": f"{report.seen.active_slots} taken", "after": f"{report.known} taken"}
            await asyncio.to_thread(record_change, "limits fix", report.name, **counts)
    return second


async def apply_limits(
    service: SlotService, rules: Iterable[LimitRule], *, only_missing: bool = False
) -> dict[str, bool]:
    """Create the limits of `rules`, set existing ones to their number; return by name whether anything changed.

    Of several rules with one name, the first sets the number. With `only_missing`, existing limits are left as they
    are, which preserves changes made while running.

    Raises:
        OrchestratorUnreachableError: if the API does not answer.
    """
    slots: dict[str, int] = {}
    for rule in rules:
        slots.setdefault(rule.name, rule.slots)
    return {name: await service.set_limit(name, number, only_missing=only_missing) for name, number in slots.items()}
