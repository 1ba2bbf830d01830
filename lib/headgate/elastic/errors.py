"""Errors of an elastic pool and its gateway, each with a code, a sentence and the next step."""

from __future__ import annotations

from typing import Final

from headgate.core.errors import HeadgateError, InvalidInputError, NotFoundError


class InvalidElasticError(InvalidInputError):
    """A setting or a worker of an elastic pool breaks a rule."""

    code = "invalid_elastic"
    next_step = "Correct the value and start again; docs/how-to/elastic.md shows the forms."


class UnknownWorkerError(InvalidElasticError):
    """The pool has no worker of the given name."""

    code = "unknown_worker"
    http_status = 404
    next_step = "`headgate elastic status` lists the workers of a pool."


class NotAnEngineError(InvalidElasticError):
    """The server at an address is not an engine of the given kind, or cannot be put to sleep."""

    code = "not_an_engine"
    next_step = "Check the address, the kind of engine and the flags that it was started with."


class WorkerClaimedError(InvalidElasticError):
    """An engine already belongs to another pool; two pools would put each other's workers to sleep."""

    code = "worker_claimed"
    http_status = 409
    next_step = "Take the engine out of one of the two pools, or stop the other pool."


class EngineError(HeadgateError):
    """An engine refused a call, failed it, or did not answer it in time.

    Attributes:
        is_final: whether a retry cannot help and is not made.
    """

    code = "engine_failed"
    http_status = 502
    exit_code = 3
    next_step = "The worker is checked and replaced automatically; `headgate elastic status` shows its last error."

    def __init__(self, message: str, *, is_final: bool = False, next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.is_final = is_final


class RequestLostError(HeadgateError):
    """A request could not be answered: its workers died, or one died after a part of the answer had been sent."""

    code = "request_lost"
    http_status = 502
    next_step = "Send the request again; it was not answered."


class PoolFullError(HeadgateError):
    """More requests wait in front of an elastic pool than may, or one has waited too long.

    Attributes:
        retry_after_s: seconds after which a retry can help; None if unknown.
    """

    code = "pool_full"
    http_status = 429
    next_step = "Send it again after the time in Retry-After; raise max_workers or max_queue if it lasts."

    def __init__(self, message: str, *, retry_after_s: float | None = None, next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.retry_after_s = retry_after_s


class PoolClosedError(HeadgateError):
    """An elastic pool is being stopped: it takes no more requests, or ended before it could answer one."""

    code = "pool_closed"
    http_status = 503
    next_step = "Send the request to another pool, or again when this one has been restarted."


class GatewayUnreachableError(HeadgateError):
    """No elastic gateway answers at the address that was given."""

    code = "gateway_unreachable"
    http_status = 503
    exit_code = 3
    next_step = "Start one with `headgate elastic serve`, or name its address with --url."


FAULTS: Final = (HeadgateError, OSError)
"""What calls to engines and leases may raise; anything else is a programming error and ends the service."""


def sentence(error: BaseException) -> str:
    """Return an error as one sentence."""
    if isinstance(error, HeadgateError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def is_final(error: BaseException) -> bool:
    """Return whether a retry cannot help."""
    return isinstance(error, InvalidElasticError) or (isinstance(error, EngineError) and error.is_final)


class InvalidRequestError(HeadgateError):
    """The body of a request is not JSON, or not a valid request to a model."""

    code = "invalid_request"
    http_status = 400
    next_step = "Send the body that OpenAI's API documents for this path."


class UnknownModelError(NotFoundError):
    """A request names a model that the engines of the pool do not serve."""

    code = "unknown_model"
    next_step = "GET /v1/models lists what is served here."


class BodyTooLargeError(HeadgateError):
    """A request's body is larger than the gateway accepts."""

    code = "body_too_large"
    http_status = 413
    exit_code = 3
    next_step = "Send less at once, or raise max_body_bytes of the gateway."
