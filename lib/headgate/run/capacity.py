"""The capacity plan of a campaign: configured, in force, and the most that was seen, each value with its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from headgate.config import Settings
from headgate.core import Model
from headgate.core.events import CapacityPlan, CapacitySource, CapacityValue
from headgate.core.status import RequestStatus

CAPACITY_SETTINGS: Final = (
    "num_evaluation_workers",
    "queue_max_size",
    "queue_pause_threshold",
    "queue_resume_threshold",
    "batch_size",
    "sink_batch_size",
    "request_timeout_s",
    "request_attempts",
    "request_queue_wait_s",
    "retry_budget",
    "limit_law",
    "startup_ramp_seconds",
    "cooldown_seconds",
    "task_admission",
    "group_cap",
    "borrow_ceiling",
    "borrow_reserve",
)
"""The settings that bound how much runs at once."""

MAX_NAMED: Final = 100
"""Models and request keys that a plan names; the others are counted in `left_out`."""

_SOURCES: Final = {
    "flag": CapacitySource.FLAG,
    "env": CapacitySource.ENVIRONMENT,
    "file": CapacitySource.FILE,
    "default": CapacitySource.DEFAULT,
}
_DEFAULT_PARALLEL: Final = next(field.default for field in fields(Model) if field.name == "max_parallel")


@dataclass(slots=True)
class CapacityPeaks:
    """The most that was in use at once since a campaign started. Owned by the campaign."""

    workers: int = 0
    queued: int = 0
    buffered: int = 0
    spooled: int = 0


def capacity_plan(
    settings: Settings,
    models: Iterable[Model],
    requests: Sequence[RequestStatus] = (),
    *,
    workers_busy: int | None = None,
    queued: int | None = None,
    peaks: CapacityPeaks | None = None,
) -> CapacityPlan:
    """Return the capacity plan; without a running campaign what is in force and what was seen are missing, and say so.

    Args:
        settings: of the campaign.
        models: of the roster.
        requests: the request keys.
        workers_busy: now.
        queued: ready tasks now.
        peaks: the most that was seen.
    """
    listed = sorted(models, key=lambda model: model.key)
    configured = {name: _setting(settings, name) for name in CAPACITY_SETTINGS}
    configured |= {f"max_parallel {model.key}": _max_parallel(model) for model in listed[:MAX_NAMED]}
    keys = list(requests[:MAX_NAMED])
    runtime = {
        "workers": CapacityValue(settings.num_evaluation_workers, CapacitySource.RUNTIME),
        "workers_busy": _seen(workers_busy),
        "queued": _seen(queued),
    }
    for key in keys:
        runtime[f"cap {key_name(key)}"] = CapacityValue(key.cap, CapacitySource.RUNTIME)
        # A limit that has learnt nothing yet stands in for the cap.
        fallback = None if key.last_outcome else f"cap {key_name(key)}"
        runtime[f"limit {key_name(key)}"] = CapacityValue(key.limit, CapacitySource.RUNTIME, fallback_from=fallback)
    observed = _observed(peaks, keys)
    return CapacityPlan(configured, runtime, observed, max(0, len(listed) - MAX_NAMED) + len(requests) - len(keys))


def source_of(origin: str) -> tuple[CapacitySource, str]:
    """Return the source that an origin of a setting is, and its detail: the variable or the file."""
    kind, _, detail = origin.partition(" ")
    return _SOURCES[kind], detail


def _setting(settings: Settings, name: str) -> CapacityValue:
    source, detail = source_of(settings.origin_of(name))
    value = getattr(settings, name)
    if name == "borrow_ceiling" and not value:
        ceiling = int(settings.num_evaluation_workers * (1 - settings.borrow_reserve))
        return CapacityValue(ceiling, source, detail, fallback_from=name)
    if value is None:
        return CapacityValue(None, source, detail, missing_reason="not limited")
    return CapacityValue(value, source, detail)


def _max_parallel(model: Model) -> CapacityValue:
    if model.max_parallel == _DEFAULT_PARALLEL:
        return CapacityValue(model.max_parallel, CapacitySource.MODEL, fallback_from="roster")
    return CapacityValue(model.max_parallel, CapacitySource.ROSTER)


def _seen(value: int | None) -> CapacityValue:
    reason = None if value is not None else "no campaign runs"
    return CapacityValue(value, CapacitySource.RUNTIME, missing_reason=reason)


def _observed(peaks: CapacityPeaks | None, keys: Sequence[RequestStatus]) -> Mapping[str, CapacityValue]:
    names = [field.name for field in fields(CapacityPeaks)]
    seen = {name: _seen(None if peaks is None else getattr(peaks, name)) for name in names}
    for key in keys:
        seen[f"in_flight {key_name(key)}"] = CapacityValue(key.peak_in_flight, CapacitySource.RUNTIME)
        seen[f"waiters {key_name(key)}"] = CapacityValue(key.peak_waiters, CapacitySource.RUNTIME)
    return seen


def key_name(key: RequestStatus) -> str:
    """Return what a request key is called in plans and reports."""
    words = (key.provider, key.model) if key.domain == "chat" else (key.provider, key.model, key.domain)
    return " ".join(words)
