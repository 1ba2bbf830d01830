"""Errors of the job queue: requests that it refuses, and failures on the way to it."""

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
    exit_code = 2
    next_step = "Ask whoever runs the job queue for a token with this scope, team or worker."


class UnknownJobError(JobQueueError):
    """No job has this id, or the token's teams do not include its team."""

    code = "unknown_job"
    http_status = 404
    next_step = "`headgate jobqueue jobs` lists the jobs."


class UnknownResourceError(JobQueueError):
    """No policy server, or no pool, has this name."""

    code = "unknown_resource"
    http_status = 404
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
    next_step = "Stop the other server, or name another database."


class StoreFailedError(JobQueueError):
    """The database could not be read or written; nothing was acknowledged."""

    code = "jobqueue_store_failed"
    http_status = 503
    next_step = "Look at the database and its disk; the request can be sent again."


class QueueUnreachableError(JobQueueError):
    """The job queue does not answer, or something else answers at its address."""

    code = "jobqueue_unreachable"
    http_status = 503
    next_step = "Start it with `headgate jobqueue serve`, or name its address with --url or HEADGATE_JOBQUEUE_URL."


class NoServerError(JobQueueError):
    """No policy server became free in the time allowed."""

    code = "no_policy_server"
    http_status = 503
    next_step = "Wait longer, or open a server that serves the task; `headgate jobqueue resources` lists them."


class ResultRefusedError(JobQueueError):
    """A results file is not written: a later claim of the job has written one, or the value is not a result."""

    code = "result_refused"
    http_status = 409
    exit_code = 4
    next_step = "Leave the file as it is."


class MachineUnfitError(JobQueueError):
    """A worker's machine cannot finish any job: a disk is full, or a folder of results or logs is gone.

    The worker gives its job back, uncharged, and claims no other for a while: it would fail one job after another.
    """

    code = "machine_unfit"
    next_step = "Make room on the machine's disks, or stop the worker; no job is charged for it."


class NotInAJobError(JobQueueError):
    """A process that no worker started for a job asks for a policy server."""

    code = "not_in_a_job"
    exit_code = 2
    next_step = "Call it from a command that `headgate jobqueue work --reserve ask` runs."


class LeaseLost(BaseException):
    """Work on a job must stop now: it went to another worker, or this worker's heartbeats did not get through.

    Not an `Exception`, just as task cancellation is not: a simulator that carries on after any error in a step must not
    carry on after this.
    """


class TokenEndedError(JobQueueError):
    """A token was revoked or expired while its request was waiting."""

    code = "unauthorized"
    http_status = 401
    exit_code = 2
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
    """A request's body is declared to be something other than JSON."""

    code = "not_json"
    http_status = 415
    next_step = "Send JSON with the header `Content-Type: application/json`."


class TooManyOpenError(JobQueueError):
    """A token has more open requests than it is allowed."""

    code = "too_many_open"
    http_status = 429
    next_step = "Wait for answers before sending more; `most_open_per_token` is the setting."
