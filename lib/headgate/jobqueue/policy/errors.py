"""What can go wrong between a simulator and a policy server."""

from __future__ import annotations

from headgate.jobqueue.errors import JobQueueError


class PolicyError(JobQueueError):
    """Anything that a policy server, or the way to it, did wrong; the episode does not count."""

    code = "policy_error"
    http_status = 502
    next_step = "Look at the log of the policy server."


class PolicyUnreachableError(PolicyError):
    """No policy server answers at the address: refused, unknown host, no websocket, or silent for too long."""

    code = "policy_unreachable"
    exit_code = 3
    next_step = "Check that the policy server runs: GET /healthz on the same port answers OK."


class PolicyRefusedError(PolicyError):
    """The policy server is there and does not take this connection: it is busy, or the lease is an old one."""

    code = "policy_refused"
    http_status = 503
    exit_code = 3
    next_step = "Reserve a server again, or wait until its episode is over."


class PolicyLostError(PolicyError):
    """The connection ended within an episode; it is not taken up again, since the policy's memory is gone."""

    code = "policy_lost"
    next_step = "Begin the episode anew, on a server that is up."


class PolicyTimeoutError(PolicyError):
    """The policy server did not answer an observation in time; the connection is closed."""

    code = "policy_timeout"
    http_status = 504
    next_step = "Look at the load of the policy server, or allow more time for an answer."


class PolicyFailedError(PolicyError):
    """The policy failed, by its server's own words, or its answer is no action.

    Attributes:
        report: what the server sent as text (a traceback, as a rule), or empty.
    """

    code = "policy_failed"
    next_step = "Fix the policy; the traceback is in its server's log too."

    def __init__(self, message: str, *, report: str = "", next_step: str | None = None) -> None:
        super().__init__(message, next_step=next_step)
        self.report = report


class MalformedMessageError(PolicyError):
    """A message of the policy protocol cannot be read, or a value cannot be put into one."""

    code = "policy_message_malformed"
    http_status = 422
    next_step = "Messages are msgpack maps with numbers, text, bytes, lists, maps and plain numpy arrays."
