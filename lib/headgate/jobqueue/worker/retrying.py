"""Whether a request is sent again, and when: one generator, which the clients drive with their own ways to wait."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import httpx
from pydantic import BaseModel

from headgate.core.errors import HeadgateError
from headgate.jobqueue.worker.calls import Call
from headgate.jobqueue.worker.errors import QueueUnreachableError
from headgate.jobqueue.worker.problems import parsed, problem_of, retry_after_s

T = TypeVar("T", bound=BaseModel)

Heard: TypeAlias = httpx.Response | httpx.TransportError
"""What came of sending a request once."""

_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LONGEST_REQUESTED_S: Final = 120.0
"""A server that asks to wait longer is asked again after so long: workers have nothing better to do."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Jittered exponential back-off for as long as the caller is patient.

    Attributes:
        patience_s: seconds after which no further attempt is begun; infinite for workers, whose server may be away
            for minutes.
        base_s: ceiling of the first back-off; each further one is twice as high.
        max_s: no ceiling is higher.
    """

    patience_s: float = 30.0
    base_s: float = 0.25
    max_s: float = 15.0

    def __post_init__(self) -> None:
        if self.patience_s < 0 or not 0 < self.base_s <= self.max_s:
            raise ValueError(
                f"patience_s must be >= 0 and 0 < base_s <= max_s "
                f"(got {self.patience_s:g}, base_s {self.base_s:g}, max_s {self.max_s:g})"
            )

    def back_off_s(self, attempt: int, rng: random.Random) -> float:
        """Return the wait after attempt number `attempt` (from 1): in the upper half of its ceiling."""
        doubled = self.base_s * 2.0 ** min(attempt - 1, 30)
        return min(doubled, self.max_s) * rng.uniform(0.5, 1.0)


def conversation(
    call: Call[T], policy: RetryPolicy, rng: random.Random, monotonic: Callable[[], float]
) -> Generator[float, Heard, T]:
    """Lead a request to its end.

    Yields the seconds to wait before the request is sent (again); is sent what came of it; returns the answer.

    Raises:
        HeadgateError: what the server refuses, by its code; `QueueUnreachableError` when it does not answer.
    """
    began = monotonic()
    attempt = 0
    wait_s = 0.0
    while True:
        heard = yield wait_s
        attempt += 1
        if isinstance(heard, httpx.Response) and heard.is_success:
            return parsed(heard, call.answer)
        error, requested_s = _trouble(heard)
        if not _is_worth_another(call, heard):
            raise error
        wait_s = policy.back_off_s(attempt, rng)
        if requested_s is not None:
            # Never before the time that the server names, and not all at it.
            wait_s = max(wait_s, min(requested_s, _LONGEST_REQUESTED_S) * rng.uniform(1.0, 1.1))
        if monotonic() - began + wait_s > policy.patience_s:
            raise error


def _trouble(heard: Heard) -> tuple[HeadgateError, float | None]:
    if isinstance(heard, httpx.Response):
        return problem_of(heard), retry_after_s(heard)
    return QueueUnreachableError(f"the job queue{_place(heard)} does not answer ({_said(heard)})"), None


def _is_worth_another(call: Call[T], heard: Heard) -> bool:
    if isinstance(heard, httpx.Response):
        # 429 is refused before anything is done; after the others, nobody knows.
        return heard.status_code in _TRY_AGAIN and (call.can_repeat or heard.status_code == 429)
    if isinstance(heard, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return False
    return call.can_repeat or isinstance(heard, _NOT_SENT)


def _place(error: httpx.TransportError) -> str:
    try:
        url = error.request.url
    except RuntimeError:  # it has none: nothing was sent
        return ""
    return f" at {url.scheme}://{url.netloc.decode('ascii', 'replace')}"


def _said(error: httpx.TransportError) -> str:
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__
