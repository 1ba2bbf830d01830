"""Where one elastic worker stands: its lease of placement, and the actor that runs in the lease's bundle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ray
from ray.exceptions import RayError

from headgate.core.errors import HeadgateError
from headgate.elastic import EngineError
from headgate.orchestration.placement.demand import Demand
from headgate.placement import PlacementLease, PlacementLostError, PlacementPool

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
        actor_class: a plain class.
        arguments: of its constructor.
        options: of Ray, besides what the place decides.
    """

    actor_class: type
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


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
        self._lock = threading.Lock()  # of who releases: whoever waits, or whoever gives up
        self._is_held = False
        self._is_given_up = False

    def stand(self) -> bool:
        """Stand in line until the place is held; return whether it is, and not given up.

        Raises:
            HeadgateError: it never will be held.
        """
        demand = replace(self._demand, labels={**self._demand.labels, "worker": self.worker_id})
        lease = self._lease = self._pool.lease(on_lost=self._on_lost, **demand.as_arguments())
        try:
            lease.wait(unless=lambda: self._is_given_up)
        except BaseException:
            lease.release()
            raise
        with self._lock:
            self._is_held = not self._is_given_up
        if not self._is_held:
            lease.release()
        return self._is_held

    def give_up(self) -> bool:
        """Have `stand` return without the place; returns True where it is held already and has to be given back."""
        with self._lock:
            self._is_given_up = True
            is_held = self._is_held
        if self._lease is not None:
            self._lease.wake()
        return is_held

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

    def keep(self) -> None:
        """Have a process in the place, and return when it is there.

        Raises:
            EngineError: it does not come up, since the place is lost or its node is.
        """
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


def time_to_leave_s(cancel_timeout_s: float) -> float:
    """Return how long requests may go on before work is killed; the rest is for putting the engine to sleep."""
    return cancel_timeout_s - min(_LONGEST_MARGIN_S, _MARGIN * cancel_timeout_s)


def given_back_quietly(place: WorkerPlace) -> None:
    """Give a place back that nobody wants; the end of this driver frees it where the ledger does not answer."""
    with suppress(HeadgateError):
        place.give_back()
