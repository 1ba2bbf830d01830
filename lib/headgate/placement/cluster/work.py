"""Placed work: packing the submitted class, and the driver's handle on it, from its stage to its result."""

from __future__ import annotations

import inspect
import math
import pickle
import reprlib
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]
import ray
from ray.exceptions import GetTimeoutError, RayError

from headgate.core import ReleaseOutcome
from headgate.placement.amounts import MEBIBYTE
from headgate.placement.cluster.link import Heartbeat, LedgerLink
from headgate.placement.errors import InvalidPlacementError, PlacementLostError, WorkFailedError
from headgate.placement.outcomes import Why
from headgate.placement.request import Stage
from headgate.placement.service.protocol import Outcome, Reach, WorkView

LARGEST_PAYLOAD_BYTES: Final = 16 * MEBIBYTE

Save = Callable[[Any], Any]
Restore = Callable[[Any, Any], None]


def plain_class(work: object) -> type:
    """Return a class itself, or the plain class inside a `@ray.remote` class.

    Raises:
        InvalidPlacementError: it is neither.
    """
    if isinstance(work, type):
        return work
    metadata = getattr(work, "__ray_metadata__", None)
    inner = getattr(metadata, "modified_class", None)
    if isinstance(inner, type):
        return getattr(inner, "__ray_actor_class__", inner)
    raise InvalidPlacementError(
        f"Work is a class or a @ray.remote class (got {work!r})",
        next_step="Put the function into a class with a method `run`, and submit the class and not an instance.",
    )


def with_handlers(work: type, save: Save | None, restore: Restore | None) -> type:
    """Return a subclass that uses these functions to save and restore its state, unless the class has its own."""
    members: dict[str, Any] = {"__module__": work.__module__, "__doc__": work.__doc__}
    if save is not None and not hasattr(work, "checkpoint"):
        members["checkpoint"] = save
    if restore is not None and not hasattr(work, "restore"):
        members["restore"] = restore
    return work if len(members) == 2 else type(work.__name__, (work,), members)


def packed_work(
    work: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], method: str | None, options: Mapping[str, Any]
) -> bytes:
    """Return work pickled, as it is journalled and sent.

    Raises:
        InvalidPlacementError: the class lacks the method or does not accept the arguments, or the whole cannot be
            pickled or is too large.
    """
    _check_arguments(work, args, kwargs)
    if method is not None and not callable(getattr(work, method, None)):
        raise InvalidPlacementError(
            f"{work.__name__} has no method {method!r} to run",
            next_step="Name another one with method=, or method=None to keep it for calls until it is completed.",
        )
    try:
        payload: bytes = cloudpickle.dumps((work, args, dict(kwargs), method, dict(options)))
    except Exception as error:
        raise InvalidPlacementError(f"{work.__name__} cannot be sent with these arguments: {error}") from error
    if len(payload) > LARGEST_PAYLOAD_BYTES:
        raise InvalidPlacementError(
            f"{work.__name__} takes {len(payload) / MEBIBYTE:.1f} MiB with its arguments, and at most "
            f"{LARGEST_PAYLOAD_BYTES // MEBIBYTE} MiB are journalled",
            next_step="Pass the name of a file or an object of a store.",
        )
    return payload


def _check_arguments(work: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    try:
        takes = inspect.signature(work)
    except (TypeError, ValueError):  # written in C, or with a custom metaclass
        return
    try:
        takes.bind(*args, **kwargs)
    except TypeError as error:
        named = ", ".join(name for name in takes.parameters if not name.startswith("_"))  # without those that Ray adds
        given = ", ".join([*map(reprlib.repr, args), *(f"{name}={reprlib.repr(kwargs[name])}" for name in kwargs)])
        raise InvalidPlacementError(
            f"{work.__name__}({named}) cannot be created from ({given}): {error}",
            next_step="Give what its __init__ takes, in this order.",
        ) from None


_UNTOLD_S: Final = 5.0
"""A request without news for this long may have ended long ago, so the ledger is asked about it."""


class PlacedWork:
    """Submitted work. Usable from any thread; several instances may stand for the same request.

    Attributes:
        request_id: the request's id, by which `Placement.work` finds it again.
        is_new: whether this call submitted it; False if the id was known, in which case the work given is not run.
    """

    def __init__(self, link: LedgerLink, heartbeat: Heartbeat, request_id: str, *, is_new: bool = False) -> None:
        self.request_id = request_id
        self.is_new = is_new
        self._link = link
        self._heartbeat = heartbeat
        self._reached: Reach | None = None

    def view(self) -> WorkView:
        """Return its current view from the ledger."""
        view: WorkView = self._link.ask("view", self.request_id)
        return view

    def stage(self) -> Stage:
        """Return its current stage from the ledger."""
        return self.view().stage

    def wait(self, timeout: float | None = None) -> WorkView:
        """Wait until it has ended, and return its view.

        Raises:
            TimeoutError: it has not ended in `timeout` seconds.
        """
        view = self._waited(lambda view: view.stage.has_ended, timeout)
        if view is None:
            raise TimeoutError(f"{self.request_id} is {self.stage()} after {timeout} s")
        return view

    def wait_running(self, timeout: float | None = None) -> WorkView:
        """Wait until it runs, and return its view.

        Raises:
            TimeoutError: it does not run in `timeout` seconds; `why` says what it is waiting for.
            PlacementLostError: it has ended.
        """
        wanted = self._waited(lambda view: view.stage is Stage.RUNNING or view.stage.has_ended, timeout)
        if wanted is None:
            raise TimeoutError(f"{self.request_id} does not run after {timeout} s: {self.why().says}")
        if wanted.stage.has_ended:
            raise PlacementLostError(f"{self.request_id} is {wanted.stage} and does not run: {wanted.note}")
        return wanted

    def result(self, timeout: float | None = None) -> Any:
        """Return what its method returned; for a gang a list, by rank. None if it was completed before it returned.

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
        ended: Outcome | None = self._link.ask("result", self.request_id)
        if view.stage is Stage.FAILED:
            raise self._failure(view, ended)
        if ended is None or not ended.payload:
            return None
        value = pickle.loads(ended.payload)  # noqa: S301 - made by the user's own work
        return value if view.members == 1 else [pickle.loads(each) for each in value]  # noqa: S301 - as above

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the running object (of a gang's first member) and return Ray's `ObjectRef`.

        Raises:
            PlacementLostError: it does not run.
        """
        return self.members[0].call(method, args, kwargs)

    @property
    def handle(self) -> PlacedHandle:
        """The running object, called like a Ray actor: `work.handle.method.remote(...)`; raises like `call`."""
        return PlacedHandle(self.members[0])

    @property
    def members(self) -> tuple[PlacedMember, ...]:
        """The running objects of a gang, by rank; raises like `call`."""
        known = self._heartbeat.view(self.request_id)
        reached = self._reached
        if reached is None or known is None or known.epoch != reached.epoch or known.stage is not Stage.RUNNING:
            reached = self._reached = self._link.ask("reach", self.request_id)
        if reached is None:
            raise PlacementLostError(f"{self.request_id} does not run, it is {self.view().stage}")
        return tuple(PlacedMember(reached.kind, reached.epoch, handle) for handle in reached.handles)

    def saved(self) -> bool:
        """Tell the ledger that all progress so far is saved, so that a stop loses none of it."""
        known = self._heartbeat.view(self.request_id) or self.view()
        return bool(self._link.ask("saved", self.request_id, known.epoch))

    def cancel(self, why: str = "cancelled by its driver") -> bool:
        """End it, at once if it waits or after a stop if it runs; return whether that changed anything."""
        return bool(self._link.ask("withdraw", self.request_id, why))

    def complete(self) -> ReleaseOutcome:
        """Release what it holds: its work is stopped if it still runs, and the request is done."""
        outcome: ReleaseOutcome = self._link.ask("complete", self.request_id)
        return outcome

    def why(self) -> Why:
        """Return what it is waiting for now."""
        why: Why = self._link.ask("why", self.request_id)
        return why

    def _waited(self, has_come: Callable[[WorkView], bool], timeout: float | None) -> WorkView | None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, until - time.monotonic())
            view = self._heartbeat.wait(self.request_id, has_come, min(left, _UNTOLD_S))
            if view is not None:
                return view
            if self._heartbeat.is_closed:
                raise PlacementLostError(f"The connection was closed while {self.request_id} was waited for")
            if self._heartbeat.view(self.request_id) is None:
                self._heartbeat.take(self.view())
            if left <= _UNTOLD_S:
                return self._heartbeat.wait(self.request_id, has_come, 0)

    def _failure(self, view: WorkView, ended: Outcome | None) -> WorkFailedError:
        if ended is None:
            return WorkFailedError(
                f"{self.request_id} failed: {view.note}",
                next_step="Find what ends its process, such as os._exit or a lack of memory; `ray logs` may tell.",
            )
        cause = pickle.loads(ended.payload) if ended.payload else None  # noqa: S301 - made by the user's own work
        if isinstance(cause, WorkFailedError) and str(cause) == ended.why:  # what it returned cannot be kept
            error = WorkFailedError(f"{self.request_id} failed: {cause.message}", next_step=cause.next_step)
        else:
            error = WorkFailedError(f"{self.request_id} failed: {view.note}\n{ended.why}")
        error.__cause__ = cause if isinstance(cause, BaseException) else None
        return error


class PlacedMember:
    """One running object, valid for one start: after a preemption `PlacedWork.members` gives another."""

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
    """A running object that is called like a Ray actor."""

    def __init__(self, member: PlacedMember) -> None:
        self._member = member

    def __getattr__(self, method: str) -> Any:
        if method.startswith("__"):
            raise AttributeError(method)
        return SimpleNamespace(remote=lambda *args, **kwargs: self._member.call(method, args, kwargs))


def actor_of(work: PlacedWork) -> Any:
    """Return the actor handle of the current start of work that runs in its own process.

    Raises:
        PlacementLostError: it does not run.
    """
    members = work.members
    if not members:
        raise PlacementLostError(f"The actor of {work.request_id} could not be created")
    return members[0]._handle  # noqa: SLF001 - an object of this package


def is_made(actor: Any, timeout_s: float) -> bool:
    """Wait until the constructor of an actor has returned; False if it raised, True even if it takes longer."""
    try:
        ray.get(actor.__ray_ready__.remote(), timeout=timeout_s)
    except GetTimeoutError:
        return True
    except RayError:
        return False
    return True


def driver_namespace() -> str:
    """Return the namespace in which this driver finds named actors."""
    return str(ray.get_runtime_context().namespace)
