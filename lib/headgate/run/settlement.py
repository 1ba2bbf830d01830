"""Pairs that leave a campaign: those whose mean is known well enough, and all pairs of a model that is given up."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from headgate.core import Sample, Task
from headgate.core.errors import InvalidInputError, StoreError
from headgate.core.events import PairSettled, TaskReturned
from headgate.run.allotment import RankingAllotment
from headgate.run.dispatch import ROLLOUT
from headgate.run.matrix import MatrixTaskProvider
from headgate.run.parts import Parts
from headgate.run.plan import RunPlan, RunStore
from headgate.sampling import Demand, Known, PrecisionStop, RankingReport, RankingStop

_MOST_TAKEN = 20_000
"""Samples of this run that a recomputed ranking adds to the stored ones: the store may lack them yet."""

_WHY = "its mean is known well enough"
_RANKED = "its rank is known"


def settling_of(parts: Parts, plan: RunPlan) -> Settling:
    """Return what settles pairs of a campaign, if its settings ask for it and its tasks come in a random order.

    That is a shuffled matrix or, when sampling by rates, the environments whose tasks are drawn at random. The first
    tasks of a list need not be like the others (BabyAI's levels come in turn), and another server's order is unknown.
    """
    settings, provider = plan.settings, plan.provider
    stop = None
    if settings.target_half_width:
        stop = PrecisionStop(settings.target_half_width, settings.target_min_tasks)
    if isinstance(provider, MatrixTaskProvider) and provider.is_shuffled:
        ranking = RankingStop(settings.indifference, provider.rows()) if settings.indifference else None
        return Settling(parts, stop, list(plan.environments), provider.place, plan.store, ranking)
    if settings.indifference and (provider is not None or settings.allocation == "rates"):
        raise InvalidInputError(
            f"models are ranked on a fixed number of tasks, and none is stated (got indifference "
            f"{settings.indifference:g})",
            next_step="State how many with --instances, or set allocation=ranking to share the samples of a day by it.",
        )
    drawn = [name for name, environment in plan.environments.items() if environment.spec.tasks_are_drawn]
    return Settling(parts, stop, drawn if provider is None else (), float, plan.store)


class Settling:
    """Follows opened and accepted tasks, and takes settled pairs out. Owned by the campaign.

    A settled pair gets no further task: its queued tasks are withdrawn, those in progress finish and are stored. When
    sampling by rates, its rate goes to the model's other environments. Without a `target_half_width` no pair settles.
    All pairs of a model leave likewise when it is given up, or when a ranking has compared it with every other model.

    Attributes:
        given_up: why each model was given up, by its key.
        allotment: shares a day's samples among the models.
    """

    def __init__(
        self,
        parts: Parts,
        stop: PrecisionStop | None,
        environments: Collection[str],
        place: Callable[[int], float],
        store: RunStore,
        ranking: RankingStop | None = None,
    ) -> None:
        """Prepare it; pairs in `environments` can settle, and their tasks are opened in the order of `place`."""
        self._parts = parts
        self._stop = stop
        self._environments = frozenset(environments)
        self._place = place
        self._ranking = ranking
        self._taken: deque[tuple[str, str, float, int, float | None]] = deque(maxlen=_MOST_TAKEN)
        self._ranked: set[str] = set()
        self._open_pairs = -1
        self._leaving: dict[tuple[str, str], str] = {}
        self.given_up: dict[str, str] = {}
        self.allotment = RankingAllotment(parts, store)

    async def restore(self, store: RunStore) -> None:
        """Start from this campaign's scores: those in the store, and those that a killed run left in the journal.

        Raises:
            StoreError: if the stored ones cannot be read.
        """
        if self._stop is None and self._ranking is None:
            return
        journal = self._parts.journal
        left = await journal.write(journal.journal.spooled)  # first: what is stored meanwhile is read twice, not never
        self._taken.extend((s.model, s.environment, s.finished_at, s.sequence, s.score) for s in left)
        stored = await store.task_scores(self._parts.settings.campaign)
        rows = [*stored, *((s.model, s.environment, s.sequence, s.score) for s in left)]
        if self._ranking is not None:
            for model, environment, sequence, score in rows:
                self._ranking.past(model, environment, sequence, score)
        if self._stop is not None:
            for model, environment, index, score in self._by_index(rows):
                self._stop.past(model, environment, index, score)

    async def recount(self, store: RunStore) -> list[tuple[str, str, int, str]]:
        """Recompute from what the store counts now; settled pairs and ranked models stay so in this run.

        Returns:
            Model, environment, sequence and stage of the tasks that a ranking needs again.
        """
        self.allotment.recount()
        if self._stop is None and self._ranking is None:
            return []
        campaign, again = self._parts.settings.campaign, list[tuple[str, str, int, str]]()
        with contextlib.suppress(StoreError):  # everything stays as it is until the next invalidation
            rows = await store.task_scores(campaign)
            gone = await store.invalid(campaign, 0.0)
            if self._ranking is not None:
                invalid = await store.to_resample(campaign, every=True)
                again = [one for one in invalid if self._ranking.has(*one[1:3]) and not self.why_left(*one[:2])]
                left_out = {one[:3] for one in gone}
                taken = [(*one[:2], *one[3:]) for one in self._taken if one[:3] not in left_out]
                self._ranking.recount([*rows, *taken], self._ranked)
                self._open_pairs = -1
                self._rank()
            if self._stop is None:
                return again
            scores = self._by_index(rows)
            counted: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
            for model, environment, index, score in scores:
                counted[model, environment].setdefault(index, score)
            left = {(model, environment): set[int]() for model, environment, *_ in gone}
            for model, environment, _, _, index in gone:
                left[model, environment].add(index)
            for pair in {**counted, **left}:
                if pair[1] in self._environments:
                    self._tell(*pair, self._stop.recount(*pair, counted[pair], left.get(pair, ())))
        return again

    def _by_index(self, rows: Iterable[tuple[str, str, int, float | None]]) -> list[tuple[str, str, int, float]]:
        """Return model, environment, index and score of scored samples, in the order in which tasks are opened."""
        return [
            (model, environment, sequence % self._parts.environments[environment].spec.data_length, score)
            for model, environment, sequence, score in sorted(rows, key=lambda row: self._place(row[2]))
            if environment in self._environments and score is not None
        ]

    def joined(self, models: Sequence[str]) -> None:
        """Settle again the pairs of models that were just admitted, where they settled before."""
        for model, environment in self._stop.settled() if self._stop is not None else ():
            if model in models:
                self._settle(model, environment)
        if self._ranking is not None and models:
            self._ranked -= set(models)  # one that left and returns
            self._ranking.join(models, self._ranked)
            self._open_pairs = -1
            self._rank()

    def left(self, models: Sequence[str]) -> None:
        """Take models that left the roster out of the ranking."""
        if self._ranking is not None and models:
            for model in models:
                self._ranking.leave(model)
            self._rank()

    def pace(self, matrix: MatrixTaskProvider, pending: Iterable[Task]) -> None:
        """Limit how far models go ahead of those with which they are compared; `pending` samples are not opened yet."""
        if self._ranking is None:
            return
        parts, queue = self._parts, self._parts.dispatcher
        matrix.drop({*self._ranked, *self.given_up})
        paused = {name for name in parts.environments if parts.controls.pauses and parts.controls.pause_of(None, name)}
        aside = (task for task in queue.aside.values() if task.environment not in paused)
        waiting = Counter(task.model for task in (*pending, *parts.batches.items(), *aside))

        def begun(model: str) -> int:
            return max(0, matrix.reached(model) - (waiting[model] + queue.queued(model)) // len(parts.environments))

        # Models that are served from weights would take turns on the accelerators.
        served = {key for key, sampler in parts.samplers.items() if sampler.model.serve is not None}
        matrix.limits = {key: row for key, row in self._ranking.limits(begun).items() if key not in served}

    def report(self) -> RankingReport | None:
        """Return what is known about every two models; None if models are not ranked."""
        return None if self._ranking is None else self._ranking.report()

    def opened(self, task: Task) -> None:
        """Note that a task was opened."""
        if self._stop is not None and task.environment in self._environments:
            self._stop.opened(task)

    def accepted(self, sample: Sample) -> None:
        """Note how a task ended; if that settles its pair, report it and take the pair out."""
        self._ended(sample.model, sample.environment, sample.task_id, sample.score)
        if self._ranking is not None:
            self._taken.append((sample.model, sample.environment, sample.finished_at, sample.sequence, sample.score))
            self._ranking.ended(sample.model, sample.environment, sample.sequence, sample.score)
            self._rank()

    def withdrawn(self, tasks: Sequence[Task]) -> None:
        """Note that tasks end without a sample."""
        for task in tasks:
            self._ended(task.model, task.environment, task.task_id, None)

    def wanted(self, demand: Sequence[Demand]) -> Sequence[Demand]:
        """Return the demand without that of pairs that have left."""
        return [one for one in demand if not self.why_left(one.model, one.environment)]

    def why_left(self, model: str, environment: str) -> str:
        """Return why a pair gets no further task; empty if it still gets tasks."""
        if model in self.given_up or model in self._ranked:
            return self.given_up.get(model, _RANKED)
        return _WHY if self._stop is not None and self._stop.is_settled(model, environment) else ""

    def give_up(self, model: str, why: str) -> None:
        """Take all pairs of a model out; none of its tasks starts any more."""
        self.given_up[model] = why
        self._leaving |= dict.fromkeys(((model, name) for name in self._parts.environments), why)
        self._parts.dispatcher.hold(model, math.inf)
        self._parts.wake.set()
        self.left([model])

    def leave(self, pairs: Mapping[tuple[str, str], str]) -> None:
        """Withdraw pairs' queued tasks, each for its reason; tasks that fall due later are sampled."""
        self._leaving |= pairs
        self._parts.wake.set()

    async def withdraw(self, pending: Callable[[Callable[[Task], bool]], list[Task]]) -> None:
        """Take the buffered and queued tasks of leaving pairs out of the run and its journal.

        Args:
            pending: takes out samples not opened yet, and multi-stage samples that are open but have not begun.
        """
        if not self._leaving:
            return
        parts, leaving = self._parts, self._leaving
        self._leaving = {}
        tasks = pending(lambda task: (task.model, task.environment) in leaving)
        tasks += parts.dispatcher.discard_where(
            lambda task: task.stage != ROLLOUT and (task.model, task.environment) in leaving
        )
        for model in {model for model, _ in leaving}:
            buffered = parts.batches.take(model)
            kept = [task for task in buffered if (task.model, task.environment) not in leaving]
            if kept:
                parts.batches.put_back(model, kept, parts.now())
            tasks += [task for task in buffered if (task.model, task.environment) in leaving]
        self.withdrawn(tasks)
        await parts.journal.write(parts.journal.journal.withdraw, [task.task_id for task in tasks])
        for task in tasks:
            parts.ready_since.pop(task.task_id, None)
            parts.emit(TaskReturned(task.task_id, task.model, task.environment, leaving[task.model, task.environment]))

    def _ended(self, model: str, environment: str, task_id: str, score: float | None) -> None:
        if self._stop is None:
            return
        self._tell(model, environment, self._stop.ended(model, environment, task_id, score))

    def _tell(self, model: str, environment: str, known: Known | None) -> None:
        if known is None:
            return
        self._parts.emit(PairSettled(model, environment, known.tasks, known.mean, known.low, known.high))
        self._settle(model, environment)

    def _rank(self) -> None:
        """Report new decisions, and take out models that have been compared with every other."""
        assert self._ranking is not None, "called only where models are ranked"
        if self._ranking.open_pairs == self._open_pairs:
            return
        self._open_pairs = self._ranking.open_pairs
        for pair in self._ranking.news():
            self._parts.emit(pair)
        for model in self._ranking.settled():
            if model not in self._ranked and model not in self.given_up:
                self._ranked.add(model)
                for environment in self._parts.environments:
                    self._settle(model, environment, _RANKED)

    def _settle(self, model: str, environment: str, why: str = _WHY) -> None:
        parts = self._parts
        self._leaving[model, environment] = why
        sampler = parts.samplers.get(model)
        if sampler is not None:
            sampler.settle(environment, parts.now())
            parts.local.touch([model], parts.now())
        parts.wake.set()
