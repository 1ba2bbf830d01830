"""What can be wrong with what is replayed, and with what replays it."""

from __future__ import annotations

from headgate.core.errors import HeadgateError
from headgate.elastic import InvalidElasticError
from headgate.placement.errors import InvalidPlacementError


class InvalidTraceError(InvalidPlacementError):
    """A file of jobs, or a setting of a replay, cannot be used."""

    code = "invalid_trace"
    next_step = "Correct it and run the command again; `headgate placement simulate --help` shows what it takes."


class InvalidLoadError(InvalidElasticError):
    """A trace of requests, a table of service times, or a setting of a replay cannot be used."""

    code = "invalid_load"
    next_step = "Correct it and run the command again; see `headgate elastic replay --help`."


class OvercommittedError(HeadgateError):
    """A policy gave out more than a simulated node has, or left work behind: an error of the policy."""

    code = "overcommitted"
    next_step = "This is an error of Headgate: report it with the command that you ran and its seed."


class ReplayFailedError(HeadgateError):
    """A pool lost a request, ran one twice, or gave an engine more than it has room for: an error of the pool."""

    code = "replay_failed"
    next_step = OvercommittedError.next_step
