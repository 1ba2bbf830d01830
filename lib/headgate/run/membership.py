"""Which models are sampled: the roster, which is read periodically, and the history that a run resumes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headgate.core import DAY_S, Model, Task
from headgate.core.errors import HeadgateError
from headgate.core.events import RosterRefreshed, RosterRefreshFailed, TaskReturned
from headgate.run.health import Health
from headgate.run.parts import Parts
from headgate.run.plan import RunStore
from headgate.run.rows import MODEL_LEFT
from headgate.run.settlement import Settling
from headgate.sampling import ModelSampler, PairHistory, RosterSource, SamplingRules, interval_s
from headgate.storage import JournalHistory, JournalThread


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
        forget: Sequence[Callable[[str], None]],
    ) -> None:
        """Prepare it; `withdraw` takes out samples not opened yet, and each of `forget` drops its data on a model."""
        self._parts = parts
        self._roster = roster
        self._rules = rules
        self._rates = rates
        self._health = health
        self._settling = settling
        self._withdraw = withdraw
        self._forget = forget
        self._left: dict[str, float] = {}
        self._ordinals = 0
        self._wanted: dict[str, Model] = {}

    async def load(self) -> None:
        """Read the first roster and start its samplers.

        Raises:
            InvalidRosterError: if it cannot be read.
        """
        await self._admit(await self._read())

    async def _read(self) -> Sequence[Model]:
        models = (await self._roster.load()).models
        if self._parts.requests is not None:
            self._parts.requests.budgets.refuse_unpriced(models)
        return models

    async def keep(self) -> None:
        """Read the roster every refresh interval, until cancelled; a failed read keeps the last good one."""
        parts, has_failed = self._parts, False
        while True:
            await parts.clock.sleep(parts.settings.roster_refresh_s)
            try:
                models = await self._read()
            except HeadgateError as error:
                parts.emit(RosterRefreshFailed(str(error), len(parts.samplers)))
                has_failed = True
                continue
            if any(changes := await self._admit(models)) or has_failed:
                parts.emit(RosterRefreshed(len(models), *changes))
            has_failed = False
            parts.wake.set()

    def steered(self) -> None:
        """Apply the controls, which may have changed, to the models."""
        for key, model in self._wanted.items():
            sampler = self._parts.samplers.get(key)  # None while the roster is being changed to one without it
            if sampler is not None and sampler.model != self._parts.controls.model_of(model):
                self._register(model)

    def _register(self, model: Model) -> None:
        """Register a model of the roster with requests and dispatcher, with its controls applied."""
        parts = self._parts
        model = parts.samplers[model.key].model = parts.controls.model_of(model)
        if parts.requests is not None:
            parts.requests.register(model)
        parts.dispatcher.set_model(model.key, model.max_parallel)

    async def _admit(self, models: Sequence[Model]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Apply the roster; return the keys that were added and removed, and how many tasks were withdrawn."""
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
                parts.samplers[key].steer(*parts.controls.sampling(key, self._rates), parts.now())
                self._ordinals += 1
        self._wanted = wanted
        self._forget_long_gone(removed)
        for key, model in wanted.items():
            self._register(model)
            self._health.sync(key)
        self._settling.left(removed)
        self._settling.joined(added)
        parts.provider.roster_changed(models)
        parts.local.touch([*added, *removed], parts.now())
        return added, removed, withdrawn

    def _forget_long_gone(self, removed: Sequence[str]) -> None:
        """Drop what is known of models that left a day ago and have not come back: some rosters keep changing."""
        parts, now = self._parts, self._parts.now()
        away = {key: at for key, at in self._left.items() if key not in self._wanted}
        self._left = away | dict.fromkeys(removed, now)
        for key in [key for key, at in self._left.items() if now - at >= DAY_S]:  # budgets count over a day
            if parts.dispatcher.in_flight(key):
                continue
            del self._left[key]
            for forget in self._forget:
                forget(key)
            if parts.requests is not None:
                parts.requests.forget_model(key)

    async def _dismiss(self, key: str) -> int:
        """Stop a model: its queued and buffered tasks are withdrawn, while tasks in flight continue."""
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
            parts.emit(TaskReturned(task.task_id, task.model, task.environment, MODEL_LEFT))
        return len(tasks)


async def restored(
    journal: JournalThread, store: RunStore, now: float, rates: Mapping[str, float] | None = None
) -> None:
    """Correct impossible times in the journal and fill a new one from the store, so that no restart boosts or bursts.

    Raises:
        ClockDisagreesError: if another process of the journal uses a clock that is ahead of this one.
        StoreError: if the journal is new and the store's history cannot be read.
    """
    # The first sample of a pair is due at most half an interval ahead.
    await journal.reconcile(now, {environment: interval_s(rate) / 2 for environment, rate in (rates or {}).items()})
    if not await journal.write(journal.journal.is_new):
        return
    history = await store.history(now)
    await journal.write(
        journal.journal.restore,
        [(p.model, p.environment, p.next_sequence, p.last_finished_at) for p in history.pairs.values()],
        [
            (p.model, p.environment, minute * 60.0, samples)
            for p in history.pairs.values()
            for minute, samples in p.scored_by_minute.items()
        ],
        now,
    )


def sampler_of(
    model: Model, rates: Mapping[str, float], rules: SamplingRules, past: JournalHistory, *, ordinal: int, now: float
) -> ModelSampler:
    """Return a model's sampler, with its totals, due times and pause restored."""
    history = {
        environment: PairHistory(
            counts=tuple(past.counts.get((model.key, environment), ())),
            last_due=past.pairs[model.key, environment].last_due if (model.key, environment) in past.pairs else None,
        )
        for environment in {*rates, *(e for m, e in past.counts if m == model.key)}
    }
    sampler = ModelSampler(model, rates, rules, ordinal=ordinal, now=now, history=history)
    if model.key in past.pauses:
        level, until = past.pauses[model.key]
        sampler.pause.restore(level, until, now)
    return sampler
