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
    """A token may ask models but not steer the pool, or a page of another site made a browser ask."""

    code = "forbidden"
    http_status = 403
    exit_code = 3
    next_step = "Use a token that operators_env of the gateway names."


class MisdirectedError(HeadgateError):
    """A gateway without tokens was called by a name that is not this machine's own."""

    code = "misdirected"
    http_status = 421
    exit_code = 3
    next_step = "Call it by 127.0.0.1 or localhost, or give the gateway tokens."
