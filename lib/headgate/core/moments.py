"""Moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from headgate.core.errors import InvalidInputError

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)")
_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def moment_of(text: str, now: float, *, option: str) -> float:
    """Return the wall time that `text` means: a date or time of ISO 8601 (UTC unless it says), or `36h` before `now`.

    Raises:
        InvalidInputError: if it is neither.
    """
    if ago := _AGO.fullmatch(text.strip()):
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            f"{option} must be a date, a time, or so long ago (got {text!r})",
            next_step="Write it as 2026-01-31, 2026-01-31T06:00Z, 90min, 36h, 7d or 2w.",
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
