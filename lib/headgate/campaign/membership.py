"""Which models are sampled: the roster, read again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.campaign.health import Health
from headgate.campaign.parts import Parts
from headgate.campaign.settling import Settling
from headgate.campaign.starting import sampler_of
from headgate.core import Model, Task
from headgate.core.errors import HeadgateError
from headgate.core.events import RosterRefreshed, RosterRefreshFailed, TaskReturned
from headgate.sampling import RosterSource, SamplingRules


@dataclass(frozen=True, slots=True)
class _Changes:
    added: tuple[str, ...]
    removed: tuple[str, ...]
    withdrawn: int


class Membership:
    """Starts and stops samplers as the roster changes. Owned by the campaign."""

    def __init__(
        self,
        parts: Parts,
        roster: RosterSource,
        rules: SamplingRules,
        rates: Mapping[str, float],
        health: Health,
        settling: Settling,
        withdraw: Callable[[Callable[[Task], bool]], list[Task]],
    ) -> None:
        """Prepare it; `withdraw` takes samples out that wait to be opened."""
        self._parts = parts
        self._roster = roster
        self._rules = rules
        self._rates = rates
        self._health = health
        self._settling = settling
        self._withdraw = withdraw
        self._ordinals = 0

    async def load(self) -> None:
        """Read the first roster and start its samplers.

        Raises:
            InvalidRosterError: if it cannot be read.
        """
        await self._admit((await self._roster.load()).models)

    async def keep(self) -> None:
        """Read the roster again every refresh interval, until cancelled; a failed read keeps the last good one."""
        parts = self._parts
        while True:
            await parts.clock.sleep(parts.settings.roster_refresh_s)
            try:
                models = (await self._roster.load()).models
            except HeadgateError as error:
                parts.emit(RosterRefreshFailed(str(error), len(parts.samplers)))
                continue
            changes = await self._admit(models)
            parts.emit(RosterRefreshed(len(models), changes.added, changes.removed, changes.withdrawn))
            parts.wake.set()

    async def _admit(self, models: Sequence[Model]) -> _Changes:
        parts = self._parts
        wanted = {model.key: model for model in models}
        removed = tuple(key for key in parts.samplers if key not in wanted)
        withdrawn = sum([await self._dismiss(key) for key in removed])
        added = tuple(key for key in wanted if key not in parts.samplers)
        if added:
            past = await parts.journal.write(parts.journal.journal.history, parts.now())
            for key in added:
                parts.samplers[key] = sampler_of(
                    wanted[key], self._rates, self._rules, past, ordinal=self._ordinals, now=parts.now()
                )
                self._ordinals += 1
        for key, model in wanted.items():
            parts.samplers[key].model = model
            if parts.requests is not None:
                parts.requests.register(model)
            parts.dispatcher.set_model(key, model.max_parallel)
            self._health.sync(key)
        self._settling.joined(added)
        parts.provider.roster_changed(models)
        parts.local.touch([*added, *removed], parts.now())
        return _Changes(added, removed, withdrawn)

    async def _dismiss(self, key: str) -> int:
        """Stop a model: its queued and buffered tasks are withdrawn, what is in flight runs on."""
        parts = self._parts
        del parts.samplers[key]
        tasks = self._withdraw(lambda task: task.model == key)
        tasks += parts.batches.take(key) + parts.dispatcher.remove_model(key)
        if parts.requests is not None:
            parts.requests.dismiss(key)
            if not parts.dispatcher.in_flight(key):
                parts.requests.settle(key)
        self._settling.withdrawn(tasks)
        await parts.journal.write(parts.journal.journal.withdraw, [task.task_id for task in tasks])
        for task in tasks:
            parts.ready_since.pop(task.task_id, None)
            parts.emit(TaskReturned(task.task_id, task.model, task.environment, "its model left the roster"))
        return len(tasks)
