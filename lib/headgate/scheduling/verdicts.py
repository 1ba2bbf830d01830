"""What an exception of a task's work means: try again later, give this sample up, or stop the run."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the task again, `wait_s` seconds from now (None: by the rules); how often is bounded for failures alone."""

    reason: str
    wait_s: float | None
    is_failure: bool = True


@dataclass(frozen=True, slots=True)
class Failure:
    """The sample failed; nothing else did."""

    reason: str


@dataclass(frozen=True, slots=True)
class Defect:
    """An error of ours: the run stops, with the traceback."""

    error: Exception


Verdict = Retry | Failure | Defect


def verdict_of(error: Exception) -> Verdict:
    """Return what an exception means.

    An error that Headgate raises on purpose, or a failed chat, is the sample's. Anything else (a `TypeError`, a
    `KeyError`) is a mistake in the code that runs the sample, and would hit the next one as well.
    """
    if isinstance(error, RetryLaterError):
        return Retry(error.reason, error.wait_s, error.is_failure)
    if isinstance(error, HeadgateError | ChatError):
        return Failure(str(error))
    return Defect(error)
