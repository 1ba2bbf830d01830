"""How an admitted attempt ended: what the limits learn from."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class OutcomeKind(StrEnum):
    """What an attempt came to, the same in sync and async paths."""

    SUCCESS = "success"
    RATE_LIMITED = "rate_limited"
    PROVIDER_FAILURE = "provider_failure"
    PROVIDER_TIMEOUT = "provider_timeout"
    LOCAL_CANCELLED = "local_cancelled"
    LOCAL_TIMEOUT = "local_timeout"
    UNEXPECTED_EXCEPTION = "unexpected_exception"


class RequestOutcome(NamedTuple):
    """The end of one attempt. A named tuple because one is made per request.

    Attributes:
        kind: what it came to.
        retry_after_s: what the provider asked to wait; None when it did not say.
        latency_s: from sending to the end of the answer; None when there was none.
        first_token_s: time to the first token where the answer was streamed.
        tokens: completion tokens of the answer; 0 when unknown.
    """

    kind: OutcomeKind
    retry_after_s: float | None = None
    latency_s: float | None = None
    first_token_s: float | None = None
    tokens: int = 0


SUCCESS = RequestOutcome(OutcomeKind.SUCCESS)
