"""Whether a request is sent again and when, in one generator that its sender drives; and what its answer says."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from headgate.core import errors as core_errors
from headgate.core import redacted
from headgate.core.errors import HeadgateError
from headgate.jobqueue import errors
from headgate.jobqueue.errors import ForbiddenError
from headgate.jobqueue.wire import ProblemOut
from headgate.jobqueue.worker.address import TOKEN_VARIABLE
from headgate.jobqueue.worker.calls import Call
from headgate.jobqueue.worker.errors import QueueUnreachableError

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


_TYPED: Final[dict[str, type[HeadgateError]]] = {
    cls.code: cls
    for cls in (
        errors.InvalidJobError,
        errors.UnknownJobError,
        errors.UnknownResourceError,
        errors.JobConflictError,
        errors.StaleLeaseError,
        errors.WrongStateError,
        errors.ReplyConflictError,
        errors.StoreInUseError,
        errors.StoreFailedError,
        core_errors.InvalidInputError,
        core_errors.UnauthorizedError,
        core_errors.NotFoundError,
        ForbiddenError,
    )
}
_BY_STATUS: Final[dict[int, type[HeadgateError]]] = {
    401: core_errors.UnauthorizedError,
    403: ForbiddenError,
}
_TEXT_CHARS: Final = 300
_TOKEN_STEP: Final = (
    f"Put a token into {TOKEN_VARIABLE}, or into the address: http://worker:TOKEN@host:8000. "
    "`headgate jobqueue token create` makes one."
)


def parsed(answer: httpx.Response, kind: type[T]) -> T:
    """Return the body of a success.

    Raises:
        QueueUnreachableError: if it is none of the job queue's.
    """
    try:
        return kind.model_validate_json(answer.content or b"{}")
    except ValidationError:
        raise QueueUnreachableError(f"what answers at {_where(answer)} is not a job queue: {_text(answer)!r}") from None


def problem_of(answer: httpx.Response) -> HeadgateError:
    """Return the error that an answer without success says."""
    try:
        said = ProblemOut.model_validate_json(answer.content)
    except ValidationError:
        return _unspoken(answer)
    cls = _TYPED.get(said.code) or _BY_STATUS.get(answer.status_code) or errors.JobQueueError
    flaws = "; ".join(f"{flaw.field}: {flaw.rule} (got {flaw.value})" for flaw in said.errors[:3])
    message = (said.detail or said.title).rstrip(".")
    if flaws and flaws not in message:
        message = f"{message}: {flaws}"
    # The server speaks of headers, which nobody writes who reads this.
    next_step = _TOKEN_STEP if answer.status_code == httpx.codes.UNAUTHORIZED else said.next_step
    return cls(redacted(message), next_step=next_step or None)


def retry_after_s(answer: httpx.Response) -> float | None:
    """Return the seconds that the server asks to wait, None when it asks for none."""
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def _unspoken(answer: httpx.Response) -> HeadgateError:
    cls: Any = _BY_STATUS.get(answer.status_code, QueueUnreachableError)
    error: HeadgateError = cls(f"HTTP {answer.status_code} from {_where(answer)}: {_text(answer)!r}")
    return error


def _where(answer: httpx.Response) -> str:
    url = answer.request.url
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{url.path}"


def _text(answer: httpx.Response) -> str:
    return redacted(answer.text[: 4 * _TEXT_CHARS], limit_chars=_TEXT_CHARS)
