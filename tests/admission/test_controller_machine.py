"""Whatever happens in whatever order, the controller keeps its invariants and answers everybody once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.admission import (
    AdmissionController,
    Domain,
    OutcomeKind,
    Pressure,
    PressureReason,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.admission.breaker import BreakerRule
from headgate.admission.effects import is_same_rate
from headgate.admission.items import NO_CORRELATION, DenyReason, PressureChanged, Ticket
from headgate.admission.laws import AdaptiveLaw, AdaptiveSettings, AimdLaw, AimdSettings, LimitLaw
from headgate.admission.rates import MOVED_S, REASONS
from headgate.core import ReleaseOutcome
from headgate.core.rates import UNLIMITED, ModelRates, RateLimits, RateNote
from tests.admission.toy_laws import FixedLaw, ToyLaw
from tests.examples import examples

ACCOUNTS = [ProviderModel("one", "a"), ProviderModel("one", "b"), ProviderModel("two", "a")]
KEYS = [RequestKey(account, domain) for account in ACCOUNTS for domain in (Domain.CHAT, Domain.EMBEDDING)]
LAWS: list[Callable[[int], LimitLaw]] = [
    FixedLaw,
    ToyLaw,
    lambda cap: AimdLaw(cap, AimdSettings(successes_until_increase=2, startup_ramp_s=8.0)),
    lambda cap: AdaptiveLaw(cap, AdaptiveSettings(startup_ramp_s=8.0)),
]
WEIGHTS = {"x": 1.0, "y": 3.0, "z": 0.5}
OUTCOMES = st.builds(
    RequestOutcome,
    st.sampled_from([OutcomeKind.SUCCESS, *OutcomeKind]),
    retry_after_s=st.sampled_from([None, 0.0, 1.0, 5.0, 1e9]),
    latency_s=st.sampled_from([None, 0.0, 3.0]),
    tokens=st.sampled_from([0, 20, 300]),
    prompt_tokens=st.sampled_from([0, 50]),
    told=st.lists(
        st.builds(
            RateNote,
            st.integers(0, 3),
            st.sampled_from([None, 1.0, 30.0, 1e12]),
            st.sampled_from([None, 0.0, 7.0, 1e12]),
            st.sampled_from([None, 0.0, 9.0]),
        ),
        max_size=2,
    ).map(tuple),
)
RATES = st.sampled_from(
    [
        UNLIMITED,
        UNLIMITED,
        ModelRates(own=RateLimits(requests_per_minute=6)),
        ModelRates(own=RateLimits(60, 600, 300, None), key=RateLimits(tokens_per_minute=900)),
        ModelRates(key=RateLimits(3), organisation="acme", shared=RateLimits(output_tokens_per_minute=100)),
    ]
)


class Admission(RuleBasedStateMachine):
    """Mirrors who waits, and who holds a lease."""

    rule_of_breaker: ClassVar[BreakerRule] = BreakerRule(refusals=2, first_s=3.0, longest_s=30.0)

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.waiting: list[Ticket] = []
        self.sending: list[RequestLease] = []
        self.gone: list[RequestLease] = []
        self.caps: dict[ProviderModel, dict[str, int]] = {account: {} for account in ACCOUNTS}
        self.slots: dict[str, int | None] = {"one": None, "two": None}
        self.pressure: dict[RequestKey, Pressure | None] = {}

    @initialize(law=st.sampled_from(LAWS))
    def begin(self, law: Callable[[int], LimitLaw]) -> None:
        self.controller = AdmissionController(law, breaker=self.rule_of_breaker, generation=2, trace_requests=True)
        for account in ACCOUNTS:
            self.register(account, "m", 3)
        self.controller.watch(self.now)

    # What the outside does.

    @rule(account=st.sampled_from(ACCOUNTS), alias=st.sampled_from(["m", "n"]), cap=st.integers(1, 5), rates=RATES)
    def register(self, account: ProviderModel, alias: str, cap: int, rates: ModelRates = UNLIMITED) -> None:
        self.controller.register(account, cap, alias, self.now, rates)
        self.caps[account][alias] = cap
        self.settle()

    @rule(account=st.sampled_from(ACCOUNTS), alias=st.sampled_from(["m", "n"]))
    def unregister(self, account: ProviderModel, alias: str) -> None:
        self.controller.unregister(account, alias, self.now)
        self.caps[account].pop(alias, None)
        self.settle()

    @rule(provider=st.sampled_from(["one", "two"]), slots=st.sampled_from([None, 0, 1, 2, 4]))
    def set_slots(self, provider: str, slots: int | None) -> None:
        self.controller.set_provider_cap(provider, slots, self.now)
        self.slots[provider] = slots
        self.settle()

    @rule(provider=st.sampled_from(["one", "two"]), share=st.sampled_from([1.0, 0.5, 0.01]))
    def have_a_share(self, provider: str, share: float) -> None:
        self.controller.set_rate_share(provider, share, self.now)
        self.settle()

    @rule(
        key=st.sampled_from(KEYS),
        group=st.sampled_from(list(WEIGHTS)),
        patience=st.sampled_from([None, 0.0, 4.0, 20.0]),
        tokens=st.sampled_from([(0, 0), (40, 10), (10, 200)]),
    )
    def request(self, key: RequestKey, group: str, patience: float | None, tokens: tuple[int, int]) -> None:
        deadline = None if patience is None else self.now + patience
        item = RequestItem(key, group, WEIGHTS[group], deadline, NO_CORRELATION, *tokens)
        answer = self.controller.request(item, self.now)
        self.settle()
        if isinstance(answer, RequestLease):
            self.sending.append(answer)
        elif isinstance(answer, Ticket):
            assert answer.flow is not None
            self.waiting.append(answer)
        else:
            assert answer.reason in {DenyReason.UNREGISTERED, DenyReason.QUEUE_TIMEOUT, DenyReason.SHUTDOWN}
            assert (answer.reason is DenyReason.UNREGISTERED) == (not self.caps[key.account]) or self.controller.closed

    @rule(key=st.sampled_from(KEYS))
    def try_at_once(self, key: RequestKey) -> None:
        is_seen = self.controller.changes_at > self.now
        free = self.controller.accounts.pressure(key, self.now) is None
        answer = self.controller.try_acquire(RequestItem(key), self.now)
        self.settle()
        if isinstance(answer, RequestLease):
            self.sending.append(answer)
            assert not any(t.item.key == key for t in self.waiting), "it went before somebody who waits for the same"
        elif is_seen:
            assert not free or not self.caps[key.account] or self.controller.closed

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up_waiting(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(ticket)
        assert self.controller.cancel(ticket, self.now)
        assert not self.controller.cancel(ticket, self.now)
        self.settle()

    @precondition(lambda self: self.sending)
    @rule(data=st.data())
    def give_up_after_the_grant(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.sending))
        self.sending.remove(lease)
        ticket = Ticket(lease.item)
        ticket.lease = lease
        assert self.controller.cancel(ticket, self.now)
        assert not self.controller.cancel(ticket, self.now)
        self.gone.append(lease)
        self.settle()

    @precondition(lambda self: self.sending)
    @rule(data=st.data(), outcome=OUTCOMES)
    def release(self, data: st.DataObject, outcome: RequestOutcome) -> None:
        lease = data.draw(st.sampled_from(self.sending))
        self.sending.remove(lease)
        assert self.controller.release(lease, outcome, self.now) is ReleaseOutcome.RELEASED
        self.gone.append(lease)
        self.settle()

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), outcome=OUTCOMES)
    def release_what_is_not_held(self, data: st.DataObject, outcome: RequestOutcome) -> None:
        lease = data.draw(st.sampled_from(self.gone))
        assert self.controller.release(lease, outcome, self.now) is ReleaseOutcome.DUPLICATE
        foreign = copy.copy(lease)
        foreign.generation = 1
        assert self.controller.release(foreign, outcome, self.now) is ReleaseOutcome.WRONG_GENERATION
        unknown = copy.copy(lease)
        unknown.number = 10**9
        assert self.controller.release(unknown, outcome, self.now) is ReleaseOutcome.UNKNOWN
        self.settle()

    @rule(seconds=st.sampled_from([0.001, 0.5, 2.0, 7.0, 70.0]))
    def time_passes_unseen(self, seconds: float) -> None:
        """Nobody ticks: the next call must do what is due by itself."""
        self.now += seconds

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        while self.controller.changes_at <= until:
            self.now = max(self.now, self.controller.changes_at)
            self.controller.tick(self.now)
            assert self.controller.changes_at > self.now, "the timer would fire again at once"
            self.settle()
        self.now = until

    @precondition(lambda self: len(self.gone) > 15)
    @rule()
    def shut_down(self) -> None:
        self.controller.shutdown("the test ends", self.now)
        self.settle()
        assert not self.waiting

    # What must hold.

    def settle(self) -> None:
        """Take what the controller has answered."""
        for effect in self.controller.effects.drain():
            if isinstance(effect, PressureChanged):
                assert self.pressure.get(effect.key) != effect.pressure, "told what had not changed"
                self.pressure[effect.key] = effect.pressure
            elif isinstance(effect, Ticket):
                assert effect.flow is None
                assert (effect.lease is None) != (effect.denied is None)
                if effect in self.waiting:
                    self.waiting.remove(effect)
                if effect.lease is not None:
                    assert effect.item.deadline is None or effect.item.deadline > self.now, "served after its deadline"
                    self.sending.append(effect.lease)

    def is_untold(self, pressure: Pressure) -> bool:
        """Return whether nobody hears of it: no slot, or a limit per minute that is reached for a moment."""
        ends_soon = pressure.until is not None and pressure.until - self.now < MOVED_S
        return pressure.reason is PressureReason.NO_SLOTS or (pressure.reason in REASONS and ends_soon)

    @invariant()
    def holds(self) -> None:
        self.controller.validate(self.now)
        assert self.controller.accounts.waiting() == len(self.waiting)
        assert len({lease.number for lease in self.sending}) == len(self.sending)
        for provider in self.slots:
            assert self.controller.accounts.in_flight(provider) == sum(
                1 for lease in self.sending if lease.item.key.account.provider == provider
            )
        for account, caps in self.caps.items():
            known = self.controller.accounts.by_name.get(account)
            assert (known.cap if known else 0) == min(caps.values(), default=0)
        if self.controller.changes_at > self.now:
            for key in self.controller.accounts.keys:
                told = self.pressure.get(key)
                if self.caps[key.account]:
                    is_now = self.controller.accounts.pressure(key, self.now)
                    untold = told is None and is_now is not None and self.is_untold(is_now)
                    assert told == is_now or untold or is_same_rate(told, is_now), "a change of pressure was not told"


TestAdmission = Admission.TestCase
TestAdmission.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
