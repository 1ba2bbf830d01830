"""Classifies an attempt's exception: its error kind, and the outcome that the limits learn from."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from headgate.core import ChatError, ErrorKind
from headgate.core.rates import RateNote
from headgate.models import kind_of_status, retry_after_s


class OutcomeKind(StrEnum):
    """How an attempt ended, the same in sync and async paths."""

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
        retry_after_s: how long the provider asked to wait; None if it did not say.
        latency_s: from sending to the end of the answer; None if there was none.
        first_token_s: time to the first token; None if the answer was not streamed.
        tokens: completion tokens of the answer; 0 if unknown.
        prompt_tokens: of the request, likewise.
        told: what the answer states about the provider's limits per minute.
    """

    kind: OutcomeKind
    retry_after_s: float | None = None
    latency_s: float | None = None
    first_token_s: float | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    told: tuple[RateNote, ...] = ()


SUCCESS = RequestOutcome(OutcomeKind.SUCCESS)


_CANCELLED: Final = (
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
)

_OUTCOMES: Final[Mapping[ErrorKind, OutcomeKind]] = {
    ErrorKind.RATE_LIMITED: OutcomeKind.RATE_LIMITED,
    ErrorKind.QUOTA: OutcomeKind.RATE_LIMITED,
    ErrorKind.PROVIDER_FAILURE: OutcomeKind.PROVIDER_FAILURE,
    ErrorKind.PROVIDER_TIMEOUT: OutcomeKind.PROVIDER_TIMEOUT,
    ErrorKind.CONNECTION: OutcomeKind.PROVIDER_FAILURE,
    # A proper refusal: it says nothing about how many requests the provider can take.
    ErrorKind.AUTH: OutcomeKind.PROVIDER_FAILURE,
    ErrorKind.BAD_REQUEST: OutcomeKind.PROVIDER_FAILURE,
    # The provider did its work; the unusable answer is the model's fault.
    ErrorKind.BAD_ANSWER: OutcomeKind.SUCCESS,
    ErrorKind.ENVIRONMENT: OutcomeKind.UNEXPECTED_EXCEPTION,
    ErrorKind.CANCELLED: OutcomeKind.LOCAL_CANCELLED,
    # Never sent.
    ErrorKind.BUDGET: OutcomeKind.LOCAL_CANCELLED,
    ErrorKind.DAILY_BUDGET: OutcomeKind.LOCAL_CANCELLED,
    # The engine was taken away, or ended: the model did not answer.
    ErrorKind.ENGINE: OutcomeKind.LOCAL_CANCELLED,
}

_TIMEOUTS: Final = frozenset({"TimeoutException", "APITimeoutError", "ServerTimeoutError", "ConnectionTimeoutError"})
"""Base classes of the timeouts of httpx, openai and aiohttp: matched by name, so that none is imported here."""

_TRANSPORTS: Final = frozenset({"TransportError", "APIConnectionError", "ClientConnectionError", "ClientPayloadError"})
"""Base classes of the same clients' connection errors."""


def classify(error: BaseException, *, wall: float | None = None) -> RequestOutcome:
    """Return the outcome of an attempt that ended with `error`. Never raises.

    Args:
        error: from our own client or another: a `status_code` (or a `response` that has one), as in the exceptions of
            openai, httpx and aiohttp, decides.
        wall: wall time from which a Retry-After given as a date counts; None takes the current time.
    """
    kind = error_kind(error)
    if kind is not None:
        outcome = _OUTCOMES[kind]
    elif isinstance(error, _CANCELLED):
        outcome = OutcomeKind.LOCAL_CANCELLED
    elif isinstance(error, TimeoutError):
        outcome = OutcomeKind.LOCAL_TIMEOUT
    else:
        outcome = OutcomeKind.UNEXPECTED_EXCEPTION
    told = error.told if isinstance(error, ChatError) else ()
    return RequestOutcome(outcome, _asked_to_wait_s(error, wall), told=told)


def error_kind(error: BaseException) -> ErrorKind | None:
    """Return the provider's error; None if `error` is ours: a cancellation, a local time limit, a defect."""
    if isinstance(error, ChatError):
        return error.kind
    if not isinstance(error, Exception) or isinstance(error, _CANCELLED):
        return None
    status = _status_of(error)
    if status is not None:
        names = (getattr(error, "code", None), getattr(error, "type", None))  # as openai's exceptions have them
        return None if 200 <= status < 300 else kind_of_status(status, *names)
    bases = {base.__name__ for base in type(error).__mro__}
    if bases & _TIMEOUTS:
        return ErrorKind.PROVIDER_TIMEOUT
    if bases & _TRANSPORTS or isinstance(error, ConnectionError):
        return ErrorKind.CONNECTION
    return None


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status that a client's exception carries."""
    response = getattr(error, "response", None)
    for found in (
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
        getattr(error, "status", None),
    ):
        if type(found) is int and 100 <= found <= 599:
            return found
    return None


def _asked_to_wait_s(error: BaseException, wall: float | None) -> float | None:
    if isinstance(error, ChatError):
        return error.retry_after_s
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    if not isinstance(headers, Mapping):
        return None
    plain = {str(name): str(value) for name, value in headers.items()}
    return retry_after_s(plain, time.time() if wall is None else wall)
