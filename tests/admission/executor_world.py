"""An executor under test: what its limits learnt, how long it slept, what it told; in both of its forms."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from headgate.admission import (
    AdmissionController,
    CallWatch,
    Correlation,
    ProviderModel,
    RequestAdmission,
    RequestExecutor,
    RequestItem,
    RequestKey,
    RequestOutcome,
    RetryBudget,
)
from headgate.admission.laws import Admitted, LimitChange
from headgate.core import Clock, events
from headgate.models import RetryPolicy
from tests.admission.toy_laws import FixedLaw

ACCOUNT = ProviderModel("http://one", "m")
KEY = RequestKey(ACCOUNT)
Form = Literal["async", "blocking"]
FORMS: tuple[Form, ...] = ("async", "blocking")
T = TypeVar("T")


class JumpingClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    async def sleep(self, seconds: float) -> None:
        self.block(seconds)

    def block(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class LearningLaw(FixedLaw):
    """A fixed limit that writes down what it is told."""

    learnt: list[RequestOutcome]

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        self.learnt.append(outcome)
        return super().observe(admitted, outcome, in_flight, now)


class ExecutorWorld:
    """One executor with everything around it."""

    def __init__(
        self,
        *,
        cap: int = 4,
        policy: RetryPolicy | None = None,
        budget: RetryBudget | None = None,
        clock: Clock | None = None,
        queue_wait_s: float | None = None,
        trace: bool = False,
    ) -> None:
        self.clock = JumpingClock()
        self.learnt: list[RequestOutcome] = []
        self.events: list[events.Event] = []

        def law(max_limit: int) -> LearningLaw:
            made = LearningLaw(max_limit)
            made.learnt = self.learnt
            return made

        used = clock or self.clock
        self.admission = RequestAdmission(AdmissionController(law, trace_requests=trace), used, self.events.append)
        self.admission.register(ACCOUNT, cap, "m@main")
        self.executor = RequestExecutor(
            self.admission,
            policy,
            budget,
            clock=used,
            rng=random.Random(1),
            emit=self.events.append,
            queue_wait_s=queue_wait_s,
        )

    @property
    def slept(self) -> list[float]:
        return self.clock.slept

    @property
    def kinds(self) -> list[str]:
        """What the limits learnt, in order."""
        return [outcome.kind.value for outcome in self.learnt]

    async def call(
        self, form: Form, attempt: Callable[[], Awaitable[T]], watch: CallWatch | None = None, item: Any = None
    ) -> T:
        """Run one call in one of the forms; the blocking one on a thread whose attempts have loops of their own."""
        item = item or RequestItem(KEY, "m@main", 1.0, None, Correlation("r-1", 1, "t-1", "0" * 32))
        if form == "async":
            return await self.executor.call(item, attempt, watch)

        async def once() -> T:
            return await attempt()

        return await asyncio.to_thread(self.executor.call_blocking, item, lambda: asyncio.run(once()), watch)

    def assert_nothing_is_held(self) -> None:
        self.admission.validate()
        assert self.admission.in_flight(ACCOUNT.provider) == 0
        assert self.admission.waiting() == 0

    def told(self, kind: type[events.Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]
