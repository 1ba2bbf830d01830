"""The placement service: the ledger with its journal, its timers and its executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, Final

from headgate.core import Clock, ReleaseOutcome
from headgate.core.errors import JournalError, NotFoundError
from headgate.core.events import Event
from headgate.placement.backfill import PoolUsage
from headgate.placement.ledger import PlacementLedger
from headgate.placement.outbox import Command
from headgate.placement.outcomes import LedgerSettings, PoolOpened, Why
from headgate.placement.pool import NodeView, Pool
from headgate.placement.request import Occupancy, Stage
from headgate.placement.rules import PreemptionRules, rules_from
from headgate.placement.service.journal import Journal, Writes
from headgate.placement.service.protocol import (
    Beat,
    Executor,
    GroupView,
    Outcome,
    Reach,
    Submission,
    Told,
    WorkView,
    view_of,
)
from headgate.placement.service.reconciler import Reconciler, ours
from headgate.placement.service.steps import Steps, pool_stats
from headgate.placement.service.supervisor import Supervisor

_LONGEST_WAIT_S: Final = 30.0


def _ignored(_: object) -> None:
    """Discard an event or error that has no listener."""


class PlacementService:
    """The methods that drivers call. Each one that changes something decides and journals before it first awaits.

    Owned by one process per cluster; all its methods are called in one event loop.
    """

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        clock: Clock,
        *,
        settings: LedgerSettings | None = None,
        rules: PreemptionRules | None = None,
        emit: Callable[[Event], None] = _ignored,
        on_fatal: Callable[[JournalError], None] = _ignored,
    ) -> None:
        """Restore from an opened journal; `start` compares it with the cluster and starts the ledger.

        This service owns the journal from now on. `rules` apply if the journal has none, `emit` gets every event, and
        `on_fatal` is called when the journal can no longer be written: the process should end.
        """
        self.journal = journal
        now = clock.monotonic()
        held = journal.load(now=now, wall=clock.wall())
        written = journal.meta("rules")
        self._executor = executor
        self._clock = clock
        ledger = PlacementLedger.restore(
            settings or LedgerSettings(),
            (rules or PreemptionRules()) if written is None else rules_from(written),
            generation=journal.generation,
            pools=held.pools,
            groups=held.groups,
            requests=held.requests,
            durations=held.durations,
            now=now,
        )
        self._steps = Steps(ledger, journal, clock, emit, self._carry_out, on_fatal)
        self._reconciler = Reconciler(self._steps, executor)
        self._supervisor = Supervisor(self._steps, executor, clock, self._reconciler)

    @property
    def ledger(self) -> PlacementLedger:
        """The ledger, for reading only."""
        return self._steps.ledger

    @property
    def generation(self) -> int:
        """Number of this opening of the ledger's journal."""
        return self.journal.generation

    async def start(self) -> None:
        """Reconcile the ledger with the cluster, and begin to decide."""
        await self._reconciler.start(self._supervisor.take_up)

    async def close(self) -> None:
        """End the service; work continues in the cluster, and the next service adopts it."""
        self._steps.close()
        await self._reconciler.close()
        await self._supervisor.close()
        self.journal.close()

    # Pools and rules

    def open_pool(self, pool: Pool) -> PoolOpened:
        """Open a pool; see `PlacementLedger.open_pool`."""
        return self._steps.do(lambda ledger, now: ledger.open_pool(pool, now))

    def change_pool(self, pool: Pool) -> None:
        """Change an open pool; see `PlacementLedger.change_pool`."""
        self._steps.do(lambda ledger, now: ledger.change_pool(pool, now))

    def close_pool(self, name: str) -> None:
        """Withdraw a pool's work and remove its groups; see `PlacementLedger.close_pool`."""
        self._steps.do(lambda ledger, now: ledger.close_pool(name, now))

    def remove_group(self, group_id: str) -> bool:
        """Remove a dynamic group once nothing holds it; see `PlacementLedger.remove_group`."""
        return self._steps.do(lambda ledger, now: ledger.remove_group(group_id, now))

    def pools(self) -> tuple[Pool, ...]:
        """Return the open pools."""
        return tuple(self.ledger.pools.values())

    def set_rules(self, rules: PreemptionRules) -> None:
        """Apply other rules, which remain in force after a restart."""
        written = {each.name: getattr(rules, each.name) for each in fields(rules) if each.init}
        self._steps.do(lambda ledger, _: ledger.set_rules(rules), Writes(meta={"rules": written}))

    def rules(self) -> PreemptionRules:
        """Return the rules in force."""
        return self.ledger.rules

    # Demand

    def submit(self, submission: Submission, holder: str) -> bool:
        """Queue a request; return whether it is new. If the id is known, its request passes to this driver.

        Raises:
            UnknownPoolError: its pool is not open.
            CannotFitError: it could never run.
        """
        request = submission.request
        if request.request_id in self.ledger.requests:
            self.hand_over([request.request_id], holder)
            return False
        writes = Writes(payloads={request.request_id: (submission.kind, submission.payload)})
        return self._steps.do(lambda ledger, now: ledger.submit(request, holder, now), writes)

    def hand_over(self, request_ids: Iterable[str], holder: str) -> tuple[str, ...]:
        """Give requests to another driver, whose heartbeats keep them alive from now on; return the known ones."""
        known = tuple(each for each in request_ids if each in self.ledger.requests)

        def act(ledger: PlacementLedger, now: float) -> None:
            for request_id in known:
                ledger.hand_over(request_id, holder, now)

        self._steps.do(act)
        return known

    def withdraw(self, request_id: str, why: str = "") -> bool:
        """End a request, at once if it waits or after a stop if it runs; return whether that changed anything."""
        return self._steps.do(lambda ledger, now: ledger.withdraw(request_id, now, why))

    def withdraw_all(self, holder: str, why: str) -> int:
        """Withdraw all waiting and running requests of a driver; return how many."""
        theirs = [
            each.request_id
            for each in self.ledger.requests.values()
            if each.holder == holder and not each.stage.has_ended
        ]
        return self._steps.do(lambda ledger, now: sum(ledger.withdraw(each, now, why) for each in theirs))

    def leave(self, holder: str) -> None:
        """Answer a driver's pending heartbeat now, as the driver is about to disconnect."""
        self._steps.feeds.wake(holder)

    def complete(self, request_id: str) -> ReleaseOutcome:
        """Take back what a request holds, whatever its current start; one that is waiting again is withdrawn."""
        request = self.ledger.requests.get(request_id)
        if request is None:
            return ReleaseOutcome.UNKNOWN
        return self.release(request_id, request.lease_id, request.epoch)

    def release(self, request_id: str, lease_id: str, epoch: int) -> ReleaseOutcome:
        """Take back a lease exactly once; one that was lost and waits for another place is withdrawn."""

        def act(ledger: PlacementLedger, now: float) -> ReleaseOutcome:
            outcome = ledger.complete(request_id, lease_id, epoch, now)
            request = ledger.requests.get(request_id)
            # The lease was lost and is queued again, but a driver that releases it does not want another one.
            waits_again = request is not None and not request.begun and not request.stage.has_ended
            if outcome is ReleaseOutcome.STALE and request is not None and waits_again and request.epoch == epoch:
                ledger.withdraw(request_id, now, "given back")
                return ReleaseOutcome.RELEASED
            return outcome

        return self._steps.do(act)

    def saved(self, request_id: str, epoch: int) -> bool:
        """Count a request's work as saved up to now."""
        return self._steps.do(lambda ledger, now: ledger.saved(request_id, epoch, now))

    # Queries

    async def beat(self, holder: str, generation: int, number: int, watched: tuple[str, ...], timeout_s: float) -> Beat:
        """Keep a driver's work alive, and answer as soon as one of its requests has changed, or after `timeout_s`.

        `generation` and `number` are those of the driver's last answer, 0 before the first; `watched` are requests of
        other drivers that it also wants to follow.
        """
        feeds = self._steps.feeds
        self._steps.do(lambda ledger, now: ledger.renew(holder, now))
        if generation != self.generation:
            number = 0
            for request_id in [each.request_id for each in self._all() if each.holder == holder]:
                feeds.tell(holder, request_id)
        feeds.watch(holder, (each for each in watched if each in self.ledger.requests))
        changed = await feeds.wait(holder, number, min(timeout_s, _LONGEST_WAIT_S))
        requests = self.ledger.requests
        views = tuple(view_of(requests[each]) for each in changed if each in requests)
        return Beat(self.generation, feeds.number, views)

    def view(self, request_id: str) -> WorkView:
        """Return the state of a request.

        Raises:
            NotFoundError: it is not known.
        """
        request = self.ledger.requests.get(request_id)
        if request is None:
            raise NotFoundError(
                f"There is no request {request_id!r}",
                next_step="Ended requests are kept for an hour; `headgate placement status` lists those there are.",
            )
        return view_of(request)

    def why(self, request_id: str) -> Why:
        """Return what a request is waiting for; raises like `view`."""
        self.view(request_id)
        found = self.ledger.why(request_id, self._clock.monotonic())
        assert found is not None, "it was there a line ago"
        return found

    def result(self, request_id: str) -> Outcome | None:
        """Return how a request's work ended by itself; None if it did not."""
        return self.journal.result(request_id)

    def reach(self, request_id: str) -> Reach | None:
        """Return the handles of running work; None if it does not run."""
        running = self._supervisor.running.get(request_id)
        request = self.ledger.requests.get(request_id)
        if running is None or request is None or request.stage is not Stage.RUNNING:
            return None
        kind, _ = self.journal.payload(request_id)
        return Reach(kind, running.epoch, self._executor.reach(running))

    def requests(self, pool: str | None = None) -> tuple[WorkView, ...]:
        """Return the requests of a pool or of all, including ended ones."""
        return tuple(view_of(each) for each in self._all() if pool in {None, each.request.pool})

    def groups(self, pool: str | None = None) -> tuple[GroupView, ...]:
        """Return the groups of a pool or of all."""
        return tuple(
            GroupView(
                each.group_id,
                each.pool,
                each.state.value,
                each.reserved is not None,
                str(each.size),
                each.nodes,
                each.holder,
                each.uses,
            )
            for each in self.ledger.groups.values()
            if pool in {None, each.pool}
        )

    def usage(self) -> tuple[PoolUsage, ...]:
        """Return how much of each pool's quota is in use; see `PlacementLedger.usage`."""
        return self.ledger.usage(self._clock.monotonic())

    async def nodes(self) -> list[NodeView]:
        """Return the living nodes."""
        return await self._executor.nodes(ours(self.ledger))

    def events(self, since: int = 0) -> tuple[Told, ...]:
        """Return the events after number `since`, as far as they are kept."""
        return self._steps.history.since(since)

    def stats(self) -> dict[str, Any]:
        """Return preemption counters, under ScheduleMesh's keys."""
        running = sum(each.stage in {Stage.RUNNING, Stage.STOPPING} for each in self._all())
        return self._steps.history.stats(running)

    def pool_stats(self, pool: str | None = None) -> dict[str, Any]:
        """Return group counters under ScheduleMesh's keys: of one pool, or of all under `pools`."""
        groups = self.ledger.groups.values()
        if pool is not None:
            return pool_stats(pool, groups)
        return {"pools": {name: pool_stats(name, groups) for name in self.ledger.pools}}

    def _carry_out(self, command: Command) -> None:
        self._supervisor.carry_out(command)

    def _all(self) -> Iterable[Occupancy]:
        return self.ledger.requests.values()
