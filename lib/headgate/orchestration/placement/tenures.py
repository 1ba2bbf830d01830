"""Who held which place when, and how it ended: what a run's table, figure and report are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        request_id: of all stays of the task run, in the ledger.
        lease_id: of this stay.
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
    request_id: str
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


@dataclass(frozen=True, slots=True)
class Stop:
    """What the ledger says of one preemption.

    Attributes:
        request: who was stopped.
        by: for whom.
        reason: which rule allowed it.
        lost_s: work that was lost at most, as seconds of the whole cluster.
        took_s: from the decision until the place was seen empty.
    """

    request: str
    by: str
    reason: str
    lost_s: float
    took_s: float


def role_rows(tenures: Sequence[Tenure]) -> list[dict[str, str]]:
    """Return a row for each role, the highest priority first."""
    roles = sorted({t.role for t in tenures}, key=lambda role: (-_priority(tenures, role), role))
    return [_role_row(role, [t for t in tenures if t.role == role]) for role in roles]


def preemption_rows(tenures: Sequence[Tenure], stops: Sequence[Stop] = ()) -> list[dict[str, str]]:
    """Return a row for each stay that was cut short, in the order of time, with its cost and when its work went on."""
    names = {tenure.request_id: tenure.task_run for tenure in tenures}
    told: dict[str, list[Stop]] = {}
    for stop in stops:
        told.setdefault(stop.request, []).append(stop)
    cuts = [t for t in sorted(tenures, key=lambda tenure: tenure.ended_at) if t.end is TenureEnd.PREEMPTED]
    return [_cut_row(cut, tenures, _next(told.get(cut.request_id)), names) for cut in cuts]


def _next(stops: list[Stop] | None) -> Stop | None:
    return stops.pop(0) if stops else None


def _cut_row(cut: Tenure, tenures: Sequence[Tenure], stop: Stop | None, names: Mapping[str, str]) -> dict[str, str]:
    return {
        "task run": cut.task_run,
        "for": names.get(stop.by, stop.by) if stop else "",
        "place": cut.place,
        "why": cut.why,
        "ran before": f"{cut.held_s:.2f} s",
        "stopped in": f"{1e3 * stop.took_s:.0f} ms" if stop else "",
        "lost at most": f"{stop.lost_s:.2f} cluster seconds" if stop else "",
        "went on after": _gap(cut, tenures),
        "ended": _last_end(cut, tenures),
    }


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
