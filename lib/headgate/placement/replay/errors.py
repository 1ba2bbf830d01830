"""What can be wrong with a trace, or with what replays it."""

from __future__ import annotations

from headgate.core.errors import HeadgateError
from headgate.placement.errors import InvalidPlacementError


class InvalidTraceError(InvalidPlacementError):
    """A file of jobs, or a setting of a replay, cannot be used."""

    code = "invalid_trace"
    next_step = "Correct it and run the command again; `headgate placement simulate --help` shows what it takes."


class OvercommittedError(HeadgateError):
    """A policy gave out more than a simulated node has, or left work behind: an error of the policy."""

    code = "overcommitted"
    next_step = "This is an error of Headgate: report it with the command that you ran and its seed."
