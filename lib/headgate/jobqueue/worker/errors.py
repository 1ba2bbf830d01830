"""What can go wrong between a worker and the job queue, besides what the queue itself refuses."""

from __future__ import annotations

from headgate.jobqueue.errors import JobQueueError


class QueueUnreachableError(JobQueueError):
    """The job queue does not answer, or something else answers at its address."""

    code = "jobqueue_unreachable"
    http_status = 503
    exit_code = 3
    next_step = "Start it with `headgate jobqueue serve`, or name its address with --url or HEADGATE_JOBQUEUE_URL."


class NoServerError(JobQueueError):
    """No policy server became free in the time allowed."""

    code = "no_policy_server"
    http_status = 503
    exit_code = 3
    next_step = "Wait longer, or open a server that serves the task; `headgate jobqueue resources` lists them."


class ResultRefusedError(JobQueueError):
    """A file of results is not written: a later claim of the job has written one, or this is no result."""

    code = "result_refused"
    http_status = 409
    exit_code = 4
    next_step = "Leave the file as it is."


class NotInAJobError(JobQueueError):
    """A process that no worker started for a job asks for a policy server."""

    code = "not_in_a_job"
    exit_code = 2
    next_step = "Call it from a command that `headgate jobqueue work --reserve ask` runs."


class LeaseLost(BaseException):
    """The work on a job must stop now: it was given to somebody else, or this worker could not be heard of.

    It is no `Exception`, as what cancels a task is none: a simulator that goes on after whatever goes wrong in a step
    must not go on after this.
    """
