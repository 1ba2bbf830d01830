"""What an exception of a task's work means: try again later, give this sample up, or stop the run."""

from __future__ import annotations

from headgate.core import ChatError
from headgate.core.errors import HeadgateError


class RetryLaterError(Exception):
    """The work could not be done now and may be later: after a provider's cooldown, say.

    Attributes:
        reason: why, in a few words.
        wait_s: seconds after which it may be tried again; None leaves it to the run's rules.
        is_failure: False where nothing went wrong, and it waits for as long as it takes: for a new day's budget, say.
    """

    def __init__(self, reason: str, wait_s: float | None = None, *, is_failure: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s
        self.is_failure = is_failure


class TaskFailedError(HeadgateError):
    """A task's work failed for good, by its provider or its answer's form: this sample fails, the run goes on."""

    code = "task_failed"
    next_step = "The sample is recorded as failed; its cause is in the message."


def is_defect(error: Exception) -> bool:
    """Return whether an exception of a task's work stops the run.

    An error that Headgate raises on purpose, or a failed chat, is the sample's. Anything else (a `TypeError`, a
    `KeyError`) is a mistake in the code that runs the sample, and would hit the next one as well.
    """
    return not isinstance(error, RetryLaterError | HeadgateError | ChatError)
