"""Who held which place when, and how it ended: what a run's table, figure and report are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean


class TenureEnd(StrEnum):
    """How a task left its place."""

    DONE = "done"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Tenure:
    """One stay of a task run in one place.

    Attributes:
        task_run: name of the task run.
        role: its label `role`, else the task's name.
        priority: as it was asked for.
        place: name of the placement group.
        lease_id: of the stay.
        asked_at: seconds since the epoch when it went into the line for this stay.
        started_at: when it had the place.
        ended_at: when it had left it.
        end: how.
        why: why the place was taken away; empty when it was not.
    """

    task_run: str
    role: str
    priority: float
    place: str
    lease_id: str
    asked_at: float
    started_at: float
    ended_at: float
    end: TenureEnd
    why: str = ""

    @property
    def waited_s(self) -> float:
        """Time in line."""
        return self.started_at - self.asked_at

    @property
    def held_s(self) -> float:
        """Time in the place."""
        return self.ended_at - self.started_at


def role_rows(tenures: Sequence[Tenure]) -> list[dict[str, str]]:
    """Return a row for each role, the highest priority first."""
    roles = sorted({t.role for t in tenures}, key=lambda role: (-_priority(tenures, role), role))
    return [_role_row(role, [t for t in tenures if t.role == role]) for role in roles]


def preemption_rows(tenures: Sequence[Tenure]) -> list[dict[str, str]]:
    """Return a row for each stay that was cut short, in the order of time, with when its work went on."""
    return [
        {
            "task run": cut.task_run,
            "place": cut.place,
            "why": cut.why,
            "ran before": f"{cut.held_s:.2f} s",
            "went on after": _gap(cut, tenures),
            "ended": _last_end(cut, tenures),
        }
        for cut in sorted(tenures, key=lambda tenure: tenure.ended_at)
        if cut.end is TenureEnd.PREEMPTED
    ]


def _priority(tenures: Sequence[Tenure], role: str) -> float:
    return max(t.priority for t in tenures if t.role == role)


def _role_row(role: str, stays: Sequence[Tenure]) -> dict[str, str]:
    return {
        "role": role,
        "priority": f"{_priority(stays, role):g}",
        "task runs": str(len({t.task_run for t in stays})),
        "done": str(sum(t.end is TenureEnd.DONE for t in stays)),
        "preempted": str(sum(t.end is TenureEnd.PREEMPTED for t in stays)),
        "mean wait": f"{fmean(t.waited_s for t in stays):.2f} s",
        "longest wait": f"{max(t.waited_s for t in stays):.2f} s",
        "held": f"{sum(t.held_s for t in stays):.1f} s",
    }


def _later(cut: Tenure, tenures: Sequence[Tenure]) -> list[Tenure]:
    later = [t for t in tenures if t.task_run == cut.task_run and t.started_at >= cut.ended_at]
    return sorted(later, key=lambda tenure: tenure.started_at)


def _gap(cut: Tenure, tenures: Sequence[Tenure]) -> str:
    later = _later(cut, tenures)
    return f"{later[0].started_at - cut.ended_at:.2f} s" if later else "not again"


def _last_end(cut: Tenure, tenures: Sequence[Tenure]) -> str:
    later = _later(cut, tenures)
    return later[-1].end.value if later else cut.end.value
