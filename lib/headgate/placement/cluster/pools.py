"""A driver's view of a pool: it submits work, and leases places for work that the driver runs itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from headgate.core import ReleaseOutcome
from headgate.core.errors import nearest_name
from headgate.placement.amounts import Amounts
from headgate.placement.checks import RequestSpec, request_spec
from headgate.placement.cluster.link import Heartbeat, LedgerLink
from headgate.placement.cluster.work import PlacedWork, Restore, Save, packed_work, plain_class, with_handlers
from headgate.placement.errors import InvalidPlacementError, PlacementLostError
from headgate.placement.outcomes import Why
from headgate.placement.pool import Pool
from headgate.placement.request import Stage
from headgate.placement.scaling import scaled_amounts
from headgate.placement.service.protocol import Reach, Submission, WorkKind, WorkView


class PlacementLease:
    """A lease on a placement group: waited for, then held until released or lost, and released exactly once.

    When the group is taken away, `lost` is set: whatever runs there has `cancel_timeout_s` to end, and is then killed.
    A lost lease is queued again at its old position; `wait` acquires it again, leaving the context releases it.

    Attributes:
        request_id: the request's id.
        lost: set when the group must be vacated.
        why_lost: why it must be vacated; empty otherwise.
    """

    def __init__(
        self,
        link: LedgerLink,
        heartbeat: Heartbeat,
        request_id: str,
        *,
        on_lost: Callable[[], None] | None,
        timeout: float | None,
    ) -> None:
        self.request_id = request_id
        self.lost = threading.Event()
        self.why_lost = ""
        self._link = link
        self._heartbeat = heartbeat
        self._on_lost = on_lost
        self._timeout = timeout
        self._work = PlacedWork(link, heartbeat, request_id)
        self._held: WorkView | None = None
        self._reached: Reach | None = None
        self._lock = threading.Lock()  # protects what is held, and that it is released once
        self._is_released = False
        heartbeat.listen(request_id, self._take)

    @property
    def lease_id(self) -> str:
        """Its id in events and in `headgate placement status`; empty before it is held."""
        return "" if self._held is None else self._held.lease_id

    @property
    def place(self) -> str:
        """Name of the placement group; empty before it is held."""
        return "" if self._held is None else self._held.group_id

    @property
    def is_lost(self) -> bool:
        """Whether the group must be vacated."""
        return self.lost.is_set()

    def wait(self, timeout: float | None = None, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the lease is held, or held again after it was lost; return whether it is.

        Args:
            timeout: seconds to wait at most; None for no limit.
            unless: stop waiting once this holds; the code that makes it true calls `wake`.

        Raises:
            PlacementLostError: the request has ended, or the connection was closed.
        """
        held = self._held
        before = held.epoch if held is not None and self.is_lost else -1
        view = self._heartbeat.wait(
            self.request_id,
            lambda view: view.stage.has_ended or (view.stage is Stage.RUNNING and view.epoch != before),
            timeout,
            unless,
        )
        if view is None and self._heartbeat.is_closed:
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
        newest = self._heartbeat.view(self.request_id)
        if newest is not None:
            self._take(newest)
        return True

    def wake(self) -> None:
        """Make a `wait` in any thread evaluate its `unless` now."""
        self._heartbeat.wake()

    def strategy(self, bundle: int = 0) -> PlacementGroupSchedulingStrategy:
        """Return Ray's scheduling strategy for a task or actor in one bundle.

        Raises:
            PlacementLostError: the lease is not held.
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
        """Tell the ledger that all progress so far is saved, so that a stop loses none of it."""
        held = self._held
        return held is not None and bool(self._link.ask("saved", self.request_id, held.epoch))

    def why(self) -> Why:
        """Return what it is waiting for now."""
        return self._work.why()

    def release(self) -> ReleaseOutcome:
        """Release it, or leave the queue; only the first call has an effect."""
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
            if outcome is ReleaseOutcome.STALE:  # it was lost and already granted again, unasked
                self._link.ask("withdraw", self.request_id, "given up by its driver")
            return outcome
        finally:
            self._heartbeat.forget(self.request_id)

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

    def __exit__(self, *_: object) -> None:
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


_Resources = Amounts | Mapping[str, Any]


class PlacementPool:
    """An open pool. Usable from any thread.

    Attributes:
        pool: its fields, as it is open.
        factor: 1, or the factor by which the pool was scaled down; requests are scaled by it, too.
    """

    def __init__(self, link: LedgerLink, heartbeat: Heartbeat, pool: Pool, factor: float = 1.0) -> None:
        self.name = pool.name
        self.pool = pool
        self.factor = factor
        self._link = link
        self._heartbeat = heartbeat
        self._save: Save | None = None
        self._restore: Restore | None = None

    def state_handlers(self, save: Save | None = None, restore: Restore | None = None) -> None:
        """Save and restore the state of work whose class has no `checkpoint` or `restore` of its own.

        Args:
            save: called with the object while its method runs; returns its state, which must be picklable.
            restore: called with the new object and the state before its method runs.
        """
        self._save, self._restore = save, restore

    def submit(
        self,
        work: object,
        *args: Any,
        resources: _Resources | None = None,
        bundles: Sequence[_Resources] | None = None,
        request_id: str | None = None,
        priority: float = 5.0,
        labels: Mapping[str, str] | None = None,
        method: str | None = "run",
        kwargs: Mapping[str, Any] | None = None,
        own_process: bool = False,
        ray_options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PlacedWork:
        """Run a class as soon as it is placed, and again after each preemption.

        The class may have `checkpoint()`, `cancel(request_id)` (whose return value is its state) and `restore(state)`.

        Args:
            work: a plain class, or a `@ray.remote` one; instantiated and called where it is placed.
            args: arguments of its `__init__`.
            resources: what it takes; or `bundles` for a gang.
            bundles: what each member of a gang takes; each creates its own object, see `placement_context`.
            request_id: the same id again is the same work, and nothing new runs (`is_new`); None for a new one.
            priority: higher goes first; from the pool's `reserved_from_priority` it may use reserved groups.
            labels: labels that preemption rules compare.
            method: method to call; its return value is the result. None keeps the object for calls until `complete`.
            kwargs: keyword arguments of its `__init__`.
            own_process: start a Ray actor for it instead of using the group's warm host.
            ray_options: options of that actor, e.g. `name`; only with `own_process`.
            more: other fields of `PlacementRequest`.

        Raises:
            InvalidPlacementError: an argument breaks a rule.
            CannotFitError: it could never run.
            UnknownPoolError: the pool was closed.
        """
        if ray_options and not own_process:
            raise InvalidPlacementError(
                f"ray_options are for work in a process of its own (got {sorted(ray_options)})",
                next_step="Give own_process=True as well, or leave them out.",
            )
        fields = RequestSpec.model_fields  # a name unlike any field was probably meant for the class
        if strange := sorted(name for name in more if not nearest_name(name, fields)):
            raise InvalidPlacementError(
                f"submit has no argument {strange[0]!r}",
                next_step="Arguments of the class itself go after it, or into kwargs={...}.",
            )
        chosen = with_handlers(plain_class(work), self._save, self._restore)
        payload = packed_work(chosen, args, kwargs or {}, method, ray_options or {})
        kind: WorkKind = "own_process" if own_process else "hosted"
        optional = {"resources": resources, "request_id": request_id, "labels": labels}
        submitted, is_new = self._submitted(
            kind, payload, bundles, optional, priority=priority, own_process=own_process, **more
        )
        return PlacedWork(self._link, self._heartbeat, submitted, is_new=is_new)

    def lease(
        self,
        *,
        resources: _Resources | None = None,
        bundles: Sequence[_Resources] | None = None,
        request_id: str | None = None,
        priority: float = 5.0,
        labels: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_lost: Callable[[], None] | None = None,
        **more: Any,
    ) -> PlacementLease:
        """Queue for a lease; the context manager waits for it, holds it and releases it.

        Resources and priority are given as for `submit`. Entering the context waits for up to `timeout` seconds, or
        without limit; `on_lost` is called, in a thread of the connection, when the group must be vacated.

        Raises:
            InvalidPlacementError: an argument breaks a rule.
            CannotFitError: it could never be granted.
        """
        # A lease is never asked for its state: progress that was not reported by `saved` is lost.
        written = {"priority": priority, "checkpoints": False, **more}
        optional = {"resources": resources, "request_id": request_id, "labels": labels}
        submitted, _ = self._submitted("lease", b"", bundles, optional, **written)
        return PlacementLease(self._link, self._heartbeat, submitted, on_lost=on_lost, timeout=timeout)

    def requests(self) -> tuple[WorkView, ...]:
        """Return the pool's requests, including those that ended within the last hour."""
        return tuple(self._link.ask("requests", self.name))

    def stats(self) -> dict[str, Any]:
        """Return counters of the pool's groups, under ScheduleMesh's keys."""
        stats: dict[str, Any] = self._link.ask("pool_stats", self.name)
        return stats

    def close(self) -> None:
        """Withdraw the pool's work and remove its groups."""
        self._link.ask("close_pool", self.name)

    def _submitted(
        self,
        kind: WorkKind,
        payload: bytes,
        bundles: Sequence[_Resources] | None,
        optional: Mapping[str, Any],
        **written: Any,
    ) -> tuple[str, bool]:
        """Submit a request, scaled like the pool; return its id, and whether that is new.

        Values of None in `optional` count as not given.
        """
        given = {"bundles": None if bundles is None else tuple(bundles), **optional}
        given = {name: value for name, value in given.items() if value is not None}
        request = request_spec({"pool": self.name, **given, **written}).as_request()
        request = replace(request, is_lease=kind == "lease")
        if self.factor != 1.0:
            request = replace(request, bundles=tuple(scaled_amounts(each, self.factor) for each in request.bundles))
        is_new = self._link.ask("submit", Submission(request, kind, payload), self._heartbeat.driver)
        return request.request_id, bool(is_new)
