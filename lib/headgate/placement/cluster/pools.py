"""A pool, as a driver holds it: work and leases are asked for here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.core import nearest_name
from headgate.placement.amounts import Amounts
from headgate.placement.checks import RequestSpec, request_spec
from headgate.placement.cluster.heart import Heart
from headgate.placement.cluster.leases import PlacementLease
from headgate.placement.cluster.link import LedgerLink
from headgate.placement.cluster.placed import PlacedWork
from headgate.placement.cluster.work_class import Restore, Save, packed_work, plain_class, with_handlers
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.outcomes import Submitted
from headgate.placement.pool import Pool
from headgate.placement.request import PlacementRequest
from headgate.placement.scaling import scaled_amounts
from headgate.placement.service.hands import WorkKind
from headgate.placement.service.values import Submission, WorkView

_Resources = Amounts | Mapping[str, Any]


class PlacementPool:
    """An open pool. Used from any thread.

    Attributes:
        pool: its form, as it is open.
        factor: 1, or how much smaller than written it was opened; requests are made smaller by it, too.
    """

    def __init__(self, link: LedgerLink, heart: Heart, pool: Pool, factor: float = 1.0) -> None:
        self.pool = pool
        self.factor = factor
        self._link = link
        self._heart = heart
        self._save: Save | None = None
        self._restore: Restore | None = None

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.pool.name

    def state_handlers(self, save: Save | None = None, restore: Restore | None = None) -> None:
        """Save and restore the state of work whose class has no `checkpoint` or `restore` of its own.

        Args:
            save: gets the object, while its method runs, and returns its state, which must be possible to pickle.
            restore: gets the new object and the state, before its method runs.
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
        """Have a class run as soon as it has a place, and again when its place was taken away.

        The class may have `checkpoint()`, `cancel(request_id)` (what it returns is its state) and `restore(state)`.

        Args:
            work: a plain class, or a `@ray.remote` one; made and called where it is placed.
            args: of its `__init__`.
            resources: what it takes; or `bundles` for a gang.
            bundles: what each member of a gang takes; each makes an object of its own, see `placement_context`.
            request_id: the same id again is the same work; None for a new one.
            priority: higher goes first; from the pool's `reserved_from_priority` it may use reserved groups.
            labels: what preemption rules look at.
            method: what is called; its return value is the result. None keeps the object for calls until `complete`.
            kwargs: of its `__init__`.
            own_process: start a Ray actor for it instead of using the group's warm host.
            ray_options: of that actor, e.g. `name`; only with `own_process`.
            more: other fields of `PlacementRequest`.

        Raises:
            InvalidPlacementError: something that was given breaks a rule.
            CannotFitError: it could never run.
            UnknownPoolError: the pool was closed.
        """
        if ray_options and not own_process:
            raise InvalidPlacementError(
                f"ray_options are for work in a process of its own (got {sorted(ray_options)})",
                next_step="Give own_process=True as well, or leave them out.",
            )
        _refuse_arguments_of_the_class(more)
        request = self._request(
            resources, bundles, request_id, priority=priority, labels=labels or {}, own_process=own_process, **more
        )
        chosen = with_handlers(plain_class(work), self._save, self._restore)
        payload = packed_work(chosen, args, kwargs or {}, method, ray_options or {})
        return self._submitted(request, "own_process" if own_process else "hosted", payload)

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
        """Stand in line for a place of one's own; a context that waits for it, holds it and gives it back.

        Args:
            resources: what it takes; or `bundles`.
            bundles: what each bundle takes.
            request_id: None for a new one.
            priority: higher goes first.
            labels: what preemption rules look at.
            timeout: how long entering the context may wait; None for as long as it takes.
            on_lost: called, in a thread of the connection, when the place has to be left.
            more: other fields of `PlacementRequest`.

        Raises:
            InvalidPlacementError: something that was given breaks a rule.
            CannotFitError: it could never be given.
        """
        # Nobody asks a lease for its state: what is not told by `saved` is lost.
        request = self._request(
            resources, bundles, request_id, priority=priority, labels=labels or {}, **{"checkpoints": False, **more}
        )
        placed = self._submitted(request, "lease", b"")
        return PlacementLease(self._link, self._heart, placed.request_id, on_lost=on_lost, timeout=timeout)

    def requests(self) -> tuple[WorkView, ...]:
        """Return the pool's requests, ended ones of the last hour included."""
        views: tuple[WorkView, ...] = self._link.ask("requests", self.name)
        return views

    def stats(self) -> dict[str, Any]:
        """Return counts of the pool's groups, under ScheduleMesh's keys."""
        stats: dict[str, Any] = self._link.ask("pool_stats", self.name)
        return stats

    def close(self) -> None:
        """Withdraw the pool's work and remove its groups."""
        self._link.ask("close_pool", self.name)

    def _request(
        self,
        resources: _Resources | None,
        bundles: Sequence[_Resources] | None,
        request_id: str | None,
        **more: Any,
    ) -> PlacementRequest:
        written = {
            "pool": self.name,
            "resources": resources,
            "bundles": None if bundles is None else tuple(bundles),
            "request_id": request_id,
        }
        given = {name: value for name, value in written.items() if value is not None}
        request = request_spec(given | more).as_request()
        if self.factor == 1.0:
            return request
        return replace(request, bundles=tuple(scaled_amounts(each, self.factor) for each in request.bundles))

    def _submitted(self, request: PlacementRequest, kind: WorkKind, payload: bytes) -> PlacedWork:
        submitted: Submitted = self._link.ask("submit", Submission(request, kind, payload), self._heart.driver)
        return PlacedWork(self._link, self._heart, submitted.request_id)


def _refuse_arguments_of_the_class(more: Mapping[str, Any]) -> None:
    """Say where keyword arguments of a work's class go, unless the name is a field's with a slip."""
    fields = RequestSpec.model_fields
    strange = sorted(name for name in more if not nearest_name(name, fields))
    if strange:
        raise InvalidPlacementError(
            f"submit has no argument {strange[0]!r}",
            next_step="Arguments of the class itself go after it, or into kwargs={...}.",
        )
