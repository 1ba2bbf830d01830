"""Pressure on model endpoints: which models' tasks are passed over for now, how often, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.core import TimerHeap

USELESS: Final = frozenset({"cooldown", "breaker_open", "no_slots", "shutdown", "daily_budget", "engine"})
"""Reasons under which a request would only wait, so a worker given to such a task would be wasted."""


@dataclass(frozen=True, slots=True)
class PressureRules:
    """How long a task may be passed over because its endpoint is under pressure.

    Attributes:
        max_pass_overs: tasks that may go before the first task of a pressured lane; then that task goes next.
        max_age_s: seconds of being passed over after which it goes next in any case.
        closing: reasons under which no task of a lane starts at all.
    """

    max_pass_overs: int = 100
    max_age_s: float = 30.0
    closing: frozenset[str] = USELESS

    def __post_init__(self) -> None:
        if self.max_pass_overs < 1:
            raise ValueError(f"max_pass_overs must be >= 1 (got {self.max_pass_overs})")
        if not self.max_age_s > 0:
            raise ValueError(f"max_age_s must be > 0 (got {self.max_age_s})")


@dataclass(slots=True)
class Pressed:
    """One lane under pressure.

    Attributes:
        reason: the cause of the pressure.
        until: when it ends by itself; None when only an event ends it.
        is_useless: whether no task of the lane may start at all.
        passed_over: tasks that went before the lane's first task since a task of the lane last started.
        since: when the first of them went.
    """

    reason: str
    until: float | None
    is_useless: bool
    passed_over: int = 0
    since: float | None = None


class PressureBoard:
    """Tracks which lanes are under pressure. Pure; owned by the dispatcher."""

    def __init__(self, rules: PressureRules) -> None:
        self.rules = rules
        self.lanes: dict[str, Pressed] = {}
        """The lanes under pressure; read-only."""
        self._ends = TimerHeap()
        self.pass_overs = 0

    def get(self, lane: str) -> Pressed | None:
        """Return a lane's pressure, None if it has none."""
        return self.lanes.get(lane)

    def put(self, lane: str, reason: str | None, until: float | None) -> None:
        """Set a lane's pressure, or clear it (None). A new reason keeps the count of pass-overs so far."""
        self._ends.set(lane, until if reason is not None else None)
        if reason is None:
            self.lanes.pop(lane, None)
            return
        pressed = self.lanes.get(lane)
        if pressed is None:
            self.lanes[lane] = Pressed(reason, until, reason in self.rules.closing)
        else:
            pressed.reason, pressed.until, pressed.is_useless = reason, until, reason in self.rules.closing

    def next_end(self) -> float | None:
        """Return when the next pressure ends by itself, None if none does."""
        return self._ends.next_at()

    def end_due(self, now: float) -> list[str]:
        """Clear the pressures that have expired; return their lanes."""
        ended = self._ends.pop_due(now)
        for lane in ended:
            del self.lanes[lane]
        return ended

    def may_pass_over(self, lane: str, now: float) -> bool:
        """Return whether one more task may go before the first task of `lane`."""
        pressed = self.lanes[lane]
        is_old = pressed.since is not None and now - pressed.since >= self.rules.max_age_s
        return pressed.passed_over < self.rules.max_pass_overs and not is_old

    def pass_over(self, lane: str, now: float) -> None:
        """Count that a task went before the first task of `lane`."""
        pressed = self.lanes[lane]
        pressed.since = now if pressed.since is None else pressed.since
        pressed.passed_over += 1
        self.pass_overs += 1

    def started(self, lane: str) -> None:
        """Note that a task of the lane started, which resets the lane's pass-overs."""
        pressed = self.lanes.get(lane)
        if pressed is not None:
            pressed.passed_over, pressed.since = 0, None
