"""The request side of a campaign: admission, execution, and the pressure on endpoints that closes models' lanes."""

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
"""Number of recent replies, of a model in an environment, from which the next one is predicted."""

_QUANTILE: Final = 0.9
"""Quantile of their tokens that is reserved for a reply: a higher one would wait for room that stays unused, a lower
one would often be exceeded. Tokens beyond it delay the requests that follow."""


class RecentReplies:
    """The tokens of the last replies of one model in one environment."""

    def __init__(self) -> None:
        self._last = deque[int](maxlen=_REMEMBERED)

    def add(self, tokens: int) -> None:
        """Remember a reply, and forget the oldest."""
        self._last.append(tokens)

    @property
    def usual(self) -> int | None:
        """The tokens that most replies did not exceed; None before the first reply."""
        return sorted(self._last)[int(_QUANTILE * len(self._last))] if self._last else None


class TokenNeeds:
    """Learns how many tokens requests of models with limits per minute take. Owned by the request side; not stored."""

    def __init__(self) -> None:
        self._habits: dict[str, Habits] = {}
        self._replies: dict[str, dict[str, RecentReplies]] = {}

    def expected(self, model: Model, environment: str, messages: Sequence[Message]) -> tuple[int, int]:
        """Return the tokens of a prompt, and those to reserve for its reply, which never exceed the reply's limit."""
        habits = self._habits.setdefault(model.key, Habits())
        replies = self._replies.get(model.key, {}).get(environment)
        usual = None if replies is None else replies.usual
        completion = habits.completion_tokens if usual is None else usual
        _, longest = reply_length(model)
        if longest is not None and longest < completion:
            completion = longest
        return habits.tokens_of(prompt_chars(messages)), max(1, completion)

    def answered(self, model: Model, environment: str, messages: Sequence[Message], reply: ChatReply) -> None:
        """Learn from an answer, as far as its endpoint counted tokens."""
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
"""Pressure on a model that has used up a budget of 24 h, until it has room again."""

ENGINE: Final = "engine"
"""Pressure on a model that Headgate serves, until one of its engines is awake."""

Pressed = Callable[[str, str | None, float | None], None]
"""Called with a model's key, the pressure on its endpoint (None: none), and its end in monotonic seconds."""


class RequestSide:
    """Decides which requests may be sent, and when. One per campaign: all of its requests go through `executor`.

    A roster model is an alias of the model at its provider; its cap is `max_parallel`. A model that has left the roster
    or moved to another address stays registered there until its last episode ends; its requests in flight run on.

    Attributes:
        admission: the gate; a slot bank limits it through `set_provider_cap`.
        budgets: the budgets of samples and models; a model with a used-up day is under the pressure `DAILY_BUDGET`.
        engines: serve the roster's models that have no endpoint; None where nothing is served.
        batches: takes requests that can wait; None where all are sent at once.
        executor: sends every request.
        needs: the tokens that requests of models with limits per minute take.
        idle: called with a task whose request will wait for longer than a second.
        busy: called with it when it continues.
        ready: returns how many tasks of a model are ready to start.
        free_workers: returns how many tasks could start at once.
        now: returns admission's time, in monotonic seconds.
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
            settings: the campaign's settings.
            clock: real, or virtual in a simulation.
            emit: receives events.
            rng: source of the back-offs' jitter.
            make_law: makes the limit law for a cap, in place of the one that the settings name.
            slots: limits providers across processes.
            trace_requests: whether to emit events for every single request.
            engines: see the attribute.
            batches: likewise.
            prices: prices of models whose roster entry has none; by default from the settings.

        Raises:
            InvalidSettingError: if the settings name a price table that cannot be used.
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
        """Admit a model's requests, or apply the changes of its roster entry.

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
        """Stop admitting a model's requests once its last episode has ended (`settle`)."""
        key = self._keys.pop(alias, None)
        if key is not None:
            del self._models[alias]
            self.needs.forget(alias)
            self.budgets.dismiss(alias)
            if self.engines is not None:
                self.engines.leave(alias)
            self._leaving.setdefault(alias, set()).add(key.account)

    def settle(self, alias: str) -> None:
        """Unregister what a model has left; call it when no episode of the model is in progress."""
        for account in self._leaving.pop(alias, ()):
            self.admission.unregister(account, alias)
            aliases = self._aliases[account]
            aliases.pop(alias, None)
            if not aliases:
                del self._aliases[account]
                self.executor.budget.forget(account)

    def forget_model(self, alias: str) -> None:
        """Drop the state of a model that was dismissed a day ago."""
        self.budgets.forget(alias)
        if self.batches is not None:
            self.batches.forget_model(alias)

    def retry(self, alias: str) -> None:
        """Send requests to a model's endpoint again before its cooldown is over."""
        if (key := self._keys.get(alias)) is not None:
            self.admission.retry(key.account)

    @property
    def is_settling(self) -> bool:
        """Whether any model has left something for `settle` to unregister."""
        return bool(self._leaving)

    # Requests.

    def is_rated(self, model: Model) -> bool:
        """Return whether a model has a limit per minute, stated or learnt from its answers."""
        key = self._keys.get(model.key)
        return key is not None and self.admission.is_rated(key.account)

    def item(
        self,
        model: Model,
        correlation: Correlation,
        domain: Domain = Domain.CHAT,
        tokens: tuple[int, int] = (0, 0),
    ) -> RequestItem:
        """Return the admission item of a request of `model`: its group is the model, with the model's weight.

        `tokens` are the estimated tokens of the prompt and those to reserve for the reply; 0 for the usual number.
        """
        alias = model.key
        key = self._keys.get(alias)
        if key is None or self._models[alias] is not model or domain is not Domain.CHAT:
            key = request_key(model, domain)
        return RequestItem(key, alias, model.weight, None, correlation, *tokens)

    def forget(self, samples: Collection[str]) -> None:
        """Forget batched requests of samples that are durable or no longer wanted."""
        if self.batches is not None:
            self.batches.forget(samples)

    def _paid(self, alias: str, answered: Sequence[tuple[str, ChatReply]]) -> Mapping[str, Spending]:
        """Count a batch's replies; they become durable together with the returned spending."""
        for task_id, reply in answered:
            self.budgets.paid(in_batch(task_id), alias, reply)
        return self.budgets.unreported()

    def pressure(self, alias: str) -> Pressure | None:
        """Return what a request of a model would have to wait for now, or None."""
        key = self._keys.get(alias)
        return None if key is None else self.admission.pressure(key)

    def backlog(self, provider: str) -> int:
        """Return how many ready tasks would send a request to a provider at once if it had more slots."""
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
        """Call `pressed` on every change of the pressure on a model; return what ends that. Needs a running loop."""

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
                # As many requests as episodes: the lane is full on its own, so a report for each request adds nothing.
                pressure = None
            reason, until = (None, None) if pressure is None else (pressure.reason.value, pressure.until)
            for alias in aliases:
                if self._stop_of(alias) is None:
                    pressed(alias, reason, until)

        self._watch_stops(pressed, changed)
        return self.admission.on_change(changed)

    def _watch_stops(self, pressed: Pressed, changed: Callable[[RequestKey, Pressure | None], None]) -> None:
        """Call `pressed` for models that stop; when one no longer is stopped, `changed` reports its endpoint."""

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
        """Return what stops a model regardless of its endpoint: its day is used up, or none of its engines is awake."""
        if self.budgets.stop_of(alias) is not None:
            return DAILY_BUDGET
        return None if self.engines is None or self.engines.is_ready(alias) else ENGINE

    def close(self, reason: str) -> None:
        """Deny all waiting and future requests."""
        self.budgets.close()
        self.admission.shutdown(reason)

    # Status.

    def status(self) -> tuple[RequestStatus, ...]:
        """Return every request key that was used, and one for each model that may send requests but has not yet."""
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
    """Return the name under which a model's budget holds what a batched request may take."""
    return f"{task_id} in a batch"
