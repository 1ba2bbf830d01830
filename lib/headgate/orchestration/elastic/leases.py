"""What elastic workers stand on, given by placement: they have what training leaves, and are the first to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from headgate.elastic import EngineError
from headgate.elastic.service import OnLost
from headgate.orchestration.elastic.place import ActorOrder, WorkerPlace, given_back_quietly, time_to_leave_s
from headgate.orchestration.placement.demand import Demand
from headgate.placement import Placement, PlacementPool

_MOST_THREADS: Final = 1_000
"""One for each worker that stands in line; threads are made when they are needed."""

T = TypeVar("T")


class PlacedLease:
    """The place of one worker. Implements `WorkerLease`."""

    def __init__(self, leases: PlacedLeases, place: WorkerPlace) -> None:
        self._leases = leases
        self._place = place

    async def give_back(self) -> None:
        """See `WorkerLease`; what runs in the place is ended first."""
        await self._leases.leave(self._place)


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

    async def take(self, worker_id: str, on_lost: OnLost) -> PlacedLease:
        """See `WorkerLeases`; cancelled, the worker leaves the line."""
        rules = await self._in_thread(self._placement.rules)
        leave_s = time_to_leave_s(rules.cancel_timeout_s)
        place = WorkerPlace(self._pool, worker_id, self._demand_of(worker_id), lambda: on_lost(leave_s))
        await self._held(place)
        self._places[worker_id] = place
        return PlacedLease(self, place)

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

    async def leave(self, place: WorkerPlace) -> None:
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

    async def _held(self, place: WorkerPlace) -> None:
        keeps = place.worker_id not in self._actors
        standing = asyncio.get_running_loop().run_in_executor(self._threads, _stood, place, keeps)
        try:
            await asyncio.shield(standing)
        except asyncio.CancelledError:
            if place.give_up():
                self._threads.submit(given_back_quietly, place)
            standing.add_done_callback(_heard)
            raise

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _stood(place: WorkerPlace, keeps: bool) -> None:
    if place.stand() and keeps:
        try:
            place.keep()
        except BaseException:
            given_back_quietly(place)
            raise


def _heard(standing: asyncio.Future[None]) -> None:
    """Take note of how standing in line ended for somebody who has left it."""
    if not standing.cancelled():
        standing.exception()
