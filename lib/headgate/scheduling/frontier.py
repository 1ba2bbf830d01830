"""The adaptive frontier: how many row groups are open at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BlockReason(StrEnum):
    """Why the frontier does not widen, in the order in which the reasons are checked.

    Deferred retries are not among them: a row that waits for a provider's cooldown does not keep other rows closed.
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
        floor: minimum of open row groups while any are left, whatever the pressure; the initial target.
        cap: maximum of open row groups.
        is_adaptive: whether the target moves; otherwise it stays at `cap`.
        max_rows: maximum of open rows; the first row group may exceed it.
        max_queued: number of ready tasks from which no row group opens.
        narrow_after_s: seconds of sustained pressure after which the target falls by one, and again after each
            further such period.
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
    """The frontier's input.

    Attributes:
        active: open row groups.
        active_rows: rows in them.
        next_rows: rows of the next row group; 0 when none is left.
        queued: ready tasks.
        limit: total units of the model resource; None when the run has no such resource.
        free: units of it that are not held.
        demand: units wanted by ready tasks that may start.
        warming: units that open row groups will want soon, for tasks that are not ready yet.
        is_pressed: whether the endpoints are known to be saturated, whatever the queue shows.
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
    """Whether to open the next row group, and how the target changed."""

    opens: bool
    blocked_by: BlockReason | None = None
    before: int = 0
    after: int = 0
    reason: str = ""


class AdaptiveFrontier:
    """Decides how many row groups are open. Pure; owned by one loop.

    Starts at the floor. The target grows by one when the model resource has free units that neither ready tasks nor
    newly opened row groups are about to take, so it settles where the resource is busy, and no row group opens
    early. It falls by one per `narrow_after_s` of sustained pressure; open row groups above it run to completion.
    A run with nothing open always opens a row group, so it cannot deadlock.

    Invariant (`validate`): floor <= target <= cap.
    """

    def __init__(self, rules: FrontierRules) -> None:
        self.rules = rules
        self.target = rules.floor if rules.is_adaptive else rules.cap
        self.peak = self.target
        self._pressed_since: float | None = None

    def step(self, view: FrontierView, now: float) -> FrontierStep:
        """Return what to do now; act on it and call again until it neither opens a row group nor moves the target."""
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
        """Return when the frontier narrows if the pressure lasts; None if it will not."""
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
