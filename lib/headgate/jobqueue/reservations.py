"""Which job uses which policy server: reservations, the waiting lines, and the servers themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count

from headgate.core import TimerHeap
from headgate.jobqueue.errors import UnknownResourceError, WrongStateError
from headgate.jobqueue.job import Job, Lane
from headgate.jobqueue.lane_groups import LaneGroups
from headgate.jobqueue.matching import Loads, Waiter, WaitingLines, best
from headgate.jobqueue.outcomes import Instant, LeaseRef, NoneFree, ReservationRef, Reserved, Settled, Stale, Waiting
from headgate.jobqueue.records import Happening
from headgate.jobqueue.resource import Resource, ResourceSpec, ResourceState
from headgate.jobqueue.working_set import WorkingSet


class Reservations:
    """The servers' half of the ledger, which owns it.

    Invariants: one address is one server, held by at most one job, and a job holds at most one server; while a job
    waits, no free open server serves it (once `settle` has run).
    """

    def __init__(
        self, working_set: WorkingSet, tickets: count[int], new_lease_id: Callable[[], str], at: Instant
    ) -> None:
        self.loads = Loads()
        self.groups = LaneGroups(working_set.lanes, self.loads)
        self.lines = WaitingLines()
        self._working_set = working_set
        self._tickets = tickets
        self._new_lease_id = new_lease_id
        self._deadlines = TimerHeap()
        self._held: dict[str, str] = {}
        self._first_asked: dict[str, float] = {}
        self._asked_again: set[str] = set()
        self._freed: set[str] = set()
        self._settled: list[Settled] = []
        self._known: dict[tuple[str, int], str] = {}
        same: dict[tuple[str, int], list[Resource]] = {}
        for resource in sorted(
            working_set.resources.values(), key=lambda resource: (resource.index, resource.spec.pool)
        ):
            self.loads.put(resource)
            same.setdefault(resource.spec.address, []).append(resource)
            if not resource.is_free:
                self._held[resource.job_id] = resource.resource_id
                self._deadlines.set(resource.resource_id, at.now + resource.lease_s)
        for address, resources in same.items():
            self._known[address] = self._united(resources, at)

    def held_by(self, job_id: str) -> Resource | None:
        """Return the server that a job holds."""
        resource_id = self._held.get(job_id)
        return self._working_set.resources[resource_id] if resource_id is not None else None

    def reserve(self, job: Job, at: Instant, *, lease_s: float, wait: bool) -> Reserved | NoneFree | Waiting:
        """Give a running job the server that it holds, a free one that serves it, or a place in line."""
        pool, task = job.spec.pool, job.spec.task
        self._serve(at)  # a server freed a moment ago goes to jobs already waiting
        held = self.held_by(job.job_id)
        if held is not None:
            self._deadlines.set(held.resource_id, at.now + held.lease_s)
            self._asked_again.add(held.resource_id)
            return _reserved(held, job)
        since = self._first_asked.setdefault(job.job_id, at.now)
        free = [one for one in self.loads.pool(pool) if _is_available(one) and one.serves(pool, task)]
        if free:
            pools = {spec.pool for one in free for spec in one.specs}
            waiting = [Lane("", waiter.pool, waiter.task) for one in pools for waiter in self.lines.line(one)]
            groups = (self.loads.group_of(lane) for lane in waiting)
            wanted = self.groups.wanted() | {(one.pool, one.task) for one in groups if one is not None}
            resource = best(free, pool, task, wanted)
            assert resource is not None
            return self._assign(resource, job, at, lease_s)
        if not wait:
            return self._none_free(job, since)
        ticket = next(self._tickets)
        ref = LeaseRef(job.job_id, job.lease_id, job.epoch)
        replaced = self.lines.join(Waiter(since, ticket, ref, pool, task, lease_s))
        if replaced is not None:
            # Not stale: after a lost answer, or behind a proxy that sends twice, a live lease asks again.
            self._settled.append(Settled(replaced, self._none_free(job, since)))
        return Waiting(ticket)

    def renew(self, resource_id: str, at: Instant) -> None:
        """Give a running reservation a new lease period."""
        self._deadlines.set(resource_id, at.now + self._working_set.resources[resource_id].lease_s)

    def named(self, ref: ReservationRef) -> Resource | None:
        """Return the server whose running reservation is the one named, or None."""
        resource = self._working_set.resources.get(ref.resource_id)
        if resource is None or resource.is_free or (resource.lease_id, resource.epoch) != (ref.lease_id, ref.epoch):
            return None
        return resource

    def free(self, resource: Resource, at: Instant, what: Happening = Happening.RELEASED, note: str = "") -> None:
        """End the running reservation of a server."""
        self._working_set.note_resource(what, resource, at.wall, note)
        self._deadlines.set(resource.resource_id, None)
        self._asked_again.discard(resource.resource_id)
        del self._held[resource.job_id]
        self._first_asked.pop(resource.job_id, None)
        self._put(replace(resource, lease_id="", job_id="", worker="", lease_s=0.0, reserved_at=0.0))
        self._can_serve(resource)

    def take_back(self, resource: Resource, at: Instant) -> None:
        """End a reservation whose worker never got the answer, unless the worker has asked again since."""
        running = self.named(ReservationRef(resource.resource_id, resource.lease_id, resource.epoch))
        if running is not None and running.resource_id not in self._asked_again:
            self.free(running, at)

    def job_ended(self, job: Job, at: Instant, *, keep_server: bool = False) -> None:
        """End the job's wait for a server, and free the one it holds unless the worker releases that itself."""
        self._first_asked.pop(job.job_id, None)
        ticket = self.lines.leave_job(job.job_id)
        if ticket is not None:
            self._settled.append(Settled(ticket, Stale(job.job_id, "the claim that asked for a server has ended")))
        held = self.held_by(job.job_id)
        if held is not None and not keep_server:
            self.free(held, at)
        self.loads.ended(job)

    def expire(self, at: Instant) -> None:
        """End the reservations that were not renewed in time."""
        for resource_id in self._deadlines.pop_passed(at.now):
            resource = self._working_set.resources[resource_id]
            note = f"not renewed for {resource.lease_s:g} s"
            self.free(resource, at, Happening.RESERVATION_EXPIRED, note)

    def extend_all(self, at: Instant) -> None:
        """Give every running reservation a full new period."""
        for resource_id in self._held.values():
            self.renew(resource_id, at)

    def next_deadline(self) -> float | None:
        """Return when the next reservation expires unless it is renewed."""
        return self._deadlines.next_at()

    def settle(self, at: Instant) -> list[Settled]:
        """Give freed servers to the longest waiters; return the outcomes of waiters since the last call."""
        self._serve(at)
        settled, self._settled = self._settled, []
        return settled

    def add(self, specs: Sequence[ResourceSpec], at: Instant) -> list[Resource]:
        """Register servers; one whose address is known stays one server, with the rules of each pool that names it."""
        return [self._add(spec, at) for spec in specs]

    def change(self, resource_id: str, state: ResourceState, note: str, at: Instant) -> Resource:
        """Open, drain or take down a server; a job that uses it keeps it.

        Raises:
            UnknownResourceError: no server has this id.
        """
        resource = self.resource(resource_id)
        if (resource.state, resource.note) == (state, note):
            return resource
        changed = replace(resource, state=state, note=note)
        self._put(changed)
        self._working_set.note_resource(
            Happening.RESOURCE_CHANGED, changed, at.wall, f"{state}: {note}" if note else state
        )
        self._can_serve(changed)
        return changed

    def remove(self, resource_id: str, at: Instant, *, even_if_held: bool, note: str = "") -> None:
        """Remove a server from all pools that name it.

        Raises:
            UnknownResourceError: no server has this id.
            WrongStateError: a job uses it, and `even_if_held` is false.
        """
        resource = self.resource(resource_id)
        if not resource.is_free:
            if not even_if_held:
                raise WrongStateError(
                    f"server {resource_id} is used by job {resource.job_id!r}",
                    next_step="Drain it first, or remove it by force: its worker then loses the server.",
                )
            self.free(resource, at, note=note or "the server was removed")
            resource = self.resource(resource_id)
        self.loads.remove(resource)
        self._known.pop(resource.spec.address, None)
        self._working_set.remove_resource(resource)
        self._working_set.note_resource(Happening.RESOURCE_REMOVED, resource, at.wall, note)

    def resource(self, resource_id: str) -> Resource:
        """Return a server by its id.

        Raises:
            UnknownResourceError: no server has this id.
        """
        resource = self._working_set.resources.get(resource_id)
        if resource is None:
            raise UnknownResourceError(f"no policy server is called {resource_id!r}")
        return resource

    def _add(self, spec: ResourceSpec, at: Instant) -> Resource:
        known = self._working_set.resources.get(self._known.get(spec.address, ""))
        if known is not None and known.spec_in(spec.pool) == spec:
            return known
        resource = Resource(spec, self._working_set.next_index(spec.pool)) if known is None else known.renamed(spec)
        self._known[spec.address] = resource.resource_id
        self._put(resource)
        what = Happening.RESOURCE_ADDED if known is None else Happening.RESOURCE_CHANGED
        as_pool = "" if spec.pool == resource.spec.pool else f" as a server of {spec.pool}"
        self._working_set.note_resource(what, resource, at.wall, f"{spec.host}:{spec.port}{as_pool}")
        self._can_serve(resource)
        return resource

    def _united(self, same: Iterable[Resource], at: Instant) -> str:
        """Merge the servers of one address, which earlier versions kept one per pool; return the id of what remains.

        The newest epoch stays, as policy servers refuse older ones: other reservations end, and their jobs go back.
        """
        kept, *others = sorted(same, key=lambda one: (-one.epoch, one.is_free, one.reserved_at))
        for one in others:
            self.remove(one.resource_id, at, even_if_held=True, note=f"{kept.resource_id} is the same server")
            self._known[kept.spec.address] = kept.resource_id
            for spec in one.specs:
                if kept.spec_in(spec.pool) is None:
                    kept = self._add(spec, at)
        drained = next((one for one in others if one.state is ResourceState.DRAINING), kept)
        return self.change(kept.resource_id, drained.state, drained.note, at).resource_id

    def _can_serve(self, resource: Resource) -> None:
        """Offer the server, if it is free and open, to waiters at the next opportunity."""
        self._freed.update(spec.pool for spec in resource.specs)

    def _serve(self, at: Instant) -> None:
        if not self._freed:
            return
        pools = sorted(self._freed)
        self._freed.clear()
        free = {one.resource_id: one for pool in pools for one in self.loads.pool(pool) if _is_available(one)}
        for waiter, resource in self.lines.matches(pools, free.values()):
            job = self._working_set.running[waiter.ref.job_id]
            self._settled.append(Settled(waiter.ticket, self._assign(resource, job, at, waiter.lease_s)))

    def _none_free(self, job: Job, since: float) -> NoneFree:
        ahead = sum(waiter.since < since for waiter in self.lines.line(job.spec.pool))
        return NoneFree(ahead, len(self.loads.serving(job.spec.pool, job.spec.task)))

    def _assign(self, resource: Resource, job: Job, at: Instant, lease_s: float) -> Reserved:
        assigned = replace(
            resource,
            epoch=resource.epoch + 1,
            lease_id=self._new_lease_id(),
            job_id=job.job_id,
            worker=job.worker,
            lease_s=lease_s,
            reserved_at=at.wall,
        )
        self._put(assigned)
        self._held[job.job_id] = resource.resource_id
        self.loads.reserved(job.job_id, resource.resource_id)
        self._deadlines.set(resource.resource_id, at.now + lease_s)
        self._working_set.note_resource(Happening.RESERVED, assigned, at.wall)
        return _reserved(assigned, job)

    def _put(self, resource: Resource) -> None:
        self._working_set.put_resource(resource)
        self.loads.put(resource)

    def validate(self) -> None:
        """Assert the invariants."""
        self.loads.validate()
        self.groups.validate()
        self.lines.validate()
        self._deadlines.validate()
        held = {r.job_id: r.resource_id for r in self._working_set.resources.values() if not r.is_free}
        assert held == self._held
        assert len(self._deadlines) == len(held)
        if not self._freed:
            for pool in self.loads.pools():
                _validate_no_idle(self.lines.line(pool), list(self.loads.pool(pool)))
        assert self._known == {
            spec.address: r.resource_id for r in self._working_set.resources.values() for spec in r.specs
        }
        assert len(self._known) == len(self._working_set.resources)


def _reserved(resource: Resource, job: Job) -> Reserved:
    spec = resource.spec_in(job.spec.pool)
    assert spec is not None, "a job only gets servers that its pool names"
    return Reserved(resource, spec)


def _is_available(resource: Resource) -> bool:
    return resource.is_free and resource.state is ResourceState.OPEN


def _validate_no_idle(line: Iterable[Waiter], servers: Iterable[Resource]) -> None:
    available = [resource for resource in servers if _is_available(resource)]
    for waiter in line:
        assert not any(resource.serves(waiter.pool, waiter.task) for resource in available), waiter
