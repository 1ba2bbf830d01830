"""The only place where the ledger is called, decides, and is journalled, with no `await` in between.

Feeds report the requests that a step has changed to the drivers that wait for them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from headgate.core import Clock, events, until_set
from headgate.core.errors import JournalError
from headgate.core.events import Event, PreemptionPlanned
from headgate.placement.ledger import PlacementLedger
from headgate.placement.outbox import Command
from headgate.placement.outcomes import Changes
from headgate.placement.pool import Group, GroupState
from headgate.placement.request import Stage
from headgate.placement.service.journal import Journal, Writes
from headgate.placement.service.protocol import Told

KEPT_EVENTS: Final = 10_000
_RECENT: Final = 10
_ALLOCATED: Final = frozenset({GroupState.HELD, GroupState.QUARANTINED})


class EventHistory:
    """Counts preemptions and keeps the latest events. Owned by the service; `as_meta` is journalled with it."""

    def __init__(self, written: Mapping[str, Any] | None = None) -> None:
        written = written or {}
        self.total = int(written.get("total", 0))
        self.by_reason: dict[str, int] = dict(written.get("by_reason", {}))
        self.recent: deque[dict[str, Any]] = deque(written.get("recent", ()), maxlen=_RECENT)
        self._events: deque[Told] = deque(maxlen=KEPT_EVENTS)
        self._number = 0

    def take(self, event: Event, wall: float) -> bool:
        """Store an event; return whether the preemption counters have changed."""
        self._number += 1
        fields = {each.name: getattr(event, each.name) for each in dataclasses.fields(event)}
        self._events.append(Told(self._number, wall, type(event).__name__, fields))
        if not isinstance(event, events.WorkPreempted):
            return False
        self.total += 1
        self.by_reason[event.reason] = self.by_reason.get(event.reason, 0) + 1
        self.recent.append({"timestamp": wall, "task_id": event.request, "preemptor_task_id": event.by} | fields)
        return True

    def since(self, number: int) -> tuple[Told, ...]:
        """Return the events after a number, in order; the oldest may have been dropped."""
        return tuple(told for told in self._events if told.number > number)

    def as_meta(self) -> dict[str, Any]:
        """Return the counters as they are journalled."""
        return {"total": self.total, "by_reason": self.by_reason, "recent": list(self.recent)}

    def stats(self, running: int) -> dict[str, Any]:
        """Return the preemption counters."""
        cross = self.by_reason.get("cross_pool_preemption", 0)
        return {
            "total_preemptions": self.total,
            "same_pool_preemptions": self.total - cross,
            "cross_pool_preemptions": cross,
            "preemptions_by_reason": dict(self.by_reason),
            "running_tasks": running,
            "recent_preemptions": list(self.recent),
        }


def pool_stats(pool: str, groups: Iterable[Group]) -> dict[str, Any]:
    """Return the group counters of one pool."""
    theirs = [group for group in groups if group.pool == pool]
    states = [group.state for group in theirs]
    return {
        "pool_name": pool,
        "total_pgs": len(theirs),
        "high_priority_pgs": sum(group.reserved is not None for group in theirs),
        "dynamic_pgs": sum(group.reserved is None for group in theirs),
        "allocated_pgs": sum(state in _ALLOCATED for state in states),
        "available_pgs": states.count(GroupState.FREE),
        "total_reuse_count": sum(max(0, group.uses - 1) for group in theirs),
        "by_status": {state.value: states.count(state) for state in dict.fromkeys(states)},
    }


KEPT_ENDED_S: Final = 3_600.0
KEPT_ENDED: Final = 10_000
"""How long, and how many, ended requests are kept for drivers that ask later."""

_ON_THE_WAY: Final = frozenset({Stage.CLEARING, Stage.PLACING})
_SHORTEST_TIMER_S: Final = 1e-3
_NOTHING: Final = Writes()

T = TypeVar("T")
_log = logging.getLogger("headgate.placement")


class Feeds:
    """Changed requests per driver, by a number that grows with every change. Owned by the service.

    A driver that asks again with the same number gets the same changes, so a lost answer loses nothing.
    """

    def __init__(self) -> None:
        self.number = 0
        self._changed: dict[str, OrderedDict[str, int]] = {}
        self._watchers: dict[str, set[str]] = {}
        self._waiting: dict[str, asyncio.Event] = {}

    def watch(self, driver: str, request_ids: Iterable[str]) -> None:
        """Let a driver follow requests of other drivers; their current state is reported at once."""
        for request_id in request_ids:
            self._watchers.setdefault(request_id, set()).add(driver)
            self.tell(driver, request_id)

    def note(self, holder: str, request_id: str, *, is_news: bool = True) -> None:
        """Record that a request has changed; without `is_news` the change waits for the next answer."""
        for driver in {holder} | self._watchers.get(request_id, set()):
            self.tell(driver, request_id, is_news=is_news)

    def forget(self, request_id: str) -> None:
        """Drop a request that no longer exists, also for drivers that held it before its last holder."""
        self._watchers.pop(request_id, None)
        for driver, changed in list(self._changed.items()):
            changed.pop(request_id, None)
            if not changed:
                del self._changed[driver]

    def since(self, driver: str, number: int) -> list[str]:
        """Return the requests of a driver that have changed after a number, in the order of their changes."""
        found: list[str] = []
        for request_id, at in reversed(self._changed.get(driver, {}).items()):
            if at <= number:
                break
            found.append(request_id)
        return found[::-1]

    async def wait(self, driver: str, number: int, timeout_s: float) -> list[str]:
        """Return the requests that have changed after a number, as soon as there are any, or after `timeout_s`."""
        if not (found := self.since(driver, number)) and timeout_s > 0:
            woken = self._waiting.setdefault(driver, asyncio.Event())
            try:
                await until_set(woken, timeout_s)
            finally:
                if self._waiting.get(driver) is woken:
                    self.wake(driver)  # end any other pending wait of this driver on the same event; it will ask again
            found = self.since(driver, number)
        return found

    def wake_all(self) -> None:
        """Answer all waiting drivers."""
        for driver in list(self._waiting):
            self.wake(driver)

    def tell(self, driver: str, request_id: str, *, is_news: bool = True) -> None:
        """Report a request with a driver's next answer; with `is_news`, answer now."""
        self.number += 1
        changed = self._changed.setdefault(driver, OrderedDict())
        changed[request_id] = self.number
        changed.move_to_end(request_id)
        if is_news:
            self.wake(driver)

    def wake(self, driver: str) -> None:
        """Answer a driver, if it is waiting."""
        if (woken := self._waiting.pop(driver, None)) is not None:
            woken.set()


class Steps:
    """The ledger with its journal, timer, feeds and events. Owned by the service; called from its event loop only.

    Invariant: everything reported to a driver or done in the cluster has been journalled before.
    """

    def __init__(
        self,
        ledger: PlacementLedger,
        journal: Journal,
        clock: Clock,
        emit: Callable[[Event], None],
        carry_out: Callable[[Command], None],
        on_fatal: Callable[[JournalError], None],
    ) -> None:
        self.ledger = ledger
        self.journal = journal
        self.feeds = Feeds()
        self.history = EventHistory(journal.meta("tally"))
        self._clock = clock
        self._emit = emit
        self._carry_out = carry_out
        self._on_fatal = on_fatal
        self._timer: asyncio.TimerHandle | None = None
        now = clock.monotonic()  # requests that ended before this start count as ended now
        self._ended = OrderedDict((name, now) for name, each in ledger.requests.items() if each.stage.has_ended)
        self._is_open = True

    def do(self, act: Callable[[PlacementLedger, float], T], writes: Writes = _NOTHING) -> T:
        """Call the ledger, let it decide, journal the changes, and start carrying out the commands.

        Raises:
            HeadgateError: the ledger refuses the call; nothing has changed.
            JournalError: the step could not be journalled: the service ends, and carries out no command of the step.
        """
        if not self._is_open:
            raise JournalError("The placement ledger has ended", next_step="Connect again: that starts a new one.")
        now = self._clock.monotonic()
        answer = act(self.ledger, now)
        began = self._clock.monotonic()
        commands = self.ledger.decide(now)
        took_ms = 1_000 * (self._clock.monotonic() - began)
        events = [  # the duration of the decision is added here, as the ledger itself reads no clock
            replace(event, evaluated_ms=took_ms) if isinstance(event, PreemptionPlanned) else event
            for event in self.ledger.outbox.take_events()
        ]
        changes = self.ledger.outbox.take_changes()
        self._journal_step(changes, events, writes, now)
        for request_id in changes.requests:
            self._tell(request_id)
        for event in events:
            self._emit(event)
        self._arm(now)
        for command in commands:
            self._carry_out(command)
        return answer

    def forget_old(self) -> None:
        """Drop requests that ended long ago."""
        if self._ended and self._is_old(self._clock.monotonic()):
            self.do(self._forget)

    def close(self) -> None:
        """Stop deciding, and answer all waiting drivers."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self.feeds.wake_all()

    def _forget(self, ledger: PlacementLedger, now: float) -> None:
        while self._ended and self._is_old(now):
            request_id, _ = self._ended.popitem(last=False)
            ledger.forget(request_id)

    def _is_old(self, now: float) -> bool:
        oldest = next(iter(self._ended.values()))
        return len(self._ended) > KEPT_ENDED or now - oldest > KEPT_ENDED_S

    def _journal_step(self, changes: Changes, events: list[Event], writes: Writes, now: float) -> None:
        counted = [self.history.take(event, self._clock.wall()) for event in events]
        if any(counted):
            writes = replace(writes, meta={**writes.meta, "tally": self.history.as_meta()})
        if not changes and writes == _NOTHING:
            return
        requests = {name: self.ledger.requests.get(name) for name in changes.requests}
        spent = [name for name, each in requests.items() if each is not None and each.stage.has_ended]
        for name in spent:
            self._ended.setdefault(name, now)
        try:
            self.journal.commit(
                replace(
                    writes,
                    pools={name: self.ledger.pools.get(name) for name in changes.pools},
                    groups={name: self.ledger.groups.get(name) for name in changes.groups},
                    requests=requests,
                    durations={name: self.ledger.durations.counts.get(name) for name in changes.durations},
                    spent=spent,
                )
            )
        except JournalError as error:
            # Memory is now ahead of the journal: any further decision would be based on what a restart does not know.
            _log.critical("The placement ledger ends: %s", error)
            self.close()
            self._on_fatal(error)
            raise

    def _tell(self, request_id: str) -> None:
        request = self.ledger.requests.get(request_id)
        if request is None:
            self.feeds.forget(request_id)
        else:
            # Before its first start a driver waits only until the request runs, so the stages before that are no news.
            is_news = request.stage not in _ON_THE_WAY and (request.stage is not Stage.WAITING or request.epoch > 0)
            self.feeds.note(request.holder, request_id, is_news=is_news)

    def _arm(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.ledger.outbox.next_wake()
        if at is not None and self._is_open:
            self._timer = asyncio.get_running_loop().call_later(max(_SHORTEST_TIMER_S, at - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._is_open:
            self.do(lambda _ledger, _now: None)  # lets the ledger act on deadlines that have passed
