"""The providers of a case, behind real request admission: one is pressed or cools down, the other is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

from headgate.admission import (
    SUCCESS,
    AdmissionController,
    Correlation,
    Denied,
    OutcomeKind,
    Pressure,
    PressureReason,
    ProviderModel,
    RequestAdmission,
    RequestItem,
    RequestKey,
    RequestOutcome,
)
from headgate.admission.laws import AimdLaw
from headgate.core import Clock, Task, TaskId
from headgate.scheduling import DispatchLoop, RetryLaterError, RowGroup
from headgate_bench.idle.cases import Case
from headgate_bench.idle.facts import Recorder, Step
from headgate_bench.idle.metrics import HOLDER, LOCAL, MODEL, SUBMISSION

PRESSURED: Final = "a_pressured"
OPEN: Final = "z_open"
HEAVY: Final = "hot"
PEER: Final = "peer"
ARRIVAL: Final = "arrival"
CALL: Final = "call"
SEED: Final = "seed"

_ON_MODEL: Final = MappingProxyType({MODEL: 1, SUBMISSION: 1})
_ON_MACHINE: Final = MappingProxyType({LOCAL: 1, SUBMISSION: 1})


def row_groups_of(case: Case) -> Iterator[RowGroup]:
    """Yield the row groups of a case; a group's seed task comes before all of its rows."""
    if case.shape == "peer":
        yield from _heavy_and_peer(case)
        return
    for number, first in enumerate(range(0, case.records, case.buffer)):
        rows = range(first, min(first + case.buffer, case.records))
        seed = _task(case, f"{number}/{SEED}", SEED, number, _ON_MACHINE)
        tasks = [seed]
        for row in rows:
            tasks += _row(case, row, seed.task_id)
        yield RowGroup(str(number), tuple(tasks), len(rows))


def _row(case: Case, row: int, seed: TaskId) -> Iterator[Task]:
    if case.shape == "requests":
        yield _task(case, f"{row}/{CALL}", CALL, row, after=(seed,))
    elif case.shape == "pipeline":
        for n in range(case.fanout):
            heavy = _task(case, f"{row}/heavy_{n}", f"heavy_{n}", row, after=(seed,))
            yield heavy
            yield _task(case, f"{row}/fast_{n}", f"fast_{n}", row, after=(heavy.task_id,))
    else:
        yield _task(case, f"{row}/{PRESSURED}", PRESSURED, row, after=(seed,))
        yield _task(case, f"{row}/{OPEN}", OPEN, row, after=(seed,))


def _heavy_and_peer(case: Case) -> Iterator[RowGroup]:
    heavy = tuple(_task(case, f"{row}/{HEAVY}", HEAVY, row) for row in range(case.records))
    yield RowGroup(HEAVY, heavy, case.records)
    # It models an external event, and takes no worker from the heavy group.
    arrival = _task(case, ARRIVAL, ARRIVAL, 0, {LOCAL: 1})
    peers = (_task(case, f"{row}/{PEER}", PEER, row, after=(arrival.task_id,)) for row in range(case.peers))
    yield RowGroup(PEER, (arrival, *peers), case.peers)


def _task(
    case: Case,
    name: str,
    stage: str,
    row: int,
    resources: Mapping[str, int] = _ON_MODEL,
    after: tuple[TaskId, ...] = (),
) -> Task:
    is_model_task = resources is _ON_MODEL
    return Task(
        task_id=TaskId(name),
        # A provider has one model here; without pressure all stages share one model, as in DataDesigner's suite.
        model=stage if case.shape in {"pressure", "cooldown"} else "benchmark",
        environment="idle",
        sequence=row,
        index=row,
        seed=row,
        group=stage,
        due_at=0.0,
        stage=stage,
        weight=float(case.group_weight) if is_model_task and stage != PEER else 1.0,
        resources=resources,
        depends_on=after,
    )


_REQUESTS: Final = (0, 1, 4)
"""Numbers of requests per task, in turn, if the number varies."""


class Providers:
    """The providers of a case, each with one model. Owned by one run of the case.

    Their limits follow DataDesigner's law, which stays at the cap with caps this small. A case without requests has no
    providers.
    """

    def __init__(self, case: Case, clock: Clock, recorder: Recorder) -> None:
        self.slots = _slots(case)
        self._case = case
        self._clock = clock
        self._recorder = recorder
        self._refuses_until = clock.monotonic() + (case.request_s if case.shape == "cooldown" else 0.0)
        self._admission = RequestAdmission(AdmissionController(AimdLaw), clock, lambda _event: None)
        for stage, cap in self.slots.items():
            self._admission.register(_account(stage), cap, alias=stage)

    def in_flight(self) -> int:
        """Return the number of request leases held."""
        return sum(self._admission.in_flight(stage) for stage in self.slots)

    def waiting(self) -> int:
        """Return the number of waiting requests."""
        return self._admission.waiting()

    @asynccontextmanager
    async def serving(self, loop: DispatchLoop) -> AsyncIterator[None]:
        """Hold the pressed provider's slot initially, and report pressure to the dispatcher while the context lasts."""
        forget = self._admission.on_change(self._advice(loop)) if self._case.is_advised else None
        async with asyncio.TaskGroup() as group:
            if self._case.shape == "pressure":
                group.create_task(self._hold())
                # The slot must be taken before the first task asks for it.
                await asyncio.sleep(0)
            yield
        if forget is not None:
            forget()

    def _advice(self, loop: DispatchLoop) -> Callable[[RequestKey, Pressure | None], None]:
        dispatcher, is_strict = loop.dispatcher, self._case.is_strict

        def told(key: RequestKey, pressure: Pressure | None) -> None:
            if pressure is None:
                dispatcher.set_pressure(key.account.model, None)
            else:
                reason = PressureReason.NO_SLOTS if is_strict else pressure.reason
                dispatcher.set_pressure(key.account.model, reason, pressure.until)

        return told

    async def _hold(self) -> None:
        lease = self._admission.try_acquire(RequestItem(_key(PRESSURED)))
        assert not isinstance(lease, Denied), lease
        self._recorder.tell(Step.ADMITTED, HOLDER, PRESSURED)
        await asyncio.sleep(self._case.request_s)
        self._recorder.tell(Step.DONE, HOLDER, PRESSURED)
        self._admission.release(lease, SUCCESS)

    async def answer(self, task: Task) -> None:
        """Return once every request of a task has been answered.

        Raises:
            RetryLaterError: if the provider refuses a request and says when to retry.
        """
        requests = _REQUESTS[task.sequence % len(_REQUESTS)] if task.stage == CALL else 1
        for attempt in range(requests):
            await self._request(task, attempt)

    async def _request(self, task: Task, attempt: int) -> None:
        stage, task_id = task.stage, task.task_id
        item = RequestItem(_key(stage), correlation=Correlation(task_id, attempt, task_id))
        self._recorder.tell(Step.WAITING, task_id, stage)
        lease = await self._admission.acquire(item)
        self._recorder.tell(Step.ADMITTED, task_id, stage)
        outcome = RequestOutcome(OutcomeKind.LOCAL_CANCELLED)
        try:
            blocked_s = self._blocked_s(stage)
            if blocked_s:
                outcome = RequestOutcome(OutcomeKind.RATE_LIMITED, retry_after_s=blocked_s)
                raise RetryLaterError("rate_limited", blocked_s)
            await asyncio.sleep(self._case.downstream_s)
            outcome = SUCCESS
        finally:
            self._recorder.tell(Step.DONE, task_id, stage)
            self._admission.release(lease, outcome)

    def _blocked_s(self, stage: str) -> float:
        """Return for how much longer a provider refuses requests, in seconds."""
        return max(0.0, self._refuses_until - self._clock.monotonic()) if stage == PRESSURED else 0.0


def _slots(case: Case) -> dict[str, int]:
    if case.shape in {"pressure", "cooldown"}:
        return {PRESSURED: 1, OPEN: 1}
    return {CALL: case.model_capacity} if case.shape == "requests" else {}


def _account(stage: str) -> ProviderModel:
    return ProviderModel(provider=stage, model=stage)


def _key(stage: str) -> RequestKey:
    return RequestKey(_account(stage))
