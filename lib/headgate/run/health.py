"""The health of the models' services: starts and ends pauses, and keeps them across restarts."""

from __future__ import annotations

from headgate.core import ErrorKind, TimerHeap
from headgate.core.events import ModelGivenUp
from headgate.run.parts import Parts
from headgate.run.rows import health_of
from headgate.run.settlement import Settling


class Health:
    """Passes outcomes to the models' samplers, and their decisions to the dispatcher. Owned by the campaign.

    A paused model's queued tasks are held, not dropped: they go first when the pause ends.
    """

    def __init__(self, parts: Parts, settling: Settling) -> None:
        self._parts = parts
        self._settling = settling
        self._ends = TimerHeap()
        self._remembered: dict[str, float] = {}

    def next_at(self) -> float | None:
        """Return when the next pause ends."""
        return self._ends.next_at()

    def observe(self, model: str, kind: ErrorKind | None, error: str | None, started_at: float, now: float) -> bool:
        """Pass on an episode's outcome and hold or free its model at once; return whether to call `remember`."""
        sampler = self._parts.samplers.get(model)
        if sampler is None:
            return False
        happened = sampler.observe(health_of(kind), error=error, started_at=started_at, now=now)
        for event in happened:
            self._parts.emit(event)
            if isinstance(event, ModelGivenUp):
                why = f"service errors through {event.pauses} pauses; the last: {event.last_error}"
                self._settling.give_up(model, why)
            else:
                self._changed(model, now)
        return bool(happened)

    async def end_pauses(self, now: float) -> None:
        """Let models whose pause is over run again."""
        for model in self._ends.pop_due(now):
            sampler = self._parts.samplers.get(model)
            for event in sampler.end_pause(now) if sampler else ():
                self._parts.emit(event)
                self._changed(model, now)
                await self.remember(model)

    async def retry(self, model: str, now: float) -> None:
        """End a model's pause and its provider's cooldown now; failures count from zero again."""
        sampler, requests = self._parts.samplers.get(model), self._parts.requests
        if sampler is None:
            return
        for event in sampler.retry(now):
            self._parts.emit(event)
        self._changed(model, now)
        if requests is not None:
            requests.retry(model)
        await self.remember(model)

    async def remember(self, model: str) -> None:
        """Write a model's pause to the journal, so that it survives restarts."""
        sampler, journal = self._parts.samplers.get(model), self._parts.journal
        if sampler is None:
            return
        if sampler.pause.level == 0:
            await journal.write(journal.journal.clear_pause, model)
        else:
            until = self._remembered[model] = sampler.pause.paused_until or 0.0
            await journal.write(journal.journal.record_pause, model, sampler.pause.level, until)

    def heard(self, model: str, level: int, until: float, now: float) -> None:
        """Pause a model until `until` if another process of the journal has paused it for longer."""
        sampler = self._parts.samplers.get(model)
        if sampler is None or self._remembered.get(model) == until:
            return  # this process's own pause, maybe over, or one already heard of, which a wrong clock made too long
        self._remembered[model] = until
        if until <= max(now, sampler.pause.paused_until or 0.0):
            return
        before = sampler.pause.paused_until
        sampler.pause.restore(level, until, now)
        if sampler.pause.paused_until != before:
            self._changed(model, now)

    def sync(self, model: str) -> None:
        """Hold or free a model's tasks according to its sampler's pause."""
        until = self._parts.samplers[model].pause.paused_until
        self._ends.set(model, until)
        if until is not None:
            self._parts.dispatcher.hold(model, until)
        else:
            self._parts.dispatcher.unhold(model)

    def _changed(self, model: str, now: float) -> None:
        self.sync(model)
        self._parts.local.touch([model], now)
        self._parts.wake.set()
