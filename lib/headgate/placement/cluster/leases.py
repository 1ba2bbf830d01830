"""Leases: a placement group held by the driver itself, for tasks and actors that it places there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from headgate.core import ReleaseOutcome
from headgate.placement.cluster.heart import Heart
from headgate.placement.cluster.link import LedgerLink
from headgate.placement.cluster.placed import PlacedWork
from headgate.placement.errors import PlacementLostError
from headgate.placement.occupancy import Stage
from headgate.placement.outcomes import Why
from headgate.placement.service.values import Reach, WorkView


class PlacementLease:
    """A place that is waited for, held until it is given back or taken away, and given back exactly once.

    When it is taken away `lost` is set: what runs there has `cancel_timeout_s` to end and is killed then. A lost lease
    stands in line again, with its old place in it; `wait` holds it anew, leaving the context gives it up.

    Attributes:
        request_id: the request's id.
        lost: set when the place has to be left.
        why_lost: why it has to be left; empty while it has not.
    """

    def __init__(
        self,
        link: LedgerLink,
        heart: Heart,
        request_id: str,
        *,
        on_lost: Callable[[], None] | None,
        timeout: float | None,
    ) -> None:
        self.request_id = request_id
        self.lost = threading.Event()
        self.why_lost = ""
        self._link = link
        self._heart = heart
        self._on_lost = on_lost
        self._timeout = timeout
        self._work = PlacedWork(link, heart, request_id)
        self._held: WorkView | None = None
        self._reached: Reach | None = None
        self._lock = threading.Lock()  # of what is held, and of giving it back once
        self._is_released = False
        heart.listen(request_id, self._take)

    @property
    def lease_id(self) -> str:
        """Names it in events and in `headgate placement status`; empty before it is held."""
        return "" if self._held is None else self._held.lease_id

    @property
    def is_lost(self) -> bool:
        """Whether the place has to be left."""
        return self.lost.is_set()

    def wait(self, timeout: float | None = None, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the place is held, again where it was lost; return whether it is.

        Args:
            timeout: seconds after which it is not waited for any longer; None for as long as it takes.
            unless: not waited for any longer once this holds; whoever makes it so calls `wake`.

        Raises:
            PlacementLostError: the request has ended, or the connection was closed.
        """
        held = self._held
        before = held.epoch if held is not None and self.is_lost else -1
        view = self._heart.wait(
            self.request_id,
            lambda view: view.stage.has_ended or (view.stage is Stage.RUNNING and view.epoch != before),
            timeout,
            unless,
        )
        if view is None and self._heart.is_closed:
            raise PlacementLostError(
                f"The connection was closed while the lease {self.request_id} was waited for",
                next_step="Connect again with connect().",
            )
        if view is None:
            return False
        if view.stage.has_ended:
            raise PlacementLostError(f"The lease {self.request_id} is {view.stage}: {view.note}")
        reached: Reach | None = self._link.ask("reach", self.request_id)
        with self._lock:
            self._held, self._reached = view, reached
            self.lost.clear()
            self.why_lost = ""
        newest = self._heart.view(self.request_id)
        if newest is not None:
            self._take(newest)
        return True

    def wake(self) -> None:
        """Have `wait`, in whatever thread, look at its `unless` now."""
        self._heart.wake()

    def strategy(self, bundle: int = 0) -> PlacementGroupSchedulingStrategy:
        """Return Ray's scheduling strategy for a task or actor in one bundle.

        Raises:
            PlacementLostError: the place is not held.
        """
        reached = self._reached
        if reached is None or not reached.handles or self.is_lost:
            raise PlacementLostError(f"The lease {self.request_id} is not held: {self.why_lost or 'it still waits'}")
        return PlacementGroupSchedulingStrategy(
            placement_group=reached.handles[0],
            placement_group_bundle_index=bundle,
            placement_group_capture_child_tasks=True,
        )

    def saved(self) -> bool:
        """Tell the ledger that everything up to now is saved: a stop would lose nothing of it."""
        held = self._held
        return held is not None and bool(self._link.ask("saved", self.request_id, held.epoch))

    def why(self) -> Why:
        """Return what holds it now."""
        return self._work.why()

    def release(self) -> ReleaseOutcome:
        """Give it back, or give its place in line up; only the first call changes anything."""
        with self._lock:
            if self._is_released:
                return ReleaseOutcome.DUPLICATE
            self._is_released = True
            held = self._held
        try:
            if held is None:
                self._link.ask("withdraw", self.request_id, "given up by its driver")
                return ReleaseOutcome.RELEASED
            outcome: ReleaseOutcome = self._link.ask("release", self.request_id, held.lease_id, held.epoch)
            if outcome is ReleaseOutcome.STALE:  # it was lost and already given anew, which nobody has asked for
                self._link.ask("withdraw", self.request_id, "given up by its driver")
            return outcome
        finally:
            self._heart.forget(self.request_id)

    def __enter__(self) -> Self:
        try:
            is_held = self.wait(self._timeout)
        except BaseException:
            self.release()
            raise
        if not is_held:
            why = self.why().says
            self.release()
            raise TimeoutError(f"The lease {self.request_id} was not given in {self._timeout} s: {why}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _take(self, view: WorkView) -> None:
        with self._lock:
            held = self._held
            if held is None or self.lost.is_set() or view.epoch < held.epoch:
                return
            if view.epoch == held.epoch and view.stage is Stage.RUNNING:
                return
            preempted = "preemption" if view.preemptions > held.preemptions else ""
            self.why_lost = view.stop_reason or preempted or view.note or f"it is {view.stage}"
            self.lost.set()
        if self._on_lost is not None and not self._is_released:
            self._on_lost()
