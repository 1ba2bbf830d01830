"""Placed work, as a driver holds it: its stage, its result, calls of it, and its end."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from typing import Any, Final

from headgate.core import ReleaseOutcome
from headgate.placement.cluster.heart import Heart
from headgate.placement.cluster.link import LedgerLink
from headgate.placement.errors import PlacementLostError, WorkFailedError
from headgate.placement.occupancy import Stage
from headgate.placement.outcomes import Why
from headgate.placement.service.values import Ended, Reach, WorkView

_UNTOLD_S: Final = 5.0
"""A request that the ledger has not told of for so long ended long ago, and is asked for."""


class PlacedWork:
    """Submitted work. Used from any thread; several may stand for the same request.

    Attributes:
        request_id: the request's id; `Placement.work` finds it again by it.
    """

    def __init__(self, link: LedgerLink, heart: Heart, request_id: str) -> None:
        self.request_id = request_id
        self._link = link
        self._heart = heart
        self._reached: Reach | None = None

    def view(self) -> WorkView:
        """Return where it stands, asked of the ledger."""
        view: WorkView = self._link.ask("view", self.request_id)
        return view

    def stage(self) -> Stage:
        """Return its stage, asked of the ledger."""
        return self.view().stage

    def wait(self, timeout: float | None = None) -> WorkView:
        """Return how it ended.

        Raises:
            TimeoutError: it has not in `timeout` seconds.
        """
        view = self._waited(lambda view: view.stage.has_ended, timeout)
        if view is None:
            raise TimeoutError(f"{self.request_id} is {self.stage()} after {timeout} s")
        return view

    def wait_running(self, timeout: float | None = None) -> WorkView:
        """Return when it runs.

        Raises:
            TimeoutError: it does not in `timeout` seconds; `why` tells what holds it.
            PlacementLostError: it has ended.
        """
        wanted = self._waited(lambda view: view.stage is Stage.RUNNING or view.stage.has_ended, timeout)
        if wanted is None:
            raise TimeoutError(f"{self.request_id} does not run after {timeout} s: {self.why().says}")
        if wanted.stage.has_ended:
            raise PlacementLostError(f"{self.request_id} is {wanted.stage} and does not run: {wanted.note}")
        return wanted

    def result(self, timeout: float | None = None) -> Any:
        """Return what its method returned; of a gang a list, by rank. None where it was completed before it returned.

        Raises:
            TimeoutError: it has not ended in `timeout` seconds.
            WorkFailedError: it raised, with its exception as the cause; or its process died too often.
            PlacementLostError: it was withdrawn.
        """
        view = self.wait(timeout)
        if view.stage is Stage.WITHDRAWN:
            raise PlacementLostError(
                f"{self.request_id} was withdrawn: {view.note or 'by its driver'}", next_step="Submit it again."
            )
        ended: Ended | None = self._link.ask("result", self.request_id)
        if view.stage is Stage.FAILED:
            raise self._failure(view, ended)
        if ended is None or not ended.payload:
            return None
        value = pickle.loads(ended.payload)  # noqa: S301 - made by the user's own work
        return value if view.members == 1 else [pickle.loads(each) for each in value]  # noqa: S301 - as above

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the running object (of a gang its first member) and return Ray's `ObjectRef`.

        Raises:
            PlacementLostError: it does not run.
        """
        return self.members[0].call(method, args, kwargs)

    @property
    def handle(self) -> PlacedHandle:
        """The running object, called as a Ray actor is: `work.handle.method.remote(...)`; raises as `call`."""
        return PlacedHandle(self.members[0])

    @property
    def members(self) -> tuple[PlacedMember, ...]:
        """The running objects of a gang, by rank; raises as `call`."""
        known = self._heart.view(self.request_id)
        reached = self._reached
        if reached is None or known is None or known.epoch != reached.epoch or known.stage is not Stage.RUNNING:
            reached = self._reached = self._link.ask("reach", self.request_id)
        if reached is None:
            raise PlacementLostError(f"{self.request_id} does not run, it is {self.view().stage}")
        return tuple(PlacedMember(reached.kind, reached.epoch, handle) for handle in reached.handles)

    def saved(self) -> bool:
        """Tell the ledger that everything up to now is saved: a stop would lose nothing of it."""
        known = self._heart.view(self.request_id) or self.view()
        return bool(self._link.ask("saved", self.request_id, known.epoch))

    def cancel(self, why: str = "cancelled by its driver") -> bool:
        """End it: at once where it waits, after it was stopped where it runs. Return whether that changed anything."""
        return bool(self._link.ask("withdraw", self.request_id, why))

    def complete(self) -> ReleaseOutcome:
        """Give back what it holds: its work is stopped if it still runs, and the request is done."""
        outcome: ReleaseOutcome = self._link.ask("complete", self.request_id)
        return outcome

    def why(self) -> Why:
        """Return what holds it now."""
        why: Why = self._link.ask("why", self.request_id)
        return why

    def _waited(self, has_come: Callable[[WorkView], bool], timeout: float | None) -> WorkView | None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, until - time.monotonic())
            view = self._heart.wait(self.request_id, has_come, min(left, _UNTOLD_S))
            if view is not None:
                return view
            if self._heart.is_closed:
                raise PlacementLostError(f"The connection was closed while {self.request_id} was waited for")
            if self._heart.view(self.request_id) is None:
                self._heart.take(self.view())
            if left <= _UNTOLD_S:
                return self._heart.wait(self.request_id, has_come, 0)

    def _failure(self, view: WorkView, ended: Ended | None) -> WorkFailedError:
        if ended is None:
            return WorkFailedError(f"{self.request_id} failed: {view.note}")
        error = WorkFailedError(f"{self.request_id} failed: {view.note}\n{ended.why}")
        if ended.payload:
            cause = pickle.loads(ended.payload)  # noqa: S301 - made by the user's own work
            error.__cause__ = cause if isinstance(cause, BaseException) else None
        return error


class PlacedMember:
    """One running object. It is of one start: after a preemption `PlacedWork.members` gives another."""

    def __init__(self, kind: str, epoch: int, handle: Any) -> None:
        self._kind = kind
        self._epoch = epoch
        self._handle = handle

    def call(self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Call a method and return Ray's `ObjectRef`; the call goes straight to the process of the work."""
        if self._kind == "own_process":
            return getattr(self._handle, method).remote(*args, **(kwargs or {}))
        return self._handle.call.remote(self._epoch, method, args, kwargs or {})


class PlacedHandle:
    """A running object that is called as a Ray actor is."""

    def __init__(self, member: PlacedMember) -> None:
        self._member = member

    def __getattr__(self, method: str) -> _Method:
        if method.startswith("__"):
            raise AttributeError(method)
        return _Method(self._member, method)


class _Method:
    def __init__(self, member: PlacedMember, method: str) -> None:
        self._member = member
        self._method = method

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and return Ray's `ObjectRef`."""
        return self._member.call(self._method, args, kwargs)
