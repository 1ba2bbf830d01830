"""The adaptive frontier: how many row groups are open at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BlockReason(StrEnum):
    """Why the frontier does not widen, in the order in which the reasons are looked at.

    Deferred retries are not among them: a row that waits for a provider's cooldown keeps no other row from opening.
    """

    NO_PENDING_ROW_GROUPS = "no_pending_row_groups"
    MAX_ADMITTED_ROWS = "max_admitted_rows"
    QUEUED_TASK_GUARDRAIL = "queued_task_guardrail"
    NO_MODEL_RESOURCE = "no_llm_wait_resource"
    MODEL_SATURATED = "llm_wait_saturated"
    QUEUED_MODEL_DEMAND = "queued_llm_demand"
    HARD_CAP = "hard_cap"


@dataclass(frozen=True, slots=True)
class FrontierRules:
    """Bounds and pace of the frontier.

    Attributes:
        floor: row groups that are open as long as there are any, whatever the pressure; where the target starts.
        cap: row groups open at most.
        is_adaptive: whether the target moves; otherwise it stays at `cap`.
        max_rows: rows open at most, except for the first row group.
        max_queued: ready tasks above which nothing is opened.
        narrow_after_s: seconds of sustained pressure after which the target falls by one, and again after each
            further such time.
        pressure_ratio: queued demand for the model resource, in multiples of its limit, that counts as pressure.
    """

    floor: int = 1
    cap: int = 8
    is_adaptive: bool = True
    max_rows: int = 8_192
    max_queued: int = 1_024
    narrow_after_s: float = 5.0
    pressure_ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.floor <= self.cap:
            raise ValueError(f"floor and cap must be 1 <= floor <= cap (got {self.floor} and {self.cap})")
        for name in ("max_rows", "max_queued"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1 (got {getattr(self, name)})")
        for name in ("narrow_after_s", "pressure_ratio"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0 (got {getattr(self, name)})")


@dataclass(frozen=True, slots=True)
class FrontierView:
    """What the frontier is told.

    Attributes:
        active: row groups open.
        active_rows: rows in them.
        next_rows: rows of the next row group; 0 when none is left.
        queued: ready tasks.
        limit: units of the model resource; None when the run has no such resource.
        free: of them, not held.
        demand: units that ready tasks want which may start.
        warming: units that open row groups will want, which have not come that far yet.
        is_pressed: whether the endpoints are known to be saturated, whatever the queue says.
    """

    active: int
    active_rows: int
    next_rows: int
    queued: int
    limit: int | None
    free: int
    demand: int
    warming: int
    is_pressed: bool = False


@dataclass(frozen=True, slots=True)
class FrontierStep:
    """What to do: open the next row group or not, and what happened to the target."""

    opens: bool
    blocked_by: BlockReason | None = None
    before: int = 0
    after: int = 0
    reason: str = ""


class AdaptiveFrontier:
    """Decides how many row groups are open. Pure; owned by one loop.

    Starts at the floor. The target grows by one when the model resource has units free that neither ready tasks nor
    row groups just opened are about to take; so it comes to rest where the resource is busy, and no row group is
    opened early. It falls by one per `narrow_after_s` of sustained pressure; row groups above it run to their end.
    A run with nothing open opens a row group whatever else holds: there is no way into a dead end.

    Invariant (`validate`): floor <= target <= cap.
    """

    def __init__(self, rules: FrontierRules) -> None:
        self.rules = rules
        self.target = rules.floor if rules.is_adaptive else rules.cap
        self.peak = self.target
        self._pressed_since: float | None = None

    def step(self, view: FrontierView, now: float) -> FrontierStep:
        """Return what to do now; call again after acting on it, until it neither opens nor moves."""
        narrowed = self._narrowed(view, now)
        if narrowed is not None:
            return narrowed
        blocked_by = self._blocked(view)
        if blocked_by is not None:
            return FrontierStep(False, blocked_by)
        if view.active < max(self.target, 1):
            return FrontierStep(True)
        self.target += 1
        self.peak = max(self.peak, self.target)
        return FrontierStep(True, None, self.target - 1, self.target, "horizon_limited")

    def _blocked(self, view: FrontierView) -> BlockReason | None:
        if not view.next_rows:
            return BlockReason.NO_PENDING_ROW_GROUPS
        if not view.active:
            return None
        if view.active_rows + view.next_rows > self.rules.max_rows:
            return BlockReason.MAX_ADMITTED_ROWS
        if view.queued >= self.rules.max_queued:
            return BlockReason.QUEUED_TASK_GUARDRAIL
        if view.active < self.target:
            return None
        return BlockReason.HARD_CAP if self.target >= self.rules.cap else _not_idle(view)

    def next_change_at(self) -> float | None:
        """Return when pressure that lasts narrows the frontier."""
        if self._pressed_since is None or self.target <= self.rules.floor or not self.rules.is_adaptive:
            return None
        return self._pressed_since + self.rules.narrow_after_s

    def _narrowed(self, view: FrontierView, now: float) -> FrontierStep | None:
        is_pressed = view.limit is not None and (
            view.is_pressed or (view.free <= 0 and view.demand >= max(1.0, self.rules.pressure_ratio * view.limit))
        )
        if not is_pressed:
            self._pressed_since = None
        elif self._pressed_since is None:
            self._pressed_since = now
        at = self.next_change_at()
        if at is None or now < at:
            return None
        self._pressed_since = now
        self.target -= 1
        return FrontierStep(False, None, self.target + 1, self.target, "sustained_pressure")

    def validate(self) -> None:
        """Assert the invariant of the class."""
        assert self.rules.floor <= self.target <= self.rules.cap


def _not_idle(view: FrontierView) -> BlockReason | None:
    if view.limit is None or view.limit < 1:
        return BlockReason.NO_MODEL_RESOURCE
    if view.free <= 0:
        return BlockReason.MODEL_SATURATED
    if view.is_pressed or view.free <= view.demand + view.warming:
        return BlockReason.QUEUED_MODEL_DEMAND
    return None
