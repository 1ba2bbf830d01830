"""The life of one placed task run: it waits, runs in a place, and starts over when the place is taken away."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import cloudpickle  # type: ignore[import-untyped]
import ray
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Pending, exception_to_crashed_state, exception_to_failed_state
from prefect.tasks import Task
from prefect.utilities.asyncutils import run_coro_as_sync
from prefect.utilities.collections import visit_collection
from prefect.utilities.engine import emit_task_run_state_change_event
from ray.exceptions import RayError, RayTaskError

from headgate.core.errors import HeadgateError
from headgate.orchestration.placement.demand import Demand
from headgate.orchestration.placement.pool_leases import PoolLeases
from headgate.orchestration.placement.tenures import Tenure, TenureEnd
from headgate.placement import PlacementLease

_TELL_S: Final = 5.0
"""How long a task's states and logs may take to reach the API before its worker process moves on."""


def run_in_place(environ: Mapping[str, str], payload: bytes) -> Any:
    """Run one task as Prefect's engine does, given its variables and pickled arguments, and return its final state."""
    os.environ.update(environ)
    import asyncio  # noqa: PLC0415 - after the variables, see above

    import cloudpickle  # noqa: PLC0415
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.logging.handlers import APILogWorker  # noqa: PLC0415
    from prefect.task_engine import run_task_async, run_task_sync  # noqa: PLC0415

    arguments = cloudpickle.loads(payload)
    try:
        if arguments["task"].isasync:
            return asyncio.run(run_task_async(**arguments, return_type="state"))
        return run_task_sync(**arguments, return_type="state")
    finally:
        # The place may be reassigned at once, and this process ended: Prefect must have the events and logs by then.
        EventsWorker.drain_all(timeout=_TELL_S)
        APILogWorker.drain_all(timeout=_TELL_S)


_DEATH_S: Final = 10.0
"""How long Ray may take to report a killed task as dead. Its place is given back then in any case; the ledger keeps
a place closed until it has seen that its occupant is dead."""

_LOSS_S: Final = 3.0
"""How long a crash waits for the ledger: a task's caller sees a node's death at once, the ledger a little later."""


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """The task to run, as it was submitted."""

    task: Task[Any, Any]
    parameters: Mapping[str, Any]
    wait_for: Any
    context: Mapping[str, Any]
    demand: Demand
    environ: Mapping[str, str]
    remote_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """Its name in tables and figures: its label `role`, else the task's name."""
        return self.demand.labels.get("role", self.task.name)

    def ray_options(self, strategy: Any) -> dict[str, Any]:
        """Return Ray's options: the task runs in its place, and Ray never retries it."""
        given = {name: value for name, value in self.demand.resources.as_options().items() if value is not None}
        own = {"scheduling_strategy": strategy, "max_retries": 0, "name": self.task.name}
        return {**self.remote_options, **given, **own}


class PlacedAttempts:
    """One task run. `run` needs its own thread; `cancel` may be called from any thread, and more than once.

    In every case, at most one Ray task of it is alive, and the place is given back after that task has ended.
    """

    def __init__(
        self,
        order: TaskOrder,
        states: TaskRunStates,
        leases: PoolLeases,
        logger: logging.Logger | logging.LoggerAdapter[Any],
        on_tenure: Callable[[Tenure], None],
    ) -> None:
        self._order = order
        self._states = states
        self._leases = leases
        self._logger = logger
        self._on_tenure = on_tenure
        self._is_cancelled = False
        self._lease: PlacementLease | None = None
        self._woken = threading.Event()

    def cancel(self) -> None:
        """Make the task run end as Cancelled: it leaves the queue, or its Ray task is killed."""
        self._is_cancelled = True
        self._woken.set()
        if self._lease is not None:
            self._lease.wake()

    def run(self) -> State[Any]:
        """Return the final state of the task run."""
        try:
            payload = self._payload()
            with self._leases.take(self._order.demand, on_lost=self._woken.set) as lease:
                self._lease = lease  # before the first check for cancellation: a later `cancel` wakes the lease
                state: State[Any] | None = None
                while state is None:
                    asked_at = time.time()
                    is_held = lease.wait(unless=lambda: self._is_cancelled)
                    runs = is_held and not self._is_cancelled
                    state = self._held(lease, payload, asked_at) if runs else self._cancelled()
                return state
        except HeadgateError as error:
            return self._states.tell(run_coro_as_sync(exception_to_failed_state(error)))
        except Exception as error:  # a boundary: reported as the task run's state, with its traceback
            self._logger.exception("%s could not be run", self._states.name)
            return self._states.tell(run_coro_as_sync(exception_to_crashed_state(error)))

    def _payload(self) -> Callable[[], bytes]:
        order = self._order
        parameters = visit_collection(dict(order.parameters), visit_fn=_settled, return_data=True)
        wait_for = visit_collection(order.wait_for, visit_fn=_settled, return_data=True)

        def pickled() -> bytes:
            arguments = {
                "task": order.task,
                "task_run": self._states.task_run,
                "parameters": parameters,
                "wait_for": wait_for,
                "context": order.context,
            }
            data: bytes = cloudpickle.dumps(arguments)
            return data

        return pickled

    def _held(self, lease: PlacementLease, payload: Callable[[], bytes], asked_at: float) -> State[Any] | None:
        """Run in the place; return the final state, or None if the place was taken away."""
        started_at = time.time()
        try:
            strategy = lease.strategy()
        except HeadgateError:
            if lease.is_lost:
                return None  # it was taken away before anything started
            raise
        reference = self._ended(lease, strategy, payload())
        state, end = self._outcome(reference, lease)
        tenure = Tenure(
            task_run=self._states.name,
            role=self._order.role,
            priority=self._order.demand.priority,
            place=lease.place,
            request_id=lease.request_id,
            lease_id=lease.lease_id,
            asked_at=asked_at,
            started_at=started_at,
            ended_at=time.time(),
            end=end,
            why=lease.why_lost,
        )
        self._on_tenure(tenure)
        if end is TenureEnd.PREEMPTED:
            message = f"Stopped after {tenure.held_s:.1f} s ({tenure.why}); waits for another place"
            self._states.tell(Pending(name="Preempted", message=message))
            self._logger.info("%s: %s", self._states.name, message)
        return state

    def _ended(self, lease: PlacementLease, strategy: Any, payload: bytes) -> Any:
        """Start the Ray task and return its reference once it has ended or has been killed."""
        self._woken.clear()
        remote: Any = ray.remote(**self._order.ray_options(strategy))(run_in_place)
        reference = remote.remote(dict(self._order.environ), payload)
        ended = reference.future()
        ended.add_done_callback(lambda _: self._woken.set())
        while not (ended.done() or lease.is_lost or self._is_cancelled):
            self._woken.wait()
            self._woken.clear()
        if not ended.done():
            ray.cancel(reference, force=True)
            if not ray.wait([reference], timeout=_DEATH_S)[0]:
                self._logger.warning("%s was killed but has not ended after %g s", self._states.name, _DEATH_S)
        return reference

    def _outcome(self, reference: Any, lease: PlacementLease) -> tuple[State[Any] | None, TenureEnd]:
        try:
            state: State[Any] = ray.get(reference, timeout=0)
        except RayError as error:
            if self._is_cancelled:
                return self._cancelled(), TenureEnd.CANCELLED
            if lease.is_lost or (not isinstance(error, RayTaskError) and self._is_lost_soon(lease)):
                return None, TenureEnd.PREEMPTED
            return self._states.tell(run_coro_as_sync(exception_to_crashed_state(error))), TenureEnd.CRASHED
        return state, TenureEnd.DONE

    def _is_lost_soon(self, lease: PlacementLease) -> bool:
        until = time.monotonic() + _LOSS_S
        while not lease.is_lost and not self._is_cancelled and (left_s := until - time.monotonic()) > 0:
            self._woken.wait(left_s)
            self._woken.clear()
        return lease.is_lost

    def _cancelled(self) -> State[Any]:
        return self._states.tell(Cancelled(message="Cancelled by the flow run"))


def _settled(expression: Any) -> Any:
    """Wait for a future and return its final state; return anything else unchanged."""
    if isinstance(expression, PrefectFuture):
        expression.wait()
        return expression.state
    return expression


class TaskRunStates:
    """One task run as Prefect sees it. Owned by the run's thread.

    Each attempt starts from the same task run with a run count of zero: a preempted attempt does not count as one of
    the task's retries.
    """

    def __init__(self, task: Task[Any, Any], task_run_id: UUID, **arguments: Any) -> None:
        """Create the task run and report it to Prefect as pending; for `arguments` see `create_local_run`."""
        made: Any = run_coro_as_sync(task.create_local_run(id=task_run_id, **arguments))
        self.task_run: TaskRun = made
        if isinstance(task.task_run_name, str):  # the engine sets the same name once it runs, or reports its error
            with suppress(KeyError, IndexError, AttributeError):
                made.name = task.task_run_name.format(**(arguments.get("parameters") or {}))
        self._state: State[Any] = made.state
        emit_task_run_state_change_event(self.task_run, None, self._state)

    @property
    def name(self) -> str:
        """The task run's name."""
        return self.task_run.name

    def tell(self, state: State[Any]) -> State[Any]:
        """Report to Prefect that the task run is now in `state`, and return it."""
        before = self._state
        if state.timestamp <= before.timestamp:
            state.timestamp = before.timestamp + timedelta(microseconds=1)
        run = self.task_run
        state.state_details.task_run_id = run.id
        state.state_details.flow_run_id = run.flow_run_id
        self._state = run.state = state
        run.state_id, run.state_type, run.state_name = state.id, state.type, state.name
        emit_task_run_state_change_event(run, before, state)
        return state
