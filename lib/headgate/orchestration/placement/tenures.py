"""Which task held which place when, and how it ended: the data of a run's table, figure and report."""

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

    Times are seconds since the epoch: when it joined the queue for this stay, got the place (a placement group), and
    had left it. The request covers all stays of the task run, the lease only this one.
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
        """Time in the queue, in seconds."""
        return self.started_at - self.asked_at

    @property
    def held_s(self) -> float:
        """Time in the place, in seconds."""
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True)
class Stop:
    """The ledger's record of one preemption.

    `lost_s` is an upper bound of the lost work, as seconds of the whole cluster; `took_s` is the time from the
    decision until the place was seen to be empty.
    """

    request: str
    by: str
    reason: str
    lost_s: float
    took_s: float


def roles_of(tenures: Sequence[Tenure]) -> list[str]:
    """Return the roles, highest priority first."""
    highest: dict[str, float] = {}
    for tenure in tenures:
        highest[tenure.role] = max(tenure.priority, highest.get(tenure.role, tenure.priority))
    return sorted(highest, key=lambda role: (-highest[role], role))


def role_rows(tenures: Sequence[Tenure]) -> list[dict[str, str]]:
    """Return a row for each role, highest priority first."""
    rows = []
    for role in roles_of(tenures):
        stays = [t for t in tenures if t.role == role]
        row = {
            "role": role,
            "priority": f"{max(t.priority for t in stays):g}",
            "task runs": str(len({t.task_run for t in stays})),
            "done": str(sum(t.end is TenureEnd.DONE for t in stays)),
            "preempted": str(sum(t.end is TenureEnd.PREEMPTED for t in stays)),
            "mean wait": f"{fmean(t.waited_s for t in stays):.2f} s",
            "longest wait": f"{max(t.waited_s for t in stays):.2f} s",
            "held": f"{sum(t.held_s for t in stays):.1f} s",
        }
        rows.append(row)
    return rows


def preemption_rows(tenures: Sequence[Tenure], stops: Sequence[Stop] = ()) -> list[dict[str, str]]:
    """Return a row for each stay that was cut short, in order of time, with its cost and when its work resumed."""
    names = {tenure.request_id: tenure.task_run for tenure in tenures}
    told: dict[str, list[Stop]] = {}
    for stop in stops:
        told.setdefault(stop.request, []).append(stop)
    rows = []
    for cut in sorted(tenures, key=lambda tenure: tenure.ended_at):
        if cut.end is not TenureEnd.PREEMPTED:
            continue
        cost = told[cut.request_id].pop(0) if told.get(cut.request_id) else None
        later = [t for t in tenures if t.task_run == cut.task_run and t.started_at >= cut.ended_at]
        later.sort(key=lambda tenure: tenure.started_at)
        row = {
            "task run": cut.task_run,
            "for": names.get(cost.by, cost.by) if cost else "",
            "place": cut.place,
            "why": cut.why,
            "ran before": f"{cut.held_s:.2f} s",
            "stopped in": f"{1e3 * cost.took_s:.0f} ms" if cost else "",
            "lost at most": f"{cost.lost_s:.2f} cluster seconds" if cost else "",
            "went on after": f"{later[0].started_at - cut.ended_at:.2f} s" if later else "not again",
            "ended": (later[-1] if later else cut).end.value,
        }
        rows.append(row)
    return rows
