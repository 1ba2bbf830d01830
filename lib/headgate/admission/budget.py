"""The retry budget: retries stay a small share of an endpoint's requests, so that they never feed an outage.

Each request earns its endpoint `share` of a retry and each retry spends one, so that over any time retries are at most
`share` of the requests plus what the reserve held. The reserve refills slowly by itself: an endpoint that is asked
once an hour could otherwise never retry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.admission.items import ProviderModel

RESERVE: Final = 10.0
"""Retries that an endpoint may make before its requests have earned any."""

RESERVE_REFILL_PER_S: Final = 0.1
"""What a quiet endpoint earns by waiting, up to the reserve: six retries a minute."""

SAVED_AT_MOST: Final = 100.0
"""Retries that a busy endpoint can save up; an hour of health does not pay for an hour of retries."""

_ROUNDING: Final = 1e-9
"""Five times a fifth is a whole retry."""


@dataclass(slots=True)
class _Account:
    retries: float
    counted_at: float


class RetryBudget:
    """Says which retries an endpoint may make. Pure; one per executor, for all of its endpoints.

    Invariant: 0 <= retries saved <= max(`SAVED_AT_MOST`, `RESERVE`).
    """

    def __init__(self, share: float = 0.2) -> None:
        """Prepare a budget.

        Args:
            share: retries per request, in [0, 1]; 0 leaves the reserve alone.

        Raises:
            ValueError: if `share` lies outside [0, 1].
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share must be in [0, 1] (got {share!r})")
        self._share = share
        self._accounts: dict[ProviderModel, _Account] = {}
        self.denied: dict[ProviderModel, int] = {}

    def requested(self, account: ProviderModel, now: float) -> None:
        """Note a new request to `account`; its retries are none."""
        known = self._accounts.get(account)
        if known is None:
            self._accounts[account] = _Account(RESERVE + self._share, now)
        elif known.retries < SAVED_AT_MOST:
            known.retries += self._share

    def may_retry(self, account: ProviderModel, now: float) -> bool:
        """Return whether `account` may be asked once more, and book the retry if so; else count the denial."""
        known = self._accounts.get(account)
        if known is None:
            known = self._accounts[account] = _Account(RESERVE, now)
        if known.retries < RESERVE:
            earned = max(0.0, now - known.counted_at) * RESERVE_REFILL_PER_S
            known.retries = min(RESERVE, known.retries + earned)
        known.counted_at = now
        if known.retries < 1.0 - _ROUNDING:
            self.denied[account] = self.denied.get(account, 0) + 1
            return False
        known.retries = max(0.0, known.retries - 1.0)
        return True

    def left(self, account: ProviderModel) -> float:
        """Return the retries that `account` has saved; what it earns by waiting is added when it next asks."""
        known = self._accounts.get(account)
        return RESERVE if known is None else known.retries

    def forget(self, account: ProviderModel) -> None:
        """Drop what is known of an endpoint that is asked no more."""
        self._accounts.pop(account, None)
        self.denied.pop(account, None)

    def validate(self) -> None:
        """Assert the invariant of the class."""
        for account, known in self._accounts.items():
            assert 0 <= known.retries <= max(SAVED_AT_MOST, RESERVE) + 1, f"{account}: {known.retries}"
