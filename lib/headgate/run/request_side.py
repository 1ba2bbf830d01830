"""The request side of a campaign: its admission, its executor, and whose lanes the pressure on endpoints closes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headgate.admission import (
    AdmissionController,
    Correlation,
    Domain,
    Pressure,
    PressureReason,
    ProviderModel,
    RequestAdmission,
    RequestExecutor,
    RequestItem,
    RequestKey,
    RetryBudget,
    SlotSource,
    request_key,
)
from headgate.admission.laws import LimitLaw, law_factory
from headgate.config import Settings
from headgate.core import ChatReply, Clock, Message, Model, Prices, Spending
from headgate.core.events import Emit
from headgate.core.status import RequestStatus
from headgate.models import RetryPolicy
from headgate.run.batch_lane import BatchLane
from headgate.run.budgets.conversation import reply_length
from headgate.run.budgets.keeper import Budgets
from headgate.run.served import ServedModels
from headgate.sampling import read_prices
from headgate.sampling.budgets import Habits, prompt_chars

_REMEMBERED: Final = 64
"""Replies of a model in an environment that the next is judged by."""

_QUANTILE: Final = 0.9
"""Of their tokens is kept free for a reply: more would wait for room that is not used, less would be overdrawn often.
What a reply takes beyond is paid by who comes next."""


class RecentReplies:
    """The tokens of the last replies of one model in one environment."""

    def __init__(self) -> None:
        self._last = deque[int](maxlen=_REMEMBERED)

    def add(self, tokens: int) -> None:
        """Remember a reply, and forget the one that is too long ago."""
        self._last.append(tokens)

    @property
    def usual(self) -> int | None:
        """The tokens that most replies did not exceed; None before the first."""
        return sorted(self._last)[int(_QUANTILE * len(self._last))] if self._last else None


class TokenNeeds:
    """Learns what requests take, of models with limits per minute. Owned by the request side; nothing is stored."""

    def __init__(self) -> None:
        self._habits: dict[str, Habits] = {}
        self._replies: dict[str, dict[str, RecentReplies]] = {}

    def expected(self, model: Model, environment: str, messages: Sequence[Message]) -> tuple[int, int]:
        """Return the tokens of a prompt, and those to keep free for its reply: never more than it may have."""
        habits = self._habits.setdefault(model.key, Habits())
        replies = self._replies.get(model.key, {}).get(environment)
        usual = None if replies is None else replies.usual
        completion = habits.completion_tokens if usual is None else usual
        _, longest = reply_length(model)
        if longest is not None and longest < completion:
            completion = longest
        return habits.tokens_of(prompt_chars(messages)), max(1, completion)

    def answered(self, model: Model, environment: str, messages: Sequence[Message], reply: ChatReply) -> None:
        """Learn from an answer whose tokens its endpoint counted."""
        if reply.prompt_tokens:
            habits = self._habits.setdefault(model.key, Habits())
            habits.answered(prompt_chars(messages), reply.prompt_tokens, reply.completion_tokens)
        if reply.completion_tokens:
            environments = self._replies.setdefault(model.key, {})
            environments.setdefault(environment, RecentReplies()).add(reply.completion_tokens)

    def forget(self, alias: str) -> None:
        """Forget a model that has left the roster."""
        self._habits.pop(alias, None)
        self._replies.pop(alias, None)


DAILY_BUDGET: Final = "daily_budget"
"""Presses on a model that has used up a budget of 24 h, until it has room again."""

ENGINE: Final = "engine"
"""Presses on a model that Headgate serves, until an engine of it is awake."""

Pressed = Callable[[str, str | None, float | None], None]
"""Told a model's key, what presses on its endpoint (None: nothing), and until when in monotonic seconds."""


class RequestSide:
    """Who may send, and when. One per campaign: every request of it goes through `executor`.

    A model of the roster is an alias of the model at its provider; its cap is `max_parallel`. A model that has left, or
    has moved to another address, stays registered there until its last episode has ended: what is in flight runs on.

    Attributes:
        admission: the gate; a slot bank bounds it by `set_provider_cap`.
        budgets: what samples and models may spend; a model whose day is used up is under the pressure `DAILY_BUDGET`.
        engines: serve the models of the roster that have no endpoint; None where nothing is served.
        batches: takes requests that can wait; None where all are asked at once.
        executor: the way of every request.
        needs: what requests of models with limits per minute take.
        idle: told a task whose request will wait for longer than a second.
        busy: told that it goes on.
        ready: says how many tasks of a model are ready to start.
        free_workers: says how many could start at once.
        now: the monotonic seconds that admission goes by.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        emit: Emit,
        rng: random.Random | None = None,
        make_law: Callable[[int], LimitLaw] | None = None,
        slots: SlotSource | None = None,
        trace_requests: bool = False,
        engines: ServedModels | None = None,
        batches: BatchLane | None = None,
        prices: Prices | None = None,
    ) -> None:
        """Prepare the request side.

        Args:
            settings: of the campaign.
            clock: real, or virtual in a simulation.
            emit: where events go.
            rng: jitter of the back-offs.
            make_law: the limit law by its cap, in place of the one that the settings name.
            slots: bounds providers across processes.
            trace_requests: whether events of every single request are told.
            engines: see the attribute.
            batches: likewise.
            prices: of models whose roster entry states none; by default those that the settings name.

        Raises:
            InvalidSettingError: if the settings name a table of prices that cannot be used.
        """
        controller = AdmissionController(make_law or law_factory(settings), trace_requests=trace_requests)
        self.admission = RequestAdmission(controller, clock, emit)
        self.executor = RequestExecutor(
            self.admission,
            RetryPolicy(max_attempts=settings.request_attempts),
            RetryBudget(settings.retry_budget),
            clock=clock,
            rng=rng or random.Random(settings.campaign),
            emit=emit,
            queue_wait_s=settings.request_queue_wait_s,
        )
        prices = read_prices(settings.prices) if prices is None else prices
        self.budgets = Budgets(settings, clock=clock, emit=emit, prices=prices)
        self.engines = engines
        self.needs = TokenNeeds()
        self.batches = batches
        if batches is not None:
            batches.is_cheaper, batches.paid = prices.batch_is_cheaper, self._paid
            batches.freed = lambda task_id: self.budgets.ended(in_batch(task_id))
        self.idle: Callable[[str], None] = lambda _: None
        self.busy: Callable[[str], None] = lambda _: None
        self.ready: Callable[[str], int] = lambda _: 0
        self.free_workers: Callable[[], int] = lambda: 0
        self._slots = slots
        self.now = clock.monotonic
        self._models: dict[str, Model] = {}
        self._keys: dict[str, RequestKey] = {}
        self._aliases: dict[ProviderModel, dict[str, int]] = {}
        self._bounded: set[str] = set()
        self._leaving: dict[str, set[ProviderModel]] = {}

    # The roster.

    def register(self, model: Model) -> None:
        """Let a model be asked, or take over what has changed of it.

        Raises:
            InvalidSettingError: if its cap is below 1.
        """
        before, now = self._keys.get(model.key), request_key(model)
        cap = model.max_parallel if self._slots is None else self._slots.follow(now.account, model.max_parallel)
        self.admission.register(now.account, cap, model.key, model.rates)
        if cap < model.max_parallel:
            self._bounded.add(model.key)
        else:
            self._bounded.discard(model.key)
        self.budgets.register(model)
        if self.batches is not None:
            self.batches.note_model(model)
        self._models[model.key], self._keys[model.key] = model, now
        self._aliases.setdefault(now.account, {})[model.key] = cap
        self._leaving.get(model.key, set()).discard(now.account)
        if self.engines is not None:
            self.engines.follow(model)
        if before is not None and before.account != now.account:
            self._leaving.setdefault(model.key, set()).add(before.account)

    def dismiss(self, alias: str) -> None:
        """Let a model be asked no more once its last episode has ended (`settle`)."""
        key = self._keys.pop(alias, None)
        if key is not None:
            del self._models[alias]
            self.needs.forget(alias)
            self.budgets.dismiss(alias)
            if self.engines is not None:
                self.engines.leave(alias)
            self._leaving.setdefault(alias, set()).add(key.account)

    def settle(self, alias: str) -> None:
        """Withdraw what a model has left; to be called when no episode of it is in progress."""
        for account in self._leaving.pop(alias, ()):
            self.admission.unregister(account, alias)
            aliases = self._aliases[account]
            aliases.pop(alias, None)
            if not aliases:
                del self._aliases[account]
                self.executor.budget.forget(account)

    def forget_model(self, alias: str) -> None:
        """Drop what is known of a model that was dismissed a day ago."""
        self.budgets.forget(alias)
        if self.batches is not None:
            self.batches.forget_model(alias)

    def retry(self, alias: str) -> None:
        """Ask a model's endpoint again before its cooldown is over."""
        if (key := self._keys.get(alias)) is not None:
            self.admission.retry(key.account)

    @property
    def is_settling(self) -> bool:
        """Whether any model has left something that `settle` is to withdraw."""
        return bool(self._leaving)

    # Requests.

    def is_rated(self, model: Model) -> bool:
        """Return whether a limit per minute holds for a model, stated or told by its answers."""
        key = self._keys.get(model.key)
        return key is not None and self.admission.is_rated(key.account)

    def item(
        self,
        model: Model,
        correlation: Correlation,
        domain: Domain = Domain.CHAT,
        tokens: tuple[int, int] = (0, 0),
    ) -> RequestItem:
        """Return what a request of `model` is admitted as: its group is the model, its weight the model's.

        `tokens` are those of the prompt, estimated, and those to be kept free for the reply; 0 for as many as usual.
        """
        alias = model.key
        key = self._keys.get(alias)
        if key is None or self._models[alias] is not model or domain is not Domain.CHAT:
            key = request_key(model, domain)
        return RequestItem(key, alias, model.weight, None, correlation, *tokens)

    def forget(self, samples: Collection[str]) -> None:
        """Forget requests in batches of samples that are durable, or are not taken any more."""
        if self.batches is not None:
            self.batches.forget(samples)

    def _paid(self, alias: str, answered: Sequence[tuple[str, ChatReply]]) -> Mapping[str, Spending]:
        """Count what came back from a batch; its replies are durable together with the spending that is returned."""
        for task_id, reply in answered:
            self.budgets.paid(in_batch(task_id), alias, reply)
        return self.budgets.unreported()

    def pressure(self, alias: str) -> Pressure | None:
        """Return what a request of a model would have to wait for now."""
        key = self._keys.get(alias)
        return None if key is None else self.admission.pressure(key)

    def backlog(self, provider: str) -> int:
        """Return how many ready tasks would ask a provider at once if it had more slots for them."""
        for_slots = {PressureReason.NO_SLOTS}
        if self.admission.pressing(provider):
            for_slots.add(PressureReason.WAITERS)
        ready = 0
        for alias, key in self._keys.items():
            if key.account.provider == provider:
                pressure = self.admission.pressure(key)
                if pressure is None or pressure.reason in for_slots:
                    ready += min(self.ready(alias), self._models[alias].max_parallel)
        return min(ready, self.free_workers())

    def watch(self, pressed: Pressed) -> Callable[[], None]:
        """Tell `pressed` whenever the pressure on a model changes; return what ends that. Needs a running loop."""

        def changed(key: RequestKey, pressure: Pressure | None) -> None:
            if key.domain is not Domain.CHAT:
                return
            aliases = self._aliases.get(key.account, ())
            if (
                pressure is not None
                and pressure.reason is PressureReason.AGGREGATE_CAP
                and len(aliases) == 1
                and self._bounded.isdisjoint(aliases)
            ):
                # As many requests as episodes: its lane is full by itself, and tells so without this for every request.
                pressure = None
            reason, until = (None, None) if pressure is None else (pressure.reason.value, pressure.until)
            for alias in aliases:
                if self._stop_of(alias) is None:
                    pressed(alias, reason, until)

        self._watch_stops(pressed, changed)
        return self.admission.on_change(changed)

    def _watch_stops(self, pressed: Pressed, changed: Callable[[RequestKey, Pressure | None], None]) -> None:
        """Tell `pressed` of models that are stopped; when one no longer is, `changed` tells of its endpoint."""

        def told(alias: str) -> None:
            key = self._keys.get(alias)
            if key is None:
                return
            pressed(alias, self._stop_of(alias), None)
            if self._stop_of(alias) is None:
                changed(key, self.admission.pressure(key))

        self.budgets.changed = lambda alias, _: told(alias)
        if self.engines is not None:
            self.engines.changed = told
        for alias in self._keys:
            if self._stop_of(alias) is not None:
                told(alias)

    def _stop_of(self, alias: str) -> str | None:
        """Return what stops a model whatever its endpoint says: its day is used up, or no engine of it is awake."""
        if self.budgets.stop_of(alias) is not None:
            return DAILY_BUDGET
        return None if self.engines is None or self.engines.is_ready(alias) else ENGINE

    def close(self, reason: str) -> None:
        """Deny whatever still waits or will ask."""
        self.budgets.close()
        self.admission.shutdown(reason)

    # What it looks like.

    def status(self) -> tuple[RequestStatus, ...]:
        """Return every request key that was asked, and one for each model that may be and was not yet."""
        asked: dict[ProviderModel, list[RequestStatus]] = {name: [] for name in self._aliases}
        for key in self.admission.statuses():
            asked.setdefault(ProviderModel(key.provider, key.model), []).append(key)
        denied, caps = self.executor.budget.denied, {name: min(of.values()) for name, of in self._aliases.items()}
        return tuple(
            replace(key, models=tuple(self._aliases.get(name, ())), retries_denied=denied.get(name, 0))
            for name, keys in asked.items()
            for key in keys or (RequestStatus(*name, Domain.CHAT.value, (), cap=caps[name], limit=caps[name]),)
        )


def in_batch(task_id: str) -> str:
    """Return in whose name the budget of a model holds what a request in a batch may take."""
    return f"{task_id} in a batch"
