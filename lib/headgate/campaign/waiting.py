"""Episodes that wait for their provider: their workers are lent meanwhile, and what was not admitted runs again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headgate.campaign.figures import WorkerFigures
from headgate.campaign.parts import Parts
from headgate.core import ErrorKind, Lease, Sample, Task, TaskId

MAX_DEFERRALS: Final = 16
"""A task whose provider admitted it in none of so many runs is recorded as what it is: rate limited."""


class WaitingEpisodes:
    """Parks the leases of episodes whose request waits, and says which tasks run again. Owned by the workforce.

    A request waits for admission (a cooldown, an open breaker, others ahead of it) or in back-off. It holds no slot of
    its provider then, and after a second no worker either: a provider in a storm of 429s never idles another one's
    work. The dispatcher bounds how many leases are parked, so at most twice as many episodes exist as workers.
    """

    def __init__(self, parts: Parts, figures: WorkerFigures) -> None:
        self._parts = parts
        self._figures = figures
        self._leases: dict[TaskId, Lease] = {}
        self._waiting: dict[TaskId, bool] = {}
        self._deferrals: dict[TaskId, int] = {}
        if parts.requests is not None:
            parts.requests.idle = self._idle
            parts.requests.busy = self._busy
            parts.requests.ready = parts.dispatcher.queued
            parts.requests.free_workers = self._free_workers

    def _free_workers(self) -> int:
        return max(0, self._parts.settings.num_evaluation_workers - self._parts.dispatcher.in_flight())

    def started(self, task: Task, lease: Lease) -> None:
        """Note an episode that begins."""
        self._leases[task.task_id] = lease

    def ended(self, task: Task, now: float) -> None:
        """Note an episode that has ended, in whatever way."""
        lease = self._leases.pop(task.task_id)
        if self._waiting.pop(task.task_id, False):
            self._parts.dispatcher.unpark(lease, now)
            self._figures.unparked(now)

    def explained(self, task: Task, sample: Sample) -> Sample:
        """Return the sample with the true reason of an episode whose time was over while its request waited.

        To be asked before `ended`. Such a request was not sent at all: its provider was given no time to be late.
        """
        if sample.error_kind != ErrorKind.PROVIDER_TIMEOUT or task.task_id not in self._waiting:
            return sample
        error = f"{sample.error}: its request was waiting for admission"
        return replace(sample, error_kind=ErrorKind.RATE_LIMITED.value, error=error)

    def may_defer(self, task: Task, sample: Sample) -> bool:
        """Return whether the task runs again in place of being recorded: only limits kept its answer.

        Those are the provider's, or the model's budget of 24 h; the latter stopped the model, so that the task waits.
        """
        requests = self._parts.requests
        if requests is None or sample.error_kind not in (ErrorKind.RATE_LIMITED, ErrorKind.DAILY_BUDGET):
            self._deferrals.pop(task.task_id, None)
            return False
        if sample.error_kind == ErrorKind.DAILY_BUDGET:
            if requests.budgets.is_hopeless(task.task_id):
                return False
            if not sample.attempts:
                return True  # nothing was sent yet: putting it off has cost nothing
        count = self._deferrals.get(task.task_id, 0) + 1
        if count > MAX_DEFERRALS:
            del self._deferrals[task.task_id]
            return False
        self._deferrals[task.task_id] = count
        return True

    def deferred(self, task: Task) -> int:
        """Return how often a task was put back."""
        return self._deferrals.get(task.task_id, 0)

    def _idle(self, task_id: str) -> None:
        key = TaskId(task_id)
        lease = self._leases.get(key)
        if lease is None or key in self._waiting:
            return
        now = self._parts.now()
        self._waiting[key] = is_parked = self._parts.dispatcher.park(lease, now)
        if is_parked:
            self._figures.parked(now)
            self._parts.fill_workers()

    def _busy(self, task_id: str) -> None:
        key = TaskId(task_id)
        if self._waiting.pop(key, False):
            now = self._parts.now()
            self._parts.dispatcher.unpark(self._leases[key], now)
            self._figures.unparked(now)
