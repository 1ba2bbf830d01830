"""What a campaign tells of itself from time to time: its health and its capacity plan. Bounded in size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headgate.core.capacity import CapacityPlan
from headgate.core.events.event import Event


@dataclass(frozen=True, slots=True)
class RequestKeyHealth:
    """One request key: its adaptive limit, what is in use of it, who waits, and why it is closed, if it is."""

    key: str
    limit: int
    in_flight: int
    waiters: int
    closed_by: str | None = None
    closed_until: float | None = None


@dataclass(frozen=True, slots=True)
class HealthReported(Event):
    """What a campaign looks like now: counts, and of groups and request keys those with the most at stake.

    `queued_by_group` and `in_flight_by_group` hold the largest groups; `groups_left_out` counts the others. `resources`
    maps each scheduler resource to units in use and its limit.
    """

    campaign: str
    run_id: str
    state: str
    workers: int
    active: int
    queued: int
    buffered: int
    open_tasks: int
    spooled: int
    leases: int
    passed_over: int
    frontier_target: int | None
    queued_by_group: Mapping[str, int]
    in_flight_by_group: Mapping[str, int]
    groups_left_out: int
    resources: Mapping[str, tuple[int, int]]
    requests: tuple[RequestKeyHealth, ...]
    requests_left_out: int


@dataclass(frozen=True, slots=True)
class CapacityReported(Event):
    """The capacity plan of a campaign, when it starts and when it ends."""

    campaign: str
    run_id: str
    moment: Literal["start", "end"]
    plan: CapacityPlan
