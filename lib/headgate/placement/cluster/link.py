"""A driver's link to the ledger: calls that survive its restart, and the heartbeat that keeps its work alive."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from headgate.core.errors import HeadgateError
from headgate.placement.cluster.actor import ledger_actor
from headgate.placement.cluster.connection import LEDGER_NAME, NAMESPACE, cluster_id
from headgate.placement.errors import LedgerUnreachableError
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.request import Stage
from headgate.placement.service.protocol import Beat, WorkView

PATIENCE_S: Final = 30.0
"""How long a call waits for a ledger that is being restarted, which takes 2 s."""

_PAUSE_S: Final = 0.1

_PROBE_EVERY_S: Final = 1.0
"""How often to check, while the ledger does not answer, whether the cluster is still the same."""


class LedgerLink:
    """Calls the ledger from any thread. Every call may be sent twice, as the ledger's methods are idempotent.

    Attributes:
        was_there: whether the ledger was already running; creating a link starts one where there is none.
        replaced: says that this link's cluster is gone and another one answers at its address; empty otherwise.
    """

    def __init__(self, journal: str, settings: LedgerSettings) -> None:
        self.was_there = has_ledger()
        self._actor = ledger_actor(journal, settings)
        self._session = _session()
        self._address = str(ray.get_runtime_context().gcs_address)
        self._cluster = cluster_id(self._address)
        self._probe_at = 0.0
        self.replaced = ""

    @property
    def has_session(self) -> bool:
        """Whether this process is still in the Ray session in which the link was created."""
        return ray.is_initialized() and _session() == self._session

    @property
    def is_connected(self) -> bool:
        """Whether the session is still the same and, as far as is known, its cluster still exists."""
        return not self.replaced and self.has_session

    def ask(self, name: str, *args: Any, patience_s: float = PATIENCE_S) -> Any:
        """Return the ledger's answer.

        Raises:
            HeadgateError: the ledger refuses.
            LedgerUnreachableError: it does not answer in time.
        """
        until = time.monotonic() + patience_s
        while True:
            if not self.is_connected:  # Ray would start or join some other cluster by itself
                why = self.replaced or f"This connection is closed and cannot ask for {name}"
                raise LedgerUnreachableError(why, next_step="Connect again with connect().")
            try:
                # Not `ray.get`: a thread inside it crashes the process when another thread calls `ray.shutdown`.
                accepted, answer = self._actor.ask.remote(name, args).future().result(patience_s)
            except (ActorUnavailableError, RayActorError, TimeoutError) as error:
                self._probe()
                if time.monotonic() >= until:
                    raise LedgerUnreachableError(
                        f"The placement ledger did not answer {name} within {patience_s:g} s: {type(error).__name__}"
                    ) from error
                if _is_gone(error, self._actor):
                    raise LedgerUnreachableError("The placement ledger of this cluster was ended") from error
                time.sleep(_PAUSE_S)
            except RayTaskError as error:
                raise LedgerUnreachableError(f"The placement ledger failed at {name}: {error}") from error
            else:
                if accepted:
                    return answer
                refusal: HeadgateError = answer
                raise refusal

    def _probe(self) -> None:
        """Check whether the head was restarted: Ray itself keeps asking for actors that no longer exist."""
        now = time.monotonic()
        if now >= self._probe_at:
            self._probe_at = now + _PROBE_EVERY_S
            found = cluster_id(self._address)
            self._cluster = self._cluster or found  # a head that was busy when the link was created gave no answer
            if found and found != self._cluster:
                where = f"the Ray cluster at {self._address}"
                self.replaced = f"The head of {where} was restarted; what was placed there is gone"

    def kill(self) -> None:
        """End the ledger for good; everything it held must be gone already."""
        ray.kill(self._actor, no_restart=True)


def _session() -> str:
    return str(ray.get_runtime_context().get_worker_id())


def has_ledger() -> bool:
    """Tell whether the cluster that this process is connected to has a ledger."""
    try:
        ray.get_actor(LEDGER_NAME, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def _is_gone(error: Exception, actor: Any) -> bool:
    """Tell whether the ledger was ended for good, and is not being restarted."""
    if isinstance(error, TimeoutError | ActorUnavailableError):
        return False
    try:
        found = ray.get_actor(LEDGER_NAME, namespace=NAMESPACE)
    except ValueError:
        return True
    return bool(found._actor_id != actor._actor_id)  # noqa: SLF001 - another actor has taken its name


BEAT_S: Final = 2.0
"""How long one heartbeat waits for news before the next; after 15 s without one the ledger gives a driver up."""

KEPT_ENDED: Final = 10_000
"""Most ended requests that are mirrored; older ones are looked up in the ledger."""

_RETRY_S: Final = 1.0
_log = logging.getLogger("headgate.placement")

Listener = Callable[[WorkView], None]


class Heartbeat:
    """A daemon thread that keeps one call to the ledger pending (a long poll), answered when there is news.

    The ledger sees only this one call, however many threads of the driver wait for requests. Once `is_closed`, no
    more news arrives.

    Attributes:
        lost: resolves to the reason when the connection has ended without being closed.
    """

    def __init__(self, link: LedgerLink, driver: str) -> None:
        self.driver = driver
        self._link = link
        self._views: dict[str, WorkView] = {}
        self._ended: dict[str, None] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._watched: set[str] = set()  # requests of other drivers
        self._unsaid: set[str] = set()  # those of them that the ledger has not been told yet
        self._changed = threading.Condition()  # guards everything above
        self.is_closed = False
        self.lost: Future[str] = Future()
        self._thread = threading.Thread(target=self._beat_on, name="headgate-placement-heartbeat", daemon=True)
        self._thread.start()

    def view(self, request_id: str) -> WorkView | None:
        """Return the last known state of a request."""
        with self._changed:
            return self._views.get(request_id)

    def take(self, view: WorkView) -> None:
        """Store a view that another call returned, unless a newer one is known; the end of a request is the newest."""
        with self._changed:
            known = self._views.get(view.request_id)
            is_news = known is None or (view.stage.has_ended and not known.stage.has_ended)
            calls = self._mirror(view) if is_news else []
            self._changed.notify_all()
        _tell(calls)

    def watch(self, request_id: str) -> None:
        """Also follow a request of another driver."""
        with self._changed:
            self._watched.add(request_id)
            self._unsaid.add(request_id)

    def listen(self, request_id: str, listener: Listener) -> None:
        """Call a function on every change of a request, and at once with its current view if that is known.

        It may be called in any thread and must return at once; the last call is when the request has ended.
        """
        with self._changed:
            self._listeners.setdefault(request_id, []).append(listener)
            known = self._views.get(request_id)
        if known is not None:
            listener(known)

    def forget(self, request_id: str) -> None:
        """Stop mirroring a request."""
        with self._changed:
            self._views.pop(request_id, None)
            self._ended.pop(request_id, None)
            self._let_go(request_id)

    def wait(
        self,
        request_id: str,
        has_come: Callable[[WorkView], bool],
        timeout_s: float | None,
        unless: Callable[[], bool] = lambda: False,
    ) -> WorkView | None:
        """Return a request's view once `has_come` holds for it; None on timeout, or once `unless` holds.

        `unless` is evaluated on every change and on every `wake`.
        """

        def is_there() -> bool:
            view = self._views.get(request_id)
            return self.is_closed or unless() or (view is not None and has_come(view))

        with self._changed:
            self._changed.wait_for(is_there, timeout_s)
            view = self._views.get(request_id)
            return view if view is not None and has_come(view) else None

    def wake(self) -> None:
        """Make every waiter evaluate its conditions again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Stop, and wake all waiters; legal twice."""
        self._end()
        with suppress(HeadgateError):  # it only makes the ledger answer the pending call at once
            self._link.ask("leave", self.driver, patience_s=_RETRY_S)
        if threading.current_thread() is not self._thread and self._link.is_connected:
            self._thread.join(timeout=BEAT_S + _RETRY_S)

    def _end(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _lose(self, why: str) -> None:
        """End, and notify the listeners of requests whose cluster is gone that these are lost."""
        with self._changed:
            was_closed = self.is_closed
            open_views = [view for view in self._views.values() if self._link.replaced and not view.stage.has_ended]
            calls = [call for view in open_views for call in self._mirror(replace(view, stage=Stage.FAILED, note=why))]
        self._end()
        _tell(calls)
        if not was_closed:
            self.lost.set_result(why)

    def _beat_on(self) -> None:
        generation = number = 0
        is_reported = False
        while not self.is_closed:
            with self._changed:
                watched = tuple(self._unsaid)
            try:
                beat: Beat = self._link.ask("beat", self.driver, generation, number, watched, BEAT_S)
            except HeadgateError as error:
                if not self._link.is_connected:
                    self._lose(error.message)
                    return
                if not is_reported and not self.is_closed:
                    _log.warning("The placement ledger does not answer; trying again: %s", error)
                is_reported = True
                with self._changed:
                    self._changed.wait(_RETRY_S)
                continue
            is_reported = False
            with self._changed:
                # A new ledger has not been told yet which requests this driver watches.
                is_another = generation not in {0, beat.generation}
                self._unsaid = set(self._watched) if is_another else self._unsaid.difference(watched)
                calls = [call for view in beat.views for call in self._mirror(view)]
                self._changed.notify_all()
            generation, number = beat.generation, beat.number
            _tell(calls)

    def _mirror(self, view: WorkView) -> list[tuple[Listener, WorkView]]:
        """Store a request's view, and return the listeners to call; after its end there are no more calls."""
        request_id = view.request_id
        calls = [(listener, view) for listener in self._listeners.get(request_id, ())]
        self._views[request_id] = view
        if view.stage.has_ended:
            self._let_go(request_id)
            self._ended[request_id] = None
            while len(self._ended) > KEPT_ENDED:
                dropped = next(iter(self._ended))
                del self._ended[dropped]
                self._views.pop(dropped, None)
        return calls

    def _let_go(self, request_id: str) -> None:
        self._listeners.pop(request_id, None)
        self._watched.discard(request_id)
        self._unsaid.discard(request_id)


def _tell(calls: list[tuple[Listener, WorkView]]) -> None:
    for listener, view in calls:
        try:
            listener(view)
        except Exception:  # noqa: BLE001 - reported: listeners are the driver's own code
            _log.exception("A listener of request %s failed; the others continue", view.request_id)
