"""What an answer of the job queue says: the body that was asked for, or an error of a type of its own."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from headgate.core import errors as core_errors
from headgate.core import redacted
from headgate.core.errors import HeadgateError
from headgate.jobqueue import errors
from headgate.jobqueue.errors import ForbiddenError
from headgate.jobqueue.wire import ProblemOut
from headgate.jobqueue.worker.address import TOKEN_VARIABLE
from headgate.jobqueue.worker.errors import QueueUnreachableError

T = TypeVar("T", bound=BaseModel)

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
        raise QueueUnreachableError(f"what answers at {_place(answer)} is no job queue: {_text(answer)!r}") from None


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
    error: HeadgateError = cls(f"HTTP {answer.status_code} from {_place(answer)}: {_text(answer)!r}")
    return error


def _place(answer: httpx.Response) -> str:
    url = answer.request.url
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}{url.path}"


def _text(answer: httpx.Response) -> str:
    return redacted(answer.text[: 4 * _TEXT_CHARS], limit_chars=_TEXT_CHARS)
