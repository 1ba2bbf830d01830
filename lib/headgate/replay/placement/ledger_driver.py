"""A trace through the placement ledger itself: its commands are carried out by a simulated cluster."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.core import events as told
from headgate.core.events import Event
from headgate.placement import PlacementLedger
from headgate.placement.commands import Command, CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.occupancy import Stage
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import Pool
from headgate.placement.rules import PreemptionRules
from headgate.replay.errors import OvercommittedError
from headgate.replay.placement.bounds import Asker, Holding, Question, answered
from headgate.replay.placement.engine import Attempt, Free, Outcome, Room, Work
from headgate.replay.placement.jobs import Cluster, Trace

NAME: Final = "headgate"
SAYS: Final = "The placement ledger: bands, ageing, backfill, and the set of victims that loses least."

_POOL: Final = "trace"
_DRIVER: Final = "replay"
_SOON_S: Final = 1e-3

_ARRIVED, _CREATED, _GONE, _BEGUN, _ENDED, _STOPPED, _AWAKE = range(7)
_Event = tuple[float, int, int, str, int]


def through_ledger(
    trace: Trace,
    cluster: Cluster,
    rules: PreemptionRules,
    settings: LedgerSettings | None = None,
    *,
    checks_decisions: bool = True,
    validates: bool = False,
) -> Outcome:
    """Return what the placement ledger makes of a trace.

    Args:
        trace: the jobs.
        cluster: the nodes, how long they take for what they are told, and the reserved groups.
        rules: who may be stopped for whom.
        settings: of the ledger; its driver never goes away here.
        checks_decisions: compare each preemption with the least that it could have lost; counted in no time.
        validates: check the ledger's invariants after every step; slow, for tests.

    Raises:
        OvercommittedError: the ledger gave out more than a node has, or left work waiting for ever.
    """
    began = time.perf_counter()
    replay = _Replay(trace, cluster, rules, settings or LedgerSettings(driver_lease_s=math.inf), validates=validates)
    replay.asks = checks_decisions
    replay.play()
    took_s = time.perf_counter() - began
    decisions = tuple(found for question in replay.questions if (found := answered(question)) is not None)
    return Outcome(NAME, SAYS, tuple(replay.attempts), tuple(replay.finished_s), decisions, took_s)


class _Replay:
    """The simulated cluster and the ledger's driver.

    Invariant: `room` is what the nodes have beside the groups that exist; the ledger never makes it negative.
    """

    def __init__(
        self, trace: Trace, cluster: Cluster, rules: PreemptionRules, settings: LedgerSettings, *, validates: bool
    ) -> None:
        self.attempts: list[Attempt] = []
        self.finished_s: list[float | None] = [None] * len(trace.jobs)
        self.questions: list[Question] = []
        self.asks = True
        self._validates = validates
        self._trace = trace
        self._latencies = cluster.latencies
        self._room = Room(cluster.nodes)
        self._pool = Pool(_POOL, cluster.total, cluster.reserved, max_dynamic=None)
        self._asker = Asker(rules, self._pool, cluster.total)
        self._works = {job.job_id: Work(position, job) for position, job in enumerate(trace.jobs)}
        self._groups: dict[str, Holding] = {}
        self._held: dict[str, Holding] = {}
        self._group_of: dict[str, str] = {}
        self._epochs: dict[str, int] = {}
        self._saves: list[tuple[float, str, int]] = []
        self._left = len(trace.jobs)
        self._count = itertools.count()
        self._events: list[_Event] = [(job.arrived_s, next(self._count), _ARRIVED, job.job_id, 0) for job in trace.jobs]
        heapq.heapify(self._events)
        self._ledger = PlacementLedger(settings, rules)
        self._ledger.see_nodes(cluster.nodes, 0.0)
        self._ledger.open_pool(self._pool, 0.0)

    def play(self) -> None:
        """Run until every job is done."""
        events = self._events
        self._decide(0.0)
        while self._left:
            if not events:
                raise OvercommittedError(f"the ledger left {self._left} jobs waiting for ever")
            now = events[0][0]
            while events and events[0][0] <= now:
                _, _, kind, name, epoch = heapq.heappop(events)
                self._apply(kind, name, epoch, now)
            self._decide(now)

    def _decide(self, now: float) -> None:
        self._tell_checkpoints(now)
        commands = self._ledger.decide(now)
        if self._validates:
            self._ledger.validate()
        happened = self._ledger.take_events()
        if self.asks and happened:
            self._ask_all(happened, now)
        self._ledger.take_changes()
        for command in commands:
            self._carry_out(command, now)
        wake_at = self._ledger.next_at()
        if wake_at is not None and (not self._events or wake_at < self._events[0][0]):
            self._at(max(wake_at, now + _SOON_S), _AWAKE, "", 0)

    def _apply(self, kind: int, name: str, epoch: int, now: float) -> None:
        ledger = self._ledger
        if kind == _ARRIVED:
            ledger.submit(self._works[name].job.request(_POOL), _DRIVER, now)
        elif kind == _CREATED:
            group = self._groups[name]
            ledger.group_created(name, epoch, tuple(self._node_id(node) for node in group.nodes), now)
        elif kind == _GONE:
            group = self._groups.pop(name)
            self._room.give(group.shape, group.nodes)
            ledger.group_gone(name, epoch, now)
        elif kind == _STOPPED:
            ledger.work_stopped(name, epoch, now, saved=False, dead=True)
        elif kind in {_BEGUN, _ENDED} and self._epochs.get(name) == epoch:
            if kind == _BEGUN:
                self._begin(name, epoch, now)
            else:
                self._end(name, epoch, now)

    def _begin(self, name: str, epoch: int, now: float) -> None:
        work = self._works[name]
        self._at(work.begin(now), _ENDED, name, epoch)
        self._ledger.work_started(name, epoch, now)
        if work.job.checkpoint_every_s is not None:
            heapq.heappush(self._saves, (now + work.restart_s + work.job.checkpoint_every_s, name, epoch))

    def _end(self, name: str, epoch: int, now: float) -> None:
        work = self._works[name]
        self.attempts.append(work.end(now))
        self.finished_s[work.position] = now
        self._left -= 1
        self._release(name)
        self._ledger.work_ended(name, epoch, now)
        self._ledger.forget(name)

    def _release(self, name: str) -> None:
        del self._held[name], self._group_of[name], self._epochs[name]

    def _carry_out(self, command: Command, now: float) -> None:
        if isinstance(command, CreateGroup):
            nodes = self._room.places(command.nodes)
            shape = self._room.shape_of(command.shape.bundles, command.shape.strategy)
            self._room.take(shape, nodes)
            reserved = self._ledger.groups[command.group_id].reserved is not None
            self._groups[command.group_id] = Holding(shape, nodes, reserved)
            self._at(now + self._latencies.create_s, _CREATED, command.group_id, command.epoch)
        elif isinstance(command, RemoveGroup):
            self._at(now + self._latencies.remove_s, _GONE, command.group_id, command.epoch)
        elif isinstance(command, StartWork):
            self._start(command, now)
        else:
            self._stop(command, now)

    def _start(self, command: StartWork, now: float) -> None:
        group = self._groups[command.group_id]
        if command.group_id in self._group_of.values():
            raise OvercommittedError(f"group {command.group_id} was given to {command.request_id} while it was held")
        self._works[command.request_id].hold(group.nodes, now)
        self._held[command.request_id] = group
        self._group_of[command.request_id] = command.group_id
        self._epochs[command.request_id] = command.epoch
        self._at(now + self._latencies.start_s, _BEGUN, command.request_id, command.epoch)

    def _stop(self, command: StopWork, now: float) -> None:
        name = command.request_id
        if self._epochs.get(name) != command.epoch:
            raise OvercommittedError(f"the ledger stops {name} of epoch {command.epoch}, which does not run")
        self.attempts.append(self._works[name].stop(now))
        self._release(name)
        self._at(now + min(self._latencies.stop_s, command.timeout_s), _STOPPED, name, command.epoch)

    def _tell_checkpoints(self, now: float) -> None:
        """Tell the ledger of the last checkpoint of each job; those in between change nothing that it decides."""
        saves = self._saves
        while saves and saves[0][0] <= now:
            _, name, epoch = heapq.heappop(saves)
            if self._epochs.get(name) != epoch:
                continue
            work = self._works[name]
            saved_at, every = work.checkpoint_s(now), work.job.checkpoint_every_s
            self._ledger.saved(name, epoch, saved_at)
            # Rounding may put the next one at this very moment.
            heapq.heappush(saves, (max(saved_at + (every or math.inf), now + _SOON_S), name, epoch))

    def _ask_all(self, happened: Sequence[Event], now: float) -> None:
        """Note what stood where at each decision to stop work; the commands are not carried out yet."""
        later: set[str] = set()
        for event in reversed(happened):
            if isinstance(event, told.PreemptionPlanned):
                self._ask(event, later, now)
            if isinstance(event, told.WorkPlaced):
                later.add(event.request)

    def _ask(self, event: told.PreemptionPlanned, later: set[str], now: float) -> None:
        requests = self._ledger.requests
        preemptor = self._works[event.request]
        later = later - {event.request}
        # What is stopped for somebody whose turn came later still ran.
        then = {
            each: replace(requests[each], stage=Stage.RUNNING)
            if requests[each].stopped_for in later
            else requests[each]
            for each in self._held
        }
        chosen, others = self._asker.candidates(requests[event.request], event.victims, then, self._held, now)
        self.questions.append(
            Question(
                now,
                preemptor.position,
                tuple(self._works[victim].position for victim in event.victims),
                self._free_for(event.request, frozenset(event.victims), later),
                self._room.shape_of(preemptor.job.bundles, preemptor.job.strategy),
                chosen,
                others,
            )
        )

    def _free_for(self, name: str, victims: frozenset[str], later: set[str]) -> Free:
        """Return what `name` could have without its victims: what nobody holds or was promised before it."""
        free = [list(units) for units in self._room.capacity]
        occupants = {group_id: each for each, group_id in self._group_of.items()}
        for group in self._ledger.groups.values():
            occupant = occupants.get(group.group_id)
            if occupant is None:
                is_held = group.reserved is not None or (group.holder not in {None, name} and group.holder not in later)
            else:
                is_held = occupant in victims or self._stays(occupant, group.heir, later)
            if is_held:
                for node, bundle in zip(self._room.places(group.nodes), group.shape.bundles, strict=True):
                    units = self._room.units_of(bundle)
                    free[node] = [have - less for have, less in zip(free[node], units, strict=True)]
        return free

    def _stays(self, occupant: str, heir: str | None, later: set[str]) -> bool:
        """Tell whether a group is held at the moment of a decision, or leaves for one that came before it."""
        request = self._ledger.requests[occupant]
        return request.stage is not Stage.STOPPING or heir is not None or request.stopped_for in later

    def _node_id(self, node: int) -> str:
        return self._room.node_ids[node]

    def _at(self, at_s: float, kind: int, name: str, epoch: int) -> None:
        heapq.heappush(self._events, (at_s, next(self._count), kind, name, epoch))
