"""A Prefect task runner that gives each task its own place on Ray, by priority."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Self
from uuid import UUID, uuid4

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import serialize_context
from prefect.futures import PrefectConcurrentFuture, PrefectFuture
from prefect.settings import get_current_settings
from prefect.task_runners import TaskRunner
from prefect.tasks import Task
from prefect.utilities.engine import collect_task_run_inputs_sync
from prefect_ray import RayTaskRunner  # type: ignore[import-untyped]
from prefect_ray.context import RemoteOptionsContext  # type: ignore[import-untyped]

from headgate.orchestration.placement.attempts import PlacedAttempts, TaskOrder, TaskRunStates
from headgate.orchestration.placement.demand import Demand, demand_now
from headgate.orchestration.placement.pool_leases import PoolLeases, pool_leases
from headgate.orchestration.placement.tenures import Tenure
from headgate.orchestration.run_state import run_logger

_TOLD_WORKERS: Final = ("PREFECT_API_", "PREFECT_CLIENT_", "PREFECT_LOGGING_", "PREFECT_RESULTS_", "PREFECT_CLOUD_")
"""Prefixes of settings that are passed to a worker; others, such as folders, apply to this machine only."""

_JOIN_STEP_S: Final = 0.5
"""Signals are noticed between two such steps: joining a thread without a timeout would block them."""

Leasing = Callable[[], PoolLeases]
"""Connects to placement; called in the flow's process when the first task is submitted."""


class PlacedFuture(PrefectConcurrentFuture[Any]):
    """The future of a placed task."""

    def __init__(self, attempts: PlacedAttempts, task_run_id: UUID, ended: Future[Any]) -> None:
        super().__init__(task_run_id, ended)
        self._attempts = attempts

    def cancel(self) -> None:
        """Make the task run end as Cancelled: its Ray task is killed, its place given back. Callable at any time."""
        self._attempts.cancel()


class PlacementTaskRunner(RayTaskRunner):  # type: ignore[misc]
    """Runs each task in a placement group that it leases, granted by priority.

    Unlike its base it never leaves the choice to Ray: a task waits in the ledger's queue, holds its place while it
    runs, and gives it back exactly once. A task whose place is taken away (preempted, node lost) runs again in another
    place, which does not count as a retry. A task requests a place once the tasks that it depends on are done. When
    the flow fails or is cancelled, waiting and running tasks are stopped and their places freed.

    Examples:
        ```python
        from prefect import flow, task

        from headgate.orchestration import Demand, PlacementTaskRunner, placed


        @task
        def train(rounds: int) -> int:
            return rounds


        @flow(task_runner=PlacementTaskRunner(pool="rlhf", demand=Demand(priority=2)))
        def training() -> int:
            with placed(priority=9, labels={"role": "train"}):
                return train.submit(3).result()
        ```
    """

    def __init__(
        self,
        address: str | None = None,
        init_kwargs: dict[str, Any] | None = None,
        *,
        pool: str = "main",
        demand: Demand | None = None,
        leasing: Leasing | None = None,
    ) -> None:
        """Prepare the runner; it connects when the first task is submitted.

        Args:
            address: address of the Ray cluster; None for RAY_ADDRESS, else a running one, else a local one.
            init_kwargs: as in prefect-ray; only accepted for code that is migrated from it.
            pool: the pool that the tasks' places count against; one that is not open is opened with everything that
                the cluster has.
            demand: each task's demand, unless `placed` says otherwise.
            leasing: connects to placement, instead of by `address` and `pool`.
        """
        super().__init__(address=address, init_kwargs=init_kwargs)
        self.pool = pool
        self.demand = demand or Demand()
        self.tenures: list[Tenure] = []
        self._leasing = leasing
        self._leases: PoolLeases | None = None
        self._running: dict[threading.Thread, PlacedAttempts] = {}

    def duplicate(self) -> Self:
        """Return a runner with the same settings that has not started."""
        return type(self)(self.address, self.init_kwargs, pool=self.pool, demand=self.demand, leasing=self._leasing)

    def __reduce__(self) -> tuple[Any, ...]:
        # It travels to Ray with its flow; the copy there is a runner that has not started.
        return partial(type(self), self.address, self.init_kwargs, pool=self.pool, demand=self.demand), ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PlacementTaskRunner)
            and bool(super().__eq__(other))
            and (self.pool, self.demand, self._leasing) == (other.pool, other.demand, other._leasing)
        )

    def __hash__(self) -> int:
        return hash((self.address, self.pool))

    def __enter__(self) -> Self:
        # Not the direct base's: a worker enters the flow's runner, too, and only a submitting process needs Ray.
        TaskRunner.__enter__(self)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if error is None:
                self.join()
        finally:
            self.cancel_all()
            self.join()
            if self._leases is not None:
                self._leases.close()
                self._leases = None
            TaskRunner.__exit__(self, kind, error, traceback)

    def submit(
        self,
        task: Task[Any, Any],
        parameters: dict[str, Any],
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
        dependencies: dict[str, set[Any]] | None = None,
    ) -> PlacedFuture:
        """Schedule a task to run as soon as it has a place.

        Raises:
            ClusterUnreachableError: if no Ray cluster answers.
        """
        if not self._started:
            raise RuntimeError("The task runner must be started before submitting work.")
        if self._leases is None:
            self._leases = self._leasing() if self._leasing is not None else pool_leases(self.address, self.pool)
        task_run_id = uuid4()
        inputs = {
            name: collect_task_run_inputs_sync(value, future_cls=PrefectFuture) for name, value in parameters.items()
        }
        context = serialize_context(
            asset_ctx_kwargs={
                "task": task,
                "task_run_id": task_run_id,
                "task_inputs": inputs,
                "copy_to_child_ctx": True,
            }
        )
        remote_options = dict(RemoteOptionsContext.get().current_remote_options)
        order = TaskOrder(
            task, parameters, wait_for, context, demand_now(self.demand), worker_environ(), remote_options
        )
        states = TaskRunStates(
            task, task_run_id, parameters=parameters, wait_for=wait_for, extra_task_inputs=dependencies
        )
        attempts = PlacedAttempts(order, states, self._leases, run_logger(), self.tenures.append)
        return PlacedFuture(attempts, task_run_id, self._begun(attempts, states.name))

    def cancel_all(self) -> None:
        """Stop everything that waits or runs: waiting tasks leave the queue, Ray tasks are killed, places are freed."""
        for attempts in list(self._running.values()):
            attempts.cancel()

    def _begun(self, attempts: PlacedAttempts, name: str) -> Future[State[Any]]:
        ended: Future[State[Any]] = Future()
        ended.set_running_or_notify_cancel()  # so that cancelling a waiter in asyncio cannot cancel it

        def work() -> None:
            try:
                state = attempts.run()
            except BaseException as error:  # noqa: BLE001 - it is raised to the waiter of the future
                ended.set_exception(error)
            else:
                ended.set_result(state)
            finally:
                self._running.pop(threading.current_thread(), None)

        thread = threading.Thread(target=copy_context().run, args=(work,), name=f"placed {name}", daemon=True)
        self._running[thread] = attempts
        thread.start()
        return ended

    def join(self) -> None:
        """Wait until no task waits or runs."""
        for thread in list(self._running):
            while thread.is_alive():
                thread.join(_JOIN_STEP_S)


def worker_environ() -> dict[str, str]:
    """Return variables that make a Ray worker use the same Prefect API as this process, and start no server.

    That API is the configured one, or the temporary server that Prefect starts for a flow called without one.
    """
    settings: Mapping[str, str] = get_current_settings().to_environment_variables(exclude_unset=True)
    told = {name: value for name, value in settings.items() if name.startswith(_TOLD_WORKERS)}
    with get_client(sync_client=True) as client:
        return {"PREFECT_API_URL": str(client.api_url), **told, "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false"}
