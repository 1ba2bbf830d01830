"""What elastic workers stand on, given by placement: they have what training leaves, and are the first to go."""

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
"""How long a process that does nothing may take to start: a second, more on a node that loads images."""

_MARGIN: Final = 0.2
"""Part of the time before work is killed that is left for putting the engine to sleep."""

_LONGEST_MARGIN_S: Final = 2.0


class Keeper:
    """Runs in the place of an engine that Ray does not run, so that nobody else gets it before the engine sleeps."""


@dataclass(frozen=True, slots=True)
class ActorOrder:
    """An engine's actor, as it is started in its place.

    Attributes:
        options: of Ray, besides what the place decides.
        models: that it serves.
        slots: requests that it runs at once; None where only it knows.
    """

    actor_class: type
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    slots: int | None = None


KEEPER: Final = ActorOrder(Keeper)


class WorkerPlace:
    """One stay of one worker, from its place in line until it is given back. Its calls block; made for threads.

    Invariant: what it was given is released exactly once, also where nobody wants it any more when it is given, and
    never before its actor was ended.
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
        """Stand in line until the place is held, or given up.

        Args:
            keeps: have a process in it then that keeps it.

        Raises:
            HeadgateError: it never will be held.
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
        """Have `stand` return, which somebody has begun; whoever has the place then gives it back."""
        self._is_given_up = True
        if self._lease is not None:
            self._lease.wake()

    def start(self, order: ActorOrder) -> Any:
        """Start an actor in the place and return its handle, which may not be up yet.

        Raises:
            EngineError: the place has to be left already, or Ray does not take the actor.
        """
        assert self._lease is not None, "a place is stood in line for first"
        taken = self._demand.resources.as_options()
        try:
            options = {**order.options, **taken, "scheduling_strategy": self._lease.strategy(), "max_restarts": 0}
            self._actor = ray.remote(order.actor_class).options(**options).remote(**order.arguments)
        except PlacementLostError as error:
            raise EngineError(f"{self.worker_id} has to leave its place: {error.message}") from None
        except (RayError, ValueError, TypeError) as error:
            raise EngineError(f"Ray does not start {self.worker_id}: {error}", is_final=True) from error
        return self._actor

    def _keep(self) -> None:
        actor = self.start(KEEPER)
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=_UP_S)
        except RayError as error:
            raise EngineError(f"{self.worker_id} could not enter its place: {type(error).__name__}") from None

    def end_actor(self) -> None:
        """Kill what was started here; nothing where it is dead already, or nothing was started."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(RayError, ValueError):
                ray.kill(actor, no_restart=True)

    def give_back(self) -> None:
        """End what runs here and give the place back; legal twice.

        Raises:
            HeadgateError: the ledger does not answer.
        """
        self.end_actor()
        if self._lease is not None:
            self._lease.release()


def given_back_quietly(place: WorkerPlace) -> None:
    """Give a place back that nobody wants; the end of this driver frees it where the ledger does not answer."""
    with suppress(HeadgateError):
        place.give_back()


_MOST_THREADS: Final = 1_000
"""One for each worker that stands in line; threads are made when they are needed."""

T = TypeVar("T")


class PlacedLeases:
    """Implements `WorkerLeases` over a pool of the placement ledger. Used in one event loop; close it at the end.

    A worker stands in line with a low priority and the label `role: rollout` unless its demand says otherwise, so that
    training takes its place; it may then take as long to leave as the ledger's rules say (`cancel_timeout_s`), after
    which whatever still runs there is killed. A stop costs it a new start and nothing else: its requests go to others.

    An engine that has an address runs outside of Ray: a process that does nothing keeps its place until it sleeps.

    Args:
        placement: the connection; stays its owner's.
        pool: whose quota the workers count against.
        demand: of a worker that is no actor.
        actors: worker -> demand, of those that run as actors in their places.
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
        """See `WorkerLeases`; cancelled, the worker leaves the line."""
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
        """Start an actor in the place that a worker holds; return its handle, which may not be up yet.

        Raises:
            EngineError: the worker holds no place, or Ray does not take the actor.
        """
        place = self._places.get(worker_id)
        if place is None:
            raise EngineError(f"{worker_id} holds no place to start in")
        return await self._in_thread(lambda: place.start(order))

    async def end(self, worker_id: str) -> None:
        """Kill the actor of a worker; nothing where there is none."""
        if (place := self._places.get(worker_id)) is not None:
            await self._in_thread(place.end_actor)

    async def _leave(self, place: WorkerPlace) -> None:
        """End what runs in a place and give it back; legal twice."""
        if self._places.get(place.worker_id) is place:
            del self._places[place.worker_id]
        await self._in_thread(place.give_back)

    def holds(self, worker_id: str) -> bool:
        """Tell whether a worker has a place; whatever ran in one that was given back was ended."""
        return worker_id in self._places

    def started(self, worker_id: str, took_s: float) -> None:
        """Remember what a start costs: work that is dear to start again is stopped later than other work."""
        self._start_s[worker_id] = took_s

    async def close(self) -> None:
        """Give everything back; legal twice."""
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
