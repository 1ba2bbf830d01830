"""A controller under test, and the words to drive it."""

from __future__ import annotations

import time
from collections.abc import Callable

from headgate.admission import (
    SUCCESS,
    AdmissionController,
    Domain,
    OutcomeKind,
    ProviderModel,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.admission.breaker import BreakerRule
from headgate.admission.items import PressureChanged, Ticket
from headgate.admission.laws import LimitLaw
from headgate.core import events
from tests.admission.toy_laws import FixedLaw

A = ProviderModel("https://one", "a")
B = ProviderModel("https://one", "b")
CHAT = RequestKey(A)
EMBEDDING = RequestKey(A, Domain.EMBEDDING)
OTHER = RequestKey(B)
REFUSED = RequestOutcome(OutcomeKind.RATE_LIMITED)
FAILED = RequestOutcome(OutcomeKind.PROVIDER_FAILURE)
QUICK_BREAKER = BreakerRule(refusals=3, first_s=5.0, factor=2.0, longest_own_s=30.0, longest_s=30.0)


def refused(retry_after_s: float | None) -> RequestOutcome:
    return RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=retry_after_s)


class World:
    """A controller, what it told, and who was answered."""

    def __init__(
        self, make_law: Callable[[int], LimitLaw] = FixedLaw, *, cap: int = 2, trace: bool = False, generation: int = 1
    ) -> None:
        self.now = 1000.0
        self.controller = AdmissionController(
            make_law, breaker=QUICK_BREAKER, generation=generation, trace_requests=trace
        )
        self.answered: list[Ticket] = []
        self.events: list[events.Event] = []
        self.pressures: list[PressureChanged] = []
        self.register(cap=cap)

    def register(self, account: ProviderModel = A, *, cap: int, alias: str = "m") -> None:
        self.controller.register(account, cap, alias, self.now)
        self.settle()

    def ask(
        self, key: RequestKey = CHAT, group: str = "g", weight: float = 1.0, deadline: float | None = None
    ) -> RequestLease | Ticket:
        answer = self.controller.request(RequestItem(key, group, weight, deadline), self.now)
        self.settle()
        assert isinstance(answer, RequestLease | Ticket), answer
        return answer

    def lease(self, key: RequestKey = CHAT, group: str = "g") -> RequestLease:
        answer = self.ask(key, group)
        assert isinstance(answer, RequestLease), "it has to wait"
        return answer

    def wait(
        self, key: RequestKey = CHAT, group: str = "g", weight: float = 1.0, deadline: float | None = None
    ) -> Ticket:
        answer = self.ask(key, group, weight, deadline)
        assert isinstance(answer, Ticket), "it was admitted at once"
        return answer

    def release(self, lease: RequestLease, outcome: RequestOutcome = SUCCESS) -> None:
        assert self.controller.release(lease, outcome, self.now) == "released"
        self.settle()

    def later(self, seconds: float) -> None:
        """Let time pass and do what is due at its moment."""
        until = self.now + seconds
        while self.controller.changes_at <= until:
            self.now = self.controller.changes_at
            self.controller.tick(self.now)
            self.settle()
        self.now = until

    def settle(self) -> None:
        for effect in self.controller.effects.drain():
            if isinstance(effect, Ticket):
                self.answered.append(effect)
            elif isinstance(effect, PressureChanged):
                self.pressures.append(effect)
            else:
                self.events.append(effect)
        self.controller.validate(self.now)

    def told(self, kind: type[events.Event]) -> list[events.Event]:
        return [event for event in self.events if type(event) is kind]

    def served(self) -> list[str]:
        """Return the groups of the tickets that were served, in order."""
        return [ticket.item.group for ticket in self.answered if ticket.lease is not None]


def until(condition: Callable[[], bool]) -> None:
    """Return when another thread has brought `condition` about."""
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.001)
