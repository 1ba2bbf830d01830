"""The monitoring API's documents: the field names of the system that Headgate replaces, with every figure counted.

That system calls models miners, so its routes and fields exist under its names as well. Two of its figures are
extrapolations by definition and keep their names: `effective_daily_rate` and `projected_daily_samples` are 24 times
the samples counted in the last hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from math import isfinite
from operator import attrgetter
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from headgate.core import errors
from headgate.core import status as campaign_status
from headgate.telemetry.fields import json_safe, safe_text

_SATURATED: Final = 0.9
_HAS_CAPACITY: Final = 0.7
"""That system's thresholds of worker utilisation for its recommendation."""


def summary(status: campaign_status.CampaignStatus) -> dict[str, Any]:
    """Return the body of `/status/summary`."""
    queue, workers = status.queue, status.workers
    with_errors = [model for model in status.models if model.errors_1h]
    return {
        "timestamp": status.captured_at,
        "uptime_seconds": max(0.0, status.captured_at - status.started_at),
        "campaign": status.campaign,
        "state": status.state,
        "models": _model_counts(status.models),
        "miners": _model_counts(status.models),
        "queue": {
            "current_size": queue.size,
            "max_size": queue.max_size,
            "is_paused": queue.is_paused,
            "is_warning": queue.is_warning,
            "enqueue_rate": queue.enqueued_last_minute,
            "dequeue_rate": queue.dequeued_last_minute,
        },
        "workers": {
            "total": workers.total,
            "active": workers.active,
            "utilization": workers.utilization_last_minute,
            "tasks_per_minute": workers.finished_last_minute,
        },
        "evaluation": {
            "total_samples_1h": sum(sum(model.samples_1h.values()) for model in status.models),
            "total_samples_24h": sum(sum(model.samples_24h.values()) for model in status.models),
            "total_errors_1h": sum(model.errors_1h for model in status.models),
            "models_with_errors": len(with_errors),
            "miners_with_errors": len(with_errors),
        },
        "storage": {"stored": status.stored, "spooled": status.spooled, "open_tasks": status.open_tasks},
    }


class ModelFilter(BaseModel):
    """Which models are shown: those that pass every given filter."""

    status_filter: Literal["active", "paused"] | None = None
    min_samples_1h: int | None = Field(None, ge=0)
    has_errors: bool | None = None


def models(status: campaign_status.CampaignStatus, chosen: ModelFilter) -> dict[str, Any]:
    """Return the body of `/status/models`."""
    shown = [
        model
        for model in status.models
        if (chosen.status_filter is None or model.is_paused == (chosen.status_filter == "paused"))
        and sum(model.samples_1h.values()) >= (chosen.min_samples_1h or 0)
        and (chosen.has_errors is None or (model.errors_1h > 0) == chosen.has_errors)
    ]
    return {"total": len(shown), "models": [_model(model) for model in shown]}


def as_miners(document: dict[str, Any]) -> dict[str, Any]:
    """Return the body of `/status/miners` or `/status/miners/{uid}` from the corresponding body for models."""
    if "models" in document:
        return {"total": document["total"], "miners": [as_miners(one) for one in document["models"]]}
    return document | {"hotkey": None}


def model(status: campaign_status.CampaignStatus, uid: str, noun: str = "Model") -> dict[str, Any]:
    """Return the body of `/status/models/{uid}`.

    Raises:
        NotFoundError: if there is no model with this number, or key.
        InvalidInputError: if several models have that uid.
    """
    found = [model for model in status.models if uid in (str(model.uid), model.model)]
    if not found:
        known = [model.model for model in status.models if noun == "Model"]
        same = [key for key in known if key.partition("@")[0] == uid.partition("@")[0]]
        like = errors.did_you_mean(uid, same or known, cutoff=0.0 if same else 0.6)
        told = f"{noun} {uid} not found{like}"
        raise errors.NotFoundError(told, next_step="`headgate models` and `/status/models` list them.")
    if len(found) > 1:
        raise errors.InvalidInputError(
            f"uid {uid} belongs to {len(found)} models", next_step="Ask /status/models/NAME@REVISION instead."
        )
    one = found[0]
    detail = {
        "pause_until": one.pause_until,
        "paused_since": one.paused_since,
        "samples_24h": dict(one.samples_24h),
        "last_error_time": one.last_error_at,
        "in_flight": one.in_flight,
        "queued": one.queued,
    }
    return _model(one) | detail


def queue(status: campaign_status.CampaignStatus) -> dict[str, Any]:
    """Return the body of `/status/queue`; rates are tasks counted in the last minute."""
    ready = status.queue
    return {
        "current_size": ready.size,
        "buffered": ready.buffered,
        "max_size": ready.max_size,
        "warning_threshold": ready.warning_threshold,
        "pause_threshold": ready.pause_threshold,
        "resume_threshold": ready.resume_threshold,
        "is_paused": ready.is_paused,
        "is_warning": ready.is_warning,
        "utilization": ready.size / ready.max_size if ready.max_size else 0.0,
        "throughput": {
            "enqueue_rate": ready.enqueued_last_minute,
            "dequeue_rate": ready.dequeued_last_minute,
            "net_rate": ready.enqueued_last_minute - ready.dequeued_last_minute,
        },
        "totals": {"enqueued": ready.enqueued, "dequeued": ready.dequeued},
        "env_breakdown": dict(ready.by_environment),
    }


def workers(status: campaign_status.CampaignStatus) -> dict[str, Any]:
    """Return the body of `/status/workers`; utilisation is the busy share of the last minute."""
    crew = status.workers
    share = crew.utilization_last_minute
    advice = "Consider increasing workers" if share > _SATURATED else "Optimal utilization"
    advice = "Capacity available" if share < _HAS_CAPACITY else advice
    return {
        "total_workers": crew.total,
        "active_workers": crew.active,
        "idle_workers": max(0, crew.total - crew.active),
        "utilization": share,
        "tasks_per_minute": crew.finished_last_minute,
        "avg_task_duration": crew.mean_task_s,
        "finished": crew.finished,
        "busy_seconds": crew.busy_s,
        "efficiency": {
            "is_saturated": share > _SATURATED,
            "has_capacity": share < _HAS_CAPACITY,
            "recommendation": advice,
        },
    }


def requests(status: campaign_status.CampaignStatus) -> dict[str, Any]:
    """Return the body of `/status/requests`: every request key with its limits."""
    keys = status.requests
    return {
        "timestamp": status.captured_at,
        "in_flight": sum(request.in_flight for request in keys),
        "waiters": sum(request.waiters for request in keys),
        "under_pressure": sum(request.pressure is not None for request in keys),
        "requests": json_safe(keys),
    }


def environment(status: campaign_status.CampaignStatus, name: str) -> dict[str, Any]:
    """Return the body of `/status/env/{env_name}`.

    Raises:
        NotFoundError: if the campaign does not sample it.
    """
    pairs = [pair for pair in status.pairs if pair.environment == name]
    if not pairs:
        known = sorted({pair.environment for pair in status.pairs})
        told = f"Environment {name} not found{errors.did_you_mean(name, known)}"
        raise errors.NotFoundError(told, next_step=f"Sampled now: {', '.join(known) or 'none yet'}.")
    sampled = {pair.model for pair in pairs}
    ours = [one for one in status.models if one.model in sampled]
    shown = [
        {
            "uid": one.uid,
            "model": one.name,
            "samples_1h": one.samples_1h.get(name, 0),
            "samples_24h": one.samples_24h.get(name, 0),
        }
        for one in ours
    ]
    active = sum(not one.is_paused for one in ours)
    hour = sum(one.samples_1h.get(name, 0) for one in ours)
    scored = sum(pair.scored for pair in pairs)
    return {
        "env_name": name,
        "total_samples_1h": hour,
        "total_samples_24h": sum(one.samples_24h.get(name, 0) for one in ours),
        "queue_size": status.queue.by_environment.get(name, 0),
        "active_models": active,
        "active_miners": active,
        "sampling_rate_per_hour": hour,
        "projected_daily_samples": 24 * hour,
        "due": sum(pair.due for pair in pairs),
        "done": sum(pair.done for pair in pairs),
        "errors": sum(pair.errors for pair in pairs),
        "mean_score": sum(pair.score_sum for pair in pairs) / scored if scored else None,
        "lag_seconds": max(pair.lag_s for pair in pairs),
        "models": shown,
        "miners": shown,
    }


def _model(model: campaign_status.ModelStatus) -> dict[str, Any]:
    hour = sum(model.samples_1h.values())
    shown: dict[str, Any] = json_safe(
        {
            "uid": model.uid,
            "model": model.name,
            "revision": model.revision,
            "status": "paused" if model.is_paused else "active",
            "pause_reason": model.pause_reason,
            "rate_multiplier": model.rate_multiplier,
            "configured_daily_rate": model.configured_daily_rate,
            "effective_daily_rate": 24 * hour,
            "samples_1h": model.samples_1h,
            "total_samples_1h": hour,
            "total_samples_24h": sum(model.samples_24h.values()),
            "consecutive_errors": model.consecutive_errors,
            "last_error": model.last_error,
            "error_count_1h": model.errors_1h,
        }
    )
    if model.budgets:
        shown["budgets"] = [asdict(budget) for budget in model.budgets]
    if model.engines is not None:
        shown["engines"] = json_safe(asdict(model.engines))
    return shown


def _model_counts(models: Iterable[campaign_status.ModelStatus]) -> dict[str, int]:
    states = [model.is_paused for model in models]
    return {"total": len(states), "active": states.count(False), "paused": states.count(True)}


def status_document(status: campaign_status.CampaignStatus) -> dict[str, Any]:
    """Return `status` with its own field names as JSON values, plus derived fields.

    Added: `uptime_s`, `queue.is_warning`, and `mean_score` of every pair (None before the first scored sample); for a
    judged one also `agreement` (None before the first sample that was judged twice).
    Strings are printable and without secrets; a number that JSON cannot represent is None.
    """
    document: dict[str, Any] = json_safe(replace(status, pairs=(), judged=()))
    document["pairs"] = [_pair(pair) for pair in status.pairs]
    document["judged"] = [
        json_safe(asdict(pair) | {"mean_score": pair.mean_score, "agreement": pair.agreement}) for pair in status.judged
    ]
    document["uptime_s"] = max(0.0, status.captured_at - status.started_at)
    document["queue"]["is_warning"] = status.queue.is_warning
    return document


_PAIR: Final = tuple(one.name for one in fields(campaign_status.PairStatus))
_values_of: Final = attrgetter(*_PAIR)


def _pair(pair: campaign_status.PairStatus) -> dict[str, Any]:
    """Return a pair as JSON values, fast: there may be a hundred thousand, and serialising them blocks the run."""
    shown = dict(zip(_PAIR, _values_of(pair), strict=True)) | {"mean_score": pair.mean_score}
    if not isfinite(pair.score_sum + pair.score_square_sum + pair.rate_per_day + pair.lag_s):
        return json_safe(shown)  # type: ignore[no-any-return]
    shown["model"], shown["environment"] = safe_text(pair.model), safe_text(pair.environment)
    return shown
