"""What a gateway refuses before the pool is asked."""

from __future__ import annotations

from headgate.core.errors import HeadgateError, NotFoundError


class InvalidRequestError(HeadgateError):
    """The body of a request is no JSON, or none that asks a model for something."""

    code = "invalid_request"
    http_status = 400
    next_step = "Send the body that OpenAI's API documents for this path."


class UnknownModelError(NotFoundError):
    """A request names a model that the engines of the pool do not serve."""

    code = "unknown_model"
    next_step = "GET /v1/models lists what is served here."


class BodyTooLargeError(HeadgateError):
    """A request's body is larger than the gateway takes."""

    code = "body_too_large"
    http_status = 413
    exit_code = 3
    next_step = "Send less at once, or raise max_body_bytes of the gateway."


class ForbiddenError(HeadgateError):
    """A token may not do this: ask models, see the pool, or steer it."""

    code = "forbidden"
    http_status = 403
    exit_code = 3
    next_step = "Use a token with the scope that is missing; to steer, `admin`, or one that operators_env names."
