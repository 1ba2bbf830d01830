"""Periodic reports of a campaign: its health and its capacity plan. Bounded in size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from logging import DEBUG, WARNING
from typing import Literal

from headgate.core.events.event import Event


class CapacitySource(StrEnum):
    """Where a value of a capacity plan came from."""

    DEFAULT = "default"
    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    ROSTER = "roster"
    MODEL = "model"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True)
class CapacityValue:
    """One value.

    Attributes:
        value: None when there is none, for the reason in `missing_reason`.
        detail: the variable, file or model that it was read from, or whose refusals show it; else empty.
        fallback_from: what it replaces, when that has no value of its own.
    """

    value: float | int | str | bool | None
    source: CapacitySource
    detail: str = ""
    fallback_from: str | None = None
    missing_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Every limit of a campaign by name, in three columns.

    Attributes:
        configured: what settings and roster ask for.
        runtime: the values in force now: slots, adaptive limits, cooldowns.
        observed: highest use at once since the campaign started.
        left_out: models and request keys beyond the bound of this plan's size.
    """

    configured: Mapping[str, CapacityValue]
    runtime: Mapping[str, CapacityValue]
    observed: Mapping[str, CapacityValue]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RequestKeyHealth:
    """One request key: its adaptive limit, what is in use of it, its waiters, and why it is closed, if it is."""

    key: str
    limit: int
    in_flight: int
    waiters: int
    closed_by: str | None = None
    closed_until: float | None = None


class HealthReported(Event, log_level=DEBUG):
    """The current state of a campaign: counts, and its largest groups and request keys.

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


class CapacityReported(Event, log_level=DEBUG):
    """The capacity plan of a campaign, when it starts and when it ends."""

    campaign: str
    run_id: str
    moment: Literal["start", "end"]
    plan: CapacityPlan


class ScoreDropped(Event, log_level=WARNING):
    """A model scores worse than before; from now on it is compared with its new level.

    `environment` is empty for all environments together. `low` and `high` are a 95 % interval of `after` less `before`;
    `since` is in seconds since the epoch.
    """

    model: str
    environment: str
    before: float
    after: float
    low: float
    high: float
    since: float
    samples: int


class EndpointDrifted(Event, log_level=WARNING):
    """A different model answers than before, judging by the model name and the `system_fingerprint` in the answers."""

    model: str
    before: str
    after: str


class RunStalled(Event, log_level=WARNING):
    """No sample was accepted for long although samples are due and none of their models is paused; reported once."""

    campaign: str
    idle_s: float
    due: int
    reason: str


class RunMoved(Event):
    """A stalled run accepts samples again."""

    campaign: str
    stalled_for_s: float


class JobDied(Event, log_level=WARNING):
    """A job of the queue has failed too often, and is not tried again unless it is requeued."""

    job_id: str
    team: str
    task: str
    attempts: int
    error: str
