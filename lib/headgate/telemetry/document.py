"""A campaign's status as plain JSON: what `headgate status --json` prints and `GET /status` answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from headgate.core import status as campaign_status
from headgate.telemetry.fields import safe_text


def status_document(status: campaign_status.CampaignStatus) -> dict[str, Any]:
    """Return `status` with its own field names as JSON values, plus what follows from them.

    Added: `uptime_s`, `queue.is_warning`, and `mean_score` of every pair (None before the first scored sample).
    Strings are printable and free of secrets; a number that JSON cannot hold is None.
    """
    document: dict[str, Any] = json_safe(status)
    document["uptime_s"] = max(0.0, status.captured_at - status.started_at)
    document["queue"]["is_warning"] = status.queue.is_warning
    for pair, shown in zip(status.pairs, document["pairs"], strict=True):
        shown["mean_score"] = _mean(pair)
    return document


def json_safe(value: Any) -> Any:
    """Return `value` (dataclasses, mappings, sequences, scalars) as JSON values."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return safe_text(value)
    if dataclasses.is_dataclass(value):
        return {field.name: json_safe(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {safe_text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [json_safe(item) for item in value]
    return safe_text(str(value))


def _mean(pair: campaign_status.PairStatus) -> float | None:
    mean = pair.mean_score
    return mean if mean is not None and math.isfinite(mean) else None
