"""The capacity plan of a campaign: what is configured, in force, and was used at most, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


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
        value: None when there is none; `missing_reason` says why then.
        source: where it came from.
        detail: the variable, the file or the model that it was read from; empty for the others.
        fallback_from: what it stands in for, when that gave no value of its own.
        missing_reason: why there is no value.
    """

    value: float | int | str | bool | None
    source: CapacitySource
    detail: str = ""
    fallback_from: str | None = None
    missing_reason: str | None = None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Every limit of a campaign, three times: by its name.

    Attributes:
        configured: what settings and roster ask for.
        runtime: what is in force now: slots, adaptive limits, cooldowns.
        observed: the most that was in use at once since the campaign started.
        left_out: models and request keys beyond the bound of this plan's size.
    """

    configured: Mapping[str, CapacityValue]
    runtime: Mapping[str, CapacityValue]
    observed: Mapping[str, CapacityValue]
    left_out: int = 0
