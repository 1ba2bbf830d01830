"""What the server refuses before the ledger is asked."""

from __future__ import annotations

from headgate.jobqueue.errors import JobQueueError


class TokenEndedError(JobQueueError):
    """A token was revoked or has expired while its request stood in line."""

    code = "unauthorized"
    http_status = 401
    next_step = "Ask whoever runs the job queue for a token."


class BodyTooLargeError(JobQueueError):
    """A request's body is larger than this route takes."""

    code = "body_too_large"
    http_status = 413
    next_step = "Send less at once, or store large results elsewhere and name them in `result_ref`."


class BodyTooSlowError(JobQueueError):
    """A request's body did not arrive in time."""

    code = "body_too_slow"
    http_status = 408
    next_step = "Send the request again; nothing was changed."


class NotJsonError(JobQueueError):
    """A request's body says that it is something else than JSON."""

    code = "not_json"
    http_status = 415
    next_step = "Send JSON with the header `Content-Type: application/json`."


class TooManyOpenError(JobQueueError):
    """A token has more requests open than it may."""

    code = "too_many_open"
    http_status = 429
    next_step = "Wait for answers before sending more; `most_open_per_token` is the setting."


class HungUp(Exception):  # noqa: N818 - an event, which nobody is told of
    """The client has closed the connection: there is nobody to answer."""
