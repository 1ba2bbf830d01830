"""The heart of a driver: it tells the ledger that the driver lives, and mirrors what becomes of its requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headgate.core.errors import HeadgateError
from headgate.placement.cluster.link import LedgerLink
from headgate.placement.service.values import Beat, WorkView

BEAT_S: Final = 2.0
"""How long one heartbeat waits for news before the next; the ledger gives a driver up after 15 s."""

KEPT_ENDED: Final = 10_000
"""So many ended requests are mirrored; of older ones the ledger is asked."""

_RETRY_S: Final = 1.0
_log = logging.getLogger("headgate.placement")

Listener = Callable[[WorkView], None]


class Heart:
    """A daemon thread with one call of the ledger under way, which the ledger answers when there is news.

    However many threads of the driver wait for however many requests, the ledger sees this one call.
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
        self._is_closed = False
        self._thread = threading.Thread(target=self._beat_on, name="headgate-placement-heart", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is told any more."""
        return self._is_closed

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
            return self._is_closed or unless() or (view is not None and has_come(view))

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
            self._is_closed = True
            self._changed.notify_all()

    def _beat_on(self) -> None:
        generation = number = 0
        is_reported = False
        while not self._is_closed:
            with self._changed:
                watched = tuple(self._unsaid)
            try:
                beat: Beat = self._link.ask("beat", self.driver, generation, number, watched, BEAT_S)
            except HeadgateError as error:
                if not self._link.is_connected:
                    self._end()
                    return
                if not is_reported and not self._is_closed:
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
            generation, number = beat.generation, beat.number
            self._take(beat)

    def _take(self, beat: Beat) -> None:
        calls: list[tuple[Listener, WorkView]] = []
        with self._changed:
            for view in beat.views:
                calls += self._mirror(view)
            self._changed.notify_all()
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
