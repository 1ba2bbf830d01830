"""Replays a trace through the placement ledger itself; a simulated cluster carries out its commands."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headgate.core import events as told
from headgate.core.events import Event
from headgate.placement import PlacementLedger
from headgate.placement.outbox import Command, CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import Pool
from headgate.placement.request import Occupancy, Stage
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import giving_way, lost_work, refusal, runner
from headgate_replay.placement.bounds import Stoppable, judged
from headgate_replay.placement.engine import Engine, Free, Outcome, OvercommittedError, Policy, Shape, replayed
from headgate_replay.placement.jobs import Cluster, Trace

_POOL: Final = "trace"
_DRIVER: Final = "replay"
_SOON_S: Final = 1e-3


def through_ledger(trace: Trace, cluster: Cluster, rules: PreemptionRules, *, validates: bool = False) -> Outcome:
    """Replay a trace through the placement ledger and return the outcome.

    `validates` checks the ledger's invariants after every step; it is slow and meant for tests.

    Raises:
        OvercommittedError: if the ledger gave out more than a node has, or left work waiting forever.
    """
    outcome = replayed(trace, cluster, LedgerDriver(rules, validates=validates))
    if left := outcome.finished_s.count(None):
        raise OvercommittedError(f"the ledger left {left} jobs waiting forever")
    return outcome


class LedgerDriver(Policy):
    """The placement ledger as a policy, with its groups on the simulated cluster.

    The driver that the ledger knows never disappears here. Invariant: the engine's room is the nodes' capacity without
    the existing groups; the ledger never makes it negative.
    """

    name = "headgate"
    says = "The placement ledger: bands, ageing, backfill, and the set of victims that loses the least work."

    def __init__(self, rules: PreemptionRules, *, validates: bool) -> None:
        self._rules = rules
        self._validates = validates
        self._ledger = PlacementLedger(LedgerSettings(driver_lease_s=math.inf), rules)
        self._groups: dict[str, tuple[Shape, tuple[int, ...]]] = {}
        self._starts: dict[int, StartWork] = {}
        self._saves: list[tuple[float, str, int]] = []

    def open(self, engine: Engine) -> None:
        """Make the cluster and its pool known to the ledger."""
        super().open(engine)
        self._jobs = {job.job_id: position for position, job in enumerate(engine.trace.jobs)}
        self._pool = Pool(_POOL, engine.cluster.total, engine.cluster.reserved, max_dynamic=None)
        self._ledger.see_nodes(engine.cluster.nodes, 0.0)
        self._ledger.open_pool(self._pool, 0.0)
        self.decide()

    def arrived(self, job: int) -> None:
        """Submit a new job."""
        self._ledger.submit(self.engine.trace.jobs[job].request(_POOL), _DRIVER, self.engine.now)

    def freed(self, job: int) -> None:
        """Tell the ledger that work is done or dead."""
        start, now = self._starts.pop(job), self.engine.now
        if self.engine.finished_s[job] is None:
            self._ledger.work_stopped(start.request_id, start.epoch, now, saved=False, dead=True)
        else:
            self._ledger.work_ended(start.request_id, start.epoch, now)
            self._ledger.forget(start.request_id)

    def decide(self) -> None:
        """Let the ledger decide and carry out its commands."""
        now, agenda = self.engine.now, self.engine.agenda
        self._tell_checkpoints(now)
        commands = self._ledger.decide(now)
        if self._validates:
            self._ledger.validate()
        self._judge_all(self._ledger.outbox.take_events())
        self._ledger.outbox.take_changes()
        for command in commands:
            self._carry_out(command, now)
        wake_at = self._ledger.outbox.next_wake()
        if wake_at is not None and wake_at < agenda.next_s:
            agenda.plan(max(wake_at, now + _SOON_S), lambda _now: None)

    def _carry_out(self, command: Command, now: float) -> None:
        room, latencies, plan = self.engine.room, self.engine.cluster.latencies, self.engine.agenda.plan
        match command:
            case CreateGroup():
                nodes = room.places(command.nodes)
                shape = room.shape_of(command.shape.bundles, command.shape.strategy)
                room.take(shape, nodes)
                self._groups[command.group_id] = shape, nodes
                plan(now + latencies.create_s, partial(self._created, command))
            case RemoveGroup():
                plan(now + latencies.remove_s, partial(self._removed, command))
            case StartWork():
                self._start(command, now)
            case StopWork(request_id=name, epoch=epoch):
                if not self._runs(name, epoch):
                    raise OvercommittedError(f"the ledger stops {name} of epoch {epoch}, which is not running")
                self.engine.stop(self._jobs[name])

    def _created(self, command: CreateGroup, now: float) -> None:
        self._ledger.group_created(command.group_id, command.epoch, command.nodes, now)

    def _removed(self, command: RemoveGroup, now: float) -> None:
        self.engine.room.give(*self._groups.pop(command.group_id))
        self._ledger.group_gone(command.group_id, command.epoch, now)

    def _start(self, command: StartWork, now: float) -> None:
        engine, job = self.engine, self._jobs[command.request_id]
        if any(self._starts[other].group_id == command.group_id for other in engine.running):
            raise OvercommittedError(f"group {command.group_id} was given to {command.request_id} while it was held")
        self._starts[job] = command
        engine.start(job, self._groups[command.group_id][1], delay_s=0.0, takes_room=False)
        engine.agenda.plan(now + engine.cluster.latencies.start_s, partial(self._began, command))

    def _runs(self, request_id: str, epoch: int) -> bool:
        job = self._jobs[request_id]
        return job in self.engine.running and self._starts[job].epoch == epoch

    def _began(self, command: StartWork, now: float) -> None:
        if not self._runs(command.request_id, command.epoch):
            return
        self._ledger.work_started(command.request_id, command.epoch, now)
        work = self.engine.works[self._jobs[command.request_id]]
        if work.job.checkpoint_every_s is not None:
            saved_at = now + work.restart_s + work.job.checkpoint_every_s
            heapq.heappush(self._saves, (saved_at, command.request_id, command.epoch))

    def _tell_checkpoints(self, now: float) -> None:
        """Tell the ledger the last checkpoint of each job; earlier ones do not change its decisions."""
        saves = self._saves
        while saves and saves[0][0] <= now:
            _, name, epoch = heapq.heappop(saves)
            if not self._runs(name, epoch):
                continue
            work = self.engine.works[self._jobs[name]]
            saved_at, every = work.checkpoint_s(now), work.job.checkpoint_every_s
            self._ledger.saved(name, epoch, saved_at)
            # Rounding may put the next checkpoint at this very moment.
            heapq.heappush(saves, (max(saved_at + (every or math.inf), now + _SOON_S), name, epoch))

    def _judge_all(self, happened: Sequence[Event]) -> None:
        """Record the state at each decision to stop work, before the commands are carried out."""
        later: set[str] = set()
        for event in reversed(happened):
            if isinstance(event, told.PreemptionPlanned):
                self._judge(event, later - {event.request})
            if isinstance(event, told.WorkPlaced):
                later.add(event.request)

    def _judge(self, event: told.PreemptionPlanned, later: set[str]) -> None:
        engine, requests = self.engine, self._ledger.requests
        victims, others = {}, []
        for job in engine.running:
            occupancy = requests[self._starts[job].request_id]
            if occupancy.stopped_for in later:  # it was still running: the job that it is stopped for came later
                occupancy = replace(occupancy, stage=Stage.RUNNING)
            if occupancy.request_id in event.victims:
                victims[job] = self._stoppable(job, occupancy)
            elif self._may_stop(requests[event.request], job, occupancy):
                others.append(self._stoppable(job, occupancy))
        free = self._free_for(event.request, frozenset(event.victims), later)
        shape = engine.shapes[self._jobs[event.request]]
        engine.judgements.append(partial(judged, shape, free, victims, others))

    def _may_stop(self, preemptor: Occupancy, job: int, victim: Occupancy) -> bool:
        entitled = self._pool.reserved_from_priority
        is_reserved = self._ledger.groups[self._starts[job].group_id].reserved is not None
        on_loan = is_reserved and victim.request.priority < entitled <= preemptor.request.priority
        now = self.engine.now
        as_it_stands = runner(victim, self._ledger.durations, self._rules, now)
        shorter = bool(giving_way(preemptor, [as_it_stands], self._rules, in_turn=False))
        return (
            refusal(preemptor.request, victim, self._pool, self._rules, now, reclaim=on_loan, shorter=shorter) is None
        )

    def _stoppable(self, job: int, occupancy: Occupancy) -> Stoppable:
        shape, nodes = self._groups[self._starts[job].group_id]
        lost = lost_work(occupancy, self.engine.cluster.total, self.engine.now)
        return Stoppable(tuple(zip(nodes, shape.bundles, strict=True)), lost, self.engine.trace.jobs[job].band)

    def _free_for(self, name: str, victims: frozenset[str], later: set[str]) -> Free:
        """Return the room that `name` could take if its victims stopped: not held by others nor promised earlier."""
        room = self.engine.room
        free = [list(units) for units in room.capacity]
        occupants = {self._starts[job].group_id: self._starts[job].request_id for job in self.engine.running}
        for group in self._ledger.groups.values():
            occupant = occupants.get(group.group_id)
            if occupant is None:
                is_held = group.reserved is not None or (group.holder not in {None, name} and group.holder not in later)
            else:
                is_held = occupant in victims or self._stays(occupant, group.heir, later)
            if is_held:
                for node, bundle in zip(room.places(group.nodes), group.shape.bundles, strict=True):
                    free[node] = [have - less for have, less in zip(free[node], room.units_of(bundle), strict=True)]
        return free

    def _stays(self, occupant: str, heir: str | None, later: set[str]) -> bool:
        """Return whether a group is still held at a decision, or its work was stopping for an earlier one."""
        request = self._ledger.requests[occupant]
        return request.stage is not Stage.STOPPING or heir is not None or request.stopped_for in later
