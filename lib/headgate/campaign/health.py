"""The health of the models' services: pauses begin, end, and survive restarts."""

from __future__ import annotations

from headgate.campaign.parts import Parts
from headgate.campaign.samples import health_of
from headgate.core import Sample
from headgate.sampling import TimerHeap


class Health:
    """Passes outcomes to the models' samplers and what they decide to the dispatcher. Owned by the campaign.

    A paused model's queued tasks are held, not dropped: they go first when the pause ends.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ends = TimerHeap()

    def next_at(self) -> float | None:
        """Return when the next pause ends."""
        return self._ends.next_at()

    async def observe(self, sample: Sample, started_at: float, now: float) -> None:
        """Take the outcome of an episode, and act on the pause or the end of one that follows."""
        sampler = self._parts.samplers.get(sample.model)
        if sampler is None:
            return
        health = health_of(sample.error_kind)
        for event in sampler.observe(health, error=sample.error, started_at=started_at, now=now):
            self._parts.emit(event)
            await self._changed(sample.model, now)

    async def end_pauses(self, now: float) -> None:
        """Let models run again whose pause is over."""
        for model in self._ends.pop_due(now):
            sampler = self._parts.samplers.get(model)
            for event in sampler.end_pause(now) if sampler else ():
                self._parts.emit(event)
                await self._changed(model, now)

    def sync(self, model: str) -> None:
        """Hold or free a model's tasks as its sampler says."""
        until = self._parts.samplers[model].pause.paused_until
        self._ends.set(model, until)
        if until is not None:
            self._parts.dispatcher.hold(model, until)
        else:
            self._parts.dispatcher.unhold(model)

    async def _changed(self, model: str, now: float) -> None:
        self.sync(model)
        self._parts.local.touch([model], now)
        self._parts.wake.set()
        self._parts.fill_workers()
        pause, journal = self._parts.samplers[model].pause, self._parts.journal
        if pause.level == 0:
            await journal.write(journal.journal.clear_pause, model)
        else:
            await journal.write(journal.journal.record_pause, model, pause.level, pause.paused_until or 0.0)
