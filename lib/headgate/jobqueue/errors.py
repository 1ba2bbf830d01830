"""What the job queue refuses, and why: each has a code, a sentence, the next step and an HTTP status."""

from __future__ import annotations

from headgate.core.errors import HeadgateError, InvalidInputError


class JobQueueError(HeadgateError):
    """Anything that the job queue refuses."""

    code = "jobqueue_error"
    exit_code = 3
    next_step = "Look at the log of the job queue's server."


class InvalidJobError(InvalidInputError):
    """A job, a policy server or a file breaks a rule; nothing was changed."""

    code = "invalid_job"
    next_step = "Correct the value and send it again; nothing was changed."


class ForbiddenError(JobQueueError):
    """The token does not allow this."""

    code = "forbidden"
    http_status = 403
    next_step = "Ask whoever runs the job queue for a token with this scope, team or worker."


class UnknownJobError(JobQueueError):
    """No job has this id, or the token's teams do not include its team."""

    code = "unknown_job"
    http_status = 404
    exit_code = 3
    next_step = "`headgate jobqueue jobs` lists the jobs."


class UnknownResourceError(JobQueueError):
    """No policy server, or no pool, has this name."""

    code = "unknown_resource"
    http_status = 404
    exit_code = 3
    next_step = "`headgate jobqueue resources` lists the servers that are registered."


class JobConflictError(JobQueueError):
    """A job with this id exists and was submitted with other contents."""

    code = "job_conflict"
    http_status = 409
    exit_code = 2
    next_step = "Choose another id; a job is never overwritten."


class StaleLeaseError(JobQueueError):
    """The lease is over: the job was given to another worker, or ended. What was sent does not count."""

    code = "stale_lease"
    http_status = 409
    exit_code = 4
    next_step = "Stop the work on this job and claim another one."


class WrongStateError(JobQueueError):
    """The job or server is in a state in which this cannot be done."""

    code = "wrong_state"
    http_status = 409
    exit_code = 2
    next_step = "Check its state first; nothing was changed."


class ReplyConflictError(JobQueueError):
    """An idempotency key was used before for another request."""

    code = "idempotency_conflict"
    http_status = 422
    exit_code = 2
    next_step = "Use a new key for a new request."


class StoreInUseError(JobQueueError):
    """Another process serves this job queue."""

    code = "jobqueue_in_use"
    http_status = 503
    exit_code = 3
    next_step = "Stop the other server, or name another database."


class StoreFailedError(JobQueueError):
    """The database could not be read or written; nothing was acknowledged."""

    code = "jobqueue_store_failed"
    http_status = 503
    exit_code = 3
    next_step = "Look at the database and its disk; the request can be sent again."
