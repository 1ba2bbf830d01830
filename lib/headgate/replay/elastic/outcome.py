"""What a policy made of a load: the record that every figure and table is counted from."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.core import events
from headgate.core.events import Event
from headgate.elastic import WorkerState
from headgate.replay.elastic.load import Site


@dataclass(frozen=True, slots=True)
class Stay:
    """A stretch of time in which a worker held its memory: starting, active, draining, going to sleep.

    Attributes:
        worker: its name.
        woken_s: when it was told to wake; 0 for those that were awake at the start.
        ready_s: when it could answer; None if it was never ready.
        drained_s: when it took no request any more; None if the end came first.
        slept_s: when its memory was free; None if the end came first.
    """

    worker: str
    woken_s: float
    ready_s: float | None
    drained_s: float | None
    slept_s: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one load.

    Attributes:
        policy: its name in tables.
        says: what it does, in a sentence.
        site: the workers.
        ended_s: when the last answer was complete, or the load's window was over if that was later.
        given_s: of each call, when it was given to the worker that answered it; None for those that were lost.
        done_s: of each call, when its answer was complete; None for those that were lost.
        stays: of all workers, in the order in which they began.
        changes: seconds and +1 or -1 for every worker that was started, drained, or turned back while it drained.
        wanted: seconds and number of workers whenever the policy wanted another number.
        hand_overs: calls that were taken from one worker and given to another.
        dropped: calls that were never answered.
        doubled: calls that were answered more than once.
        decisions: how often the policy was asked.
        took_s: real seconds of the replay.
    """

    policy: str
    says: str
    site: Site
    ended_s: float
    given_s: tuple[float | None, ...]
    done_s: tuple[float | None, ...]
    stays: tuple[Stay, ...]
    changes: tuple[tuple[float, int], ...]
    wanted: tuple[tuple[float, int], ...]
    hand_overs: int
    dropped: int
    doubled: int
    decisions: int
    took_s: float


_UP = frozenset({(WorkerState.INACTIVE, WorkerState.STARTING), (WorkerState.DRAINING, WorkerState.ACTIVE)})
_DOWN = frozenset({(WorkerState.ACTIVE, WorkerState.DRAINING), (WorkerState.STARTING, WorkerState.INACTIVE)})


@dataclass(slots=True)
class _OpenStay:
    """A stay that has not ended."""

    worker: str
    woken_s: float
    ready_s: float | None = None
    drained_s: float | None = None

    def closed(self, slept_s: float | None) -> Stay:
        return Stay(self.worker, self.woken_s, self.ready_s, self.drained_s, slept_s)


@dataclass(slots=True)
class Ledger:
    """The record of one replay. Owned by its driver.

    Attributes:
        given_s: of each call, when it was last given to a worker.
        done_s: of each call, when its answer was complete.
        changes: see `Outcome`.
        wanted: see `Outcome`.
        hand_overs: calls that changed hands.
        dropped: calls that were given up.
        doubled: answers that were complete a second time.
    """

    given_s: list[float | None]
    done_s: list[float | None]
    changes: list[tuple[float, int]] = field(default_factory=list)
    wanted: list[tuple[float, int]] = field(default_factory=list)
    hand_overs: int = 0
    dropped: int = 0
    doubled: int = 0
    _open: dict[str, _OpenStay] = field(default_factory=dict)
    _closed: list[Stay] = field(default_factory=list)

    def awake_at_start(self, worker: str) -> None:
        """Note a worker that is awake when the load begins."""
        self._open[worker] = _OpenStay(worker, 0.0, 0.0)

    def note(self, event: Event, now: float) -> None:
        """Take over what the pool tells."""
        match event:
            case events.WorkerChanged():
                self._changed(event, now)
            case events.ScaleDecided(workers=workers):
                self.wanted.append((now, workers))
            case events.RequestHandedOver():
                self.hand_overs += 1
            case events.RequestLost():
                self.dropped += 1
            case _:
                pass

    def answered(self, call: int, now: float) -> None:
        """Note an answer that is complete."""
        if self.done_s[call] is not None:
            self.doubled += 1
        self.done_s[call] = now

    def stays(self) -> tuple[Stay, ...]:
        """Return all stays, open ones too, in the order in which they began."""
        every = [*self._closed, *(stay.closed(None) for stay in self._open.values())]
        return tuple(sorted(every, key=lambda stay: (stay.woken_s, stay.worker)))

    def _changed(self, event: events.WorkerChanged, now: float) -> None:
        edge = (WorkerState(event.before), WorkerState(event.after))
        if edge in _UP:
            self.changes.append((now, 1))
        elif edge in _DOWN:
            self.changes.append((now, -1))
        after = edge[1]
        if after is WorkerState.STARTING:
            self._open[event.worker] = _OpenStay(event.worker, now)
        stay = self._open.get(event.worker)
        if stay is None:
            return
        if after is WorkerState.ACTIVE:
            stay.ready_s = now if stay.ready_s is None else stay.ready_s
            stay.drained_s = None
        elif after is WorkerState.DRAINING:
            stay.drained_s = now
        elif after is WorkerState.INACTIVE:
            self._closed.append(self._open.pop(event.worker).closed(now))
