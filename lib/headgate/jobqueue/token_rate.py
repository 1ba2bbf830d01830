"""How many requests a token may make: a bucket for each that fills steadily. Pure: the time comes in."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.core.errors import InvalidSettingError

MOST_BUCKETS: Final = 10_000
"""Buckets that are remembered; far more than there are tokens in use."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a token may ask.

    Attributes:
        per_s: requests per second, for as long as it likes.
        burst: requests at once, after a pause.
    """

    per_s: float = 50.0
    burst: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.per_s < float("inf") or self.burst < 1:
            raise InvalidSettingError(
                f"a token's rate must be > 0 per s with a burst >= 1 (got {self.per_s:g} and {self.burst})"
            )


class _Bucket(NamedTuple):
    level: float
    at: float


class TokenBuckets:
    """The buckets of all tokens. One thread at a time; at most `most` are remembered, those used last.

    A bucket that is forgotten is full again, so forgetting the one used longest ago lets the least through.
    """

    def __init__(self, rate: Rate, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, token_id: str, now: float) -> float:
        """Count a request; return 0 when it may go on, else the seconds after which the next one may.

        Args:
            token_id: whose request.
            now: monotonic seconds.
        """
        bucket = self._buckets.pop(token_id, None) or _Bucket(self._rate.burst, now)
        level = min(self._rate.burst, bucket.level + max(0.0, now - bucket.at) * self._rate.per_s)
        # Sums of small refills fall short of 1 by rounding: whoever waits as long as told is let in.
        is_let_in = level >= 1.0 - 1e-9
        left = max(0.0, level - 1.0) if is_let_in else level
        self._buckets[token_id] = _Bucket(left, now)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if is_let_in else (1.0 - level) / self._rate.per_s

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._buckets) <= self._most
        assert all(0.0 <= bucket.level <= self._rate.burst for bucket in self._buckets.values())
