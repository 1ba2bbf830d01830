"""Limits per minute of a simulated provider: a token bucket for each unit, and the headers that report it."""

from __future__ import annotations

from headgate.core.rates import RATE_UNITS, RateLimits


class MinuteBuckets:
    """Buckets that hold a minute's worth and refill evenly. Pure; owned by one simulated provider.

    A request is refused if a bucket has no room for it and its prompt; the answer is counted once it is known, and may
    overdraw the bucket. Anthropic and OpenAI describe their limits like this.

    Attributes:
        limits: limits in force; may be replaced at any time.
    """

    def __init__(self, limits: RateLimits, now: float) -> None:
        self.limits = limits
        self._levels = [float(limit or 0) for limit in limits]
        self._at = now

    def change(self, limits: RateLimits, now: float) -> None:
        """Replace the limits from now on; content beyond a bucket's new capacity is lost."""
        self._refill(now)
        self.limits = limits
        self._refill(now)

    def take(self, prompt_tokens: int, now: float) -> int | None:
        """Take a request and its prompt; return the unit that has no room for it, or None if it is admitted."""
        self._refill(now)
        need = (1, prompt_tokens, 1, prompt_tokens)
        for unit, (limit, level) in enumerate(zip(self.limits, self._levels, strict=True)):
            # A prompt larger than a minute's tokens never fits: a full bucket admits it, or it would never be admitted.
            if limit is not None and level < min(need[unit], limit):
                return unit
        self._spend((1, prompt_tokens, 0, prompt_tokens))
        return None

    def answered(self, completion_tokens: int, now: float) -> None:
        """Count the tokens of an answer."""
        self._refill(now)
        self._spend((0, 0, completion_tokens, completion_tokens))

    def left(self, now: float) -> list[float | None]:
        """Return the content of each bucket; None for units without a limit."""
        self._refill(now)
        return [None if limit is None else level for limit, level in zip(self.limits, self._levels, strict=True)]

    def headers(self, now: float) -> dict[str, str]:
        """Return the headers with which an answer reports the limits, as OpenAI and compatible providers do."""
        told: dict[str, str] = {}
        for name, limit, left in zip(RATE_UNITS, self.limits, self.left(now), strict=True):
            if limit is not None and left is not None:
                unit = name.replace("_", "-")
                told[f"x-ratelimit-limit-{unit}"] = str(limit)
                told[f"x-ratelimit-remaining-{unit}"] = str(max(0, int(left)))
                told[f"x-ratelimit-reset-{unit}"] = f"{(limit - left) * 60 / limit:.3f}s"
        return told

    def wait_s(self, unit: int, prompt_tokens: int, now: float) -> float:
        """Return the seconds until a unit has room for a request."""
        limit, left = self.limits[unit], self.left(now)[unit]
        if limit is None or left is None:
            return 0.0
        need = 1 if unit in {0, 2} else prompt_tokens
        return max(0.0, (min(need, limit) - left) * 60 / limit)

    def _spend(self, amounts: tuple[int, int, int, int]) -> None:
        for unit, amount in enumerate(amounts):
            self._levels[unit] -= amount

    def _refill(self, now: float) -> None:
        passed, self._at = max(0.0, now - self._at), max(now, self._at)
        for unit, limit in enumerate(self.limits):
            if limit is not None:
                self._levels[unit] = min(float(limit), self._levels[unit] + passed * limit / 60)
