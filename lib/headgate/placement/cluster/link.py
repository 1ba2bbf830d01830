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
"""How often it is looked, while the ledger does not answer, whether the cluster is still the same."""


class LedgerLink:
    """Calls of the ledger from any thread. Every call may be made twice: the ledger's are idempotent.

    Attributes:
        was_there: whether the ledger ran before this link was made, which starts one where there is none.
        replaced: says that another cluster answers at the address of the one of this link, which is gone; else empty.
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
        """Whether this process is still in the Ray session in which the link was made."""
        return ray.is_initialized() and _session() == self._session

    @property
    def is_connected(self) -> bool:
        """Whether it is, and the cluster of that session is there, as far as is known."""
        return not self.replaced and self.has_session

    def ask(self, name: str, *args: Any, patience_s: float = PATIENCE_S) -> Any:
        """Return the ledger's answer.

        Raises:
            HeadgateError: the ledger refuses.
            LedgerUnreachableError: it does not answer in time.
        """
        until = time.monotonic() + patience_s
        while True:
            if not self.is_connected:  # Ray would start or join some cluster by itself
                why = self.replaced or f"This connection is closed and cannot ask for {name}"
                raise LedgerUnreachableError(why, next_step="Connect again with connect().")
            try:
                # Not by `ray.get`: a thread in it brings the process down when another one calls `ray.shutdown`.
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
        """Look whether the head was started anew: Ray itself goes on asking for actors that nobody knows any more."""
        now = time.monotonic()
        if now >= self._probe_at:
            self._probe_at = now + _PROBE_EVERY_S
            found = cluster_id(self._address)
            self._cluster = self._cluster or found  # a head that was busy when the link was made said nothing
            if found and found != self._cluster:
                where = f"the Ray cluster at {self._address}"
                self.replaced = f"The head of {where} was started anew; what was placed there is gone"

    def kill(self) -> None:
        """End the ledger for good; what it held must be gone before."""
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
    return bool(found._actor_id != actor._actor_id)  # noqa: SLF001 - another has its name since then


BEAT_S: Final = 2.0
"""How long one heartbeat waits for news before the next; the ledger gives a driver up after 15 s."""

KEPT_ENDED: Final = 10_000
"""So many ended requests are mirrored; of older ones the ledger is asked."""

_RETRY_S: Final = 1.0
_log = logging.getLogger("headgate.placement")

Listener = Callable[[WorkView], None]


class Heartbeat:
    """A daemon thread with one call of the ledger under way, which the ledger answers when there is news.

    However many threads of the driver wait for however many requests, the ledger sees this one call. Once `is_closed`,
    nothing is told any more.

    Attributes:
        lost: done with the reason when the connection has ended and nobody closed it.
    """

    def __init__(self, link: LedgerLink, driver: str) -> None:
        self.driver = driver
        self._link = link
        self._views: dict[str, WorkView] = {}
        self._ended: dict[str, None] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._watched: set[str] = set()  # requests of other drivers
        self._unsaid: set[str] = set()  # of these, those that the ledger does not know of yet
        self._changed = threading.Condition()  # of everything above
        self.is_closed = False
        self.lost: Future[str] = Future()
        self._thread = threading.Thread(target=self._beat_on, name="headgate-placement-heartbeat", daemon=True)
        self._thread.start()

    def view(self, request_id: str) -> WorkView | None:
        """Return where a request stands, as last told."""
        with self._changed:
            return self._views.get(request_id)

    def take(self, view: WorkView) -> None:
        """Take over what was learnt by another call, unless newer news has come; nothing is newer than the end."""
        with self._changed:
            known = self._views.get(view.request_id)
            is_news = known is None or (view.stage.has_ended and not known.stage.has_ended)
            calls = self._mirror(view) if is_news else []
            self._changed.notify_all()
        _tell(calls)

    def watch(self, request_id: str) -> None:
        """Be told of a request of another driver as well."""
        with self._changed:
            self._watched.add(request_id)
            self._unsaid.add(request_id)

    def listen(self, request_id: str, listener: Listener) -> None:
        """Have a function called with every change of a request, and with how it stands now if that is known.

        It is called in any thread and must return at once; for the last time when the request has ended.
        """
        with self._changed:
            self._listeners.setdefault(request_id, []).append(listener)
            known = self._views.get(request_id)
        if known is not None:
            listener(known)

    def forget(self, request_id: str) -> None:
        """Mirror a request no more."""
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
        """Return a request's view once it is as wanted; None when it is not in time, or once `unless` holds.

        `unless` is looked at when anything has changed, and with every `wake`.
        """

        def is_there() -> bool:
            view = self._views.get(request_id)
            return self.is_closed or unless() or (view is not None and has_come(view))

        with self._changed:
            self._changed.wait_for(is_there, timeout_s)
            view = self._views.get(request_id)
            return view if view is not None and has_come(view) else None

    def wake(self) -> None:
        """Have everybody who waits look again whether they still want to."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Stop; legal twice. Who waits is woken."""
        self._end()
        with suppress(HeadgateError):  # it is only to answer the call under way at once
            self._link.ask("leave", self.driver, patience_s=_RETRY_S)
        if threading.current_thread() is not self._thread and self._link.is_connected:
            self._thread.join(timeout=BEAT_S + _RETRY_S)

    def _end(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _lose(self, why: str) -> None:
        """End, and tell those who hold something of a cluster that is gone that they have lost it."""
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
                # Another ledger has not heard yet what this driver watches.
                is_another = generation not in {0, beat.generation}
                self._unsaid = set(self._watched) if is_another else self._unsaid.difference(watched)
                calls = [call for view in beat.views for call in self._mirror(view)]
                self._changed.notify_all()
            generation, number = beat.generation, beat.number
            _tell(calls)

    def _mirror(self, view: WorkView) -> list[tuple[Listener, WorkView]]:
        """Keep how a request stands, and return who is to be called; of one that has ended nothing more is told."""
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
        except Exception:  # noqa: BLE001 - reported: it is the driver's own
            _log.exception("A listener of request %s failed; the others continue", view.request_id)
