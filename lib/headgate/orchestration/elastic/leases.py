"""Places for elastic workers, granted by placement: they use what training leaves, and are preempted first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import RayError

from headgate.core.errors import HeadgateError
from headgate.elastic import EngineError
from headgate.elastic.service import OnLost, WorkerLease
from headgate.orchestration.placement.demand import Demand
from headgate.placement import Placement, PlacementLease, PlacementLostError, PlacementPool

_UP_S: Final = 60.0
"""How long a process that does nothing may take to start: usually a second, more on a node that pulls images."""

_MARGIN: Final = 0.2
"""Share of the time before work is killed that is reserved for putting the engine to sleep."""

_LONGEST_MARGIN_S: Final = 2.0


class Keeper:
    """Occupies the place of an engine that Ray does not run, so that nothing else gets it before the engine sleeps."""


@dataclass(frozen=True, slots=True)
class ActorOrder:
    """How to start an engine's actor in its place.

    Attributes:
        options: Ray's options, besides those set by the place.
        models: the models that it serves.
        slots: requests that it runs at once; None if only the engine knows.
    """

    actor_class: type
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    slots: int | None = None


KEEPER: Final = ActorOrder(Keeper)


class WorkerPlace:
    """One stay of one worker, from joining the queue until the place is given back. Its calls block; use threads.

    Invariant: a granted place is released exactly once, even if it is no longer wanted when it is granted, and never
    before its actor has ended.
    """

    def __init__(self, pool: PlacementPool, worker_id: str, demand: Demand, on_lost: Callable[[], None]) -> None:
        self.worker_id = worker_id
        self._pool = pool
        self._demand = demand
        self._on_lost = on_lost
        self._lease: PlacementLease | None = None
        self._actor: Any = None
        self._is_given_up = False

    def stand(self, *, keeps: bool) -> None:
        """Wait in the queue until the place is held, or given up.

        Args:
            keeps: whether to start a process in the place then, which occupies it.

        Raises:
            HeadgateError: if it can never be held.
        """
        demand = replace(self._demand, labels={**self._demand.labels, "worker": self.worker_id})
        lease = self._lease = self._pool.lease(on_lost=self._on_lost, **demand.as_arguments())
        try:
            if lease.wait(unless=lambda: self._is_given_up) and keeps:
                self._keep()
        except BaseException:
            given_back_quietly(self)
            raise

    def give_up(self) -> None:
        """Make a `stand` in progress return; if it has got the place, the caller gives it back."""
        self._is_given_up = True
        if self._lease is not None:
            self._lease.wake()

    def start(self, order: ActorOrder) -> Any:
        """Start an actor in the place and return its handle; the actor may not be up yet.

        Raises:
            EngineError: if the place must be left already, or Ray does not accept the actor.
        """
        assert self._lease is not None, "`stand` comes before `start`"
        taken = self._demand.resources.as_options()
        try:
            options = {**order.options, **taken, "scheduling_strategy": self._lease.strategy(), "max_restarts": 0}
            self._actor = ray.remote(order.actor_class).options(**options).remote(**order.arguments)
        except PlacementLostError as error:
            raise EngineError(f"{self.worker_id} must leave its place: {error.message}") from None
        except (RayError, ValueError, TypeError) as error:
            raise EngineError(f"Ray cannot start {self.worker_id}: {error}", is_final=True) from error
        return self._actor

    def _keep(self) -> None:
        actor = self.start(KEEPER)
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=_UP_S)
        except RayError as error:
            raise EngineError(f"{self.worker_id} could not enter its place: {type(error).__name__}") from None

    def end_actor(self) -> None:
        """Kill the actor that was started here; do nothing if it is dead already, or none was started."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(RayError, ValueError):
                ray.kill(actor, no_restart=True)

    def give_back(self) -> None:
        """End the actor and give the place back; may be called twice.

        Raises:
            HeadgateError: if the ledger does not answer.
        """
        self.end_actor()
        if self._lease is not None:
            self._lease.release()


def given_back_quietly(place: WorkerPlace) -> None:
    """Give back a place that is no longer wanted; if the ledger does not answer, the end of this driver frees it."""
    with suppress(HeadgateError):
        place.give_back()


_MOST_THREADS: Final = 1_000
"""One for each waiting worker; threads are created on demand."""

T = TypeVar("T")


class PlacedLeases:
    """Implements `WorkerLeases` over a pool of the placement ledger. Used in one event loop; close it at the end.

    A worker waits with a low priority and the label `role: rollout` unless its demand says otherwise, so that training
    can preempt it; it then has as long to leave as the ledger's rules say (`cancel_timeout_s`), after which whatever
    still runs there is killed. A stop costs it only a new start: its requests go to other workers.

    An engine with an address runs outside of Ray: a process that does nothing occupies its place until it sleeps.

    Args:
        placement: the connection; remains its owner's.
        pool: the pool whose quota the workers count against.
        demand: demand of a worker that is not an actor.
        actors: worker -> demand, for workers that run as actors in their places.
    """

    def __init__(
        self,
        placement: Placement,
        pool: PlacementPool,
        demand: Demand,
        *,
        actors: Mapping[str, Demand] | None = None,
    ) -> None:
        self._placement = placement
        self._pool = pool
        self._demand = demand
        self._actors = dict(actors or {})
        self._start_s: dict[str, float] = {}
        self._places: dict[str, WorkerPlace] = {}
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="headgate-elastic-lease")

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:
        """See `WorkerLeases`; if cancelled, the worker leaves the queue."""
        killed_s = (await self._in_thread(self._placement.rules)).cancel_timeout_s
        leave_s = killed_s - min(_LONGEST_MARGIN_S, _MARGIN * killed_s)  # the rest is for putting the engine to sleep
        place = WorkerPlace(self._pool, worker_id, self._demand_of(worker_id), lambda: on_lost(leave_s))
        standing = self._threads.submit(place.stand, keeps=worker_id not in self._actors)
        try:
            await asyncio.wrap_future(standing)
        except asyncio.CancelledError:
            place.give_up()
            self._threads.submit(_given_back_after, standing, place)
            raise
        self._places[worker_id] = place
        return partial(self._leave, place)

    async def start(self, worker_id: str, order: ActorOrder) -> Any:
        """Start an actor in the place that a worker holds; return its handle; the actor may not be up yet.

        Raises:
            EngineError: if the worker holds no place, or Ray does not accept the actor.
        """
        place = self._places.get(worker_id)
        if place is None:
            raise EngineError(f"{worker_id} holds no place to start in")
        return await self._in_thread(lambda: place.start(order))

    async def end(self, worker_id: str) -> None:
        """Kill a worker's actor; do nothing if there is none."""
        if (place := self._places.get(worker_id)) is not None:
            await self._in_thread(place.end_actor)

    async def _leave(self, place: WorkerPlace) -> None:
        """End the actor in a place and give the place back; may be called twice."""
        if self._places.get(place.worker_id) is place:
            del self._places[place.worker_id]
        await self._in_thread(place.give_back)

    def place_of(self, worker_id: str) -> WorkerPlace | None:
        """Return the place that a worker holds; giving it back ends whatever ran in it."""
        return self._places.get(worker_id)

    def started(self, worker_id: str, took_s: float) -> None:
        """Record the cost of a start: work that is expensive to restart is stopped later than other work."""
        self._start_s[worker_id] = took_s

    async def close(self) -> None:
        """Give all places back; may be called twice."""
        places = list(self._places.values())
        self._places.clear()
        await asyncio.gather(*(self._in_thread(partial(given_back_quietly, place)) for place in places))
        self._threads.shutdown(wait=False)

    def _demand_of(self, worker_id: str) -> Demand:
        demand = self._actors.get(worker_id, self._demand)
        return replace(demand, restart_s=self._start_s.get(worker_id, demand.restart_s))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _given_back_after(standing: Future[None], place: WorkerPlace) -> None:
    wait([standing])
    given_back_quietly(place)
