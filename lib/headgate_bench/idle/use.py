"""How a resource was used between consecutive facts: busy, idle, starved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate_bench.idle.facts import Fact, Step


@dataclass(slots=True)
class Use:
    """The integral over time of one resource.

    Between two consecutive facts, dt apart, with `active` units leased and `wanted` units of queued demand:
    busy grows by active·dt, idle by (capacity - active)·dt, and starved by the same as idle where anything is wanted.
    What is idle and not starved is frontier idle: no task was ready that could have used it.

    Attributes:
        capacity: units.
        active: units leased now.
        wanted: units that queued tasks (or waiting requests) ask for now.
        waits: seconds from ready to leased, of each task that took some.
    """

    capacity: int
    active: int = 0
    wanted: int = 0
    waits: list[float] = field(default_factory=list)
    window_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    starved_s: float = 0.0
    highest: int = 0
    _squares: float = 0.0

    def pass_time(self, seconds: float) -> None:
        """Let time pass with what is active and wanted now."""
        idle = max(0, self.capacity - self.active)
        self.window_s += seconds
        self.busy_s += self.active * seconds
        self.idle_s += idle * seconds
        self.starved_s += idle * seconds if self.wanted > 0 else 0.0
        self._squares += self.active**2 * seconds
        self.highest = max(self.highest, self.active)

    @property
    def capacity_s(self) -> float:
        """Capacity times the length of the window."""
        return self.capacity * self.window_s

    @property
    def frontier_s(self) -> float:
        """Idle time in which nothing ready could have used the resource."""
        return max(0.0, self.idle_s - self.starved_s)

    @property
    def burstiness(self) -> float:
        """Standard deviation of the active units over their mean, by time; 0 when nothing was active."""
        if not self.busy_s:
            return 0.0
        mean = self.busy_s / self.window_s
        return math.sqrt(max(0.0, self._squares / self.window_s - mean**2)) / mean

    def share(self, seconds: float) -> float:
        """Return a part of the capacity as a ratio."""
        return seconds / self.capacity_s if self.capacity_s else 0.0


def scheduler_use(facts: Sequence[Fact], limits: Mapping[str, int]) -> dict[str, Use]:
    """Return how the scheduler's resources were used, from the first fact to the last."""
    uses = {name: Use(limit) for name, limit in limits.items()}
    ready: dict[str, float] = {}
    parked: set[str] = set()
    for fact, seconds in _with_gaps(facts):
        wanted, active = _changes(fact, ready, parked)
        for name, units in fact.resources.items() if wanted or active else ():
            uses[name].wanted += wanted * units
            uses[name].active += active * units
        if fact.step is Step.LEASED and (was_ready := ready.pop(fact.task, None)) is not None:
            for name in fact.resources:
                uses[name].waits.append(fact.at - was_ready)
        for use in uses.values():
            use.pass_time(seconds)
    return uses


def _changes(fact: Fact, ready: dict[str, float], parked: set[str]) -> tuple[int, int]:
    """Return by how many of its task a fact changes what is wanted and what is active."""
    match fact.step:
        case Step.READY:
            ready[fact.task] = fact.at
            return 1, 0
        case Step.LEASED:
            return -(fact.task in ready), 1
        case Step.PARKED:
            parked.add(fact.task)
            return 0, -1
        case Step.UNPARKED:
            parked.discard(fact.task)
            return 0, 1
        case Step.RELEASED if fact.task in parked:
            # What it held is with others already.
            parked.discard(fact.task)
        case Step.RELEASED:
            return 0, -1
    return 0, 0


def request_use(facts: Sequence[Fact], slots: Mapping[str, int]) -> dict[str, Use]:
    """Return how the providers' slots were used, from the first fact to the last."""
    uses = {name: Use(limit) for name, limit in slots.items()}
    waiting: dict[str, float] = {}
    for fact, seconds in _with_gaps(facts):
        use = uses.get(fact.provider)
        match fact.step:
            case Step.WAITING if use:
                waiting[fact.task] = fact.at
                use.wanted += 1
            case Step.ADMITTED if use:
                use.active += 1
                if (since := waiting.pop(fact.task, None)) is not None:
                    use.wanted -= 1
                    use.waits.append(fact.at - since)
            case Step.DONE if use:
                use.active -= 1
        for one in uses.values():
            one.pass_time(seconds)
    return uses


def _with_gaps(facts: Sequence[Fact]) -> list[tuple[Fact, float]]:
    """Return each fact with the time until the next one; the last has none."""
    nexts = [fact.at for fact in facts[1:]] + [facts[-1].at] if facts else []
    return [(fact, max(0.0, at - fact.at)) for fact, at in zip(facts, nexts, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at the rank nearest to `share`; 0 without values (DataDesigner's rule)."""
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * share)] if ordered else 0.0
