"""Leases without a ledger: a placement group for everybody who asks, taken away when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from headgate.core.errors import HeadgateError
from headgate.orchestration import Demand


class PlainLease:
    def __init__(self, leases: PlainLeases, demand: Demand, on_lost: Callable[[], None]) -> None:
        self.group: Any = None
        self.request_id = self.lease_id = self.place = self.why_lost = ""
        self.is_lost = False
        self._leases, self._demand, self._on_lost = leases, demand, on_lost
        self._woken = threading.Event()

    def wait(self, unless: Callable[[], bool]) -> bool:
        while not unless() and self._leases.is_full:
            self._leases.waiting.set()
            self._woken.wait()
            self._woken.clear()
        if unless():
            return False
        self.leave()
        self.group = ray.util.placement_group([self._demand.resources.as_ray()])
        assert self.group.wait(30)
        self._leases.taken += 1
        self.place = self.group.id.hex()
        self.lease_id = f"{self.place}-lease"
        self.is_lost = False
        return True

    def wake(self) -> None:
        self._woken.set()

    def leave(self) -> None:
        if self.group is not None:
            ray.util.remove_placement_group(self.group)
            self.group = None
            self._leases.returned += 1

    def strategy(self) -> Any:
        return PlacementGroupSchedulingStrategy(self.group, 0)

    def take_away(self) -> None:
        self.is_lost, self.why_lost = True, "preempted for a test"
        self._on_lost()


class PlainLeases:
    """`held` has the leases; `taken` and `returned` count groups; `is_full` keeps everybody waiting."""

    def __init__(self) -> None:
        self.held: list[PlainLease] = []
        self.taken = self.returned = 0
        self.is_closed = False
        self.is_full = False
        self.waiting = threading.Event()
        self.refusal: HeadgateError | None = None

    @contextmanager
    def take(self, demand: Demand, *, on_lost: Callable[[], None]) -> Iterator[PlainLease]:
        if self.refusal is not None:
            raise self.refusal
        lease = PlainLease(self, demand, on_lost)
        self.held.append(lease)
        try:
            yield lease
        finally:
            self.held.remove(lease)
            lease.leave()

    def close(self) -> None:
        self.is_closed = True
